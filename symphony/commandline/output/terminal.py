"""The terminal: its size, its colours, a progress line, and the functions that print text.

All text that the program prints passes through this module or through
`symphony.commandline.output.printing`, so that no name, path or message can control the terminal.
The linter forbids `print` elsewhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TextIO

from symphony.commandline.exit_codes import STANDARD_OUTPUT
from symphony.errors import with_filename

RESET = "\x1b[0m"
_ERASE_LINE = "\r\x1b[K"
_DEFAULT_COLUMNS = 80
_DEFAULT_LINES = 24

STATE_COLOURS = {
    "pending": "\x1b[33m",
    "running": "\x1b[36m",
    "succeeded": "\x1b[32m",
    "failed": "\x1b[31m",
    "unknown": "\x1b[35m",
}
# Adjacent colours are easy to distinguish. Red is omitted because it is the colour for errors.
NAME_COLOURS = tuple(f"\x1b[{code}m" for code in (36, 33, 32, 35, 34, 96, 93, 92, 95, 94))


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal. A closed stream is not a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def has_colour(stream: TextIO | None) -> bool:
    """Return whether output to ``stream`` should be coloured.

    The stream must be a terminal that supports colours, and NO_COLOR must be unset or empty.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"


def terminal_width(stream: TextIO | None) -> int | None:
    """Return the width of a terminal in columns, or None if ``stream`` is not a terminal."""
    if stream is None or not is_terminal(stream):
        return None
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    try:
        return os.get_terminal_size(stream.fileno()).columns or _DEFAULT_COLUMNS
    except OSError:
        return _DEFAULT_COLUMNS


def terminal_height(stream: TextIO | None) -> int | None:
    """Return the height of a terminal in lines, or None if ``stream`` is not a terminal."""
    if stream is None or not is_terminal(stream):
        return None
    try:
        return os.get_terminal_size(stream.fileno()).lines or _DEFAULT_LINES
    except OSError:
        return _DEFAULT_LINES


class ProgressLine:
    """A line on the terminal that shows progress and is erased at the end.

    Nothing is shown if the stream is not a terminal, or if TERM is ``dumb``.
    """

    def __init__(self, stream: TextIO | None) -> None:
        is_capable = is_terminal(stream) and os.environ.get("TERM") != "dumb"
        self._stream = stream if is_capable else None
        self._is_shown = False

    def update(self, text: str) -> None:
        """Replace the line with ``text``."""
        if self._stream is not None:
            self._stream.write(self._line(text))
            self._stream.flush()
            self._is_shown = True

    def update_from_signal_handler(self, text: str) -> None:
        """Replace the line with ``text`` from within a signal handler.

        The text is written directly to the stream's file descriptor, because the signal may have
        interrupted a write to the stream.
        """
        if self._stream is not None:
            os.write(self._stream.fileno(), self._line(text).encode(errors="replace"))
            self._is_shown = True

    def clear(self) -> None:
        """Erase the line."""
        if self._stream is not None and self._is_shown:
            self._stream.write(_ERASE_LINE)
            self._stream.flush()
            self._is_shown = False

    def _line(self, text: str) -> str:
        columns = terminal_width(self._stream) or _DEFAULT_COLUMNS
        return f"{_ERASE_LINE}{_escaped(text)[: columns - 1]}"


@contextmanager
def show_progress(text: str = "") -> Iterator[ProgressLine]:
    """Show a `ProgressLine` on standard error while the block runs."""
    line = ProgressLine(sys.stderr)
    if text:
        line.update(text)
    try:
        yield line
    finally:
        line.clear()


def print_text(text: str, *, flush: bool = False) -> None:
    """Print a result on standard output. Characters that are not printable are escaped."""
    _print_result(_escaped(text), flush=flush)


def print_coloured(lines: Iterable[str], *, end: str = "\n", flush: bool = False) -> None:
    """Print lines to which the program has added colours on standard output.

    All other characters that are not printable are escaped.
    """
    text = "\n".join(lines)
    if not _is_printable(text):
        from symphony.support.escapes import escape_except_colours

        text = escape_except_colours(text)
    _print_result(text, end=end, flush=flush)


def _print_result(text: str, *, end: str = "\n", flush: bool) -> None:
    # Python writes the text at once if it is long, or if PYTHONUNBUFFERED is set.
    with with_filename(STANDARD_OUTPUT):
        print(text, end=end, flush=flush)


def print_note(text: str, *, end: str = "\n") -> None:
    """Print ``text`` on standard error, because it is not part of a command's result.

    Characters that are not printable are escaped.
    """
    print(_escaped(text), end=end, file=sys.stderr, flush=True)


def print_progress_output(text: str) -> None:
    """Print a part of another program's output on standard error.

    On a terminal, control sequences other than colours are removed.
    """
    if is_terminal(sys.stderr):
        from symphony.support.escapes import remove_controls

        text = remove_controls(text, keep_colours=has_colour(sys.stderr))
    print(text, end="", file=sys.stderr, flush=True)


def _escaped(text: str) -> str:
    # Almost all text is printable, so the import is usually not necessary.
    if _is_printable(text):
        return text
    from symphony.support.escapes import escape

    return escape(text)


def _is_printable(text: str) -> bool:
    return text.replace("\n", "").isprintable()
