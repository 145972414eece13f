"""``attach``: attach the terminal to a process."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.lookup.find_experiment import find_experiment
from symphony.commandline.commands.lookup.resolve_names import resolve_process
from symphony.commandline.exit_codes import OK
from symphony.commandline.output.terminal import print_note
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

COMMAND = Command(aliases=("ssh",), changes=True, no_tool="it needs a terminal")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment(parser)
    shared_arguments.add_process(parser)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Attach the terminal to a process.

    On local and Kubernetes, the process needs the setting `tty: true`. Leave its terminal with
    Ctrl-P Ctrl-Q; the process keeps running. Without this setting, the command opens a shell in
    the process's container on Kubernetes, and fails on local: use exec to run a command in the
    environment of the process, or logs -f to follow its output.

    In tmux, the terminal shows the process's window. Detach with the prefix key followed by d
    (by default, Ctrl-b d); the process keeps running.

    For example:
      symphony attach rl learner
      symphony ssh -b tmux rl agents/agent-1
    """
    status = find_experiment(line, args)
    process = resolve_process(status, args.process, exact=COMMAND.changes)
    if args.dry_run:
        from symphony.commandline.output import dry_run

        print_note(dry_run.preview_attach(line.cluster, status, process))
        return OK
    line.cluster.login(status.name, process.name, process.group)
    return OK
