"""What processes wrote: whole, from the end, since a time, merged, and as it comes.

Kubernetes keeps the log of a container that runs or has ended, and of the one before it where it was restarted.
Both are one log here, as on one machine, and so are those of the Pods that a Job made one after the other.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from symphony.errors import NotFound
from symphony.status import LogLine
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import Scope
from symphony_kube.logs import lines as loglines
from symphony_kube.status import find_pod
from symphony_kube.status.permission_errors import missing_right
from symphony_kube.status.pod_status import ContainerRef

if TYPE_CHECKING:
    from symphony_kube.api.client import Api, ResponseStream

# A log may be silent for long. A connection that died silently is noticed after so many seconds.
QUIET = 300.0
ANSWER = 60.0
# The container has no log: it waits to be started, is gone, or its node is.
NO_LOG = (400, 404)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A log of the API's: that of a container, or of the one ``previous`` to it."""

    place: ContainerRef
    previous: bool = False


def read(
    api: Api,
    scope: Scope,
    process: str,
    *,
    since: float | str | None = None,
    tail: int | None = None,
    previous: bool = False,
) -> str:
    """What a process has written, as text; ``previous`` shows only what it wrote before its last restart.

    Raises `NotFound` where it was not restarted.
    """
    sources = _sources(_places(api, scope, process))
    if previous:
        sources = _before_last(sources, process)
    if since is None:
        data = (
            _last_lines(api, scope, sources, tail)
            if tail is not None
            else _whole(api, scope, sources)
        )
        return data.decode(errors="replace")
    begin = _since(since)
    lines: list[bytes] = []
    ended = True
    for source in sources:
        data = fetch(api, scope, source, times=True, since=loglines.seconds(begin))
        lines += loglines.newer(_split(data), begin)
        ended = data.endswith(b"\n") or not data
    lines = lines[_from_end(lines, tail) :]
    text = b"\n".join(loglines.content(line) for line in lines).decode(errors="replace")
    return f"{text}\n" if lines and ended else text


def lines(
    api: Api,
    scope: Scope,
    processes: Sequence[str] | None,
    *,
    follow: bool = False,
    since: float | str | None = None,
    tail: int | None = None,
) -> Iterator[LogLine]:
    """What processes (all, unless named) wrote, line by line in the order of time, and then as they write it."""
    begin = None if since is None else _since(since)
    if follow:
        from symphony_kube.logs.follow import follow as follow_logs

        return follow_logs(api, scope, processes, since=begin, tail=tail)
    return _merged(api, scope, processes, begin, tail)


def _merged(
    api: Api, scope: Scope, processes: Sequence[str] | None, since: bytes | None, tail: int | None
) -> Iterator[LogLine]:
    found = find_pod.list_containers(api, scope)
    wanted = known(api, scope, processes, found)
    histories = gather(api, scope, {name: sources_of(found, name) for name in wanted}, since, tail)
    yield from merged(histories)


def known(
    api: Api, scope: Scope, processes: Sequence[str] | None, found: Iterable[ContainerRef]
) -> list[str]:
    """The names of the processes that are asked for; `NotFound` for one that there is not."""
    there = {place.process for place in found}
    if processes and there.issuperset(processes):
        return list(dict.fromkeys(processes))
    from symphony.cluster.matching import find_status
    from symphony_kube.status import experiments

    status = experiments.describe(api, scope)
    if not processes:
        return [process.name for process in status]
    parts = (name.rpartition("/") for name in dict.fromkeys(processes))
    return [find_status(status, name, group or None).name for group, _, name in parts]


# --- which logs there are ---


def sources_of(found: Iterable[ContainerRef], process: str) -> list[Source]:
    """All logs that are kept of a process, oldest first."""
    return _sources([place for place in found if place.process == process])


def _places(api: Api, scope: Scope, process: str) -> list[ContainerRef]:
    place = find_pod.find_container(api, scope, process)
    if place is None:
        return []
    if not place.of_job:
        return [place]
    return [
        other
        for other in find_pod.list_containers(api, scope, place.unit)
        if other.process == process
    ]


def _sources(found: Iterable[ContainerRef]) -> list[Source]:
    sources = []
    for place in found:
        if place.restarts:
            sources.append(Source(place=place, previous=True))
        if place.has_log:
            sources.append(Source(place=place))
    return sources


def _before_last(sources: list[Source], process: str) -> list[Source]:
    if len(sources) < 2:
        raise NotFound(f"process {process!r} has not been restarted: it has no previous log")
    return sources[-2:-1]


# --- reading ---


def fetch(
    api: Api,
    scope: Scope,
    source: Source,
    *,
    times: bool = False,
    since: str | None = None,
    tail: int | None = None,
) -> bytes:
    """A log as the API has it; empty where there is none."""
    try:
        data = b"".join(open_log(api, scope, source, times=times, since=since, tail=tail).chunks())
        return b"" if loglines.is_excuse(data) else data
    except ApiError as exc:
        if exc.status in NO_LOG:
            return b""
        doing = f"read the log of {source.place.process!r}"
        raise missing_right(exc, doing, "get pods/log", scope) from exc


def open_log(
    api: Api,
    scope: Scope,
    source: Source,
    *,
    times: bool = True,
    since: str | None = None,
    tail: int | None = None,
    follow: bool = False,
) -> ResponseStream:
    """Begin to read a log. Raises `ApiError` and `Unreachable`."""
    query: dict[str, str | int | None] = {
        "container": source.place.process,
        "previous": "true" if source.previous else None,
        "timestamps": "true" if times else None,
        "sinceTime": since,
        "tailLines": tail,
        "follow": "true" if follow else None,
    }
    return api.open_stream(
        find_pod.pod_path(scope, source.place.pod, "log"),
        query=query,
        idle_timeout=QUIET if follow else ANSWER,
    )


def _whole(api: Api, scope: Scope, sources: list[Source]) -> bytes:
    return b"".join(fetch(api, scope, source) for source in sources)


def _last_lines(api: Api, scope: Scope, sources: list[Source], tail: int) -> bytes:
    """The last lines of some logs, read from the end."""
    wanted, found = tail, b""
    for source in reversed(sources):
        if wanted <= 0:
            break
        data = _tail(api, scope, source, wanted, times=False)
        found = data + found
        wanted = tail - _count(found)
    return found


def _tail(api: Api, scope: Scope, source: Source, wanted: int, *, times: bool) -> bytes:
    """The last lines of a log. The API counts the pieces of long ones, so it may have to be asked for more."""
    asked, before = wanted + 1, -1
    while True:
        data = fetch(api, scope, source, times=times, tail=asked)
        if _count(data) > wanted or len(data) == before:
            return data[_place_of_last(data, wanted) :]
        asked, before = asked * 8, len(data)


def _count(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


def _place_of_last(data: bytes, lines: int) -> int:
    """Where the last lines begin."""
    place = len(data) - data.endswith(b"\n")
    for _ in range(lines):
        place = data.rfind(b"\n", 0, place)
        if place < 0:
            return 0
    return place + 1


def _split(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def _from_end(lines: Sequence[object], tail: int | None) -> int:
    return 0 if tail is None else max(0, len(lines) - max(0, tail))


def _since(since: float | str) -> bytes:
    from symphony.cluster.since import parse_since

    try:
        return loglines.stamp(parse_since(since, time.time()))
    except (OverflowError, OSError, ValueError) as exc:
        from symphony.errors import SpecError

        if isinstance(exc, SpecError):
            raise
        raise SpecError(f"since is a time that there was, not {since!r}") from None


# --- several at once ---


def gather(
    api: Api,
    scope: Scope,
    sources: dict[str, list[Source]],
    since: bytes | None,
    tail: int | None,
    *,
    unfinished: bool = True,
) -> dict[str, list[bytes]]:
    """The lines so far of several processes, each with its time; as many are read at once as may be.

    ``unfinished`` lines are those to which a running process may still add.
    """

    def one(name: str) -> list[bytes]:
        return history(api, scope, sources[name], since, tail, unfinished=unfinished)

    with ThreadPoolExecutor(max_workers=max(1, min(api.connections, len(sources)))) as pool:
        return dict(zip(sources, pool.map(one, sources), strict=True))


def history(
    api: Api,
    scope: Scope,
    sources: list[Source],
    since: bytes | None,
    tail: int | None,
    *,
    unfinished: bool = True,
) -> list[bytes]:
    """The lines so far of one process, each with its time."""
    found: list[bytes] = []
    start = None if since is None else loglines.seconds(since)
    for source in reversed(sources) if tail is not None else sources:
        if tail is not None and since is None:
            data = _tail(api, scope, source, tail - len(found), times=True)
        else:
            data = fetch(api, scope, source, times=True, since=start)
        if not (unfinished or source.previous or source.place.finished):
            data = data[: data.rfind(b"\n") + 1]
        lines = _split(data)
        found = lines + found if tail is not None else found + lines
        if tail is not None and len(found) >= tail:
            break
    if since is not None:
        found = list(loglines.newer(found, since))
    return found[_from_end(found, tail) :]


def merged(histories: dict[str, list[bytes]]) -> Iterator[LogLine]:
    """Lines of several processes in the order of time; those of one stay in the order in which it wrote them."""
    if len(histories) == 1:
        for name, found in histories.items():
            yield from (log_line(name, line) for line in found)
        return
    keyed = (
        [(loglines.time_of(line), name, line) for line in found]
        for name, found in histories.items()
    )
    for _, name, line in heapq.merge(*keyed, key=lambda item: item[0]):
        yield log_line(name, line)


def log_line(process: str, line: bytes) -> LogLine:
    """A line without its time, as text."""
    return LogLine(process=process, text=loglines.content(line).decode(errors="replace"))
