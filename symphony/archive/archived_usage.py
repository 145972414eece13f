"""The recorded resource use of a run.

The file ``usage.jsonl`` of a record contains one line for each sample::

    {"at": 1795719995.004, "use": {"learner": [0.98, 350224384, null, 12]}}

The numbers are those of `VALUES`, without unknown values at the end. The size of the file is
limited. When it would exceed the limit, the older samples are merged to half as many, at equal
intervals, so that all of the run remains visible. The first line of such a file contains the
statistics of all samples so far, so that peaks and means do not depend on the limit::

    {"until": 1795719990.1, "statistics": {"learner": {"cpu": [600, 588.2, 1.02]}}}

These are the number of values, their sum and their maximum.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from symphony.support.replace_file import replace_file
from symphony.usage import ExperimentUsage, ProcessUsage

USAGE_FILE = "usage.jsonl"
MAX_BYTES = 1 << 20
VALUES = ("cpu", "memory", "pss", "open_files", "gpu_memory", "gpu_utilization")
# The values of merged samples become their mean for these, and their maximum for the others.
_RATES = frozenset({"cpu", "gpu_utilization"})
_IS_RATE = tuple(name in _RATES for name in VALUES)
# The newest samples are not merged: this part of all samples.
_NEWEST = 1 / 4
_MODE = 0o600

Numbers = Sequence[float | None]


@dataclass(slots=True)
class Statistics:
    """The number of values, their sum and their maximum."""

    count: int = 0
    total: float = 0.0
    peak: float = 0.0

    @property
    def mean(self) -> float:
        """The mean of all values, or 0 if there is none."""
        return self.total / self.count if self.count else 0.0

    def to_dict(self) -> dict[str, float]:
        """Return the mean, the peak and the number of samples for JSON."""
        return {"mean": self.mean, "peak": self.peak, "samples": self.count}


# Maps the names of processes to the names of values.
Summary = dict[str, dict[str, Statistics]]


@dataclass(frozen=True, slots=True)
class _Row:
    """A sample as it is stored. ``use`` maps the names of processes to the numbers."""

    at: float
    use: Mapping[str, Numbers]


@dataclass(slots=True)
class RecordedUsage:
    """The resource use in a record.

    ``samples`` are in the order of their times. ``summary`` contains the statistics of all samples
    that were taken, including those that were merged.
    """

    samples: list[ExperimentUsage] = field(default_factory=list)
    summary: Summary = field(default_factory=dict)


def read_usage(record: Path) -> RecordedUsage:
    """Return the resource use in the directory of a record.

    Damaged lines are omitted. The result is empty if nothing was recorded.
    """
    return parse_usage(_content_of(record / USAGE_FILE))


def parse_usage(content: bytes) -> RecordedUsage:
    """Return the resource use in the content of a file; see `read_usage`."""
    rows, summary = _parse(content)
    return RecordedUsage([_sample(row) for row in rows], summary)


def _sample(row: _Row) -> ExperimentUsage:
    processes = []
    for process, numbers in row.use.items():
        values: dict[str, Any] = dict(zip(VALUES, numbers, strict=False))
        processes.append(ProcessUsage(process=process, **values))
    return ExperimentUsage(at=row.at, processes=tuple(processes))


class UsageLog:
    """The file in which a supervisor records samples.

    If a supervisor was killed, the samples of the next one follow.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes
        rows, self._summary = _read(path)
        self._latest = rows[-1].at if rows else 0.0

    @property
    def latest(self) -> float:
        """The time of the latest sample in seconds since the epoch, or 0 if there is none."""
        return self._latest

    def append(self, sample: ExperimentUsage) -> None:
        """Write a sample. Raises OSError if it cannot be written."""
        row = _Row(round(sample.at, 3), {item.process: _numbers(item) for item in sample.processes})
        line = _encode(row)
        if self._size() + len(line) > self._max_bytes:
            self._merge_older()
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(self._path, flags, _MODE)
        try:
            _append_line(descriptor, line)
        finally:
            os.close(descriptor)
        _add(self._summary, row)
        self._latest = row.at

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except FileNotFoundError:
            return 0

    def _merge_older(self) -> None:
        rows, _ = _read(self._path)
        statistics = {}
        for process, values in self._summary.items():
            statistics[process] = {
                name: [item.count, item.total, item.peak] for name, item in values.items()
            }
        until = rows[-1].at if rows else 0.0
        lines = [_line({"until": until, "statistics": statistics}), *map(_encode, merged(rows))]
        replace_file(self._path, lines, mode=_MODE)


def _append_line(descriptor: int, line: bytes) -> None:
    size = os.fstat(descriptor).st_size
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        # A supervisor was killed while it wrote a line.
        line = b"\n" + line
    if os.write(descriptor, line) != len(line):
        # No space is left on the disk.
        os.ftruncate(descriptor, size)


def _numbers(usage: ProcessUsage) -> Numbers:
    numbers = [getattr(usage, name) for name in VALUES]
    while numbers and numbers[-1] is None:
        numbers.pop()
    return [_rounded(value) for value in numbers]


def _rounded(value: float | None) -> float | None:
    return round(value, 3) if isinstance(value, float) else value


def _encode(row: _Row) -> bytes:
    return _line({"at": row.at, "use": row.use})


def _line(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _add(summary: Summary, row: _Row) -> None:
    """Add the values of a sample to statistics."""
    for process, numbers in row.use.items():
        values = summary.setdefault(process, {})
        for name, value in zip(VALUES, numbers, strict=False):
            if value is None:
                continue
            item = values.get(name)
            if item is None:
                values[name] = Statistics(1, value, value)
                continue
            item.count += 1
            item.total += value
            item.peak = max(item.peak, value)


# --- merging ---


def merged(rows: Sequence[_Row]) -> list[_Row]:
    """Return half as many rows for the older ones, at equal intervals, and the newest ones."""
    newest = max(1, int(len(rows) * _NEWEST))
    older = rows[:-newest]
    if not older:
        return []
    count = max(1, len(older) // 2)
    start = older[0].at
    # The clock can have been set back.
    width = max((older[-1].at - start) / count, 1e-3)
    groups: dict[int, list[_Row]] = {}
    for row in older:
        number = min(count - 1, max(0, int((row.at - start) / width)))
        groups.setdefault(number, []).append(row)
    return [*map(_merge, groups.values()), *rows[-newest:]]


def _merge(rows: Sequence[_Row]) -> _Row:
    """Return one row for several successive ones, with the time of the last one."""
    if len(rows) == 1:
        return rows[0]
    by_process: dict[str, list[Numbers]] = {}
    for row in rows:
        for process, numbers in row.use.items():
            by_process.setdefault(process, []).append(numbers)
    return _Row(rows[-1].at, {name: _merge_numbers(item) for name, item in by_process.items()})


def _merge_numbers(samples: Sequence[Numbers]) -> Numbers:
    if len(samples) == 1:
        return samples[0]
    result: list[float | None] = []
    for index in range(max(map(len, samples))):
        values = [
            value for item in samples for value in item[index : index + 1] if value is not None
        ]
        if not values:
            result.append(None)
        elif _IS_RATE[index]:
            result.append(round(sum(values) / len(values), 3))
        else:
            result.append(max(values))
    return result


# --- reading ---


def _read(path: Path) -> tuple[list[_Row], Summary]:
    """Return the rows of a file, and the statistics of all samples."""
    return _parse(_content_of(path))


def _content_of(path: Path) -> bytes:
    """Return the content of a file, or nothing if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _parse(content: bytes) -> tuple[list[_Row], Summary]:
    rows: list[_Row] = []
    summary: Summary = {}
    until = 0.0
    for data in _objects(content.splitlines()):
        try:
            if "statistics" in data:
                until, summary = _number(data["until"]), _statistics(data["statistics"])
            else:
                rows.append(_row(data))
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    for row in rows:
        if row.at > until:
            _add(summary, row)
    return rows, summary


def _objects(lines: Iterable[bytes]) -> Iterator[Mapping[str, Any]]:
    for line in lines:
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            yield data


def _row(data: Mapping[str, Any]) -> _Row:
    for numbers in data["use"].values():
        for number in numbers:
            if type(number) not in _NUMBER_TYPES:
                raise TypeError(f"{number!r} is not a number")
    return _Row(_number(data["at"]), data["use"])


def _statistics(data: Mapping[str, Any]) -> Summary:
    summary: Summary = {}
    for process, values in data.items():
        summary[process] = {}
        for name, (count, total, peak) in values.items():
            summary[process][name] = Statistics(int(_number(count)), _number(total), _number(peak))
    return summary


_NUMBER_TYPES = frozenset({int, float, type(None)})


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is not a number")
    return value
