"""The base class of the commands that read an experiment or the record of a run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from symphony.commandline.commands.base_commands import BaseCommands
from symphony.commandline.output.terminal import print_note
from symphony.errors import NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from symphony.status import ExperimentStatus, ProcessStatus


class ReadingCommands(BaseCommands):
    """Commands that read an experiment or, with ``--run``, the record of a run."""

    def _add_since(self, parser: argparse.ArgumentParser, what: str) -> None:
        """Add ``--since``, which limits the output to ``what`` since a time."""
        from symphony.commandline.parsing.arguments import check_since

        parser.add_argument(
            "-s",
            "--since",
            metavar="TIME",
            type=check_since,
            help=f"show only {what} since this time: 90s, 5m or 2h ago, or an ISO 8601 time",
        )

    def _read_status(self, args: argparse.Namespace, verb: str) -> ExperimentStatus:
        """Return the status of the experiment or the run that the user named.

        With ``--run``, the command reads the record of the run from now on. Before NotFound is
        raised, report how to read the record of the experiment's last run. ``verb`` is the command.
        """
        self._use_run(args)
        try:
            return self._find_experiment(args)
        except NotFound:
            runs = [run for run in self.cluster.list_runs() if run.experiment == args.experiment]
            if runs and runs[0].is_archived:
                print_note(
                    f"{args.experiment} was deleted; to show the {verb} of its last run, use: "
                    f"{self.prog} {verb} --run {args.experiment}"
                )
            raise

    def _names_to_follow(
        self, status: ExperimentStatus, given: Sequence[str], names: Sequence[str]
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

    def _resolve_with_removed(
        self, status: ExperimentStatus, given: Sequence[str]
    ) -> tuple[list[ProcessStatus], list[str]]:
        """Return the processes that the user meant, and the names of those that were removed."""
        try:
            return self._resolve_processes(status, given), []
        except NotFound:
            known = set(self.cluster.removed_processes(status.name))
            removed = [name for name in dict.fromkeys(given) if name in known]
            if not removed:
                raise
        others = [name for name in given if name not in known]
        return self._resolve_processes(status, others) if others else [], removed
