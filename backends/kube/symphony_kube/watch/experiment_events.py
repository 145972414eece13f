"""The events of an experiment, from the states of its objects and the events of Kubernetes.

`EventStream` derives them from the observations of the experiment, from the Pods of its supervisor,
and from the events of Kubernetes in the namespace.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError, NotFound
from symphony.events import EXIT_KINDS, EventKind, ExperimentEvent, events_between
from symphony.status import ENDED, ExperimentStatus
from symphony_kube.api import client
from symphony_kube.api.errors import ApiError
from symphony_kube.api.resources import items_of
from symphony_kube.render.attempt_names import first_name
from symphony_kube.state.observe import observe
from symphony_kube.status import experiments
from symphony_kube.status.event_sources.earlier_runs import (
    earlier_events,
    has_unhealthy_execution,
    unhealthy_events,
)
from symphony_kube.status.event_sources.event_times import first_time
from symphony_kube.status.event_sources.health_results import HealthResults
from symphony_kube.status.event_sources.kubernetes_warnings import KubernetesWarnings
from symphony_kube.status.event_sources.pod_events import list_events
from symphony_kube.status.event_sources.supervisor_events import SupervisorEvents
from symphony_kube.status.find_pod import pod_path
from symphony_kube.status.list_objects import list_pods
from symphony_kube.watch.experiment_informer import SUPERVISORS
from symphony_kube.watch.observations import ObservationStream

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment
    from symphony_kube.state.observe import Observation
    from symphony_kube.state.pod_status import UnhealthyEnd

Object = Mapping[str, Any]

# After the deletion of one Pod, wait this long for the deletion of the other Pods.
DELETION_SETTLE_SECONDS = 1.0
# How long the requests of a command can be incomplete while it is running.
UNFINISHED_SECONDS = 5.0
# The last lines of a supervisor's log that are read, of which the last one may be empty.
_LAST_LINES = 5


def iter_events(
    experiment: KubeExperiment, names: Container[str] | None, *, follow: bool
) -> Iterator[ExperimentEvent]:
    """Yield the events of an experiment.

    With ``follow``, continue until the experiment has finished or was deleted, or until the
    processes ``names`` have exited.
    """
    events = EventStream(experiment, follow=follow)
    with events.stream as stream:
        events.start()
        observation: Observation | None = stream.first()
        while observation is not None:
            yield from events.take(observation, experiment.api.now())
            if not follow:
                return
            try:
                observation = _next(stream, observation, names)
            except NotFound:
                # The experiment was deleted.
                return


def _next(
    stream: ObservationStream, observation: Observation, names: Container[str] | None
) -> Observation | None:
    """Return the next observation, or None if no more events are expected."""
    awaited = [
        process
        for process in observation.status
        if process.state not in ENDED and (names is None or process.name in names)
    ]
    if awaited:
        return stream.next()
    if observation.deleted_units:
        # Kubernetes deletes an experiment's Pods one after the other.
        return stream.next(DELETION_SETTLE_SECONDS)
    return None


def _unhealthy_events(
    ends: Mapping[str, UnhealthyEnd], known: Iterable[ExperimentEvent], results: HealthResults
) -> list[ExperimentEvent]:
    """Return the events for the ends of unhealthy processes.

    The exits that ``known`` contains are omitted. A status does not show the exit of a container
    that its kubelet has started again at once.
    """
    exits = {(event.process, event.at) for event in known if event.kind in EXIT_KINDS}
    events = []
    for name, end in ends.items():
        for event in unhealthy_events(name, end, results):
            if event.kind is EventKind.UNHEALTHY or (name, event.at) not in exits:
                events.append(event)
    return events


def _late_processes(status: ExperimentStatus) -> set[str]:
    return {process.name for process in status if process.not_ready_in_time}


class EventStream:
    """The events of an experiment.

    They follow from the observations of ``stream``, from the Pods of the supervisor and from the
    events of Kubernetes. If the user may not list the events of Kubernetes, one event reports this.
    """

    def __init__(self, experiment: KubeExperiment, *, follow: bool = True) -> None:
        self._experiment = experiment
        self.stream = ObservationStream(
            experiment, follow=follow, reads_ready_logs=True, has_news=self._has_news
        )
        self._previous: ExperimentStatus | None = None
        self._listed_pods: tuple[client.Object, ...] = ()
        self._known_revision = 0
        # The latest ends of processes that were unhealthy.
        self._unhealthy_ends: dict[str, UnhealthyEnd] = {}
        self._unfinished_since: float | None = None
        self._supervisor = SupervisorEvents(self._read_last_line)
        self._warnings = KubernetesWarnings()
        # The events that have not been returned yet.
        self._news: list[ExperimentEvent] = []
        # The obstacles that have been reported since the latest start of each process.
        self._texts: set[tuple[str | None, str]] = set()

    def start(self) -> None:
        """List all objects, and begin to watch them; see `ObservationStream.start`."""
        self._listed_pods = self.stream.start()
        self._news += self._events_of_removed_processes()
        self.stream.list_supervisors()
        try:
            self.stream.list_events()
        except ApiError as exc:
            if exc.status != 403:
                raise
            text = (
                "the events of Kubernetes are not shown, because you may not list events in "
                f"namespace {self._experiment.namespace!r}"
            )
            now = self._experiment.api.now()
            note = ExperimentEvent(at=now, kind=EventKind.WARNING, text=f"note: {text}")
            self._news.append(note)

    def _events_of_removed_processes(self) -> list[ExperimentEvent]:
        """Return the events of processes that a change has removed, from the Pods that are kept."""
        scope = self._experiment.scope
        query = {"labelSelector": scope.removed_selector}
        answer = self._experiment.api.call("GET", pod_path(scope), query=query)
        pods = items_of(answer)
        names = {item["name"] for pod in pods for item in pod["spec"]["containers"]}
        now = self._experiment.api.now()
        status = observe(self._experiment.name, pods, now=now).status
        return [event for event in events_between(None, status, now) if event.process in names]

    def _has_news(self) -> bool:
        """Return whether there are events that do not follow from the state of the experiment."""
        for change in self.stream.take_other_changes():
            if change.event == "DELETED":
                continue
            if change.kind == SUPERVISORS:
                self._news += self._supervisor.add(change.objects)
            else:
                self._warnings.add(change.objects)
        self._news += self._warnings.take(self._find_processes)
        return bool(self._news)

    def take(self, observation: Observation, now: float) -> list[ExperimentEvent]:
        """Return the events since the previous call, in chronological order.

        ``observation`` is that of the stream at the time ``now``.
        """
        status = self._without_passing_note(observation, now)
        shown = self._with_test_results(status)
        unhealthy = self._find_unhealthy_ends(observation)
        results = self._read_health_results(unhealthy)
        shown = results.explain(shown)
        ready_since = self._find_ready_times(observation)
        events = events_between(self._previous, shown, now, changes=False, ready_since=ready_since)
        if self._previous is None:
            # An exit and the next start can have the same time, which is in whole seconds.
            launched, *others = events
            earlier = earlier_events(self._listed_pods, status, events, results)
            events = [launched, *earlier, *others]
            self._listed_pods = ()
        events = [*_unhealthy_events(unhealthy, events, results), *events]
        self._previous = status
        events += self._new_changes()
        self._has_news()
        events += self._news
        self._news = []
        # A warning can be recorded later than the end.
        events.sort(key=lambda event: (event.kind is EventKind.FINISHED, event.at))
        return [event for event in events if self._is_new(event)]

    def _find_ready_times(self, observation: Observation) -> dict[str, float]:
        """Return the times at which processes with readiness tests became ready."""
        times = {}
        for unit in self.stream.units:
            for name in unit.ready:
                container = observation.containers.get(name)
                if container is not None and container.ready_since is not None:
                    times[name] = container.ready_since
        return times

    def _with_test_results(self, status: ExperimentStatus) -> ExperimentStatus:
        """Return the status with the last results of the readiness tests of processes that have
        just missed their time limits.
        """
        known = set() if self._previous is None else _late_processes(self._previous)
        late = _late_processes(status) - known
        if not late:
            return status
        explained = experiments.explain_now(self._experiment, status, self.stream.state)
        if explained is None:
            return status
        found = {process.name: process for process in explained if process.name in late}
        processes = [found.get(process.name, process) for process in status]
        return replace(status, processes=tuple(processes))

    def _find_unhealthy_ends(self, observation: Observation) -> dict[str, UnhealthyEnd]:
        """Return the new ends of processes that were unhealthy."""
        found = {}
        for name, container in observation.containers.items():
            end = container.unhealthy_end
            if end is None or self._unhealthy_ends.get(name) == end:
                continue
            # A Pod that has not finished yet can hide the end.
            has_started_again = container.started is not None and container.started >= end.ended
            if not container.failed_tests and not has_started_again:
                continue
            self._unhealthy_ends[name] = end
            # Earlier ends are among the other events of earlier executions.
            if self._previous is not None or container.failed_tests:
                found[name] = end
        return found

    def _read_health_results(self, unhealthy: Mapping[str, UnhealthyEnd]) -> HealthResults:
        """Return the results of the tests of unhealthy processes, also of earlier executions."""
        if not unhealthy and not any(map(has_unhealthy_execution, self._listed_pods)):
            return HealthResults((), ())
        try:
            pods = list_pods(self._experiment)
        except BackendError:
            return HealthResults((), ())
        return HealthResults(pods, list_events(self._experiment) or ())

    def _without_passing_note(self, observation: Observation, now: float) -> ExperimentStatus:
        """Return the status without the note that a command seems to be interrupted.

        A command records its requests one after the other, so the note must last for some time.
        """
        status = observation.status
        if not observation.unfinished:
            self._unfinished_since = None
            return status
        if self._unfinished_since is None:
            self._unfinished_since = now
        is_passing = now < self._unfinished_since + UNFINISHED_SECONDS
        if self._previous is None or not is_passing:
            return status
        return replace(status, note=self._previous.note)

    def _new_changes(self) -> list[ExperimentEvent]:
        changes = [
            change for change in self.stream.changes if change.revision > self._known_revision
        ]
        for change in changes:
            self._known_revision = max(self._known_revision, change.revision)
        return [change.to_event() for change in changes]

    def _is_new(self, event: ExperimentEvent) -> bool:
        """Return whether an event is not a warning that repeats the reason of a process."""
        if event.kind is EventKind.STARTED:
            self._texts = {key for key in self._texts if key[0] != event.process}
        if event.kind not in (EventKind.WAITING, EventKind.WARNING):
            return True
        key = (event.process, event.text)
        is_repeated = event.kind is EventKind.WARNING and key in self._texts
        self._texts.add(key)
        return not is_repeated

    def _find_processes(self, event: Object) -> tuple[str | None, ...]:
        """Return the processes of the object that an event of Kubernetes concerns."""
        involved = event["involvedObject"]
        uid = str(involved.get("uid"))
        if uid in self._supervisor.uids:
            return (None,)
        processes = self.stream.state.objects.processes_of(uid)
        return processes or self._processes_of_deleted_pod(event)

    def _processes_of_deleted_pod(self, event: Object) -> tuple[str | None, ...]:
        """Return the processes of a Pod that was deleted before it could be observed.

        Its name is that of its unit. An event that is older than the experiment concerns an object
        of an earlier launch.
        """
        created = None if self._previous is None else self._previous.created
        if created is None or first_time(event) < created:
            return ()
        name = first_name(str(event["involvedObject"].get("name")))
        for unit in self.stream.units:
            if self._experiment.scope.object_name(unit.name) == name:
                return unit.processes
        return ()

    def _read_last_line(self, pod: Object, is_previous: bool) -> str:
        """Return the last line of the log of a supervisor, or ``""`` if it cannot be read.

        A container that has exited can have started again before its log is requested. Then, its
        log is the previous one.
        """
        for previous in (True,) if is_previous else (False, True):
            line = self._read_log_end(pod, is_previous=previous)
            if line:
                return line
        return ""

    def _read_log_end(self, pod: Object, *, is_previous: bool) -> str:
        query = {"tailLines": str(_LAST_LINES), "previous": "true" if is_previous else "false"}
        path = pod_path(self._experiment.scope, pod["metadata"]["name"], "log")
        try:
            stream = self._experiment.api.open_stream(path, query=query)
            text = b"".join(stream.chunks()).decode(errors="replace")
        except BackendError:
            return ""
        lines = text.split("\n")
        return next((line for line in reversed(lines) if line.strip()), "")
