"""Ending and removing supervised experiments, whose records move to the archive."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from symphony.cluster.matching import experiment_exists
from symphony.errors import AlreadyExists, BackendError, NotFound
from symphony.supervised.record import directory
from symphony.supervised.record.status import StatusReader

if TYPE_CHECKING:
    from symphony.config import SymphonyConfig
    from symphony.supervised.host_runs import HostRuns
    from symphony.supervised.record.directory import RunDirectory

# How many seconds a launch waits for the supervisor of a finished experiment to exit. Before its
# exit, the supervisor stops processes that were left behind.
FINISH_TIMEOUT_SECONDS = 60.0
# How long a command that needs the lock of a run without a supervisor waits for other programs.
LOCK_TIMEOUT_SECONDS = 0.2


class HostDeletion:
    """The deletion of the experiments in ``runs``.

    ``configuration`` determines which records of runs are kept.
    """

    def __init__(self, runs: HostRuns, configuration: SymphonyConfig) -> None:
        self._runs = runs
        self._configuration = configuration

    def delete(
        self,
        experiment: str,
        run_id: str | None = None,
        *,
        purge: bool = False,
        in_order: bool = True,
        at_once: bool = False,
    ) -> None:
        """Delete an experiment. If ``run_id`` is given, do nothing if another run has the name.

        The other arguments are those of `Cluster.delete`.
        """
        found = directory.find(self._runs.root, experiment)
        if found is None:
            return
        # NotFound means that another program has just deleted the experiment.
        with contextlib.suppress(NotFound), found.pin() as run:
            if run_id is not None and run.run_id() != run_id:
                return
            run.grant_access()
            if run.is_current() and not run.is_run_directory():
                raise self._runs.name_in_use(experiment)
            self.stop_and_remove(run, purge=purge, in_order=in_order, at_once=at_once)

    def stop_and_remove(
        self, run: RunDirectory, *, purge: bool, in_order: bool, at_once: bool
    ) -> None:
        """Stop the processes of a pinned run, and remove it. A backend can override this."""
        from symphony.supervised.record.unsupervised_run import lock_unsupervised
        from symphony.supervised.user_requests.stop import stop, stop_remaining

        with lock_unsupervised(run, timeout=LOCK_TIMEOUT_SECONDS) as lock:
            if lock is None:
                stop(run, in_order=in_order, at_once=at_once)
            else:
                stop_remaining(run, in_order=in_order, at_once=at_once)
            self.remove(run, purge=purge)

    def remove(self, run: RunDirectory, *, purge: bool = False) -> None:
        """Free the name of an experiment that has no running processes, and archive its record.

        With ``purge``, remove the record. ``run`` is pinned. If another run has the name by now,
        that run is not changed.
        """
        from symphony.archive.archive import configured_retention
        from symphony.supervised.record import archived_record as records

        if not purge:
            try:
                records.archive_run(
                    run,
                    directory.archive_directory(self._runs.root),
                    configured_retention(self._configuration.get("runs", {})),
                    self._runs.final_reader,
                )
                return
            except OSError as exc:
                raise BackendError(
                    f"the record of experiment {run.name!r} cannot be moved to the archive: {exc}; "
                    "delete the experiment with --purge to remove its record"
                ) from exc
        run.remove()

    # --- names ---

    def free_name(self, name: str) -> None:
        """Remove a finished experiment of this name, if there is one.

        Raises AlreadyExists if the experiment has not finished, or if its supervisor does not exit
        in time. Raises BackendError if the experiment's record is damaged, or if its supervisor is
        suspended.
        """
        found = directory.find(self._runs.root, name)
        if found is None:
            return
        # NotFound means that another program has just deleted the experiment.
        with contextlib.suppress(NotFound), found.pin() as run:
            self.remove_finished(run)

    def remove_finished(self, run: RunDirectory) -> None:
        """Remove a pinned run that has finished; see `free_name`. A backend can override this."""
        from symphony.supervised.record.unsupervised_run import lock_unsupervised
        from symphony.supervised.user_requests.stop import has_remaining_processes, stop_remaining

        self._check_finished(run)
        with lock_unsupervised(run, timeout=LOCK_TIMEOUT_SECONDS) as lock:
            if lock is None and run.recorded_supervisor() is not None:
                # Another program has started a new supervisor for a killed one.
                raise experiment_exists(run.name)
            if run.other_host() is None and has_remaining_processes(run):
                # The supervisor was killed. Only descendants of the exited processes are running.
                stop_remaining(run)
            self.remove(run)

    def _check_finished(self, run: RunDirectory) -> None:
        """Raise AlreadyExists if an experiment is running, or if its supervisor does not exit in
        time.

        Raises BackendError if the supervisor is suspended.
        """
        from symphony.supervised.processes.process_groups import wait_for_exit
        from symphony.supervised.user_requests.stop import (
            check_not_suspended,
            find_supervisor,
            has_finished,
        )

        other_host = run.other_host()
        if other_host is not None:
            # Processes on another host cannot be observed, so the experiment's record must show
            # that it has finished.
            if not has_finished(run):
                raise AlreadyExists(run.other_host_message(other_host))
            return
        reader = StatusReader(run)
        if not reader.read().ended:
            raise experiment_exists(run.name)
        if reader.waits_for_start:
            from symphony.supervised.user_requests.requests import send_request

            # The request is refused if another program has just started one of the processes. The
            # supervisor may also have been killed.
            with contextlib.suppress(BackendError):
                send_request(run, {"request": "finish"})
            if not reader.read().ended:
                raise experiment_exists(run.name)
        supervisor = find_supervisor(run)
        if supervisor is not None and not wait_for_exit(supervisor, FINISH_TIMEOUT_SECONDS):
            check_not_suspended(run)
            raise experiment_exists(run.name)
