"""The record of a run that a command reads."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import UsageError

if TYPE_CHECKING:
    from symphony.archive.archive import Run
    from symphony.commandline.commands.line import Line


def find_run(line: Line, given: str) -> Run:
    """Return the run that the user meant. Raises `NotFound` if there is none.

    ``given`` can be the beginning of a run's identifier if the command changes nothing.
    """
    from symphony.archive import archive
    from symphony.commandline.output.terminal import print_note

    run = archive.find_run(line.cluster.list_runs(), given, exact=line.changes_something)
    if given not in (run.name, run.experiment):
        print_note(f"run {given!r} is {run.name}")
    return run


def use_run(line: Line, args: argparse.Namespace, dest: str = "experiment") -> None:
    """With ``--run``, make this command read the record of the run that the user named.

    ``dest`` is the argument with the name of the run. It becomes the name of the experiment.
    """
    if args.run:
        experiment = _open_run(line, getattr(args, dest))
        setattr(args, dest, experiment)


def _open_run(line: Line, given: str | None) -> str:
    """Make this command read the record of a run, and return the name of its experiment."""
    from symphony.cluster.run_results import open_run

    if given is None:
        raise UsageError("--run needs the name of a run; symphony history lists them")
    run = find_run(line, given)
    line.cluster = open_run(line.cluster, run)
    return run.experiment
