"""Amounts of CPU, memory and GPUs in Kubernetes notation, parsed exactly.

A quantity is a number with an optional suffix: ``2`` (cores or devices), ``500m`` (half a core),
``4Gi`` (4 * 2^30 bytes), ``1e3`` (1000). Amounts are `fractions.Fraction` objects, so that no
comparison depends on rounding. The grammar is documented at
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from fractions import Fraction

from symphony.errors import SpecError, shown

MEBIBYTE_BYTES = 2**20
_LEAST_MEMORY_BYTES = 10**6
_REASONS_FOR_LITTLE_MEMORY = {
    "": ", because an amount without a unit is in bytes",
    "m": ", because m stands for thousandths of a byte",
}
# A smaller log would often not contain the lines that explain an error.
MIN_LOG_LIMIT_BYTES = 2**16
MILLICORES_PER_CORE = 1000
# The maximum value of a plain number. No machine has a larger amount of anything, so a larger
# number is a mistake.
MAX_NUMBER = 10**15
# The maximum length of a number in characters. No real amount needs more characters, and Python
# refuses to parse integers that have thousands of digits.
MAX_NUMBER_LENGTH = 40

_NUMBER = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_EXPONENT = r"[eE][-+]?[0-9]{1,2}"
# The notation that an experiment can use. The schema of experiment files contains this pattern.
QUANTITY_PATTERN = re.compile(rf"{_NUMBER}(m|k|[MGTPE]|[KMGTPE]i|{_EXPONENT})?")
# The notation that a cluster can report. This notation also includes nano and micro units.
_REPORTED_PATTERN = re.compile(rf"{_NUMBER}([numkMGTPE]|[KMGTPE]i|{_EXPONENT})?")
_PLAIN_NUMBER_PATTERN = re.compile(_NUMBER)
# Notations of other programs: a number, an optional prefix of a unit, and an optional B for bytes.
_SIMILAR_PATTERN = re.compile(r"([0-9]+(?:[.,][0-9]+)?)\s*([kKmMgGtTpPeE]?)([iI]?)([bB]?)")

_FACTORS: Mapping[str, Fraction] = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}


def parse_quantity(value: object, subject: str = "the amount") -> Fraction:
    """Parse a quantity, and return its amount in the base unit: cores, bytes or devices.

    ``subject`` names the value in the error message. Raises `SpecError` if ``value`` is not a
    quantity.

    >>> parse_quantity("1930m"), parse_quantity("4Gi"), parse_quantity(2)
    (Fraction(193, 100), Fraction(4294967296, 1), Fraction(2, 1))
    """
    text = _as_text(value)
    amount = None if text is None else _amount_of(text)
    if amount is None:
        raise _not_a_quantity(value, subject)
    return amount


# The processes of an experiment, and the Pods of a cluster, usually have the same few amounts.
@functools.lru_cache(maxsize=1024)
def _amount_of(text: str) -> Fraction | None:
    """Return the amount of a quantity, or None if the text is not a quantity."""
    match = _REPORTED_PATTERN.fullmatch(text)
    if match is None or len(match[1]) > MAX_NUMBER_LENGTH:
        return None
    number, suffix = match[1], match[2] or ""
    if suffix in _FACTORS:
        return Fraction(number) * _FACTORS[suffix]
    exponent = int(suffix[1:])
    return Fraction(number) * Fraction(10) ** exponent


def quantity_text(value: object, subject: str) -> str:
    """Return a quantity as a string that Kubernetes accepts. A string is returned unchanged.

    Raises `SpecError` if ``value`` is not a quantity. Nano and micro units are refused, because no
    resource of an experiment can be divided that finely.

    >>> quantity_text(0.5, "cpu"), quantity_text("4Gi", "memory")
    ('0.5', '4Gi')
    """
    text = _as_text(value)
    match = None if text is None else QUANTITY_PATTERN.fullmatch(text)
    if text is None or match is None or len(match[1]) > MAX_NUMBER_LENGTH:
        raise _not_a_quantity(value, subject)
    return text


def memory_text(value: object, subject: str) -> str:
    """Return an amount of memory as a string; see `quantity_text`.

    Raises `SpecError` if ``value`` is not a quantity, or is less than a megabyte but not zero. No
    container can start with so little memory, so the unit is missing or wrong. Kubernetes accepts
    ``100m``, which is a tenth of a byte.
    """
    text = quantity_text(value, subject)
    if 0 < parse_quantity(text, subject) < _LEAST_MEMORY_BYTES:
        number, unit = _split_unit(text)
        reason = _REASONS_FOR_LITTLE_MEMORY.get(unit, "")
        raise SpecError(
            f"{subject} {text!r} is less than a megabyte{reason}; "
            f"did you mean '{number}M' or '{number}Mi'?"
        )
    return text


def log_size_text(value: object, subject: str) -> str:
    """Return the maximum size of a log as a string; see `quantity_text`.

    Raises `SpecError` if ``value`` is not a quantity, or is less than `MIN_LOG_LIMIT_BYTES`.
    """
    text = quantity_text(value, subject)
    if parse_quantity(text, subject) < MIN_LOG_LIMIT_BYTES:
        raise SpecError(f"{subject} must be at least 64Ki (64 * 1024 bytes), not {value!r}")
    return text


def parse_number(value: object, subject: str) -> Fraction:
    """Parse a non-negative number, given as a number or as a string without a suffix.

    Raises `SpecError` if ``value`` is not such a number, or exceeds `MAX_NUMBER`.

    >>> parse_number("0.5", "cpu"), parse_number(3, "cpu")
    (Fraction(1, 2), Fraction(3, 1))
    """
    if isinstance(value, str):
        number = _parse_number_text(value.strip(), subject)
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SpecError(f"{subject} must be a number, not {shown(value)}")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise SpecError(f"{subject} must be a number, not {shown(value)}")
        # Use the decimal notation that the user wrote, not the binary fraction that a float stores.
        number = Fraction(repr(value))
    else:
        number = Fraction(value)
    if number < 0:
        raise SpecError(f"{subject} must be at least 0, not {shown(value)}")
    if number > MAX_NUMBER:
        raise SpecError(f"{subject} must be at most 10^15, not {shown(value)}")
    return number


def parse_whole_number(value: object, subject: str, *, least: int = 0) -> int:
    """Parse a whole number of at least ``least``, given as a number or as a string.

    Raises `SpecError` if ``value`` is not such a number.
    """
    number = parse_number(value, subject)
    if number.denominator != 1:
        raise SpecError(f"{subject} must be a whole number, not {shown(value)}")
    if number < least:
        raise SpecError(f"{subject} must be at least {least}, not {shown(value)}")
    return int(number)


def parse_millicores(value: object, subject: str) -> int:
    """Return an amount of CPU in thousandths of a core, rounded up.

    Raises `SpecError` if ``value`` is neither a number of cores nor a string such as ``"500m"``.

    >>> parse_millicores(2, "cpu"), parse_millicores("500m", "cpu")
    (2000, 500)
    """
    if isinstance(value, str) and value.strip().endswith("m"):
        return math.ceil(parse_number(value.strip().removesuffix("m"), subject))
    return math.ceil(parse_number(value, subject) * MILLICORES_PER_CORE)


def parse_mebibytes(value: object, subject: str) -> int:
    """Parse an amount of memory in MiB, and round it up to a whole number.

    Raises `SpecError` in the same cases as `parse_number`.
    """
    return math.ceil(parse_number(value, subject))


def format_cores(millicores: int) -> str:
    """Convert thousandths of a core to a decimal number of cores.

    >>> format_cores(1930)
    '1.93'
    """
    return f"{millicores / MILLICORES_PER_CORE:.3f}".rstrip("0").rstrip(".")


def _as_text(value: object) -> str | None:
    """Return a string unchanged, and a number as a string without an exponent.

    Return None for any other value, and for an integer with too many digits.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    if isinstance(value, float):
        return f"{value:f}".rstrip("0").rstrip(".")
    if isinstance(value, int) and abs(value) >= 10**MAX_NUMBER_LENGTH:
        return None
    return str(value)


def _not_a_quantity(value: object, subject: str) -> SpecError:
    suggestion = _similar_quantity(value)
    hint = f"; did you mean {suggestion!r}?" if suggestion else ""
    return SpecError(
        f"{subject} must be an amount such as 2, '500m' or '4Gi', not {shown(value)}{hint}"
    )


def _split_unit(quantity: str) -> tuple[str, str]:
    """Return the number and the unit of a quantity. The unit is empty if there is none."""
    match = QUANTITY_PATTERN.fullmatch(quantity)
    return (match[1], match[2] or "") if match else (quantity, "")


def _similar_quantity(value: object) -> str | None:
    """Return the quantity that a similar notation probably means, or None if there is none.

    Other programs write units in any case, separate them with a space and add a B for bytes. The
    units of docker without an i, such as ``8g``, are powers of 1024.

    >>> _similar_quantity("8GB"), _similar_quantity("512 mib"), _similar_quantity("8g")
    ('8G', '512Mi', '8Gi')
    """
    if not isinstance(value, str) or len(value) > MAX_NUMBER_LENGTH:
        return None
    match = _SIMILAR_PATTERN.fullmatch(value.strip())
    if match is None:
        return None
    number, prefix, binary, in_bytes = match[1].replace(",", "."), match[2], match[3], match[4]
    if not prefix:
        return number
    if binary or (prefix in "gt" and not in_bytes):
        return f"{number}{prefix.upper()}i"
    return f"{number}{'k' if prefix in 'kK' else prefix.upper()}"


def _parse_number_text(text: str, subject: str) -> Fraction:
    digits = text.removeprefix("-")
    if not _PLAIN_NUMBER_PATTERN.fullmatch(digits):
        raise SpecError(f"{subject} must be a number, not {shown(text)}")
    if len(digits) > MAX_NUMBER_LENGTH:
        raise SpecError(
            f"{subject} must be a number of at most {MAX_NUMBER_LENGTH} characters, "
            f"not {shown(text)} ({len(text)} characters)"
        )
    return Fraction(text)
