"""A widget that shows a large text, such as logs, and draws only the visible lines."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from symphony.commandline.top.line_window import Lines, LineWindow, Row
from symphony.commandline.top.texts import matches

_WHEEL_ROWS = 3
_LEFT_COLUMNS = 16
_MATCH = Style(reverse=True)
_CURRENT_MATCH = Style(reverse=True, bold=True, underline=True)


class TextView(Widget, can_focus=True):
    """A view of lines that can be scrolled, searched, wrapped and followed.

    Call `update` after the lines have changed. While text is selected with the mouse, the view
    does not move, so that the selection stays at its place.
    """

    ALLOW_SELECT = True
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "scroll_rows(-1)", show=False),
        Binding("down", "scroll_rows(1)", show=False),
        Binding("pageup,b", "scroll_pages(-1)", show=False),
        Binding("pagedown,space", "scroll_pages(1)", show=False),
        Binding("left", "scroll_columns(-1)", show=False),
        Binding("right", "scroll_columns(1)", show=False),
        Binding("home,g", "to_start", show=False),
        Binding("end,G", "to_end", show=False),
        Binding("f", "toggle_follow", "follow"),
        Binding("w", "toggle_wrap", "wrap"),
        Binding("n", "find(True)", show=False),
        Binding("N", "find(False)", show=False),
    ]
    DEFAULT_CSS = """
    TextView { height: 1fr; width: 1fr; }
    """

    class Moved(Message):
        """The view shows another part of the text, or in another way."""

    def __init__(self, lines: Lines, *, id: str) -> None:
        super().__init__(id=id)
        self.window = LineWindow(lines)
        self._rows: list[Row] = []

    @property
    def is_held(self) -> bool:
        """True if the view does not move because text is selected."""
        return self.text_selection is not None

    def show(self, lines: Lines) -> None:
        """Show other lines, beginning with the last page."""
        wrap, pattern = self.window.wrap, self.window.pattern
        self.window = LineWindow(lines)
        self.window.wrap, self.window.pattern = wrap, pattern
        self.update()

    def update(self) -> None:
        """Draw the present lines."""
        if self.is_held:
            return
        self.window.width, self.window.height = self.size.width, self.size.height
        rows = self.window.rows()
        if rows != self._rows:
            self._rows = rows
            self.refresh()
        self.post_message(self.Moved())

    @property
    def shown_text(self) -> str:
        """The visible text."""
        return _joined(self._rows)

    @property
    def position(self) -> str:
        """The numbers of the visible lines and the number of all lines, as text."""
        lines = self.window.lines
        if not self._rows:
            return "no lines"
        first, last = self._rows[0].number + 1, self._rows[-1].number + 1
        return f"{first:,}-{last:,}/{lines.end:,}"

    def search(self, pattern: str) -> bool:
        """Go to the last line with a pattern, and return whether there is one."""
        is_found = self.window.search(pattern)
        self._redraw()
        return is_found

    # --- drawing ---

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of rows, which does not depend on the text."""
        del viewport, width
        return container.height

    def render_line(self, y: int) -> Strip:
        """Return a row as a strip."""
        width = self.size.width
        style = self.rich_style
        if y >= len(self._rows):
            return Strip.blank(width, style)
        row = self._rows[y]
        text = row.text.copy()
        text.no_wrap = True
        is_current = row.number == self.window.match
        for start, stop in matches(text.plain, self.window.pattern):
            text.stylize(_CURRENT_MATCH if is_current else _MATCH, start, stop)
        selection = self.text_selection
        span = None if selection is None else selection.get_span(y)
        if span is not None:
            start, stop = span
            selected = self.screen.get_component_rich_style("screen--selection")
            text.stylize(selected, start, len(text) if stop == -1 else stop)
        text.stylize_before(style)
        segments = [
            segment for segment in text.render(self.app.console) if not segment.control
        ] or [Segment("", style)]
        left = 0 if self.window.wrap else self.window.left
        strip = Strip(segments).crop_extend(left, left + width, style)
        return strip.apply_offsets(left, y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the selected text. The rows of a wrapped line are joined."""
        pieces: list[Row] = []
        for y, row in enumerate(self._rows):
            span = selection.get_span(y)
            if span is not None:
                start, stop = span
                end = len(row.text) if stop == -1 else min(stop, len(row.text))
                pieces.append(row._replace(text=row.text[start:end]))
        return _joined(pieces), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Draw the selection, or the present lines after its end."""
        self.refresh()
        if selection is None:
            self.update()
        self.post_message(self.Moved())

    # --- keys and the mouse ---

    def on_resize(self) -> None:
        """Draw as many lines as fit."""
        self._redraw()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Show earlier lines."""
        event.stop()
        self.action_scroll_rows(-_WHEEL_ROWS)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Show later lines."""
        event.stop()
        self.action_scroll_rows(_WHEEL_ROWS)

    def action_scroll_rows(self, rows: int) -> None:
        """Move by a number of rows."""
        self.window.scroll(rows)
        self._redraw()

    def action_scroll_pages(self, pages: int) -> None:
        """Move by a number of pages."""
        self.action_scroll_rows(pages * max(1, self.size.height - 1))

    def action_scroll_columns(self, steps: int) -> None:
        """Move to the left or to the right."""
        self.window.scroll_columns(steps * _LEFT_COLUMNS)
        self._redraw()

    def action_to_start(self) -> None:
        """Show the oldest lines."""
        self.window.to_start()
        self._redraw()

    def action_to_end(self) -> None:
        """Show the end, and follow it."""
        self.window.to_end()
        self._redraw()

    def action_toggle_follow(self) -> None:
        """Follow the end of the text, or stop following it."""
        if self.window.following:
            self.window.pause()
        else:
            self.window.to_end()
        self._redraw()

    def action_toggle_wrap(self) -> None:
        """Wrap long lines, or cut them."""
        self.window.set_wrap(not self.window.wrap)
        self._redraw()

    def action_find(self, backwards: bool) -> None:
        """Go to the previous or the next line with the pattern."""
        if not self.window.search_next(backwards=backwards):
            self.app.bell()
        self._redraw()

    def _redraw(self) -> None:
        """Draw the lines after the user has moved the view."""
        if self.is_held:
            self.screen.clear_selection()
        self.update()
        self.refresh()


def _joined(rows: list[Row]) -> str:
    """Return the text of rows. The rows of a wrapped line are joined."""
    pieces = []
    for row in rows:
        pieces.append(row.text.plain)
        if row.ends_line:
            pieces.append("\n")
    return "".join(pieces).removesuffix("\n")
