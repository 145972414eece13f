"""Writing to standard output: text, tables, JSON and log lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from symphony.commandline.exit_codes import STANDARD_OUTPUT
from symphony.commandline.output.tables import Column, Row, format_table
from symphony.commandline.output.terminal import (
    NAME_COLOURS,
    RESET,
    has_colour,
    is_terminal,
    print_coloured,
    terminal_width,
)
from symphony.errors import with_filename

if TYPE_CHECKING:
    from symphony.commandline.output.escapes import LogCleaner
    from symphony.status import LogLine

_PIECE_CHARACTERS = 1 << 16


def show_table(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Print a table. On a terminal, fit it to the terminal's width."""
    print_coloured(table_lines(columns, rows))


def table_lines(columns: Sequence[Column], rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table. On a terminal, fit them to the terminal's width."""
    from symphony.commandline.output.views import state_colour

    paint = state_colour if has_colour(sys.stdout) else None
    return format_table(columns, rows, terminal_width(sys.stdout), paint)


def show_json(data: Any, *, compact: bool = False) -> None:
    """Print data as JSON, on one line if ``compact`` is true."""
    import json

    if compact:
        text = json.dumps(data, separators=(",", ":"))
    else:
        text = json.dumps(data, indent=2)
    show_text(f"{text}\n")


class LogFormatter:
    """A formatter for the log lines of the processes ``names``.

    If ``as_json`` is true, each line becomes a JSON object. Otherwise, each line begins with the
    process name, unless there is only one process. On a terminal, control sequences other than
    colours are removed, unless ``raw`` is true.
    """

    def __init__(self, names: Sequence[str], *, as_json: bool, raw: bool = False) -> None:
        self._as_json = as_json
        self._prefixes = {} if len(names) == 1 else _prefixes(names)
        self._cleaner = None if as_json else _log_cleaner(raw=raw)

    def __call__(self, line: LogLine) -> str:
        """Return the text of a log line. Several lines are returned if it contains carriage
        returns.
        """
        if self._as_json:
            return _json_line(line)
        prefix = self._prefixes.get(line.process, "")
        if self._cleaner is None:
            return f"{prefix}{line.text}\n"
        # A colour must not extend to the next line, because that line can be another process's.
        reset = RESET if prefix and "\x1b" in line.text else ""
        texts = self._cleaner.clean_line(line.text)
        return "".join(f"{prefix}{text}{reset}\n" for text in texts)

    def end(self) -> str:
        """Return the text to print after the last line."""
        return RESET if self._cleaner is not None and self._cleaner.has_colours else ""


def _prefixes(names: Sequence[str]) -> dict[str, str]:
    """Return the beginnings of the lines of each process."""
    size = max((len(name) for name in names), default=0)
    is_coloured = has_colour(sys.stdout)
    prefixes: dict[str, str] = {}
    for index, name in enumerate(names):
        prefix = f"{name.ljust(size)} | "
        if is_coloured:
            tint = NAME_COLOURS[index % len(NAME_COLOURS)]
            prefix = f"{tint}{prefix}{RESET}"
        prefixes[name] = prefix
    return prefixes


def _log_cleaner(*, raw: bool) -> LogCleaner | None:
    """Return a filter for logs on standard output, or None if logs are shown unchanged."""
    if raw or not is_terminal(sys.stdout):
        return None
    from symphony.commandline.output.escapes import LogCleaner

    return LogCleaner(keep_colours=has_colour(sys.stdout))


def _json_line(line: LogLine) -> str:
    import json

    data = {"process": line.process, "text": line.text}
    return json.dumps(data, separators=(",", ":")) + "\n"


def show_text(text: str) -> None:
    """Print text unchanged.

    Use this function for text whose format has its own notation for control characters, such as
    JSON and YAML, and for logs. The text is written in pieces because Python may not report an
    error for a single large write to a closed pipe.
    """
    with with_filename(STANDARD_OUTPUT):
        for start in range(0, len(text), _PIECE_CHARACTERS):
            sys.stdout.write(text[start : start + _PIECE_CHARACTERS])


def show_log(pieces: Iterable[str], *, raw: bool) -> bool:
    """Print a log that arrives in pieces, and return whether it contains any text.

    On a terminal, control sequences other than colours are removed, unless ``raw`` is true.
    """
    cleaner = _log_cleaner(raw=raw)
    has_text = False
    try:
        for piece in pieces:
            has_text = has_text or bool(piece)
            show_text(piece if cleaner is None else cleaner.clean(piece))
        if cleaner is not None:
            show_text(cleaner.clean_rest())
    finally:
        if cleaner is not None and cleaner.has_colours:
            show_text(RESET)
    return has_text


def show_lines(lines: Iterable[LogLine], formatter: LogFormatter, *, at_once: bool) -> None:
    """Print log lines. If ``at_once`` is true, flush the output after each line."""
    out = sys.stdout
    try:
        for line in lines:
            text = formatter(line)
            with with_filename(STANDARD_OUTPUT):
                out.write(text)
                if at_once:
                    out.flush()
    finally:
        show_text(formatter.end())
