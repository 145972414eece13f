"""``events``: show what has happened in an experiment."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.lookup.select_experiment import (
    names_to_follow,
    read_status,
    resolve_with_removed,
)
from symphony.commandline.exit_codes import INTERRUPTED, OK
from symphony.commandline.output.terminal import print_text
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

COMMAND = Command(json="each event as JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment(parser)
    shared_arguments.add_processes(parser)
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="show new events until the experiment has finished",
    )
    shared_arguments.add_since(parser, "events")
    shared_arguments.add_run_option(parser)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Show what has happened: launches, starts, exits, restarts and stops.

    With a PROCESS, only the events of the selected processes are shown. On Kubernetes, events
    are derived from the states of Pods, which contain only the latest executions of each
    process, and from the events of Kubernetes. An event reports how many earlier starts are
    not known.

    For example:
      symphony events rl
      symphony events rl learner --since 5m
      symphony events rl -f --json | jq -r .text
      symphony events --run rl-20261122-093011-7f3a
    """
    from symphony.cluster.hidden_output import events_without_secrets
    from symphony.commandline.output.event_lines import event_json, event_row

    status = read_status(line, args, "events")
    names = None
    if args.processes:
        selected, removed = resolve_with_removed(line, status, args.processes)
        names = [*(process.name for process in selected), *removed]
        names = names_to_follow(status, args.processes, names)
    found = line.cluster.iter_events(status.name, names, follow=args.follow, since=args.since)
    events = events_without_secrets(found, line.cluster.hidden_values(status.name))
    try:
        for event in events:
            print_text(event_json(event) if args.json else event_row(event), flush=args.follow)
    except KeyboardInterrupt:
        if not args.follow:
            raise
        # Ctrl-C is the usual way to stop following, so no message is printed.
        return INTERRUPTED
    return OK
