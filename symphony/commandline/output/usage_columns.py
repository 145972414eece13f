"""The resource use of processes as columns of tables, and as lines. All functions are pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from symphony.commandline.output.tables import Column
from symphony.support.format_usage import (
    RECORDED_VALUES,
    format_bytes,
    format_core_count,
    format_share,
)
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.archive.archived_usage import Summary
    from symphony.usage import ExperimentUsage, ProcessUsage

T = TypeVar("T")


class _Value(NamedTuple):
    """A value of `ProcessUsage` in a table."""

    column: Column
    cell: Callable[[ProcessUsage], object]


_VALUES = (
    _Value(Column("CPU", right=True), lambda usage: format_core_count(usage.cpu)),
    _Value(Column("MEM", right=True), lambda usage: format_bytes(usage.memory)),
    _Value(Column("PSS", drop=6, right=True), lambda usage: format_bytes(usage.pss)),
    _Value(Column("FILES", drop=5, right=True), lambda usage: usage.open_files),
    _Value(Column("GPU", drop=3), lambda usage: ",".join(usage.devices) or None),
    _Value(Column("GPU-MEM", right=True), lambda usage: format_bytes(usage.gpu_memory)),
    _Value(Column("GPU-USE", right=True), lambda usage: format_share(usage.gpu_utilization)),
)


class UsageTable:
    """The columns with the values that a sample contains, and the cells of each process."""

    def __init__(self, sample: ExperimentUsage | None) -> None:
        usages = () if sample is None else sample.processes
        self._by_name = {usage.process: usage for usage in usages}
        self._values = []
        for value in _VALUES:
            if any(value.cell(usage) is not None for usage in usages):
                self._values.append(value)

    @property
    def columns(self) -> list[Column]:
        """The columns. There are none for values that no process has."""
        return [value.column for value in self._values]

    def cells(self, process: str) -> list[object]:
        """Return the cells of a process, which are empty if it is not running."""
        usage = self._by_name.get(process)
        if usage is None:
            return [None] * len(self._values)
        return [value.cell(usage) for value in self._values]


def summary_table(summary: Summary) -> tuple[list[Column], list[list[object]]]:
    """Return the columns and the rows with the mean and the peak of each recorded value."""
    given = set().union(*summary.values())
    recorded = [name for name in RECORDED_VALUES if name in given]
    columns = [Column("NAME", flexible=True, least=40)]
    for order, name in enumerate(recorded):
        title, _ = RECORDED_VALUES[name]
        columns.append(Column(title, drop=2 * order, right=True))
        columns.append(Column(f"{title}-PEAK", drop=2 * order + 1, right=True))
    rows: list[list[object]] = []
    for process, values in summary.items():
        row: list[object] = [process]
        for name in recorded:
            _, shown = RECORDED_VALUES[name]
            item = values.get(name)
            row += [None, None] if item is None else [shown(item.mean), shown(item.peak)]
        rows.append(row)
    return columns, rows


def insert_before_last(values: Sequence[T], inserted: Iterable[T]) -> list[T]:
    """Return the values of a row with others before the last one, which can contain spaces."""
    return [*values[:-1], *inserted, values[-1]]


def unavailable_lines(sample: ExperimentUsage) -> list[str]:
    """Return a line for each reason why values are not available."""
    from symphony.usage import EVERYTHING

    fields: dict[str, list[str]] = {}
    for name, reason in sample.unavailable.items():
        word = "resource use" if name == EVERYTHING else name.replace("_", " ")
        fields.setdefault(reason, []).append(word)
    return [f"{join_names(words)}: not available: {reason}" for reason, words in fields.items()]
