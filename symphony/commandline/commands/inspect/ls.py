"""``ls``: list experiments."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.show_statuses import watch
from symphony.commandline.output.terminal import print_coloured
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.cluster import WatchedStatuses
    from symphony.commandline.commands.line import Line
    from symphony.commandline.output.refresh_screen import WatchedTable
    from symphony.status import ExperimentStatus

COMMAND = Command(aliases=("list",), json="JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_watch(parser)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """List the experiments that symphony launched.

    The list contains the experiments of all backends of this machine, and those of a cluster
    that is configured. With -b, it contains only the experiments of one backend. A cluster that
    does not respond within 3 seconds is left out, with a message.

    AGE is the time since the launch. A cell without a value contains "-". Only the last column
    may contain spaces.

    For example:
      symphony ls
      symphony ls --watch
      symphony ls -b tmux --json
    """
    from symphony.commandline.commands.lookup.list_experiments import Listing
    from symphony.commandline.output.printing import show_json

    listing = Listing(line.prog, line.selected_cluster, only_selected=line.names_backend)
    if args.watch:
        with listing.watching() as read:
            return watch(args, lambda: _watched_experiments(read()))
    if args.json:
        statuses = listing.read()
        show_json([status.to_dict() for status in statuses])
    else:
        print_coloured(_experiment_table(listing.read_all()))
    return listing.exit_code


def _experiment_table(statuses: Iterable[ExperimentStatus]) -> list[str]:
    from symphony.commandline.output.printing import table_lines
    from symphony.commandline.output.views import EXPERIMENT_COLUMNS, experiment_row

    rows = [experiment_row(status, status.now()) for status in statuses]
    return table_lines(EXPERIMENT_COLUMNS, rows)


def _watched_experiments(watched: WatchedStatuses) -> WatchedTable:
    from symphony.commandline.output.refresh_screen import WatchedTable
    from symphony.commandline.output.views import count_words

    statuses = watched.statuses
    states = [status.displayed_state for status in statuses]
    return WatchedTable(
        title=f"{len(statuses)} experiments: {', '.join(count_words(states))}",
        states=states,
        format_rows=lambda rows: _experiment_table(statuses[row] for row in rows),
        outage=watched.outage,
    )
