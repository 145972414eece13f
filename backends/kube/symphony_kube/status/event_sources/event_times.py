"""The times of the events that Kubernetes has recorded. Pure.

Kubernetes counts the repetitions of an event. The times are seconds since the epoch, and 0 if the
time is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symphony_kube.api.resources import parse_time


def first_time(event: Mapping[str, Any]) -> float:
    """Return the time of an event's first occurrence."""
    return _time(event, "firstTimestamp")


def last_time(event: Mapping[str, Any]) -> float:
    """Return the time of an event's last occurrence."""
    return _time(event, "lastTimestamp")


def _time(event: Mapping[str, Any], field: str) -> float:
    created = event.get("metadata", {}).get("creationTimestamp")
    return parse_time(event.get(field) or event.get("eventTime") or created) or 0.0
