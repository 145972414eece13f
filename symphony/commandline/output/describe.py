"""The output of ``symphony describe``: sections of text about one process.

All functions are pure.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from symphony.commandline.output.tables import format_age
from symphony.commandline.output.views import align_pairs

if TYPE_CHECKING:
    from symphony.process_details import ProcessDetails, ProcessEvent
    from symphony.status import ProcessStatus

# The number of log lines that are shown.
LAST_LINES = 10


def description_lines(
    experiment: str, details: ProcessDetails, log: Sequence[str], now: float
) -> list[str]:
    """Return the lines that describe one process. ``log`` contains the last log lines."""
    status = details.status
    facts = {"process": f"{status.path} of {experiment}", **_state(status, now), **details.facts}
    sections = {
        "": align_pairs(facts.items()),
        "resources": align_pairs(details.resources.items()),
        "services": align_pairs(details.addresses.items()),
        "events": align_pairs(_events(details.events, now)),
        f"last lines (of {status.path})": [f"  {line}" for line in log],
    }
    lines: list[str] = []
    for title, section in sections.items():
        if not section:
            continue
        if title:
            lines.append(title)
        lines += section
    return lines


def _state(status: ProcessStatus, now: float) -> dict[str, str]:
    ready = ", ready" if status.ready else ""
    facts = {"state": f"{status.displayed_state}{ready}"}
    reason = status.displayed_reason(now)
    if reason:
        facts["reason"] = reason
    if status.exit_code is not None:
        facts["exit code"] = str(status.exit_code)
    if status.restarts:
        facts["restarts"] = str(status.restarts)
    if status.started is not None:
        facts["started"] = _date_and_age(status.started, now)
    if status.ended is not None:
        facts["ended"] = _date_and_age(status.ended, now)
    if status.pid is not None:
        facts["pid"] = str(status.pid)
    if status.node:
        facts["node"] = status.node
    return facts


def _date_and_age(at: float, now: float) -> str:
    date = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    return f"{date} ({format_age(now - at)} ago)"


def _events(events: Sequence[ProcessEvent], now: float) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for event in events:
        age = "-" if event.at is None else f"{format_age(now - event.at)} ago"
        pairs.append((age, event.text))
    return pairs
