"""The part of a text that a view shows: scrolling, wrapping, following and searching.

The text can be large and can change all the time. Only the lines that are shown are formatted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rich.cells import cell_len, chop_cells
from rich.text import Text


class Lines(Protocol):
    """A text whose lines have the numbers `first` to ``end - 1``.

    The oldest lines can be removed and new lines can be added, but a line keeps its number.
    """

    @property
    def first(self) -> int:
        """The number of the oldest line."""

    @property
    def end(self) -> int:
        """The number of the next line."""

    def hold(self) -> None:
        """Keep all lines until `release` is called, and do not add any."""

    def release(self) -> None:
        """End `hold`."""

    def format(self, start: int, stop: int) -> Sequence[tuple[int, Text]]:
        """Return lines with the numbers ``start`` to ``stop - 1`` as they are shown.

        Lines that do not exist are left out.
        """

    def find(self, pattern: str, start: int, stop: int) -> list[int]:
        """Return the numbers of the lines from ``start`` to ``stop - 1`` with a pattern."""


class Row(NamedTuple):
    """A row of the view: the characters ``start`` to ``stop - 1`` of a line.

    ``ends_line`` is false if the line continues in the next row.
    """

    number: int
    text: Text
    ends_line: bool


class LineWindow:
    """A window with a size in characters, which shows a part of a text.

    While `following` is true, the window shows the end of the text. Otherwise, the text is held, so
    that the user can read it. ``left`` is the first column that is shown, if lines are not wrapped.
    """

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.width = 80
        self.height = 24
        self.wrap = False
        self.following = True
        self.left = 0
        self.match: int | None = None
        self.pattern = ""
        # The number of the first line that is shown, and the number of its rows that are not shown.
        self._top = 0
        self._hidden_rows = 0

    def rows(self) -> list[Row]:
        """Return the rows that are shown. There are fewer than ``height`` if the text is short."""
        return self._last_rows() if self.following else self._rows_from_top()

    def scroll(self, rows: int) -> None:
        """Move the window down by a number of rows, or up if it is negative.

        Moving up stops following, and reaching the end resumes it.
        """
        if rows < 0:
            self.pause()
            self._move_up(-rows)
        elif not self.following:
            self._move_down(rows)

    def scroll_columns(self, columns: int) -> None:
        """Move the window to the right by a number of columns, or to the left."""
        self.left = 0 if self.wrap else max(0, self.left + columns)

    def to_start(self) -> None:
        """Show the oldest lines."""
        self.pause()
        self._top, self._hidden_rows = self.lines.first, 0

    def to_end(self) -> None:
        """Show the end of the text, and follow it."""
        self.lines.release()
        self.following = True
        self.match = None

    def pause(self) -> None:
        """Keep showing the present rows while the text grows."""
        if not self.following:
            return
        self.lines.hold()
        rows = self._last_rows()
        self._top = rows[0].number if rows else self.lines.first
        shown = sum(row.number == self._top for row in rows)
        self._hidden_rows = max(0, len(self._rows_of(self._top)) - shown)
        self.following = False

    def set_wrap(self, wrap: bool) -> None:
        """Show long lines in several rows, or cut them at the width of the window."""
        self.wrap = wrap
        self.left = self._hidden_rows = 0

    def search(self, pattern: str) -> bool:
        """Go to the last line with a pattern, and return whether there is one.

        Capital letters are distinguished only if the pattern contains some.
        """
        self.pattern = pattern
        self.match = None
        return not pattern or self.search_next(backwards=True)

    def search_next(self, *, backwards: bool) -> bool:
        """Go to the next line with the pattern, and return whether there is one."""
        if not self.pattern:
            return False
        self.pause()
        first, end = self.lines.first, self.lines.end
        if backwards:
            stop = end if self.match is None else self.match
            found = self.lines.find(self.pattern, first, stop)[-1:]
        else:
            start = first if self.match is None else self.match + 1
            found = self.lines.find(self.pattern, start, end)[:1]
        if not found:
            return False
        self.match = found[0]
        if found[0] not in [row.number for row in self.rows()]:
            self._top, self._hidden_rows = found[0], 0
            self._move_up(self.height // 2)
        return True

    # --- positions ---

    def _move_up(self, rows: int) -> None:
        while rows > 0 and (self._hidden_rows or self._top > self.lines.first):
            if not self._hidden_rows:
                self._top -= 1
                self._hidden_rows = len(self._rows_of(self._top))
            moved = min(rows, self._hidden_rows)
            self._hidden_rows -= moved
            rows -= moved

    def _move_down(self, rows: int) -> None:
        for _ in range(rows):
            self._hidden_rows += 1
            if self._hidden_rows >= len(self._rows_of(self._top)):
                self._top, self._hidden_rows = self._top + 1, 0
        shown = self._rows_from_top()
        if len(shown) < self.height or shown[-1] == self._last_rows()[-1]:
            self.to_end()

    # --- rows ---

    def _rows_from_top(self) -> list[Row]:
        if self._top < self.lines.first:
            self._top, self._hidden_rows = self.lines.first, 0
        needed = self._hidden_rows + self.height
        return self._split_lines(self._top, self._top + needed)[self._hidden_rows : needed]

    def _last_rows(self) -> list[Row]:
        end = self.lines.end
        rows = self._split_lines(end - self.height, end)
        return rows[max(0, len(rows) - self.height) :]

    def _rows_of(self, number: int) -> list[Row]:
        return self._split_lines(number, number + 1)

    def _split_lines(self, start: int, stop: int) -> list[Row]:
        """Return the rows of lines."""
        rows: list[Row] = []
        for number, text in self.lines.format(start, stop):
            rows += self._split(number, text)
        return rows

    def _split(self, number: int, text: Text) -> list[Row]:
        plain = text.plain
        width = max(1, self.width)
        # A character takes at most two columns of the terminal.
        if not self.wrap or len(plain) <= width // 2 or cell_len(plain) <= width:
            return [Row(number, text, ends_line=True)]
        rows: list[Row] = []
        start = 0
        for piece in chop_cells(plain, width):
            stop = start + len(piece)
            rows.append(Row(number, text[start:stop], ends_line=stop == len(plain)))
            start = stop
        return rows
