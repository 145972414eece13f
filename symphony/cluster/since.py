"""The ``since`` of a request for logs: how far back in time the logs begin."""

from __future__ import annotations

import re
from datetime import datetime

from symphony.errors import SpecError

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_since(since: float | str, now: float) -> float:
    """Return ``since`` in seconds since the epoch.

    ``since`` is a number of seconds or a duration (``"5m"``) before ``now``, or an ISO 8601 time.
    Raise `SpecError` if it is none of these.

    >>> parse_since("1m30s", 100.0)
    10.0
    """
    if isinstance(since, (int, float)):
        return now - since
    parts = _DURATION.findall(since)
    is_duration = bool(parts) and "".join(number + unit for number, unit in parts) == since
    if is_duration:
        return now - sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    try:
        return datetime.fromisoformat(since.replace("Z", "+00:00")).timestamp()
    except ValueError:
        raise SpecError(
            f"since is a duration such as '90s' or '5m', or an ISO 8601 time, not {since!r}"
        ) from None
