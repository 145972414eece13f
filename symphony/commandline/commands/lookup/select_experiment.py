"""Select the experiment, or the record of a run, that a command reads, and its processes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands.lookup.find_experiment import find_experiment
from symphony.commandline.commands.lookup.find_run import use_run
from symphony.commandline.commands.lookup.resolve_names import resolve_processes
from symphony.commandline.output.terminal import print_note
from symphony.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from symphony.commandline.commands.line import Line
    from symphony.status import ExperimentStatus, ProcessStatus


def read_status(line: Line, args: argparse.Namespace, verb: str) -> ExperimentStatus:
    """Return the status of the experiment or the run that the user named.

    With ``--run``, the command reads the record of the run from now on. Before NotFound is
    raised, report how to read the record of the experiment's last run. ``verb`` is the command.
    """
    use_run(line, args)
    try:
        return find_experiment(line, args)
    except NotFound:
        runs = [run for run in line.cluster.list_runs() if run.experiment == args.experiment]
        if runs and runs[0].is_archived:
            print_note(
                f"{args.experiment} was deleted; to show the {verb} of its last run, use: "
                f"{line.prog} {verb} --run {args.experiment}"
            )
        raise


def names_to_follow(
    status: ExperimentStatus, given: Sequence[str], names: Sequence[str]
) -> list[str] | None:
    """Return names that also select processes that are added later, or None for all.

    ``given`` are the words of the user, and ``names`` the processes that they select.
    """
    from symphony.cluster.matching import find_names

    if not given:
        return None
    try:
        find_names(status, given)
    except NotFound:
        # A removed process, or the beginning of a name.
        return list(names)
    return list(given)


def resolve_with_removed(
    line: Line, status: ExperimentStatus, given: Sequence[str]
) -> tuple[list[ProcessStatus], list[str]]:
    """Return the processes that the user meant, and the names of those that were removed."""
    try:
        return resolve_processes(status, given, exact=line.changes_something), []
    except NotFound:
        known = set(line.cluster.removed_processes(status.name))
        removed = [name for name in dict.fromkeys(given) if name in known]
        if not removed:
            raise
    others = [name for name in given if name not in known]
    if not others:
        return [], removed
    return resolve_processes(status, others, exact=line.changes_something), removed
