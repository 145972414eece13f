"""Durations as users write them: in seconds, with units (``1h30m``), or in Slurm's time formats."""

from __future__ import annotations

import math
import re

from symphony.errors import SpecError, shown

# The maximum time limit in seconds. Kubernetes does not accept a longer deadline for a Pod.
MAX_TIME_LIMIT_SECONDS = 2**31 - 1

_SECONDS_PER_UNIT = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_UNIT = r"ms|s|m|h|d"
_PLAIN_PATTERN = re.compile(_NUMBER)
_PART_PATTERN = re.compile(rf"({_NUMBER})({_UNIT})")
_WITH_UNITS_PATTERN = re.compile(rf"(?:{_NUMBER}(?:{_UNIT}))+")
# The strings that `parse_duration` accepts.
DURATION_PATTERN = re.compile(f"{_NUMBER}|{_WITH_UNITS_PATTERN.pattern}")
# The formats that the sbatch(1) option --time accepts: [days-]field[:field[:field]].
_SLURM_PATTERN = re.compile(r"(?:([0-9]+)-)?([0-9]+(?::[0-9]+){0,2})")


def parse_duration(value: float | str, subject: str = "a duration") -> float:
    """Convert a duration to seconds.

    ``value`` is a number of seconds, a string that contains such a number, or a string with units
    such as ``"90s"`` or ``"1h30m"``. ``subject`` names the value in the error message. Raises
    `SpecError` if ``value`` is not a duration or is too long to be represented.

    >>> parse_duration("1m30s"), parse_duration("90"), parse_duration(0.5)
    (90.0, 90.0, 0.5)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise _not_a_duration(value, subject)
    if isinstance(value, (int, float)) or _PLAIN_PATTERN.fullmatch(value):
        try:
            seconds = float(value)
        except OverflowError:
            seconds = math.inf
    elif _WITH_UNITS_PATTERN.fullmatch(value):
        parts = _PART_PATTERN.findall(value)
        seconds = sum(float(number) * _SECONDS_PER_UNIT[unit] for number, unit in parts)
    else:
        raise _not_a_duration(value, subject)
    if seconds < 0 or math.isnan(seconds):
        raise _not_a_duration(value, subject)
    if math.isinf(seconds):
        raise SpecError(f"{subject} is too long: {shown(value)}")
    return seconds


def has_units(text: str) -> bool:
    """Return whether ``text`` is a duration in which every number has a unit, such as ``1h30m``."""
    return _WITH_UNITS_PATTERN.fullmatch(text) is not None


def parse_positive_duration(
    value: float | str, subject: str = "a duration", *, maximum: float = MAX_TIME_LIMIT_SECONDS
) -> float:
    """Convert a duration above 0 to seconds. The result is an integer if it is a whole number.

    Raises `SpecError` in the same cases as `parse_duration`, and if the duration is 0 or longer
    than ``maximum`` seconds.

    >>> parse_positive_duration("6h"), parse_positive_duration("1.5s")
    (21600, 1.5)
    """
    seconds = parse_duration(value, subject)
    if seconds == 0:
        raise SpecError(f"{subject} must be above 0, not {shown(value)}")
    if seconds > maximum:
        raise SpecError(f"{subject} must be at most {maximum} s, not {shown(value)}")
    return int(seconds) if seconds.is_integer() else seconds


def parse_whole_seconds(value: float | str, subject: str = "a duration") -> int:
    """Convert a duration to whole seconds, rounded up and limited to `MAX_TIME_LIMIT_SECONDS`.

    Raises `SpecError` in the same cases as `parse_duration`.
    """
    return min(math.ceil(parse_duration(value, subject)), MAX_TIME_LIMIT_SECONDS)


def parse_exact_seconds(value: float | str, subject: str = "a duration") -> int:
    """Convert a duration to whole seconds.

    Raises `SpecError` in the same cases as `parse_duration`, and if the result is not a whole
    number or is above `MAX_TIME_LIMIT_SECONDS`.

    >>> parse_exact_seconds("2m"), parse_exact_seconds(0)
    (120, 0)
    """
    seconds = parse_duration(value, subject)
    if not seconds.is_integer():
        raise SpecError(f"{subject} must be a whole number of seconds, not {shown(value)}")
    if seconds > MAX_TIME_LIMIT_SECONDS:
        raise SpecError(f"{subject} must be at most {MAX_TIME_LIMIT_SECONDS} s, not {shown(value)}")
    return int(seconds)


def parse_timeout(value: float | str | None, subject: str = "timeout") -> float | None:
    """Convert a duration with a unit to seconds. A number and None are returned as they are.

    A number can be the rest of a longer time, so it can be below 0. Raises `SpecError` if ``value``
    is text, but not a duration.

    >>> parse_timeout("5m"), parse_timeout(-0.5), parse_timeout(None)
    (300.0, -0.5, None)
    """
    return parse_duration(value, subject) if isinstance(value, str) else value


def parse_time_limit(text: str) -> int:
    """Convert a time limit to seconds. A result of 0 means that there is no limit.

    The formats are those of sbatch(1): minutes, minutes:seconds, hours:minutes:seconds, days-hours,
    days-hours:minutes and days-hours:minutes:seconds. A string with units such as ``90s`` or
    ``1h30m`` is also accepted. Raises `SpecError` if ``text`` has none of these formats, or has a
    Slurm format and exceeds `MAX_TIME_LIMIT_SECONDS`. A longer duration with units is reduced to
    that limit.

    >>> parse_time_limit("30"), parse_time_limit("30:00"), parse_time_limit("90s")
    (1800, 1800, 90)
    >>> parse_time_limit("1-12")
    129600
    """
    match = _SLURM_PATTERN.fullmatch(text)
    if match is not None:
        seconds = _slurm_seconds(text, days=match[1], fields=match[2].split(":"))
    elif has_units(text):
        seconds = parse_whole_seconds(text)
    else:
        raise SpecError(
            "a time limit must be minutes, M:SS, H:MM:SS, D-HH, D-HH:MM:SS, "
            f"or a duration such as 90s, 5m or 2h, not {text!r}"
        )
    if seconds > MAX_TIME_LIMIT_SECONDS:
        raise SpecError(f"a time limit must be at most {MAX_TIME_LIMIT_SECONDS} s, not {text!r}")
    return seconds


def _slurm_seconds(text: str, days: str | None, fields: list[str]) -> int:
    if any(len(field) > 10 for field in (days or "", *fields)):
        # Python refuses to convert very long strings to integers. The caller rejects the returned
        # value because it exceeds the limit.
        return MAX_TIME_LIMIT_SECONDS + 1
    numbers = [int(field) for field in fields]
    largest_first = MAX_TIME_LIMIT_SECONDS if days is None else 23
    limits = (largest_first, 59, 59)
    if any(number > limit for number, limit in zip(numbers, limits, strict=False)):
        raise SpecError(
            f"{text!r} is not a time limit: minutes and seconds after ':' are at most 59, "
            "and hours after '-' at most 23"
        )
    if days is None and len(numbers) < 3:
        # If the string contains neither days nor hours, its first field is the number of minutes.
        numbers.insert(0, 0)
    padded = [*numbers, 0, 0]
    hours, minutes, seconds = padded[:3]
    total_hours = int(days or 0) * 24 + hours
    return (total_hours * 60 + minutes) * 60 + seconds


def _not_a_duration(value: object, subject: str) -> SpecError:
    return SpecError(
        f"{subject} must be seconds or a duration such as 90s or 5m, not {shown(value)}"
    )
