"""The ``since`` of a request for logs."""

from __future__ import annotations

import datetime

import pytest

from symphony import SpecError
from symphony.cluster.since import parse_since

NOW = 1_000_000.0
NOON = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.timezone.utc).timestamp()


@pytest.mark.parametrize(
    ("since", "expected"),
    [
        (10, NOW - 10),
        (0.5, NOW - 0.5),
        ("90s", NOW - 90),
        ("5m", NOW - 300),
        ("2h", NOW - 7200),
        ("1d", NOW - 86400),
        ("1h30m", NOW - 5400),
        ("1.5s", NOW - 1.5),
        ("250ms", NOW - 0.25),
        ("0s", NOW),
        ("2024-01-01T12:00:00+00:00", NOON),
        ("2024-01-01T12:00:00Z", NOON),
        ("2024-01-01T14:00:00+02:00", NOON),
        ("2024-01-01T12:00:00", datetime.datetime(2024, 1, 1, 12).timestamp()),
        ("2024-01-01", datetime.datetime(2024, 1, 1).timestamp()),
    ],
)
def test_since_is_a_duration_or_a_time(since: float | str, expected: float) -> None:
    assert parse_since(since, NOW) == pytest.approx(expected)


@pytest.mark.parametrize(
    "since", ["", "5", "m", "5 m", "5x", "5m ", "-5m", "yesterday", "5m3", "2024-13-01"]
)
def test_other_text_is_refused(since: str) -> None:
    with pytest.raises(
        SpecError, match="since must be a duration such as '90s' or '5m', or an ISO 8601 time, not "
    ):
        parse_since(since, NOW)
