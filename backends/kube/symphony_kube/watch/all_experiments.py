"""Follow the statuses of all experiments by listing and watching their objects.

The objects of each kind are listed with one request for all experiments, and then watched.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import TracebackType

from symphony.status import ExperimentStatus
from symphony_kube.api import labels
from symphony_kube.api.client import Api, Object
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.labels import Scope
from symphony_kube.api.resources import NAMESPACES, collection_path, labels_of
from symphony_kube.state.observe import BACKEND, ExperimentState
from symphony_kube.state.observed_objects import JOB_SETS, JOBS, PODS
from symphony_kube.status.experiments import (
    EXPERIMENTS_SELECTOR,
    NOTHING_LEFT,
    complete_state,
    list_if_possible,
)
from symphony_kube.watch.informer import LISTED, Informer

SERVICES, SECRETS, OWN_NAMESPACES = "services", "secrets", "namespaces"
# The kinds of objects that determine the states of processes.
_OBSERVED = (PODS, JOBS, JOB_SETS)
_PRESENT_SELECTOR = f"{EXPERIMENTS_SELECTOR},!{labels.REMOVED_UNIT}"
# How often objects are listed that the user may not watch.
_POLL_SECONDS = 2.0
# How often the stored roster is read if an experiment has no Pods and no Jobs. A launch may not
# have stored it yet.
_UNKNOWN_PAUSE_SECONDS = 10.0


class ExperimentsWatch:
    """The statuses of all experiments in ``namespace``, or of those that have their own namespaces.

    Without ``follow``, the objects are only listed. Close the watch when it is no longer needed.
    """

    def __init__(self, api: Api, *, namespace: str | None, follow: bool = True) -> None:
        self._api = api
        self._namespace = namespace
        self._states: dict[str, ExperimentState] = {}
        # The UIDs of all objects, by kind and experiment.
        self._uids: dict[str, dict[str, set[str]]] = {}
        # When to read the stored roster of each experiment, unless that is not necessary.
        self._due: dict[str, float] = {}
        self._informer = Informer(
            api,
            {
                PODS: collection_path("Pod", namespace),
                JOBS: collection_path("Job", namespace),
                JOB_SETS: collection_path("JobSet", namespace),
                SERVICES: collection_path("Service", namespace),
                SECRETS: collection_path("Secret", namespace),
                OWN_NAMESPACES: NAMESPACES,
            },
            EXPERIMENTS_SELECTOR,
            queries={kind: {"labelSelector": _PRESENT_SELECTOR} for kind in _OBSERVED},
            metadata_only=(SERVICES, SECRETS),
            follow=follow,
        )

    def __enter__(self) -> ExperimentsWatch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._informer.close()

    @property
    def silent_seconds(self) -> float:
        """See `Informer.silent_seconds`."""
        return self._informer.silent_seconds

    def start(self) -> None:
        """List the objects that determine the states of processes.

        Raises `ApiError` if the user may not list Pods.
        """
        self._start(PODS)
        self._start_optional(JOBS)
        self._complete()

    def start_names(self) -> None:
        """List the other objects, which experiments without Pods and Jobs have.

        Raises `ApiError` if the user may not list namespaces, and none is given.
        """
        if self._namespace is None:
            self._start(OWN_NAMESPACES)
        else:
            self._start_optional(SERVICES)
            self._start_optional(SECRETS)
        self._complete()

    def read(self) -> list[ExperimentStatus]:
        """Apply all changes that have arrived, and return the statuses, sorted by name.

        Raises `Unreachable` or `ApiError` if a watch cannot be continued.
        """
        self._apply_changes()
        # Requests would wait for the end of an outage.
        if not self.silent_seconds:
            self._complete()
        return [self._observe(name, state) for name, state in sorted(self._states.items())]

    def complete_readiness(self) -> None:
        """Read the logs that show whether processes are ready."""
        for name, state in self._states.items():
            if any(unit.logs for unit in state.units):
                from symphony_kube.status.ready_logs import complete_readiness

                complete_readiness(KubeExperiment(self._api, self._scope(name)), state)

    def _start(self, kind: str) -> tuple[Object, ...]:
        """List the objects of a kind and watch them, or list them again if watching is refused."""
        objects = self._informer.start(kind, optional=True, poll_seconds=_POLL_SECONDS)
        self._apply_changes()
        return objects

    def _start_optional(self, kind: str) -> None:
        """Do the same, unless the user may not list them."""
        self._uids[kind] = {}
        list_if_possible(lambda: self._start(kind))

    def _apply_changes(self) -> None:
        for change in self._informer.take():
            if change.event == LISTED:
                self._replace(change.kind, change.objects)
            else:
                self._apply(change.kind, change.event, change.objects[0])

    def _replace(self, kind: str, objects: Iterable[Object]) -> None:
        found: dict[str, list[Object]] = {name: [] for name in self._uids.get(kind, {})}
        self._uids[kind] = {}
        for item in objects:
            for name in self._owner(item):
                found.setdefault(name, []).append(item)
                self._uids[kind].setdefault(name, set()).add(item["metadata"]["uid"])
        for name, of_experiment in found.items():
            if kind in _OBSERVED:
                self._state_of(name).replace(kind, of_experiment)
            self._note_change(name)

    def _apply(self, kind: str, event: str, item: Object) -> None:
        for name in self._owner(item):
            uids = self._uids[kind].setdefault(name, set())
            if event == "DELETED":
                uids.discard(item["metadata"]["uid"])
            else:
                uids.add(item["metadata"]["uid"])
            if not uids:
                del self._uids[kind][name]
            if kind in _OBSERVED:
                self._state_of(name).apply(kind, event, item)
            self._note_change(name)

    def _owner(self, item: Object) -> Iterator[str]:
        """Yield the experiment of an object, unless the object is in a foreign namespace."""
        name = labels_of(item)[labels.EXPERIMENT]
        metadata = item["metadata"]
        # A namespace has no namespace.
        if self._namespace is not None or metadata.get("namespace", metadata["name"]) == name:
            yield name

    def _state_of(self, name: str) -> ExperimentState:
        return self._states.setdefault(name, ExperimentState(name))

    def _note_change(self, name: str) -> None:
        kinds = [kind for kind, names in self._uids.items() if name in names]
        if not kinds:
            self._states.pop(name, None)
            self._due.pop(name, None)
            return
        self._due[name] = 0.0
        if not set(kinds) & set(_OBSERVED):
            # Nothing that is known of deleted objects applies to those of another launch.
            self._states[name] = ExperimentState(name)

    def _complete(self) -> None:
        """Read what the objects do not show of the experiments that have changed."""
        now = time.monotonic()
        for name, due in list(self._due.items()):
            # Another experiment can have brought news of the deletion of this one.
            if now < due or name not in self._due:
                continue
            del self._due[name]
            state = self._states[name]
            complete_state(KubeExperiment(self._api, self._scope(name)), state)
            if state.may_have_missed_launch:
                # The watch of the Pods can be later than that of the other objects.
                self._start(PODS)
                if state.known_units.has_jobs:
                    list_if_possible(lambda: self._start(JOBS))
            if state.known_units.has_job_sets and JOB_SETS not in self._uids:
                self._start_optional(JOB_SETS)
            if not state.is_known:
                self._due[name] = now + _UNKNOWN_PAUSE_SECONDS

    def _observe(self, name: str, state: ExperimentState) -> ExperimentStatus:
        if not state.is_known:
            return ExperimentStatus(name=name, backend=BACKEND, note=NOTHING_LEFT)
        status = state.observe(self._api.now()).status
        return replace(status, clock_offset=self._api.clock_offset)

    def _scope(self, name: str) -> Scope:
        if self._namespace is None:
            return Scope(experiment=name, namespace=name)
        return Scope(experiment=name, namespace=self._namespace, shared=True)


def list_together(api: Api, *, namespace: str | None) -> list[ExperimentStatus]:
    """Return the statuses of all experiments, which takes one list request for each kind.

    Experiments without Pods and Jobs are omitted. Reasons that only events contain are missing.
    Raises `ApiError` if the user may not list the Pods of all namespaces, or of ``namespace``.
    """
    with ExperimentsWatch(api, namespace=namespace, follow=False) as watch:
        watch.start()
        watch.complete_readiness()
        return watch.read()
