"""Events as lines of text and as JSON. All functions are pure."""

from __future__ import annotations

import json
import time

from symphony.events import EventKind, ExperimentEvent

_USUAL = (EventKind.LAUNCHED, EventKind.WAITING, EventKind.FINISHED)


def is_worth_reporting(event: ExperimentEvent) -> bool:
    """Return whether to show an event between lines of output.

    Events that every process has, such as its first start, would hide the others.
    """
    is_first_start = event.kind is EventKind.STARTED and event.text == "started"
    return event.kind not in _USUAL and not is_first_start


def event_row(event: ExperimentEvent) -> str:
    """Return an event as a line that begins with its local time."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at))
    return f"{at}  {event.line}"


def event_json(event: ExperimentEvent) -> str:
    """Return an event as a JSON object on one line."""
    return json.dumps(event.to_dict(), separators=(",", ":"))
