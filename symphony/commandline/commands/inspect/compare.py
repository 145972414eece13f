"""``compare``: show how two runs differ."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.lookup.find_run import find_run
from symphony.commandline.exit_codes import OK
from symphony.commandline.output.terminal import print_coloured, print_note
from symphony.commandline.parsing.command import Command

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line

COMMAND = Command(json="JSON")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_run(parser, dest="first")
    shared_arguments.add_run(parser, dest="second")
    shared_arguments.add_show_secrets(parser)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Show how two runs differ: experiment, code, versions, results and resource use.

    For example:
      symphony compare rl-20261122-093011-7f3a rl
    """
    from symphony.archive.differences import find_differences, without_secrets
    from symphony.cluster.run_results import comparable_values, hidden_values
    from symphony.commandline.output import run_lines
    from symphony.commandline.output.printing import show_json, table_lines

    both = [find_run(line, given) for given in (args.first, args.second)]
    contents = [comparable_values(line.cluster, run) for run in both]
    differences = find_differences(*contents)
    if not args.show_secrets:
        differences = without_secrets(differences, hidden_values(both))
    if args.json:
        show_json({key: list(values) for key, values in differences.items()})
        return OK
    if not differences:
        print_note("the runs do not differ")
        return OK
    rows = [[key, *map(run_lines.short_text, values)] for key, values in differences.items()]
    print_coloured(table_lines(run_lines.comparison_columns(both), rows))
    return OK
