"""``cp``: copy files to or from a process."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.lookup.find_experiment import find_experiment
from symphony.commandline.commands.lookup.resolve_names import resolve_process
from symphony.commandline.exit_codes import OK
from symphony.commandline.output.byte_progress import ByteProgress
from symphony.commandline.output.terminal import print_note, show_progress
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line
    from symphony.status import ExperimentStatus

COMMAND = Command(
    aliases=("scp",), changes=True, no_tool="it reads and writes files outside the scope"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment(parser)
    parser.add_argument("source", metavar="SOURCE", help="a local path, or PROCESS:PATH")
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="a local path, or PROCESS:PATH; exactly one of the two must be local",
    )


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Copy files or directories to or from a process.

    A path in a process is written as PROCESS:PATH or GROUP/PROCESS:PATH. A pattern that matches
    one process can replace PROCESS. A relative PATH is relative to the process's working
    directory.

    The command works like cp -r: if TARGET is an existing directory, the copy is created in it.
    Write DIRECTORY/. to copy the contents of a directory. An existing file is replaced only
    after the copy is complete. On Kubernetes, the process must be running.

    For example:
      symphony cp rl learner:out/model.pt .
      symphony cp rl config.yml agents/agent-1:
      symphony cp rl 'eval*:best.pt' .
    """
    status = find_experiment(line, args)
    source = _resolve_path(status, args.source)
    target = _resolve_path(status, args.target)
    if args.dry_run:
        from symphony.commandline.output import dry_run

        print_note(dry_run.preview_copy(line.cluster, status, source, target))
        return OK
    with show_progress() as shown:
        progress = partial(ByteProgress(shown).report, "copied")
        line.cluster.transfer_file(status.name, source, target, progress=progress)
    return OK


def _resolve_path(status: ExperimentStatus, text: str) -> str:
    """Return ``PROCESS:PATH`` with the path of the process. Return a local path unchanged."""
    name, colon, path = text.partition(":")
    if not colon or not name or name.startswith((".", "/")):
        return text
    return f"{resolve_process(status, name, exact=COMMAND.changes).path}:{path}"
