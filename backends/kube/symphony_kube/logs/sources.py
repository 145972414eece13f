"""Find a process's logs in the API, and read them.

Kubernetes keeps two logs for a container: the current log, and the log from before its last
restart. Together, they form a process's log. If a process runs as a Job, its log consists of the
logs from all of the Job's Pods.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from symphony.cluster.matching import find_names
from symphony.errors import NotFound
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import Scope
from symphony_kube.logs.lines import MAX_MISSING_LOG_BYTES, is_missing_log
from symphony_kube.state.pod_status import ContainerRef
from symphony_kube.status import experiments
from symphony_kube.status.find_pod import find_container, list_containers, pod_path
from symphony_kube.status.permission_errors import missing_right

if TYPE_CHECKING:
    from symphony_kube.api.client import ResponseStream
    from symphony_kube.api.kube_experiment import KubeExperiment

# The time in seconds after which a connection that receives no data is considered broken. This time
# is longer for followed logs, because they can be silent for a long time.
FOLLOW_IDLE_SECONDS = 300.0
READ_IDLE_SECONDS = 60.0
# These status codes mean that the container has no log, because it has not started or no longer
# exists, or because its node is lost.
NO_LOG_STATUSES = (400, 404)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSource:
    """One log that the API provides.

    This is a container's current log or, if ``previous`` is True, the log from before its last
    restart.
    """

    ref: ContainerRef
    previous: bool = False


def sources_of(refs: Iterable[ContainerRef], process: str) -> list[LogSource]:
    """Return all of a process's logs, oldest first."""
    sources = []
    for ref in refs:
        if ref.process != process:
            continue
        if ref.restarts:
            sources.append(LogSource(ref=ref, previous=True))
        if ref.has_log:
            sources.append(LogSource(ref=ref))
    return sources


def find_sources(experiment: KubeExperiment, process: str) -> list[LogSource]:
    """Return all of a process's logs, oldest first.

    Raises `NotFound` if there is no such process.
    """
    ref = find_container(experiment, process)
    if ref is None:
        return []
    has_others = ref.of_job or ref.attempt > 1
    refs = list_containers(experiment, ref.unit) if has_others else [ref]
    return sources_of(refs, process)


def previous_source(sources: list[LogSource], process: str) -> list[LogSource]:
    """Return the log from before the last restart. Raises `NotFound` if there was no restart."""
    if len(sources) < 2:
        raise NotFound(f"process {process!r} has not been restarted: it has no previous log")
    return sources[-2:-1]


def resolve_names(
    experiment: KubeExperiment, processes: Sequence[str] | None, refs: Iterable[ContainerRef]
) -> list[str]:
    """Return the names of the requested processes, or of all processes if none are requested.

    A removed process can be requested if it has containers in ``refs``. Raises `NotFound` if a
    requested name matches no process.
    """
    known = {ref.process for ref in refs}
    if processes and known.issuperset(processes):
        return list(dict.fromkeys(processes))
    status = experiments.experiment_status(experiment)
    return find_names(status, processes, lambda: known)


def open_log(
    experiment: KubeExperiment,
    source: LogSource,
    *,
    timestamps: bool = True,
    since: str | None = None,
    tail: int | None = None,
    follow: bool = False,
    cancelled: threading.Event | None = None,
) -> ResponseStream:
    """Open a log for reading. Raises `ApiError` or `Unreachable` if the log cannot be opened.

    A failed request is not repeated once ``cancelled`` is set.
    """
    query: dict[str, str | int | None] = {
        "container": source.ref.process,
        "previous": "true" if source.previous else None,
        "timestamps": "true" if timestamps else None,
        "sinceTime": since,
        "tailLines": tail,
        "follow": "true" if follow else None,
    }
    return experiment.api.open_stream(
        pod_path(experiment.scope, source.ref.pod, "log"),
        query=query,
        idle_timeout=FOLLOW_IDLE_SECONDS if follow else READ_IDLE_SECONDS,
        cancelled=cancelled,
    )


def fetch_log(
    experiment: KubeExperiment,
    source: LogSource,
    *,
    timestamps: bool = False,
    since: str | None = None,
    tail: int | None = None,
) -> bytes:
    """Return the contents of a log, or ``b""`` if the API has no such log."""
    chunks = iter_log_chunks(experiment, source, timestamps=timestamps, since=since, tail=tail)
    return b"".join(chunks)


def iter_log_chunks(
    experiment: KubeExperiment,
    source: LogSource,
    *,
    timestamps: bool = False,
    since: str | None = None,
    tail: int | None = None,
) -> Iterator[bytes]:
    """Yield the contents of a log as they arrive, or nothing if the API has no such log."""
    # A short answer can be a message that there is no log.
    beginning: bytes | None = b""
    try:
        stream = open_log(experiment, source, timestamps=timestamps, since=since, tail=tail)
        for chunk in stream.chunks():
            if beginning is None:
                yield chunk
                continue
            beginning += chunk
            if len(beginning) >= MAX_MISSING_LOG_BYTES:
                yield beginning
                beginning = None
    except ApiError as exc:
        if exc.status in NO_LOG_STATUSES:
            return
        raise log_error(exc, source.ref.process, experiment.scope) from exc
    if beginning and not is_missing_log(beginning):
        yield beginning


def fetch_last_lines(
    experiment: KubeExperiment, source: LogSource, wanted: int, *, timestamps: bool
) -> bytes:
    """Return the last ``wanted`` lines of a log.

    The API counts each piece of a long line as a line, and may therefore return too few lines. In
    that case, the lines are requested again with a larger line count.
    """
    requested, previous_size = wanted + 1, -1
    while True:
        data = fetch_log(experiment, source, timestamps=timestamps, tail=requested)
        if count_lines(data) > wanted or len(data) == previous_size:
            return data[_start_of_last_lines(data, wanted) :]
        requested, previous_size = requested * 8, len(data)


def log_error(exc: ApiError, process: str, scope: Scope) -> ApiError:
    """Return the error to raise if a process's log could not be read."""
    return missing_right(exc, f"read the log of {process!r}", "get pods/log", scope)


def count_lines(data: bytes) -> int:
    """Return the number of lines in ``data``, including a last line without a newline."""
    incomplete = bool(data) and not data.endswith(b"\n")
    return data.count(b"\n") + incomplete


def _start_of_last_lines(data: bytes, lines: int) -> int:
    position = len(data) - data.endswith(b"\n")
    for _ in range(lines):
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            return 0
    return position + 1
