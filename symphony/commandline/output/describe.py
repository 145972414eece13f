"""One process, or all of an experiment, as text in sections. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from symphony.commandline.output.tables import format_age
from symphony.commandline.output.views import align_pairs, process_state

if TYPE_CHECKING:
    from symphony.process_details import ProcessDetails, ProcessEvent
    from symphony.status import ProcessStatus

LAST_LINES = 10


def description_lines(
    experiment: str, details: ProcessDetails, log: Sequence[str], now: float
) -> list[str]:
    """The lines that tell of one process; ``log`` are the last that it wrote."""
    status = details.status
    sections = {
        "": _pairs(
            {"process": f"{status.path} of {experiment}", **_state(status, now), **details.facts}
        ),
        "resources": _pairs(details.resources),
        "services": _pairs(details.addresses),
        "events": _pairs(_events(details.events, now)),
        f"last lines (of {status.path})": [f"  {line}" for line in log],
    }
    return [
        line
        for title, lines in sections.items()
        if lines
        for line in ([title] if title else []) + lines
    ]


def _state(status: ProcessStatus, now: float) -> dict[str, str]:
    ready = ", ready" if status.ready else ""
    shown = {"state": f"{process_state(status)}{ready}"}
    if status.reason:
        shown["reason"] = status.reason
    if status.exit_code is not None:
        shown["exit code"] = str(status.exit_code)
    if status.restarts:
        shown["restarts"] = str(status.restarts)
    if status.started is not None:
        shown["started"] = _when(status.started, now)
    if status.ended is not None:
        shown["ended"] = _when(status.ended, now)
    if status.pid is not None:
        shown["pid"] = str(status.pid)
    return shown


def _when(at: float, now: float) -> str:
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(at))} ({format_age(now - at)} ago)"


def _events(events: Sequence[ProcessEvent], now: float) -> list[tuple[str, str]]:
    return [
        ("-" if event.at is None else f"{format_age(now - event.at)} ago", event.text)
        for event in events
    ]


def _pairs(pairs: Mapping[str, str] | Sequence[tuple[str, str]]) -> list[str]:
    return align_pairs(pairs.items() if isinstance(pairs, Mapping) else pairs)
