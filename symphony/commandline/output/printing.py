"""Writing to standard output: tables, JSON, and the lines of logs, merged with a name each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from symphony.commandline.exit_codes import STANDARD_OUTPUT
from symphony.commandline.output.tables import Column, Row, format_table
from symphony.commandline.output.terminal import NAME_COLOURS, RESET, has_colour, terminal_width
from symphony.errors import with_filename

if TYPE_CHECKING:
    from symphony.status import LogLine


_PIECE = 1 << 16


def show_table(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    """Print a table as it suits standard output."""
    show_text("\n".join([*table_lines(columns, rows), ""]))


def table_lines(columns: Sequence[Column], rows: Sequence[Row]) -> list[str]:
    """The lines of a table as it suits standard output."""
    from symphony.commandline.output.views import state_colour

    return format_table(
        columns, rows, terminal_width(sys.stdout), state_colour if has_colour(sys.stdout) else None
    )


def show_json(data: Any, *, compact: bool = False) -> None:
    """Print data as JSON, on one line if ``compact``."""
    import json

    written = json.dumps(data, separators=(",", ":")) if compact else json.dumps(data, indent=2)
    show_text(f"{written}\n")


def log_formatter(names: Sequence[str], *, as_json: bool, colour: bool) -> Callable[[LogLine], str]:
    """How to write a line: as it is where there is one process, else after the name of its process."""
    if as_json:
        import json

        return lambda line: (
            json.dumps({"process": line.process, "text": line.text}, separators=(",", ":")) + "\n"
        )
    if len(names) == 1:
        return lambda line: f"{line.text}\n"
    size = max((len(name) for name in names), default=0)
    prefixes = {name: f"{name.ljust(size)} | " for name in names}
    if colour:
        tints = {name: NAME_COLOURS[index % len(NAME_COLOURS)] for index, name in enumerate(names)}
        prefixes = {name: f"{tints[name]}{prefix}{RESET}" for name, prefix in prefixes.items()}
    return lambda line: f"{prefixes[line.process]}{line.text}\n"


def show_text(text: str) -> None:
    """Write text as it is, a piece at a time: of one big write to a pipe that closes Python may tell nothing."""
    with with_filename(STANDARD_OUTPUT):
        for start in range(0, len(text), _PIECE):
            sys.stdout.write(text[start : start + _PIECE])


def show_lines(lines: Iterable[LogLine], form: Callable[[LogLine], str], *, at_once: bool) -> None:
    """Write lines; ``at_once`` shows each when it comes."""
    out = sys.stdout
    for line in lines:
        text = form(line)
        with with_filename(STANDARD_OUTPUT):
            out.write(text)
            if at_once:
                out.flush()
