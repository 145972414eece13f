"""The answers of tools: what is wrong first, not too long, and how to go on at the end."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime, timezone

from symphony.commandline.exit_codes import OK
from symphony.commandline.tools.calls import Finished, Output
from symphony.commandline.tools.descriptions import Tool

# The times of lines are accurate to about a second, so that a cursor can repeat some lines.
_CURSOR_MARGIN_SECONDS = 1.0
_NO_OUTPUT = "no output"


def answer(
    tool: Tool, words: Sequence[str], finished: Finished, started: float, *, is_unfinished: bool
) -> str:
    """Return the answer of a call.

    ``words`` are those of the command line, and ``started`` is the time of the call in seconds
    since the epoch. ``is_unfinished`` is true if the command only needs more time.
    """
    output, notes = finished.output.text.strip("\n"), finished.errors.text.strip("\n")
    if finished.was_stopped:
        seconds = f"{finished.seconds:.0f} s"
        parts = [f"interrupted after {seconds}, the time limit of a call", notes, output]
    elif is_unfinished:
        seconds = f"{finished.seconds:.0f} s"
        parts = [f"not finished after {seconds}; call {tool.name} again to go on", notes, output]
    elif finished.exit_code != OK:
        parts = [notes, output, f"exit code {finished.exit_code}"]
    else:
        parts = [output or ("" if notes else _NO_OUTPUT), notes]
    for stream in (finished.output, finished.errors):
        if stream.is_cut:
            parts.append(_cut_line(tool, words, stream))
    if "since" in tool.actions and finished.exit_code == OK:
        parts.append(f"to go on: {tool.name} with since={_cursor(started)}")
    return "\n".join(part for part in parts if part)


def failed_first(table: str) -> str:
    """Return the table of ``ps`` with the processes that have failed first."""
    title, *rows = table.splitlines() or [""]
    return "\n".join([title, *sorted(rows, key=lambda row: not is_failed(row))])


def is_failed(row: str) -> bool:
    """Return whether a row of ``ps`` is that of a process that has failed."""
    return row.split()[1:2] == ["failed"]


def _cut_line(tool: Tool, words: Sequence[str], stream: Output) -> str:
    narrower = [
        name for name in ("processes", "grep", "tail", "since", "number") if name in tool.actions
    ]
    hint = f"use {', '.join(narrower)}, or " if narrower else ""
    return (
        f"[cut: this is a part of {stream.size} bytes; for the rest, {hint}run: symphony "
        f"{shlex.join(words)}]"
    )


def _cursor(started: float) -> str:
    moment = datetime.fromtimestamp(started - _CURSOR_MARGIN_SECONDS, timezone.utc)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
