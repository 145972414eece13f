"""Writing to standard output: text, tables, JSON and log lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from symphony.commandline.exit_codes import STANDARD_OUTPUT
from symphony.commandline.output.tables import Column, Row, format_table
from symphony.commandline.output.terminal import (
    NAME_COLOURS,
    RESET,
    has_colour,
    terminal_width,
)
from symphony.errors import with_filename

if TYPE_CHECKING:
    from symphony.status import LogLine

_PIECE_CHARACTERS = 1 << 16


def show_table(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Print a table. On a terminal, fit it to the terminal's width."""
    show_text("\n".join([*table_lines(columns, rows), ""]))


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


def log_formatter(names: Sequence[str], *, as_json: bool, colour: bool) -> Callable[[LogLine], str]:
    """Return a function that formats the log lines of the processes ``names``.

    If ``as_json`` is true, each line becomes a JSON object. Otherwise, each line begins with the
    process name, unless there is only one process.
    """
    if as_json:
        return _json_line
    if len(names) == 1:
        return lambda line: f"{line.text}\n"
    size = max((len(name) for name in names), default=0)
    prefixes: dict[str, str] = {}
    for index, name in enumerate(names):
        prefix = f"{name.ljust(size)} | "
        if colour:
            tint = NAME_COLOURS[index % len(NAME_COLOURS)]
            prefix = f"{tint}{prefix}{RESET}"
        prefixes[name] = prefix
    return lambda line: f"{prefixes[line.process]}{line.text}\n"


def _json_line(line: LogLine) -> str:
    import json

    data = {"process": line.process, "text": line.text}
    return json.dumps(data, separators=(",", ":")) + "\n"


def show_text(text: str) -> None:
    """Print text unchanged.

    The text is written in pieces because Python may not report an error for a single large write to
    a closed pipe.
    """
    with with_filename(STANDARD_OUTPUT):
        for start in range(0, len(text), _PIECE_CHARACTERS):
            sys.stdout.write(text[start : start + _PIECE_CHARACTERS])


def show_lines(
    lines: Iterable[LogLine], format_line: Callable[[LogLine], str], *, at_once: bool
) -> None:
    """Print log lines. If ``at_once`` is true, flush the output after each line."""
    out = sys.stdout
    for line in lines:
        text = format_line(line)
        with with_filename(STANDARD_OUTPUT):
            out.write(text)
            if at_once:
                out.flush()
