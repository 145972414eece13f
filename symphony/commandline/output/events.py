"""Events as lines of text and as JSON. All functions are pure."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symphony.events import ExperimentEvent


def event_row(event: ExperimentEvent) -> str:
    """Return an event as a line that begins with its local time."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at))
    return f"{at}  {event.line}"


def event_json(event: ExperimentEvent) -> str:
    """Return an event as a JSON object on one line."""
    return json.dumps(event.to_dict(), separators=(",", ":"))
