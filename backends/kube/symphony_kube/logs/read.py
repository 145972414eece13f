"""Read the logs of processes: the whole log, its last lines, or the lines since a given time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from symphony import log_text
from symphony.cluster.since import parse_since
from symphony.errors import SpecError
from symphony.log_blocks import LogBlock
from symphony.status import LogLine
from symphony_kube.logs.follow import follow_logs
from symphony_kube.logs.history import last_lines, merge_histories, read_histories, split_lines
from symphony_kube.logs.lines import line_content, lines_since, to_line_time, to_since_time
from symphony_kube.logs.sources import (
    LogSource,
    count_lines,
    fetch_last_lines,
    fetch_log,
    find_sources,
    iter_log_chunks,
    previous_source,
    resolve_names,
    sources_of,
)
from symphony_kube.status.find_pod import list_containers

if TYPE_CHECKING:
    from symphony.events import ExperimentEvent
    from symphony_kube.api.client import Api
    from symphony_kube.api.kube_experiment import KubeExperiment


def iter_log(
    experiment: KubeExperiment,
    process: str,
    *,
    since: float | None = None,
    tail: int | None = None,
    previous: bool = False,
) -> Iterator[str]:
    """Yield a process's log in pieces.

    ``since``, in seconds since the epoch, and ``tail``, a number of lines, limit the lines that are
    returned. ``previous`` selects the log from before the last restart. Raises `NotFound`
    if there is no such process or, with ``previous``, if the process has not been restarted.
    """
    sources = find_sources(experiment, process)
    if previous:
        sources = previous_source(sources, process)
    if since is not None:
        yield _read_since(experiment, sources, to_line_time(since), tail)
        return
    if tail is not None:
        yield log_text.decode(_read_tail(experiment, sources, tail))
        return
    decoder = log_text.decoder()
    for source in sources:
        yield from map(decoder.decode, iter_log_chunks(experiment, source))
    yield decoder.decode(b"", final=True)


def iter_log_lines(
    experiment: KubeExperiment,
    processes: Sequence[str] | None,
    *,
    follow: bool = False,
    since: float | None = None,
    tail: int | None = None,
) -> Iterator[LogLine]:
    """Return an iterator over the log lines of processes in chronological order.

    If ``follow`` is True, the iterator continues with new lines in the order in which they arrive,
    until all of these processes have exited.

    If ``processes`` is empty or None, the logs of all processes are read.
    """
    start = None if since is None else to_line_time(since)
    if follow:
        lines = follow_logs(experiment, processes, since=start, tail=tail)
        return (line for line in lines if isinstance(line, LogLine))
    return _merged_lines(experiment, processes, start, tail)


def follow_output(
    experiment: KubeExperiment,
    processes: Sequence[str] | None,
    *,
    since: float | None,
    tail: int | None,
) -> Iterator[LogBlock | ExperimentEvent]:
    """Return an iterator over the log lines and the events of processes, until all of them have
    exited. The arguments are those of `iter_log_lines`.
    """
    start = None if since is None else to_line_time(since)
    earliest = since or 0.0
    items = follow_logs(experiment, processes, since=start, tail=tail, events=True)

    def output() -> Iterator[LogBlock | ExperimentEvent]:
        for item in items:
            if isinstance(item, LogLine):
                yield LogBlock(item.process, f"{item.text}\n", item.at)
            elif item.at >= earliest:
                yield item

    return output()


def _merged_lines(
    experiment: KubeExperiment,
    processes: Sequence[str] | None,
    since: bytes | None,
    tail: int | None,
) -> Iterator[LogLine]:
    refs = list_containers(experiment)
    names = resolve_names(experiment, processes, refs)
    sources = {name: sources_of(refs, name) for name in names}
    yield from merge_histories(read_histories(experiment, sources, since, tail))


def _read_since(
    experiment: KubeExperiment, sources: list[LogSource], since: bytes, tail: int | None
) -> str:
    lines: list[bytes] = []
    ends_with_newline = True
    for source in sources:
        data = fetch_log(experiment, source, timestamps=True, since=to_since_time(since))
        lines += lines_since(split_lines(data), since)
        ends_with_newline = not data or data.endswith(b"\n")
    lines = last_lines(lines, tail)
    text = log_text.decode(b"\n".join(line_content(line) for line in lines))
    return f"{text}\n" if lines and ends_with_newline else text


def _read_tail(experiment: KubeExperiment, sources: list[LogSource], tail: int) -> bytes:
    """Return the last ``tail`` lines from a process's logs, reading the newest log first."""
    data = b""
    for source in reversed(sources):
        wanted = tail - count_lines(data)
        if wanted <= 0:
            break
        data = fetch_last_lines(experiment, source, wanted, timestamps=False) + data
    return data


def start_time(api: Api, since: float | str) -> float:
    """Return the time since which lines are read, in seconds since the epoch.

    ``since`` is a time, or a duration before the current time of the API server.
    """
    start = parse_since(since, api.now())
    try:
        to_line_time(start)
    except (OverflowError, OSError, ValueError):
        raise SpecError(f"since must be a time in the past, not {since!r}") from None
    return start
