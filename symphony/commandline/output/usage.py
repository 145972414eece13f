"""The resource use of processes as columns of tables, and as lines. All functions are pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from symphony.commandline.output.tables import Column
from symphony.names import join_names

if TYPE_CHECKING:
    from symphony.runs.usage import Summary
    from symphony.usage import ExperimentUsage, ProcessUsage

T = TypeVar("T")

_BYTE_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_UNIT_BYTES = 1024


def format_cores(cores: float | None) -> str | None:
    """Format a number of cores, such as ``1.25``."""
    return None if cores is None else f"{cores:.2f}"


def format_bytes(size: float | None) -> str | None:
    """Format a size with three digits, in the units of resource settings.

    >>> [format_bytes(size) for size in (0, 999, 1536, 350 * 2**20, 1023 * 2**20, 2.5 * 2**40)]
    ['0', '999', '1.5Ki', '350Mi', '1023Mi', '2.5Ti']
    """
    if size is None:
        return None
    unit = 0
    while size >= _UNIT_BYTES and unit < len(_BYTE_UNITS) - 1:
        size /= _UNIT_BYTES
        unit += 1
    digits = 1 if unit and size < 100 else 0
    return f"{size:.{digits}f}".removesuffix(".0") + _BYTE_UNITS[unit]


def format_share(share: float | None) -> str | None:
    """Format a utilization as a percentage, such as ``85%``."""
    return None if share is None else f"{share:.0%}"


class _Value(NamedTuple):
    """A value of `ProcessUsage` in a table."""

    column: Column
    cell: Callable[[ProcessUsage], object]


_VALUES = (
    _Value(Column("CPU", right=True), lambda usage: format_cores(usage.cpu)),
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
        self._values = [
            value for value in _VALUES if any(value.cell(usage) is not None for usage in usages)
        ]

    @property
    def columns(self) -> list[Column]:
        """The columns. There are none for values that no process has."""
        return [value.column for value in self._values]

    def cells(self, process: str) -> list[object]:
        """Return the cells of a process, which are empty if it is not running."""
        usage = self._by_name.get(process)
        return [None if usage is None else value.cell(usage) for value in self._values]


# The recorded values, with their titles and the functions that format them.
_RECORDED: Mapping[str, tuple[str, Callable[[float], object]]] = {
    "cpu": ("CPU", format_cores),
    "memory": ("MEM", format_bytes),
    "pss": ("PSS", format_bytes),
    "open_files": ("FILES", round),
    "gpu_memory": ("GPU-MEM", format_bytes),
    "gpu_utilization": ("GPU-USE", format_share),
}


def summary_table(summary: Summary) -> tuple[list[Column], list[list[object]]]:
    """Return the columns and the rows with the mean and the peak of each recorded value."""
    recorded = [name for name in _RECORDED if any(name in values for values in summary.values())]
    columns = [Column("NAME", flexible=True, least=40)]
    for order, name in enumerate(recorded):
        title, _ = _RECORDED[name]
        columns.append(Column(title, drop=2 * order, right=True))
        columns.append(Column(f"{title}-PEAK", drop=2 * order + 1, right=True))
    rows: list[list[object]] = []
    for process, values in summary.items():
        row: list[object] = [process]
        for name in recorded:
            _, shown = _RECORDED[name]
            item = values.get(name)
            row += [None, None] if item is None else [shown(item.mean), shown(item.peak)]
        rows.append(row)
    return columns, rows


def summary_words(summary: Summary) -> dict[str, dict[str, object]]:
    """Return the mean and the peak of each recorded value as text, by process and value."""
    words: dict[str, dict[str, object]] = {}
    for process, values in summary.items():
        words[process] = {}
        for name, item in values.items():
            _, shown = _RECORDED[name]
            words[process][name] = {
                "mean": str(shown(item.mean)),
                "peak": str(shown(item.peak)),
            }
    return words


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
