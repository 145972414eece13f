"""Read the lines that processes have written so far, and merge them in chronological order."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from symphony import log_text
from symphony.status import LogLine
from symphony_kube.logs.lines import (
    line_content,
    line_seconds,
    line_time,
    lines_since,
    to_since_time,
)
from symphony_kube.logs.sources import LogSource, fetch_last_lines, fetch_log

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment


def read_histories(
    experiment: KubeExperiment,
    sources: dict[str, list[LogSource]],
    since: bytes | None,
    tail: int | None,
    *,
    with_incomplete: bool = True,
) -> dict[str, list[bytes]]:
    """Return each process's log lines with timestamps, keyed by process name.

    The logs are read in parallel.

    A running process can still append to an incomplete last line. If ``with_incomplete`` is False,
    such a line is omitted.
    """

    def read(name: str) -> list[bytes]:
        return _read_history(
            experiment, sources[name], since, tail, with_incomplete=with_incomplete
        )

    workers = max(1, min(experiment.api.connections, len(sources)))
    with ThreadPoolExecutor(max_workers=workers) as pool:
        return dict(zip(sources, pool.map(read, sources), strict=True))


def merge_histories(histories: dict[str, list[bytes]]) -> Iterator[LogLine]:
    """Yield the lines of several processes in chronological order.

    The lines of each process stay in the order in which the process wrote them.
    """
    if len(histories) == 1:
        for name, lines in histories.items():
            yield from (to_log_line(name, line) for line in lines)
        return
    timed_lines = []
    for name, lines in histories.items():
        timed_lines.append([(line_time(line), name, line) for line in lines])
    for _, name, line in heapq.merge(*timed_lines, key=lambda item: item[0]):
        yield to_log_line(name, line)


def to_log_line(process: str, line: bytes) -> LogLine:
    """Convert a line with a timestamp to a `LogLine`."""
    text = log_text.decode(line_content(line))
    return LogLine(process=process, text=text, at=line_seconds(line))


def split_lines(data: bytes) -> list[bytes]:
    """Split data into lines. The last line may be incomplete."""
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def last_lines(lines: list[bytes], tail: int | None) -> list[bytes]:
    """Return the last ``tail`` lines, or all lines if ``tail`` is None."""
    if tail is None:
        return lines
    return lines[max(0, len(lines) - max(0, tail)) :]


def _read_history(
    experiment: KubeExperiment,
    sources: list[LogSource],
    since: bytes | None,
    tail: int | None,
    *,
    with_incomplete: bool,
) -> list[bytes]:
    """Return one process's log lines with timestamps."""
    since_time = None if since is None else to_since_time(since)
    lines: list[bytes] = []
    # If ``tail`` is set, the newest log is read first, and older logs are read only until there are
    # enough lines.
    for source in sources if tail is None else reversed(sources):
        if tail is not None and since is None:
            wanted = tail - len(lines)
            data = fetch_last_lines(experiment, source, wanted, timestamps=True)
        else:
            data = fetch_log(experiment, source, timestamps=True, since=since_time)
        may_grow = not source.previous and not source.ref.finished
        if may_grow and not with_incomplete:
            data = data[: data.rfind(b"\n") + 1]
        if tail is None:
            lines += split_lines(data)
            continue
        lines = split_lines(data) + lines
        if len(lines) >= tail:
            break
    if since is not None:
        lines = list(lines_since(lines, since))
    return last_lines(lines, tail)
