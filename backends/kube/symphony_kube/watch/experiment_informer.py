"""List and watch the Pods, Jobs and JobSets of one experiment.

The readers of an experiment in a process share an `ExperimentInformer`, so that there is one watch
for each kind of objects. Each reader lists the objects when it begins, so that it never sees an
older state than its caller has seen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from symphony.cluster.matching import experiment_not_found
from symphony.support.names import is_name
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import MANAGED_SELECTOR, RUN, SUPERVISOR, Scope
from symphony_kube.api.resources import collection_path, labels_of
from symphony_kube.state.observe import ExperimentState, Observation
from symphony_kube.state.observed_objects import JOB_SETS, JOBS, PODS
from symphony_kube.status.event_sources.kubernetes_warnings import FIELD_SELECTOR
from symphony_kube.status.experiments import complete_state, list_if_possible
from symphony_kube.status.permission_errors import cannot_list_pods
from symphony_kube.watch.informer import LISTED, Change, Informer

if TYPE_CHECKING:
    from symphony_kube.api.client import Object
    from symphony_kube.api.kube_experiment import KubeExperiment
    from symphony_kube.render.roster import Roster
    from symphony_kube.status.ready_logs import Execution, ReadyLogs

# The events of Kubernetes in the namespace, and the Pods of the experiment's supervisor.
EVENTS, SUPERVISORS = "events", "supervisors"
# The interval at which Jobs and JobSets are listed again if the user may not watch them. Their
# states decide when their processes have finished.
POLL_SECONDS = 2.0
# How often the events of Kubernetes are listed if the user may not watch them.
EVENT_POLL_SECONDS = 5.0

# If many objects change, the time between two observations is this many times the duration of the
# first one, and at most the given time in seconds.
REST_FACTOR, MAX_REST_SECONDS = 4.0, 0.25

# The informers that have readers, and the lock that protects them and the numbers of their readers.
_shared: dict[KubeExperiment, ExperimentInformer] = {}
_shared_lock = threading.Lock()


def open_informer(experiment: KubeExperiment) -> tuple[ExperimentInformer, tuple[Object, ...]]:
    """Return the informer that the readers of an experiment share, and the present Pods.

    Each reader calls `ExperimentInformer.release` at its end. Raises `NotFound` if no experiment
    can have this name, and `ApiError` if the user may not list Pods.
    """
    while True:
        with _shared_lock:
            informer = _shared.get(experiment)
            is_new = informer is None or not informer.is_shareable
            if informer is None or is_new:
                informer = _shared[experiment] = ExperimentInformer(experiment)
            informer.readers += 1
        try:
            pods = informer.list_objects()
        except BaseException:
            informer.release()
            raise
        # An informer cannot be shared if it may know deleted objects of an earlier launch.
        if is_new or informer.is_shareable:
            return informer, pods
        informer.release()


class ExperimentInformer:
    """The objects of an experiment, which are listed and watched, and its state.

    If a supervisor passes its ``roster``, the experiment need not exist yet. Without ``follow``,
    the objects are only listed.

    ``changed`` is a condition that is notified of each change, and its lock protects ``state``.
    ``version`` is the number of changes. Any thread can use the informer.
    """

    def __init__(
        self, experiment: KubeExperiment, *, roster: Roster | None = None, follow: bool = True
    ) -> None:
        self._experiment = experiment
        self._supervising = roster is not None
        self._informer = Informer(
            experiment.api,
            _paths(experiment.scope),
            experiment.scope.present_selector,
            queries=_queries(experiment.scope),
            follow=follow,
        )
        # Held while objects are listed.
        self._listing = threading.Lock()
        self._is_listed = False
        self._started: set[str] = set()
        # The runs of which a Pod or Job was observed, and when the first one of the latest run was
        # created.
        self._runs: set[str] = set()
        self._run_since = ""
        # The latest observation, or None if it is out of date.
        self._observation: Observation | None = None
        # When the next observation may be computed, on the monotonic clock.
        self._rests_until = 0.0
        self._listeners: list[list[Change]] = []
        self._follows = follow
        self._ready_logs: ReadyLogs | None = None
        self.changed = self._informer.changed
        self.state = ExperimentState(experiment.name, roster=roster)
        self.version = 0
        self.readers = 0
        self.is_replaced = False

    @property
    def silent_seconds(self) -> float:
        """See `Informer.silent_seconds`."""
        return self._informer.silent_seconds

    @property
    def is_shareable(self) -> bool:
        """True if another reader would see the same state with an informer of its own.

        That is not so if the state depends on objects that do not exist any more.
        """
        with self.changed:
            if self._informer.closed or self._informer.error is not None or self.is_replaced:
                return False
            state = self.state
            if not self._is_listed:
                return True
            return not (state.empty or state.has_stored_record or state.known_units.missing_jobs)

    def release(self) -> None:
        """Note that a reader has ended, and close the informer after the last one."""
        with _shared_lock:
            self.readers -= 1
            is_unused = self.readers <= 0
            key = self._experiment
            if is_unused and _shared.get(key) is self:
                del _shared[key]
        if is_unused:
            self._informer.close()
            if self._ready_logs is not None:
                self._ready_logs.close()

    def list_objects(self) -> tuple[Object, ...]:
        """List the Pods, and the Jobs and JobSets if any could exist, and begin to watch them.

        Return the Pods. Raises `NotFound` if no experiment can have this name, and `ApiError` if
        the user may not list Pods.
        """
        # The API server rejects a selector with an invalid name.
        if not is_name(self._experiment.name):
            raise experiment_not_found(self._experiment.name, [])
        with self._listing:
            try:
                pods = self._informer.start(PODS)
            except ApiError as exc:
                if exc.status != 403:
                    raise
                raise cannot_list_pods(exc, self._experiment.scope) from exc
            self._apply_changes()
            if self._is_listed:
                for kind in self._started:
                    self._list_optional(kind)
                return pods
            pods = self._list_others(pods)
            self._is_listed = True
            return pods

    def _list_others(self, pods: tuple[Object, ...]) -> tuple[Object, ...]:
        """List the Jobs and JobSets if any could exist, and return the latest list of the Pods."""
        state = self.state
        if state.known_units.has_jobs or (state.empty and not self._supervising):
            self._list_optional(JOBS)
        if not self._supervising:
            complete_state(self._experiment, state)
            if state.may_have_missed_launch:
                pods = self._informer.start(PODS)
                self._apply_changes()
                if state.known_units.has_jobs:
                    self._list_optional(JOBS)
            elif state.known_units.has_jobs and JOBS not in self._started:
                # The Pod with the roster was deleted, so that only the stored record names the
                # Jobs.
                self._list_optional(JOBS)
        if state.known_units.has_job_sets or (state.empty and not self._supervising):
            self._list_optional(JOB_SETS)
        return pods

    def _list_optional(self, kind: str) -> None:
        self._started.add(kind)
        list_if_possible(
            partial(self._informer.start, kind, optional=True, poll_seconds=POLL_SECONDS)
        )
        self._apply_changes()

    def list_supervisors(self, listener: list[Change]) -> None:
        """List the Pods of the supervisor, watch them, and add all changes to ``listener``.

        The changes of the events of Kubernetes are also added; see `list_events`.
        """
        with self.changed:
            self._listeners.append(listener)
        with self._listing:
            self._informer.start(SUPERVISORS)
            self._apply_changes()

    def list_events(self) -> None:
        """List the events of Kubernetes, and watch them.

        Raises `ApiError` if the user may not list them.
        """
        with self._listing:
            self._informer.start(EVENTS, optional=True, poll_seconds=EVENT_POLL_SECONDS)
            self._apply_changes()

    def remove_listener(self, listener: list[Change]) -> None:
        """Do not add changes to ``listener`` any more."""
        with self.changed:
            self._listeners = [item for item in self._listeners if item is not listener]

    def update(self) -> None:
        """Apply the changes that have arrived, and list Jobs and JobSets as soon as there are some.

        Raises `Unreachable` or `ApiError` if a watch cannot be continued.
        """
        if not self._apply_changes():
            return
        with self.changed:
            units = self.state.known_units
            needed = {JOBS: units.has_jobs, JOB_SETS: units.has_job_sets}
        for kind, is_needed in needed.items():
            if not is_needed or kind in self._started:
                continue
            with self._listing:
                if kind not in self._started:
                    self._list_optional(kind)

    def observe(self) -> Observation:
        """Return the present state, as far as the changes were applied."""
        with self.changed:
            now = self._experiment.api.now()
            latest = self._observation
            if latest is None or (latest.valid_until is not None and now >= latest.valid_until):
                began = time.monotonic()
                latest = self._observation = self.state.observe(now)
                if self._ready_logs is not None:
                    self._ready_logs.follow(latest, self.state.units)
                ended = time.monotonic()
                self._rests_until = ended + min(REST_FACTOR * (ended - began), MAX_REST_SECONDS)
            return latest

    def read_ready_logs(self) -> None:
        """Read the logs that show when processes are ready, and follow them if objects are watched.

        The present logs of processes that seem to be late are read first: perhaps no program has
        read them in time.
        """
        from symphony_kube.status.ready_logs import ReadyLogs, find_ready, unready_executions

        with self.changed:
            if self._ready_logs is not None:
                return
            latest, roster = self.observe(), self.state.units
        executions = unready_executions(latest, roster, late=self._follows)
        find_ready(self._experiment, executions, self._note_ready)
        with self.changed:
            if self._follows and self._ready_logs is None:
                self._ready_logs = ReadyLogs(self._experiment, self._note_ready)
                self._observation = None

    def _note_ready(self, execution: Execution) -> None:
        with self.changed:
            self.state.objects.note_ready(
                execution.unit,
                execution.uid,
                execution.process,
                execution.restarts,
                now=self._experiment.api.now(),
            )
            self._observation = None
            self.version += 1
            self.changed.notify_all()

    @property
    def rest_seconds(self) -> float:
        """For how long readers should collect changes before the next observation.

        It takes time to observe many processes, so that one that is computed for each of many
        changes would use the CPU all the time.
        """
        return max(0.0, self._rests_until - time.monotonic())

    @property
    def has_changes(self) -> bool:
        """True if `update` would apply changes or raise an error."""
        return self._informer.has_changes

    def _apply_changes(self) -> bool:
        """Apply the changes that have arrived. Return whether there were any."""
        with self.changed:
            changes = self._informer.take()
            for change in changes:
                self._apply(change)
            if changes:
                self.version += 1
                self.changed.notify_all()
        return bool(changes)

    def _apply(self, change: Change) -> None:
        if change.kind in (EVENTS, SUPERVISORS):
            for listener in self._listeners:
                listener.append(change)
            return
        self._observation = None
        if change.event != "DELETED":
            self._note_runs(change.objects)
        if change.event == LISTED:
            self.state.replace(change.kind, change.objects)
        else:
            self.state.apply(change.kind, change.event, *change.objects)

    def _note_runs(self, objects: Iterable[Object]) -> None:
        """Note the runs of objects that exist."""
        for item in objects:
            run = labels_of(item).get(RUN, "")
            created = item["metadata"].get("creationTimestamp", "")
            # A list can contain objects of earlier launches. Two launches can have the same second.
            if not run or run in self._runs or created < self._run_since:
                continue
            self.is_replaced = bool(self._runs) and self._is_listed
            self._runs.add(run)
            self._run_since = created


def _paths(scope: Scope) -> dict[str, str]:
    namespace = scope.namespace
    return {
        PODS: collection_path("Pod", namespace),
        JOBS: collection_path("Job", namespace),
        JOB_SETS: collection_path("JobSet", namespace),
        SUPERVISORS: collection_path("Pod", namespace),
        EVENTS: f"/api/v1/namespaces/{namespace}/events",
    }


def _queries(scope: Scope) -> dict[str, dict[str, str]]:
    """Return the queries of the kinds whose objects are not those of processes."""
    supervisor = f"{MANAGED_SELECTOR},{SUPERVISOR}={scope.experiment}"
    if scope.run:
        supervisor = f"{supervisor},{RUN}={scope.run}"
    return {
        SUPERVISORS: {"labelSelector": supervisor},
        EVENTS: {"fieldSelector": FIELD_SELECTOR},
    }
