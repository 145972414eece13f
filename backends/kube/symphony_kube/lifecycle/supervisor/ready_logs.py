"""Read the logs that show when processes are ready."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Collection
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from symphony.errors import BackendError, Unreachable
from symphony.line_search import LineSearch, SearchError, SearchProcess
from symphony.status import ENDED
from symphony_kube.api.client import MERGE_PATCH, ResponseStream
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import LOG_PROBLEMS, READY, Scope
from symphony_kube.render.roster import Roster, Unit
from symphony_kube.state.observe import Observation
from symphony_kube.state.pod_status import ContainerStatus
from symphony_kube.status import find_pod

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

# The pause between attempts to read a log, and between checks for newly found lines.
LOG_POLL_SECONDS = 0.5


def _awaited_log_patterns(
    roster: Roster, others: Collection[str] = ()
) -> dict[str, tuple[Unit, str]]:
    """Return the log patterns of the processes whose readiness is awaited, keyed by process name.

    ``others`` contains further processes. Each entry contains the process's unit and a regular
    expression. The process is ready when a line in its log matches this expression.
    """
    awaited = {
        name
        for unit in roster
        for name, condition in unit.starts_after.items()
        if condition == "ready"
    }
    patterns = {}
    for unit in roster:
        for process, pattern in unit.logs.items():
            if process in awaited or process in others:
                patterns[process] = (unit, pattern)
    return patterns


class ReadyLogs:
    """A reader of the logs that show when processes are ready.

    A process's log is read only if another process waits for its readiness, or if it is in
    ``others``. If the user is allowed
    to modify a ready process's Pod, the process is recorded as ready in an annotation of the Pod,
    which later observers read. Use an instance as a context manager.
    """

    def __init__(
        self, api: Api, scope: Scope, roster: Roster, *, others: Collection[str] = ()
    ) -> None:
        self._api = api
        self._scope = scope
        self._patterns = _awaited_log_patterns(roster, others)
        self._search_process = SearchProcess()
        # The first set contains the processes whose logs show that they are ready, each with its
        # Pod. The second set contains those of them that `add_ready` has already returned as ready.
        self._ready: set[tuple[str, str]] = set()
        self._returned: set[tuple[str, str]] = set()
        # These sets contain process runs, each identified by a process name and a start time. The
        # first set contains the runs whose logs are currently being read. The second set contains
        # all runs for which a reader has been started.
        self._reading: set[tuple[str, float]] = set()
        self._followed: set[tuple[str, float]] = set()
        # Messages about lines that took too long to search, by the name of the Pod and of the
        # process.
        self._problems: dict[str, dict[str, str]] = {}
        self._streams: set[ResponseStream] = set()
        self._recorded: dict[str, set[str]] = {}
        self._record_lock = threading.Lock()
        self._stopped = threading.Event()

    def __enter__(self) -> ReadyLogs:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        for stream in list(self._streams):
            stream.close()
        if kind is None:
            # The supervisor may exit after this method returns, so wait until the last ready
            # process is recorded.
            with self._record_lock:
                pass

    @property
    def pending(self) -> bool:
        """True if a log is being read, or if `add_ready` has not yet returned every ready
        process.
        """
        return bool(self._reading) or self._returned != self._ready

    def add_ready(self, observation: Observation) -> dict[str, ContainerStatus]:
        """Return the states of all processes, with ``was_ready`` set for each process whose log
        shows that it is ready.

        Also start to read the logs of processes that have started.
        """
        ready = set(self._ready)
        self._returned = ready
        states = dict(observation.containers)
        for process, (unit, _) in self._patterns.items():
            state = states[process]
            unit_status = observation.unit_statuses.get(unit.name)
            if unit_status is None or not unit_status.pods or state.started is None:
                continue
            pod = unit_status.pods[-1].name
            if (process, pod) in ready:
                states[process] = replace(state, was_ready=True)
                continue
            if process in unit_status.pods[-1].ready_by_log or state.state in ENDED:
                continue
            process_run = (process, state.started)
            if process_run not in self._followed:
                self._followed.add(process_run)
                self._reading.add(process_run)
                threading.Thread(
                    target=self._follow,
                    args=(*process_run, pod),
                    daemon=True,
                    name=f"ready-{process}",
                ).start()
        return states

    def has_found(self, process: str, pod: str) -> bool:
        """Return whether the log of a process in a Pod shows that it is ready."""
        return (process, pod) in self._ready

    def _follow(self, process: str, started: float, pod: str) -> None:
        """Read a process's log until the line that shows readiness is found or the log ends."""
        try:
            self._read_with_retries(process, pod)
        finally:
            self._reading.discard((process, started))

    def _read_with_retries(self, process: str, pod: str) -> None:
        while not self._stopped.is_set():
            try:
                self._read(process, pod)
                return
            except (Unreachable, SearchError):
                self._stopped.wait(LOG_POLL_SECONDS)
            except ApiError as exc:
                # Status 400 means that the container does not have a log yet.
                if exc.status != 400 or self._stopped.wait(LOG_POLL_SECONDS):
                    return
            except BackendError:
                return

    def _read(self, process: str, pod: str) -> None:
        _, pattern = self._patterns[process]
        if self._find_line(pod, process, pattern):
            with self._record_lock:
                self._ready.add((process, pod))
                self._record(pod, process)

    def _find_line(self, pod: str, process: str, pattern: str) -> bool:
        """Follow a log, and return whether a line matched ``pattern`` before the log ended.

        Raises SearchError if the log cannot be searched.
        """
        stream = self._api.open_stream(
            find_pod.pod_path(self._scope, pod, "log"),
            query={"container": process, "follow": "true"},
        )
        self._streams.add(stream)
        try:
            # If `__exit__` ran while the stream was being opened, it could not close the stream.
            if self._stopped.is_set():
                return False
            with contextlib.closing(LineSearch(self._search_process, pattern)) as search:
                return self._search(stream, search, pod, process)
        finally:
            stream.close()
            self._streams.discard(stream)

    def _search(self, stream: ResponseStream, search: LineSearch, pod: str, process: str) -> bool:
        search.prepare()
        for data in stream.chunks():
            search.add(data)
            if self._search_added(search, pod, process):
                return True
        search.complete_last_line()
        return self._search_added(search, pod, process)

    def _search_added(self, search: LineSearch, pod: str, process: str) -> bool:
        while search.is_behind and not self._stopped.is_set():
            if search.search_next():
                return True
            if search.problem:
                self._report_problem(pod, process, search.problem)
        return False

    def _report_problem(self, pod: str, process: str, problem: str) -> None:
        """Record in a Pod annotation that a process's log takes too long to search."""
        with self._record_lock:
            problems = self._problems.setdefault(pod, {})
            if problems.get(process) == problem:
                return
            problems[process] = problem
            self._annotate(pod, LOG_PROBLEMS, json.dumps(problems))

    def _record(self, pod: str, process: str) -> None:
        """Record in a Pod annotation that a process is ready.

        If the Pod cannot be modified, for example because the user lacks permission, only this
        supervisor knows that the process is ready.
        """
        recorded = self._recorded.setdefault(pod, set())
        recorded.add(process)
        self._annotate(pod, READY, ",".join(sorted(recorded)))

    def _annotate(self, pod: str, annotation: str, value: str) -> None:
        patch = {"metadata": {"annotations": {annotation: value}}}
        path = find_pod.pod_path(self._scope, pod)
        with contextlib.suppress(BackendError):
            self._api.call("PATCH", path, body=patch, content_type=MERGE_PATCH)
