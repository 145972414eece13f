"""Text from processes as it is shown: control characters become visible. All functions are pure."""

from __future__ import annotations

from rich.text import Text

from symphony.commandline.output.tables import EMPTY_CELL
from symphony.support.escapes import escape, escape_except_colours

_TAB_SIZE = 8


def one_line(text: str) -> str:
    r"""Return text of a user or a process as one printable line.

    >>> one_line("a\x1b[2J\nb")
    'a\\x1b[2J b'
    """
    if text.isprintable():
        return text
    return " ".join(escape(text).split())


def cell(value: object) -> str:
    """Return a value as the text of a cell of a table. Nothing is shown as ``-``."""
    return EMPTY_CELL if value is None else one_line(str(value)) or EMPTY_CELL


def log_text(line: str) -> Text:
    """Return a line of output as it is shown. Its colours are kept.

    A carriage return ends a progress bar, so the text after the last one is shown.
    """
    if line.isprintable():
        return Text(line, end="")
    shown = line.rstrip("\r").rpartition("\r")[2]
    if "\x1b" not in shown:
        return Text(escape(shown).expandtabs(_TAB_SIZE), end="")
    text = Text.from_ansi(escape_except_colours(shown), end="")
    text.expand_tabs(_TAB_SIZE)
    return text


def contains(text: str, pattern: str) -> bool:
    """Return whether a text contains a pattern.

    Capital letters are distinguished only if the pattern contains some.
    """
    if pattern == pattern.lower():
        return pattern in text.lower()
    return pattern in text


def matches(text: str, pattern: str) -> list[tuple[int, int]]:
    """Return the positions at which a text contains a pattern, as for `contains`."""
    if not pattern:
        return []
    searched = text.lower() if pattern == pattern.lower() else text
    found = []
    start = searched.find(pattern)
    while start >= 0:
        found.append((start, start + len(pattern)))
        start = searched.find(pattern, start + len(pattern))
    return found
