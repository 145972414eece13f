"""Parsing the ``since`` argument of the methods that return logs."""

from __future__ import annotations

from datetime import datetime

from symphony.errors import SpecError, shown
from symphony.model.settings.durations import has_units, parse_duration


def parse_since(since: float | str, now: float) -> float:
    """Convert ``since`` to seconds since the epoch.

    ``since`` is a number of seconds or a duration (``"5m"``) before ``now``, or an ISO 8601 time.
    ``now`` is also in seconds since the epoch. Raises `SpecError` if ``since`` is invalid.

    >>> parse_since("1m30s", 100.0)
    10.0
    """
    is_number = isinstance(since, (int, float)) and not isinstance(since, bool)
    try:
        if is_number or has_units(str(since)):
            return now - parse_duration(since, "since")
        return datetime.fromisoformat(str(since).replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError):
        raise SpecError(
            "since must be a duration such as '90s' or '5m', or an ISO 8601 time, "
            f"not {shown(since)}"
        ) from None
