"""The parts of ``ls``, ``ps`` and ``describe`` that they share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import UsageError
from symphony.commandline.output.terminal import print_note

if TYPE_CHECKING:
    from symphony.commandline.output.refresh_screen import WatchedTable
    from symphony.status import ExperimentStatus


def watch(args: argparse.Namespace, get_table: Callable[[], WatchedTable]) -> int:
    """Show a table, and refresh it until Ctrl-C.

    Raises `UsageError` if JSON output was also requested.
    """
    from symphony.commandline.output.refresh_screen import watch_table

    if args.json:
        raise UsageError("--watch and --json cannot be combined")
    return watch_table(get_table)


def print_status_note(status: ExperimentStatus) -> None:
    """Print the note and the parameters of an experiment, on standard error."""
    """Print the note and the parameters of an experiment, on standard error."""
    from symphony.commandline.output.views import note, parameter_words

    text = note(status, status.now())
    if text:
        print_note(f"{status.name}: {text}")
    if status.parameters:
        print_note(f"{status.name}: {parameter_words(status.parameters)}")
