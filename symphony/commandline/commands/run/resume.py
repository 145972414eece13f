"""``resume``: start the experiments again that a reboot has interrupted."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import FAILED, OK
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.commandline.commands.line import Line

COMMAND = Command(
    changes=True,
    dry_run="list the experiments that would be started; change nothing",
    json="the experiments as JSON",
    no_tool="it starts the experiments of the whole machine",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Start the experiments again that a reboot of this machine has interrupted.

    These are the experiments on local and tmux that have the option 'resume: true' and had not
    finished. All of their processes start again, in start order, with the same settings and
    addresses. Processes that a user had stopped are not started. If the machine has not been
    restarted, the command does nothing.

    install --user-unit lets systemd run this command after each boot.

    For example:
      symphony resume
      symphony resume --dry-run
    """
    from symphony.commandline.output.printing import show_json
    from symphony.commandline.output.terminal import print_note, print_text

    found = []
    for cluster in _clusters(line):
        for name, error in cluster.resume_experiments(dry_run=args.dry_run).items():
            found.append({"name": name, "backend": cluster.backend, "error": error})
    failed = [item for item in found if item["error"]]
    if args.json:
        show_json(found)
    elif not found:
        print_text("no experiment was interrupted by a reboot")
    else:
        verb = "would resume" if args.dry_run else "resumed"
        for item in found:
            if not item["error"]:
                print_text(f"{verb} {item['name']} on {item['backend']}")
    for item in failed:
        print_note(f"{line.prog}: {item['name']!r} cannot be resumed: {item['error']}")
    return FAILED if failed else OK


def _clusters(line: Line) -> Iterator[Cluster]:
    """Yield the clusters whose experiments run on this machine, or the one that the user names."""
    from symphony.commandline.commands.lookup import find_backend

    yield line.selected_cluster
    if not line.names_backend:
        yield from find_backend.other_clusters(line.selected_cluster)
