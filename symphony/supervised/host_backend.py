"""The backend of supervised experiments: the methods that `Cluster` calls."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from symphony.cluster import Manifest
from symphony.cluster.backend import (
    Access,
    ChangeRequest,
    LaunchRequest,
    ProcessRequest,
    RecordedRuns,
)
from symphony.errors import BackendError
from symphony.status import ENDED, ExperimentStatus
from symphony.supervised.host_inspection import HostInspection
from symphony.supervised.host_runs import HostRuns, unobserved_host
from symphony.supervised.record.directory import RunDirectory

# Modules that only some commands need are imported inside functions.
if TYPE_CHECKING:
    from symphony.plan.changes import Changes
    from symphony.supervised.host_change import HostChange
    from symphony.supervised.host_deletion import HostDeletion
    from symphony.supervised.host_options import HostOptions
    from symphony.supervised.host_planner import HostPlanner


class Launcher(Protocol):
    """An object that launches experiments, such as `HostLauncher`."""

    def launch(self, request: LaunchRequest) -> Manifest:
        """Launch an experiment, and return its manifest."""


class HostBackend(HostInspection):
    """The experiments of a `HostCluster` with these options.

    A backend whose launches, changes or deletions differ overrides the property that returns the
    object for them.
    """

    def __init__(self, options: HostOptions) -> None:
        super().__init__(options.backend, self.make_runs(options))
        self.options = options

    def make_runs(self, options: HostOptions) -> HostRuns:
        """Return the run directories. A backend can override this."""
        return HostRuns(options)

    def with_options(self, options: HostOptions) -> HostBackend:
        """Return a backend of this class with other options."""
        return type(self)(options)

    @functools.cached_property
    def planner(self) -> HostPlanner:
        """The object that makes the manifests of experiments."""
        from symphony.supervised.host_planner import HostPlanner

        return HostPlanner(self.options)

    @functools.cached_property
    def launcher(self) -> Launcher:
        """The object that launches experiments."""
        from symphony.supervised.host_launcher import HostLauncher

        return HostLauncher(self.options, self.runs, self.planner, self.deletion)

    @functools.cached_property
    def changing(self) -> HostChange:
        """The object that changes experiments."""
        from symphony.supervised.host_change import HostChange

        return HostChange(self.options, self.runs, self.planner)

    @functools.cached_property
    def deletion(self) -> HostDeletion:
        """The object that deletes experiments."""
        from symphony.supervised.host_deletion import HostDeletion

        return HostDeletion(self.runs, self.options.configuration)

    # --- launching ---

    def launch(self, request: LaunchRequest) -> Manifest:
        """Hand an experiment over to a supervisor."""
        if request.dry_run:
            return self.planner.manifest(request.experiment, request.defaults)
        return self.launcher.launch(request)

    # --- ending ---

    def stop_for_good(self, experiment: str, *, at_once: bool) -> None:
        """Let the supervisor stop all processes, or stop them if it was killed."""
        from symphony.supervised.user_requests.stop import stop

        with self.runs.find(experiment).pin() as run:
            if not run.is_locked():
                # The new supervisor of a killed one records that the processes were stopped. It is
                # not necessary, however.
                with contextlib.suppress(BackendError):
                    self.runs.reader(run).read()
            stop(run, at_once=at_once)

    def delete(self, experiment: str, *, in_order: bool, at_once: bool, purge: bool) -> None:
        """Stop an experiment, and move the record of its run to the archive."""
        self.deletion.delete(experiment, in_order=in_order, at_once=at_once, purge=purge)

    # --- changing ---

    def change(self, request: ChangeRequest) -> Changes:
        """Compare a running experiment with its new manifest, and send that to the supervisor."""
        if request.dry_run:
            return self.changing.diff(request)
        return self.changing.change(request)

    def request(self, experiment: str, request: ProcessRequest) -> None:
        """Send a request to the supervisor, and wait until it is done."""
        if request.kind == "end":
            self.stop_for_good(experiment, at_once=request.grace == 0)
            return
        with self.runs.find(experiment).pin() as run:
            if request.kind == "stop" and _are_stopped(run, request):
                # Otherwise, a stop is not done when its processes have exited, because programs
                # that they have left behind may still be running.
                return
            values: dict[str, Any] = {"request": request.kind, "names": list(request.names)}
            if request.kind in ("stop", "restart"):
                values["grace"] = request.grace
            elif request.kind == "signal":
                values["signal"] = request.signal
                if request.force:
                    values["force"] = True
            waits = request.kind == "start"
            self.runs.send(run, values, timeout=request.timeout, waits=waits)

    # --- runs and processes ---

    @property
    def recorded_runs(self) -> RecordedRuns:
        """The object that finds, reads and continues runs by their directories."""
        from symphony.supervised.host_recorded_runs import HostRecordedRuns

        return HostRecordedRuns(self)

    @property
    def access(self) -> Access:
        """The object that runs commands, copies files and forwards ports on this machine."""
        from symphony.supervised.host_access import HostAccess

        return HostAccess(self)


def _are_stopped(run: RunDirectory, request: ProcessRequest) -> bool:
    """Return whether the processes of a request have exited, as far as this machine knows."""
    return (
        _have_ended(request.status, request.names) and unobserved_host(run, request.status) is None
    )


def _have_ended(status: ExperimentStatus, names: Sequence[str]) -> bool:
    return all(process.state in ENDED for process in status if process.name in names)
