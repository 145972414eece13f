"""Tables as text. Pure: rows in, lines out.

On a terminal a table fits its width: columns that say nothing go first, then those that matter least, and then the
long ones are cut with ``…``: names in the middle, since they often differ at their ends, and prose at its end.
In a pipe it is the same columns, aligned, nothing cut; an empty cell is ``-``, so that the n-th word of a line
is the n-th column. Only the last column may hold spaces.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

GAP = 2
SHORTEST = 8
NOTHING = "-"

Row = Sequence[object]


class Column(NamedTuple):
    """A column. ``flexible`` ones may be cut; those with the highest ``drop`` go first, 0 never.

    Before one is cut to less than ``least``, others go. ``prose`` is cut at its end, other text in the middle.
    """

    title: str
    flexible: bool = False
    drop: int = 0
    right: bool = False
    least: int = 2 * SHORTEST
    prose: bool = False


def format_table(
    columns: Sequence[Column],
    rows: Sequence[Row],
    width: int | None = None,
    paint: Callable[[str, str], str] | None = None,
) -> list[str]:
    """The lines of a table, its titles first.

    ``width`` is that of the terminal, None for a pipe. ``paint(title, cell)`` gives a cell's colour, or ``""``.
    """
    cells = [[format_cell(value) for value in row] for row in rows]
    sizes = [
        max(len(column.title), *(len(row[i]) for row in cells), 0)
        for i, column in enumerate(columns)
    ]
    empty = {i for i in range(1, len(columns)) if cells and all(row[i] == NOTHING for row in cells)}
    shown = _kept(columns, sizes, width, empty)
    if width is not None:
        _shrink(columns, sizes, shown, width)
    lines = [[column.title for column in columns], *cells]
    return [
        _line(
            [_fitted(line[i], sizes[i], columns[i]) for i in shown],
            [columns[i].title for i in shown],
            tint,
        )
        for line, tint in zip(lines, [None, *[paint] * len(cells)], strict=True)
    ]


def format_cell(value: object) -> str:
    """A value as a cell: one line of printable text, ``-`` for nothing."""
    text = (
        "".join(char if char.isprintable() else " " for char in str(value))
        if value is not None
        else ""
    )
    return " ".join(text.split()) or NOTHING


def format_age(seconds: float) -> str:
    """How long something lasts, in at most two units.

    >>> [age(5), age(200), age(7_500), age(400_000)]
    ['5s', '3m20s', '2h5m', '4d15h']
    """
    rest = max(0, int(seconds))
    sizes = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    first = next((i for i, (_, size) in enumerate(sizes) if rest >= size), 3)
    parts: list[str] = []
    for unit, size in sizes[first : first + 2]:
        parts.append(f"{rest // size}{unit}" if rest >= size or not parts else "")
        rest %= size
    return "".join(parts)


def _kept(
    columns: Sequence[Column], sizes: Sequence[int], width: int | None, empty: Collection[int]
) -> list[int]:
    """The columns that there is room for."""
    shown = list(range(len(columns)))
    while width is not None and _least(columns, sizes, shown) > width:
        droppable = [i for i in shown if columns[i].drop or i in empty]
        if not droppable:
            break
        shown.remove(max(droppable, key=lambda i: (i in empty, columns[i].drop)))
    return shown


def _least(columns: Sequence[Column], sizes: Sequence[int], shown: Sequence[int]) -> int:
    narrow = (min(sizes[i], columns[i].least) if columns[i].flexible else sizes[i] for i in shown)
    return sum(narrow) + GAP * (len(shown) - 1)


def _shrink(columns: Sequence[Column], sizes: list[int], shown: Sequence[int], width: int) -> None:
    """Cut flexible columns until all fits: from the last to the first to their least, and then the longest."""
    flexible = [i for i in shown if columns[i].flexible]
    over = sum(sizes[i] for i in shown) + GAP * (len(shown) - 1) - width
    for i in reversed(flexible):
        cut = max(0, min(over, sizes[i] - columns[i].least))
        sizes[i] -= cut
        over -= cut
    while flexible and over > 0:
        longest = max(flexible, key=lambda i: sizes[i])
        if sizes[longest] <= SHORTEST:
            break
        sizes[longest] -= 1
        over -= 1


def _fitted(text: str, size: int, column: Column) -> str:
    short = text if len(text) <= size else _cut(text, size, 0 if column.prose else (size - 1) // 2)
    return short.rjust(size) if column.right else short.ljust(size)


def _cut(text: str, size: int, end: int) -> str:
    """Text cut to a size, of which ``end`` characters are those at its end."""
    return f"{text[: size - 1 - end]}…{text[len(text) - end :]}"


def _line(
    cells: Sequence[str], titles: Sequence[str], paint: Callable[[str, str], str] | None
) -> str:
    last = len(cells) - 1
    padded = [text.rstrip() if i == last else text for i, text in enumerate(cells)]
    if paint is not None:
        from symphony.commandline.output.terminal import RESET

        tints = [paint(title, text.strip()) for title, text in zip(titles, padded, strict=True)]
        padded = [
            f"{tint}{text}{RESET}" if tint else text
            for tint, text in zip(tints, padded, strict=True)
        ]
    return (" " * GAP).join(padded).rstrip()
