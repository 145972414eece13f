"""Delete experiments, after the user has confirmed it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import FAILED, OK, UsageError, error_message, exit_code
from symphony.commandline.output.terminal import is_terminal, print_note, print_text
from symphony.errors import BackendError, NotFound, SymphonyError, Unreachable

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.commandline.commands.delete_with_progress import DeletedExperiment


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingExperiment:
    """The name of an existing experiment, a one-line summary of its state, and the number of its
    processes as text.
    """

    name: str
    summary: str
    size: str


class Deletion:
    """One execution of ``delete``.

    ``options`` are the keyword arguments of `Cluster.delete`. ``find_cluster`` returns the cluster
    with the experiment that the user meant by a name; see `Line.cluster_with`. It is called
    for each of the ``names`` whose cluster is None.
    """

    def __init__(
        self,
        find_cluster: Callable[[str], Cluster],
        names: Sequence[tuple[str, Cluster | None]],
        *,
        force: bool,
        options: Mapping[str, bool],
        as_json: bool,
        dry_run: bool,
    ) -> None:
        self._find_cluster = find_cluster
        self._names = names
        self._experiments: list[tuple[Cluster, str]] = []
        self._force = force
        self._options = options
        self._as_json = as_json
        self._dry_run = dry_run

    def run(self) -> int:
        """Delete the experiments and return the exit code.

        Without ``--force``, nothing is deleted if a name is unknown or the user does not confirm.
        """
        from symphony.commandline.commands.lookup.resolve_names import full_name

        experiments = []
        for given, cluster in self._names:
            if cluster is not None:
                experiments.append((cluster, given))
                continue
            cluster = self._find_cluster(given)
            experiments.append((cluster, full_name(cluster, given)))
        self._experiments = list(dict.fromkeys(experiments))
        if self._dry_run:
            return self._report_dry_run()
        if not self._force and not self._confirm():
            print_note("nothing was deleted")
            return FAILED
        return self._delete_all()

    def _delete_all(self) -> int:
        from symphony.commandline.commands.delete_with_progress import delete_with_progress
        from symphony.commandline.parsing import completion_cache

        code = OK
        deleted = []
        targets = []
        for cluster, name in self._experiments:
            try:
                targets.append(self._find_target(cluster, name))
            except NotFound as exc:
                print_note(f"{error_message(exc)}; nothing to delete")
            except SymphonyError as exc:
                # A failure must not prevent the deletion of the remaining experiments.
                code = code or self._report(exc)
        results = delete_with_progress(targets, self._options) if targets else iter(())
        for target, error in zip(targets, results, strict=True):
            if error is not None:
                code = code or self._report(error)
                continue
            deleted.append(target.name)
            self._report_deleted(target)
        completion_cache.clear_cached_names()
        if self._as_json:
            self._show_names(deleted)
        return code

    def _find_target(self, cluster: Cluster, name: str) -> DeletedExperiment:
        from symphony.commandline.commands.delete_with_progress import DeletedExperiment
        from symphony.commandline.commands.kill_report import KillReport

        size = self._describe(cluster, name).size
        kills = KillReport(cluster, name, time.time())
        return DeletedExperiment(cluster=cluster, name=name, size=size, kills=kills)

    def _report(self, exc: SymphonyError) -> int:
        print_note(f"symphony: error: {error_message(exc)}")
        return exit_code(exc)

    def _report_dry_run(self) -> int:
        candidates = [self._describe_or_none(cluster, name) for cluster, name in self._experiments]
        existing = [experiment for experiment in candidates if experiment is not None]
        if self._as_json:
            self._show_names([experiment.name for experiment in existing])
        for experiment in existing:
            print_note(f"would delete {experiment.summary}")
        return OK

    def _show_names(self, names: Sequence[str]) -> None:
        from symphony.commandline.output.printing import show_json

        show_json(list(names))

    def _describe(self, cluster: Cluster, name: str) -> ExistingExperiment:
        """Return the description of an experiment. Raises `NotFound` if the experiment does not
        exist.

        An experiment whose record is damaged can still be deleted, so in that case the summary
        contains the error message.
        """
        from symphony.commandline.output import views

        try:
            status = cluster.describe_experiment(name)
        except NotFound as exc:
            from symphony.commandline.commands.lookup.find_backend import raise_not_found

            raise_not_found(cluster, name, exc)
        except Unreachable:
            raise
        except BackendError as exc:
            return ExistingExperiment(
                name=name,
                summary=f"{name} (status unknown: {error_message(exc)})",
                size="unknown number of processes",
            )
        return ExistingExperiment(
            name=name,
            summary=views.summary_line(status),
            size=views.count_processes(len(status.processes)),
        )

    def _describe_or_none(self, cluster: Cluster, name: str) -> ExistingExperiment | None:
        """Return the description of an experiment, or None if it does not exist and ``--force`` is
        set.
        """
        try:
            return self._describe(cluster, name)
        except NotFound as exc:
            if not self._force:
                raise
            print_note(f"{error_message(exc)}; nothing to delete")
            return None

    def _confirm(self) -> bool:
        """Ask the user for confirmation, and return whether the user confirms. Raises `UsageError`
        if there is no terminal.
        """
        existing = [self._describe(cluster, name) for cluster, name in self._experiments]
        if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            raise UsageError(
                "delete asks for confirmation, and there is no terminal; pass --force (-f) to "
                "delete without confirmation"
            )
        summaries = ", ".join(experiment.summary for experiment in existing)
        print_note(f"delete {summaries}? [y/N] ", end="")
        return sys.stdin.readline().strip().lower() in {"y", "yes"}

    def _report_deleted(self, target: DeletedExperiment) -> None:
        """Report that an experiment was deleted."""
        if not self._as_json:
            print_text(f"deleted {target.name}")
        if not self._options.get("purge"):
            self._report_record(target)

    def _report_record(self, target: DeletedExperiment) -> None:
        """Report which parts of the record of the deleted run are missing, and which processes were
        killed according to it.
        """
        from symphony.cluster.run_results import find_run_status

        runs = (run for run in target.cluster.list_runs() if run.experiment == target.name)
        newest = next(runs, None)
        if newest is None or not newest.is_archived:
            return
        cut = newest.summary.get("cut")
        if cut:
            print_note(f"the record of {newest.name} is incomplete: {'; '.join(cut)}")
        if target.kills.is_possible and not self._options.get("at_once"):
            status = find_run_status(target.cluster, newest)
            if status is not None:
                target.kills.print_report(status)
