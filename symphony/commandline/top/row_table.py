"""A widget that shows a table with a cursor, and draws only the visible rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from symphony.commandline.output.tables import GAP, Column, Fit, fit_columns, fit_row

_WHEEL_ROWS = 3
_CURSOR = Style(reverse=True)
_HEADER = Style(bold=True)
# The columns for the mark and the sign of a row.
_SIGN_WIDTH = 4


class TableRow(NamedTuple):
    """A row of a table.

    ``key`` identifies the row when the table is updated. ``style`` is the colour of the sign and of
    one of the cells.
    """

    key: str
    cells: Sequence[str]
    sign: str = ""
    style: str = ""
    is_marked: bool = False


class RowTable(Widget, can_focus=True):
    """A table with a cursor. Call `show` to replace the rows; the cursor stays at its row.

    The cells in the column with the title ``styled`` have the colour of the row. ``mark`` is the
    sign of marked rows.
    """

    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "move_pages(-1)", show=False),
        Binding("pagedown", "move_pages(1)", show=False),
        Binding("home,g", "move(-1000000)", show=False),
        Binding("end,G", "move(1000000)", show=False),
        Binding("enter", "open", "open", key_display="enter"),
    ]
    DEFAULT_CSS = """
    RowTable { height: 1fr; width: 1fr; }
    """

    class Opened(Message):
        """The user wants to see details of a row."""

        def __init__(self, table: RowTable, key: str) -> None:
            super().__init__()
            self.table = table
            self.key = key

        @property
        def control(self) -> RowTable:
            """The table."""
            return self.table

    class Moved(Message):
        """The cursor is at another row."""

    def __init__(self, *, styled: str, mark: str, id: str) -> None:
        super().__init__(id=id)
        self._columns: Sequence[Column] = ()
        self._styled = styled
        self._mark = mark
        self._rows: Sequence[TableRow] = ()
        self._fit = Fit((), ())
        self._cursor = 0
        self._top = 0
        self.empty_text = ""

    @property
    def cursor_key(self) -> str | None:
        """The key of the row with the cursor, or None if there are no rows."""
        return self._rows[self._cursor].key if self._rows else None

    @property
    def position(self) -> str:
        """The number of the row with the cursor and the number of rows, as text."""
        return f"{self._cursor + 1}/{len(self._rows)}" if self._rows else ""

    def show(self, columns: Sequence[Column], rows: Sequence[TableRow]) -> None:
        """Replace the columns and the rows."""
        if rows == self._rows and columns == self._columns:
            return
        key = self.cursor_key
        self._columns = columns
        self._rows = rows
        keys = [row.key for row in rows]
        if key in keys:
            self._cursor = keys.index(key)
        self._arrange()

    def move_to(self, key: str) -> None:
        """Move the cursor to a row, if there is one with this key."""
        for index, row in enumerate(self._rows):
            if row.key == key:
                self.action_move(index - self._cursor)
                return

    # --- drawing ---

    def _arrange(self) -> None:
        """Fit the columns, and keep the cursor visible."""
        self._fit = fit_columns(
            self._columns,
            [row.cells for row in self._rows],
            max(1, self.size.width - _SIGN_WIDTH),
        )
        self._cursor = max(0, min(self._cursor, len(self._rows) - 1))
        self._top = max(0, min(self._top, len(self._rows) - self._page))
        if self._cursor < self._top:
            self._top = self._cursor
        elif self._cursor >= self._top + self._page:
            self._top = self._cursor - self._page + 1
        self.refresh()

    @property
    def _page(self) -> int:
        return max(1, self.size.height - 1)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of lines, which does not depend on the rows."""
        del viewport, width
        return container.height

    def render_line(self, y: int) -> Strip:
        """Return the titles or a row as a strip."""
        width = self.size.width
        base = self.rich_style
        if y == 0:
            titles = [column.title for column in self._columns]
            text = " " * _SIGN_WIDTH + (" " * GAP).join(fit_row(titles, self._columns, self._fit))
            return Strip([Segment(text, base + _HEADER)]).adjust_cell_length(width, base)
        index = self._top + y - 1
        if not self._rows and y == 1:
            return Strip([Segment(f" {self.empty_text}", base)]).adjust_cell_length(width, base)
        if index >= len(self._rows):
            return Strip.blank(width, base)
        row = self._rows[index]
        coloured = base + Style.parse(row.style)
        if index == self._cursor:
            # A bar in several colours would be hard to read.
            base = coloured = base + _CURSOR
        return Strip(self._segments(row, base, coloured)).adjust_cell_length(width, base)

    def _segments(self, row: TableRow, base: Style, coloured: Style) -> list[Segment]:
        mark = self._mark if row.is_marked else " "
        segments = [Segment(f"{mark} ", base), Segment(f"{row.sign or ' '} ", coloured)]
        cells = fit_row(row.cells, self._columns, self._fit)
        for index, text in zip(self._fit.shown, cells, strict=True):
            is_styled = self._columns[index].title == self._styled
            style = coloured if is_styled else base
            segments += [Segment(text, style), Segment(" " * GAP, base)]
        return segments

    # --- keys and the mouse ---

    def on_resize(self) -> None:
        """Fit the table into the new size."""
        self._arrange()

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to a row, or open it after a double click."""
        index = self._top + event.y - 1
        if event.y < 1 or index >= len(self._rows):
            return
        self.action_move(index - self._cursor)
        if event.chain == 2:
            self.action_open()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Move up."""
        event.stop()
        self.action_move(-_WHEEL_ROWS)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Move down."""
        event.stop()
        self.action_move(_WHEEL_ROWS)

    def action_move(self, rows: int) -> None:
        """Move the cursor by a number of rows."""
        self._cursor += rows
        self._arrange()
        self.post_message(self.Moved())

    def action_move_pages(self, pages: int) -> None:
        """Move the cursor by a number of pages."""
        self.action_move(pages * self._page)

    def action_open(self) -> None:
        """Ask the screen to open the row with the cursor."""
        if self.cursor_key is not None:
            self.post_message(self.Opened(self, self.cursor_key))
