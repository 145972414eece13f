"""What is known of the terminal: whether there is one, how wide it is, and whether to colour."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

RESET = "\x1b[0m"
_ERASE_LINE = "\r\x1b[K"

STATE_COLOURS = {
    "pending": "\x1b[33m",
    "running": "\x1b[36m",
    "succeeded": "\x1b[32m",
    "failed": "\x1b[31m",
    "unknown": "\x1b[35m",
}
# Bright and plain in turn, so that neighbours differ; no red, which is for errors.
NAME_COLOURS = tuple(f"\x1b[{code}m" for code in (36, 33, 32, 35, 34, 96, 93, 92, 95, 94))


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal; one that is closed is none."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False


def has_colour(stream: TextIO | None) -> bool:
    """Whether to colour what goes to ``stream``: on a terminal that can, and never with NO_COLOR."""
    return (
        is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def terminal_width(stream: TextIO | None) -> int | None:
    """How many columns a terminal has; None where ``stream`` is none, and text is not cut."""
    if stream is None or not is_terminal(stream):
        return None
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except OSError:
        return 80


def terminal_height(stream: TextIO | None) -> int | None:
    """How many lines a terminal has; None where ``stream`` is none."""
    if stream is None or not is_terminal(stream):
        return None
    try:
        return os.get_terminal_size(stream.fileno()).lines or 24
    except OSError:
        return 24


class ProgressLine:
    """One line on the terminal that says what goes on, and goes away. Nothing where there is no terminal."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream if is_terminal(stream) and os.environ.get("TERM") != "dumb" else None
        self._shown = False

    def say(self, text: str) -> None:
        """Show ``text`` in place of what was there."""
        if self._stream is not None:
            self._stream.write(self._line(text))
            self._stream.flush()
            self._shown = True

    def say_at_once(self, text: str) -> None:
        """The same from a signal handler, which may come in the middle of a write."""
        if self._stream is not None:
            os.write(self._stream.fileno(), self._line(text).encode(errors="replace"))
            self._shown = True

    def _line(self, text: str) -> str:
        columns = terminal_width(self._stream) or 80
        return f"{_ERASE_LINE}{text[: columns - 1]}"

    def clear(self) -> None:
        """Take the line away."""
        if self._stream is not None and self._shown:
            self._stream.write(_ERASE_LINE)
            self._stream.flush()
            self._shown = False


@contextmanager
def show_progress(text: str = "") -> Iterator[ProgressLine]:
    """A `Progress` on standard error that is cleared at the end, however that comes."""
    shown = ProgressLine(sys.stderr)
    if text:
        shown.say(text)
    try:
        yield shown
    finally:
        shown.clear()


def print_note(text: str) -> None:
    """Tell the user something that is not the answer: one line on standard error."""
    print(text, file=sys.stderr, flush=True)
