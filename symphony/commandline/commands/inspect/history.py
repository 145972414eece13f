"""``history``: list the runs of experiments."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import OK
from symphony.commandline.output.terminal import print_coloured, print_note
from symphony.commandline.parsing.arguments import parse_count
from symphony.commandline.parsing.command import Command
from symphony.errors import SymphonyError

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

COMMAND = Command(json="JSON")

DEFAULT_HISTORY_LENGTH = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "experiments", metavar="EXPERIMENT", nargs="*", help="show only runs of these"
    )
    parser.add_argument(
        "--number",
        metavar="N",
        type=parse_count,
        default=DEFAULT_HISTORY_LENGTH,
        help=f"show at most the N newest runs (default: {DEFAULT_HISTORY_LENGTH}; 0: all)",
    )


def run(args: argparse.Namespace, line: Line) -> int | None:
    """List the runs of experiments, the newest first.

    Every launch is a run. The record of a run remains when the experiment is deleted or
    replaced. CODE is the Git commit of the working directory, and + means uncommitted changes.

    For example:
      symphony history
      symphony history rl --number 5
      symphony history --json | jq '.[0].run'
    """
    from symphony.cluster.run_results import displayed_results
    from symphony.commandline.output import run_lines
    from symphony.commandline.output.printing import show_json, table_lines

    found = line.cluster.list_runs()
    if args.experiments:
        found = [run for run in found if run.experiment in args.experiments]
    shown = found[: args.number or None]
    statuses = displayed_results(line.cluster, shown, on_unreachable=_report_unreachable)
    if args.json:
        show_json(statuses)
        return OK
    now = time.time()
    print_coloured(table_lines(*run_lines.history_table(shown, statuses, now)))
    if len(shown) < len(found):
        print_note(f"{len(found) - len(shown)} older runs are not shown; --number 0 shows all")
    return OK


def _report_unreachable(backend: str, error: SymphonyError) -> None:
    print_note(f"the states of runs on {backend} are unknown: {error}")
