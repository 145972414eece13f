"""Durations and time limits."""

from __future__ import annotations

import pytest

from symphony.errors import SpecError
from symphony.model.settings import durations


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (90, 90.0),
        (0.5, 0.5),
        ("0", 0.0),
        ("90", 90.0),
        ("1.5", 1.5),
        ("500ms", 0.5),
        ("90s", 90.0),
        ("1m30s", 90.0),
        ("1.5h", 5400.0),
        ("6h", 21600.0),
        ("30d", 2592000.0),
    ],
)
def test_durations_are_parsed_to_seconds(value: float | str, seconds: float) -> None:
    assert durations.parse_duration(value) == seconds


@pytest.mark.parametrize(
    "value", ["", "x", "-5", "5 m", "1m30", "1:30", "5w", "1.s", "²s", -1, True, float("nan")]
)
def test_other_values_are_not_durations(value: float | str) -> None:
    with pytest.raises(SpecError, match=r"timeout must be seconds or a duration such as 90s or 5m"):
        durations.parse_duration(value, "timeout")


@pytest.mark.parametrize("value", ["9" * 400, "9" * 400 + "s", float("inf")])
def test_a_duration_has_to_be_finite(value: float | str) -> None:
    with pytest.raises(SpecError, match="timeout is too long"):
        durations.parse_duration(value, "timeout")


def test_whole_seconds_are_rounded_up_and_limited() -> None:
    assert durations.parse_whole_seconds("0.2s") == 1
    assert durations.parse_whole_seconds("100000d") == durations.MAX_TIME_LIMIT_SECONDS


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("30:00", 1800),
        ("1:30:00", 5400),
        ("48:00:00", 172800),
        ("2-0", 172800),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("0-0:0:5", 5),
        ("0", 0),
        ("90s", 90),
        ("5m", 300),
        ("2h", 7200),
        ("1h30m", 5400),
        ("0.2s", 1),
    ],
)
def test_time_limits_have_the_formats_of_slurm(text: str, seconds: int) -> None:
    assert durations.parse_time_limit(text) == seconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be minutes"),
        ("x", "must be minutes"),
        ("-5", "must be minutes"),
        ("1:2:3:4", "must be minutes"),
        ("1-2-3", "must be minutes"),
        ("1.5", "must be minutes"),
        ("5 m", "must be minutes"),
        (":30", "must be minutes"),
        ("30:", "must be minutes"),
        ("h", "must be minutes"),
        ("²", "must be minutes"),
        ("1:75", "at most 59"),
        ("1-24", "at most 23"),
        ("999999-0", "at most 2147483647 s"),
        ("9" * 5000, "at most 2147483647 s"),
    ],
)
def test_other_texts_are_not_time_limits(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        durations.parse_time_limit(text)
