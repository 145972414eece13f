"""Read the logs that show when processes are ready.

Kubernetes cannot test a log. Whoever shows or awaits the readiness of processes therefore reads
their logs, unless another program has already recorded the result in an annotation of the Pod.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError, Unreachable
from symphony.line_search import LineSearch, SearchError, SearchProcess
from symphony.status import State
from symphony_kube.api.client import ResponseStream
from symphony_kube.api.compare_and_swap import compare_and_swap
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import LOG_PROBLEMS, READY
from symphony_kube.api.resources import collection_path
from symphony_kube.state.log_results import decode_log_problems, decode_ready, encode_ready
from symphony_kube.state.pod_status import PodStatus

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment
    from symphony_kube.render.roster import Roster
    from symphony_kube.state.observe import ExperimentState, Observation

# The pause between attempts to read a log.
RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Execution:
    """An execution of a container whose log shows when the process is ready.

    ``pattern`` is the regular expression that a line of its log matches. ``restarts`` is the number
    of earlier executions of the container.
    """

    unit: str
    process: str
    pod: str
    uid: str
    restarts: int
    pattern: str


# A function that is called when the log of an execution shows that the process is ready.
OnReady = Callable[[Execution], None]


def unready_executions(
    observation: Observation, roster: Roster, *, late: bool = False
) -> list[Execution]:
    """Return the running executions whose logs have not shown yet that the processes are ready.

    With ``late``, return only those that were not ready in time as far as is known.
    """
    found = []
    for unit in roster:
        status = observation.unit_statuses.get(unit.name)
        if not unit.logs or status is None or not status.pods:
            continue
        pod = status.pods[-1]
        for process, pattern in unit.logs.items():
            if not _is_unready(pod, process):
                continue
            if not late or observation.containers[process].never_ready:
                found.append(_latest_execution(pod, process, pattern))
    return found


def _latest_execution(pod: PodStatus, process: str, pattern: str) -> Execution:
    return Execution(
        unit=pod.unit,
        process=process,
        pod=pod.name,
        uid=pod.uid,
        restarts=pod.containers[process].restarts,
        pattern=pattern,
    )


def _is_unready(pod: PodStatus, process: str) -> bool:
    container = pod.containers.get(process)
    if container is None or container.state is not State.RUNNING or pod.deadline is not None:
        return False
    return process not in pod.ready_by_log


def find_ready(
    experiment: KubeExperiment, executions: Iterable[Execution], on_ready: OnReady
) -> None:
    """Read the present logs of executions, and call ``on_ready`` for those that are ready.

    A log that cannot be read or searched shows nothing.
    """
    todo = list(executions)
    if not todo:
        return
    reader = _LogReader(experiment, on_ready)

    def read(execution: Execution) -> None:
        with contextlib.suppress(BackendError, SearchError):
            reader.read(execution, follow=False)

    with ThreadPoolExecutor(min(len(todo), experiment.api.connections)) as pool:
        list(pool.map(read, todo))


def complete_readiness(experiment: KubeExperiment, state: ExperimentState) -> None:
    """Note in ``state`` which processes are ready according to their present logs."""
    observation = state.observe(experiment.api.now())
    executions = unready_executions(observation, state.units)
    found: list[Execution] = []
    find_ready(experiment, executions, found.append)
    now = experiment.api.now()
    for item in found:
        state.objects.note_ready(item.unit, item.uid, item.process, item.restarts, now=now)


class ReadyLogs:
    """A reader that follows the logs of processes until these show that the processes are ready.

    ``on_ready`` is called in other threads. Call `close` at the end.
    """

    def __init__(self, experiment: KubeExperiment, on_ready: OnReady) -> None:
        self._reader = _LogReader(experiment, on_ready)
        self._followed: set[Execution] = set()

    def follow(self, observation: Observation, roster: Roster) -> None:
        """Begin to follow the logs of executions that are not followed yet."""
        for execution in unready_executions(observation, roster):
            if execution in self._followed:
                continue
            self._followed.add(execution)
            threading.Thread(
                target=partial(self._reader.follow, execution),
                daemon=True,
                name=f"ready-{execution.process}",
            ).start()

    def close(self) -> None:
        """Stop reading logs, and wait until the last result is recorded."""
        self._reader.close()


class _LogReader:
    """A reader of the logs of executions.

    If the user may modify a Pod, the results are recorded in its annotations, which all others
    read. ``on_ready`` is called after that.
    """

    def __init__(self, experiment: KubeExperiment, on_ready: OnReady) -> None:
        self._experiment = experiment
        self._on_ready = on_ready
        self._search_process = SearchProcess()
        # Messages about lines that took too long to search.
        self._problems: dict[Execution, str] = {}
        self._record_lock = threading.Lock()
        self._streams: set[ResponseStream] = set()
        self._stopped = threading.Event()

    def close(self) -> None:
        """See `ReadyLogs.close`."""
        self._stopped.set()
        for stream in list(self._streams):
            stream.close()
        # The process may exit after this method returns.
        with self._record_lock:
            pass

    def follow(self, execution: Execution) -> None:
        """Read a log until the line that shows readiness is found or the log ends."""
        while not self._stopped.is_set():
            try:
                self.read(execution, follow=True)
                return
            except (Unreachable, SearchError):
                self._stopped.wait(RETRY_SECONDS)
            except ApiError as exc:
                # Status 400 means that the container does not have a log yet.
                if exc.status != 400 or self._stopped.wait(RETRY_SECONDS):
                    return
            except BackendError:
                return

    def read(self, execution: Execution, *, follow: bool) -> None:
        """Read a log, and record that the process is ready if a line matches.

        Raises BackendError if the log cannot be read, and SearchError if it cannot be searched.
        """
        if self._finds_line(execution, follow=follow):
            with self._record_lock:
                self._record(execution)
            self._on_ready(execution)

    def _finds_line(self, execution: Execution, *, follow: bool) -> bool:
        """Return whether a line matches the pattern before the log ends."""
        query = {"container": execution.process}
        if follow:
            query["follow"] = "true"
        stream = self._experiment.api.open_stream(f"{self._path(execution.pod)}/log", query=query)
        self._streams.add(stream)
        try:
            # If `close` ran while the stream was being opened, it could not close the stream.
            if self._stopped.is_set():
                return False
            search = LineSearch(self._search_process, execution.pattern)
            with contextlib.closing(search):
                return self._search(stream, search, execution)
        finally:
            stream.close()
            self._streams.discard(stream)

    def _search(self, stream: ResponseStream, search: LineSearch, execution: Execution) -> bool:
        search.prepare()
        for data in stream.chunks():
            search.add(data)
            if self._search_added(search, execution):
                return True
        search.complete_last_line()
        return self._search_added(search, execution)

    def _search_added(self, search: LineSearch, execution: Execution) -> bool:
        while search.is_behind and not self._stopped.is_set():
            if search.search_next():
                return True
            if search.problem:
                self._report_problem(execution, search.problem)
        return False

    def _report_problem(self, execution: Execution, problem: str) -> None:
        """Record in a Pod annotation that a process's log takes too long to search."""
        with self._record_lock:
            if self._problems.get(execution) == problem:
                return
            self._problems[execution] = problem
            self._annotate(execution, LOG_PROBLEMS, partial(_with_problem, execution, problem))

    def _record(self, execution: Execution) -> None:
        """Record in a Pod annotation that a process is ready.

        If the Pod cannot be modified, for example because the user lacks permission, only this
        program knows that the process is ready.
        """
        self._annotate(execution, READY, partial(_with_ready, execution))

    def _annotate(
        self, execution: Execution, annotation: str, update: Callable[[str], str]
    ) -> None:
        """Replace the value of a Pod annotation by what ``update`` returns for the present value.

        Other programs add the results of the other processes of the Pod at the same time.
        """

        def change(pod: Mapping[str, Any]) -> dict[str, Any] | None:
            metadata = pod["metadata"]
            if metadata["uid"] != execution.uid:
                return None
            present = (metadata.get("annotations") or {}).get(annotation, "")
            value = update(present)
            return {} if value == present else {"metadata": {"annotations": {annotation: value}}}

        with contextlib.suppress(BackendError):
            compare_and_swap(self._experiment.api, self._path(execution.pod), change)

    def _path(self, pod: str) -> str:
        return f"{collection_path('Pod', self._experiment.namespace)}/{pod}"


def _with_ready(execution: Execution, value: str) -> str:
    """Return the annotation `READY` with the process of an execution, which is ready."""
    results = decode_ready(value)
    restarts = max(execution.restarts, results.get(execution.process, 0))
    return encode_ready({**results, execution.process: restarts})


def _with_problem(execution: Execution, problem: str, value: str) -> str:
    """Return the annotation `LOG_PROBLEMS` with a problem of the process of an execution."""
    problems = decode_log_problems(value)
    return json.dumps({**problems, execution.process: problem})
