"""Tables as text. The functions are pure: they accept rows and return lines.

On a terminal, a table is fitted to the terminal's width. If the table is too wide, long cells are
shortened. If this is not enough, empty columns are removed, and then the least important columns.
Prose is shortened at its end, and other text in the middle, because names often differ only at
their ends.

In a pipe, all columns are shown and no cell is shortened. An empty cell is shown as ``-``, so that
the n-th word in a line belongs to the n-th column. Only the last column may contain spaces.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from symphony.errors import printable

EMPTY_CELL = "-"
GAP = 2
_MIN_CUT_WIDTH = 8
_UNITS_SECONDS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))

Row = Sequence[object]
PaintCell = Callable[[str, str], str]


class Column(NamedTuple):
    """A column of a table.

    An ``optional`` column is not shown if it is empty. The cells in a ``flexible`` column can be
    shortened. If the table is too wide, empty columns are removed first, and then the columns with
    the highest ``drop``. A column with ``drop=0`` is removed only if it is empty.
    Columns are removed before a flexible column becomes narrower than ``least`` characters. The
    text in a ``prose`` column is shortened at its end, and other text in the middle.
    """

    title: str
    flexible: bool = False
    drop: int = 0
    right: bool = False
    least: int = 2 * _MIN_CUT_WIDTH
    prose: bool = False
    optional: bool = False


def format_table(
    columns: Sequence[Column],
    rows: Sequence[Row],
    width: int | None = None,
    paint: PaintCell | None = None,
) -> list[str]:
    """Return the lines of a table. The first line contains the titles.

    ``width`` is the width of the terminal, or None for a pipe. ``paint(title, cell)`` returns the
    colour of a cell, or an empty string if the cell has none.
    """
    cells = [list(map(format_cell, row)) for row in rows]
    fit = fit_columns(columns, cells, width)
    titles = [columns[index].title for index in fit.shown]
    lines = [_join_cells(fit_row([column.title for column in columns], columns, fit))]
    for row in cells:
        fitted = fit_row(row, columns, fit)
        if paint is not None:
            fitted = _paint_row(fitted, titles, paint)
        lines.append(_join_cells(fitted))
    return lines


class Fit(NamedTuple):
    """The widths of the columns of a table in characters, and the indices of those that fit."""

    sizes: Sequence[int]
    shown: Sequence[int]


def fit_columns(
    columns: Sequence[Column], cells: Sequence[Sequence[str]], width: int | None
) -> Fit:
    """Return the widths of the columns of a table that is at most ``width`` characters wide.

    ``cells`` contains the formatted rows. If ``width`` is None, all columns have their full widths.
    """
    sizes: list[int] = []
    for index, column in enumerate(columns):
        texts = [column.title, *(row[index] for row in cells)]
        sizes.append(max(len(text) for text in texts))
    shown = _shown_columns(columns, cells, sizes, width)
    if width is not None:
        _shrink(columns, sizes, shown, width)
    return Fit(sizes, shown)


def format_cell(value: object) -> str:
    """Return a value as one line of printable text, or ``-`` if the value is None or empty."""
    if value is None:
        return EMPTY_CELL
    text = str(value)
    return " ".join(printable(text).split()) or EMPTY_CELL


def format_age(seconds: float) -> str:
    """Format a duration with at most two units.

    >>> [format_age(5), format_age(200), format_age(7_500), format_age(400_000)]
    ['5s', '3m20s', '2h5m', '4d15h']
    """
    rest = max(0, int(seconds))
    first = len(_UNITS_SECONDS) - 1
    for index, (_, size) in enumerate(_UNITS_SECONDS):
        if rest >= size:
            first = index
            break
    text = ""
    for unit, size in _UNITS_SECONDS[first : first + 2]:
        if rest >= size or not text:
            text += f"{rest // size}{unit}"
        rest %= size
    return text


def _shown_columns(
    columns: Sequence[Column],
    cells: Sequence[Sequence[str]],
    sizes: Sequence[int],
    width: int | None,
) -> list[int]:
    """Return the indices of the columns that fit within ``width``."""
    empty: set[int] = set()
    for index in range(1, len(columns)):
        if cells and all(row[index] == EMPTY_CELL for row in cells):
            empty.add(index)
    omitted = {index for index in empty if columns[index].optional}
    shown = [index for index in range(len(columns)) if index not in omitted]
    if width is None:
        return shown
    while _least_width(columns, sizes, shown) > width:
        removable = [index for index in shown if columns[index].drop or index in empty]
        if not removable:
            break
        shown.remove(max(removable, key=lambda index: _removal_order(index, columns, empty)))
    return shown


def _removal_order(
    index: int, columns: Sequence[Column], empty: Collection[int]
) -> tuple[bool, int]:
    return index in empty, columns[index].drop


def _least_width(columns: Sequence[Column], sizes: Sequence[int], shown: Sequence[int]) -> int:
    """Return the table width if all flexible columns are reduced to `Column.least`."""
    total = GAP * (len(shown) - 1)
    for index in shown:
        column = columns[index]
        total += min(sizes[index], column.least) if column.flexible else sizes[index]
    return total


def _shrink(columns: Sequence[Column], sizes: list[int], shown: Sequence[int], width: int) -> None:
    """Reduce the sizes of flexible columns until the table fits within ``width``.

    Columns are narrowed from the last to the first, but not below `Column.least`. If the table is
    still too wide, the widest flexible column is repeatedly narrowed by one character, but not
    below `_MIN_CUT_WIDTH`.
    """
    flexible = [index for index in shown if columns[index].flexible]
    excess = sum(sizes[index] for index in shown) + GAP * (len(shown) - 1) - width
    for index in reversed(flexible):
        cut = max(0, min(excess, sizes[index] - columns[index].least))
        sizes[index] -= cut
        excess -= cut
    while flexible and excess > 0:
        widest = max(flexible, key=lambda index: sizes[index])
        if sizes[widest] <= _MIN_CUT_WIDTH:
            break
        sizes[widest] -= 1
        excess -= 1


def fit_row(row: Sequence[str], columns: Sequence[Column], fit: Fit) -> list[str]:
    """Return the visible cells in a row, each shortened or padded to the size of its column."""
    cells: list[str] = []
    for index in fit.shown:
        column, size = columns[index], fit.sizes[index]
        text = row[index]
        if len(text) > size:
            text = _cut(text, size, prose=column.prose)
        cells.append(text.rjust(size) if column.right else text.ljust(size))
    if cells:
        cells[-1] = cells[-1].rstrip()
    return cells


def _cut(text: str, size: int, *, prose: bool) -> str:
    """Shorten text to ``size`` characters: prose at its end, other text in the middle."""
    at_end = 0 if prose else (size - 1) // 2
    return f"{text[: size - 1 - at_end]}…{text[len(text) - at_end :]}"


def _paint_row(cells: Sequence[str], titles: Sequence[str], paint: PaintCell) -> list[str]:
    from symphony.commandline.output.terminal import RESET

    painted: list[str] = []
    for cell, title in zip(cells, titles, strict=True):
        colour = paint(title, cell.strip())
        painted.append(f"{colour}{cell}{RESET}" if colour else cell)
    return painted


def _join_cells(cells: Sequence[str]) -> str:
    return (" " * GAP).join(cells).rstrip()
