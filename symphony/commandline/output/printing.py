"""Writing to standard output: text, tables, JSON and the output of processes."""

from __future__ import annotations

import io
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
    print_note,
    terminal_width,
)
from symphony.errors import with_filename
from symphony.log_text import printable, to_bytes

if TYPE_CHECKING:
    from symphony.events import ExperimentEvent
    from symphony.log_blocks import LogBlock
    from symphony.support.escapes import LogCleaner

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
    """A formatter for the output of the processes ``names``.

    If ``as_json`` is true, each line becomes a JSON object. Otherwise, each line begins with the
    process name, unless there is only one process. With ``timestamps``, the time of each line is
    added. On a terminal, control sequences other than colours are removed, unless ``raw`` is true.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        as_json: bool,
        raw: bool = False,
        timestamps: bool = False,
    ) -> None:
        self._as_json = as_json
        self._timestamps = timestamps
        self._names = dict.fromkeys(names)
        self._prefixes = {} if len(names) == 1 else _prefixes(names)
        self._cleaner = None if as_json else _log_cleaner(raw=raw)
        # The processes whose last line is not complete yet.
        self._begun: set[str] = set()

    def __call__(self, block: LogBlock) -> str:
        """Return the text of a block. A progress bar that is still being written becomes a line.

        A process that is not one of the processes was added to the experiment.
        """
        if block.process not in self._names:
            self._names[block.process] = None
            self._prefixes = _prefixes(list(self._names))
        if not (self._as_json or self._prefixes or self._cleaner or self._timestamps):
            self._note_end(block)
            return block.text
        body = self._body(block)
        if body is None:
            return ""
        if self._as_json:
            return self._json_lines(block, printable(body))
        if self._cleaner is not None:
            body = self._cleaner.clean_lines(printable(body))
        head = self._prefixes.get(block.process, "")
        if self._timestamps:
            head = f"{head}{_timestamp(block.at)} "
        # A colour must not extend to the next line, because that line can be another process's.
        reset = RESET if head and self._cleaner is not None and "\x1b" in body else ""
        lines = body.replace("\n", f"{reset}\n{head}")
        return f"{head}{lines}{reset}\n"

    def _body(self, block: LogBlock) -> str | None:
        """Return the lines of a block without the newline of the last one.

        Return None if the block contains only the end of a line that was already shown.
        """
        text = block.text
        is_continuation = block.process in self._begun
        is_complete = self._note_end(block)
        if is_complete and not is_continuation:
            return text[:-1]
        # Each version of the progress bar becomes a line.
        versions = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        body = "\n".join(version for version in versions if version)
        return body or None

    def _note_end(self, block: LogBlock) -> bool:
        """Return whether the last line of a block is complete."""
        is_complete = block.text.endswith("\n")
        if is_complete:
            self._begun.discard(block.process)
        else:
            self._begun.add(block.process)
        return is_complete

    def _json_lines(self, block: LogBlock, body: str) -> str:
        import json

        # To encode a dictionary for each line takes ten times as long.
        encode = json.JSONEncoder().encode
        begin = f'{{"process":{encode(block.process)},"text":'
        end = f',"at":{encode(block.at)}}}\n' if self._timestamps else "}\n"
        return "".join([f"{begin}{encode(text)}{end}" for text in body.split("\n")])

    def end(self) -> str:
        """Return the text to print after the last line."""
        is_unchanged = not (self._as_json or self._prefixes or self._cleaner or self._timestamps)
        if self._begun and is_unchanged:
            return "\n"
        return RESET if self._cleaner is not None and self._cleaner.has_colours else ""


def _timestamp(at: float | None) -> str:
    """Return a time in UTC, such as ``2026-11-22T09:30:11.123Z``, or ``-`` if it is unknown."""
    from datetime import datetime, timezone

    if at is None:
        return "-"
    text = datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


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
    from symphony.support.escapes import LogCleaner

    return LogCleaner(keep_colours=has_colour(sys.stdout))


def show_text(text: str) -> None:
    """Print text unchanged.

    Use this function for text whose format has its own notation for control characters, such as
    JSON and YAML, and for logs. The text is written in pieces because Python may not report an
    error for a single large write to a closed pipe.
    """
    with with_filename(STANDARD_OUTPUT):
        for start in range(0, len(text), _PIECE_CHARACTERS):
            sys.stdout.write(text[start : start + _PIECE_CHARACTERS])


def _show_output(text: str) -> None:
    """Print output of processes, whose bytes remain the same on every stream; see `log_text`."""
    if text.isascii() or not isinstance(sys.stdout, io.TextIOWrapper):
        show_text(printable(text))
        return
    with with_filename(STANDARD_OUTPUT):
        sys.stdout.flush()
        for start in range(0, len(text), _PIECE_CHARACTERS):
            sys.stdout.buffer.write(to_bytes(text[start : start + _PIECE_CHARACTERS]))


def show_log(pieces: Iterable[str], *, raw: bool) -> bool:
    """Print a log that arrives in pieces, and return whether it contains any text.

    On a terminal, control sequences other than colours are removed, unless ``raw`` is true.
    """
    cleaner = _log_cleaner(raw=raw)
    has_text = False
    try:
        for piece in pieces:
            has_text = has_text or bool(piece)
            _show_output(piece if cleaner is None else cleaner.clean(printable(piece)))
        if cleaner is not None:
            show_text(cleaner.clean_rest())
    finally:
        if cleaner is not None and cleaner.has_colours:
            show_text(RESET)
    return has_text


def show_output(
    items: Iterable[LogBlock | ExperimentEvent], formatter: LogFormatter, *, at_once: bool
) -> None:
    """Print output on standard output, and events on standard error.

    If ``at_once`` is true, flush the output after each block.
    """
    from symphony.events import ExperimentEvent

    try:
        for item in items:
            if isinstance(item, ExperimentEvent):
                show_event(item)
                continue
            _show_output(formatter(item))
            if at_once:
                with with_filename(STANDARD_OUTPUT):
                    sys.stdout.flush()
    finally:
        show_text(formatter.end())


def show_event(event: ExperimentEvent) -> None:
    """Print an event between lines of output, on standard error, if it is worth it.

    Programs that read the output therefore receive only the output.
    """
    from symphony.commandline.output.event_lines import is_worth_reporting

    if is_worth_reporting(event):
        print_note(f"symphony: {event.line}")
