"""Parsing the ``since`` argument of the methods that return logs."""

from __future__ import annotations

from datetime import datetime

from symphony.errors import SpecError
from symphony.model.durations import has_units, parse_duration


def parse_since(since: float | str, now: float) -> float:
    """Convert ``since`` to seconds since the epoch.

    ``since`` is a number of seconds or a duration (``"5m"``) before ``now``, or an ISO 8601 time.
    ``now`` is also in seconds since the epoch. Raises `SpecError` if ``since`` is invalid.

    >>> parse_since("1m30s", 100.0)
    10.0
    """
    if isinstance(since, (int, float)):
        return now - since
    if has_units(since):
        return now - parse_duration(since)
    try:
        return datetime.fromisoformat(since.replace("Z", "+00:00")).timestamp()
    except ValueError:
        raise SpecError(
            f"since must be a duration such as '90s' or '5m', or an ISO 8601 time, not {since!r}"
        ) from None
