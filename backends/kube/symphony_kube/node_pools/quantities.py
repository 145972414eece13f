"""Amounts as people and Kubernetes write them, read exactly. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from fractions import Fraction

from symphony.errors import SpecError

MIB = 2**20
MILLI = 1000
_MOST = 10**15  # of anything: more is a slip of the pen, and cannot be meant
_LONGEST = 40  # characters of a number: Python refuses to read thousands of digits

_PLAIN = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
_QUANTITY = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]{1,2})?")
_SUFFIXES: Mapping[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    **{suffix: Fraction(10 ** (3 * power)) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(2 ** (10 * power)) for power, suffix in enumerate("KMGTPE", start=1)},
}


def quantity(text: object) -> Fraction:
    """An amount as Kubernetes writes it, in its own unit: cores, bytes, pieces.

    >>> quantity("1930m"), quantity("4Gi")
    (Fraction(193, 100), Fraction(4294967296, 1))
    """
    match = _QUANTITY.fullmatch(str(text))
    if match is None or len(match.group(1)) > _LONGEST:
        raise SpecError(
            f"{str(text)[:_LONGEST]!r} is no amount; write one such as 2, '500m' or '4Gi'"
        )
    number, suffix = match.group(1), match.group(2) or ""
    if suffix[:1] in ("e", "E") and len(suffix) > 1:
        return Fraction(number) * Fraction(10) ** int(suffix[1:])
    return Fraction(number) * _SUFFIXES.get(suffix, Fraction(1))


def number(value: object, what: str) -> Fraction:
    """A number, or text that is one, of at least 0. ``what`` says whose it is, for the message."""
    if isinstance(value, str):
        return _bounded(_written(value.strip(), what), what)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SpecError(f"{what} is a number, not {value!r}")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SpecError(f"{what} is a number, not {value!r}")
        return _bounded(
            Fraction(repr(value)), what
        )  # as it is written, and not its nearest binary fraction
    return _bounded(Fraction(value), what)


def _written(text: str, what: str) -> Fraction:
    if "${" in text:
        raise SpecError(
            f"{what} is {text!r}: Terraform's expressions are not evaluated here; write the number"
        )
    if not _PLAIN.fullmatch(text.removeprefix("-")):
        raise SpecError(f"{what} is a number, not {text!r}")
    if len(text) > _LONGEST:
        raise SpecError(f"{what} is {text[:10]}..., a number of {len(text)} characters")
    return Fraction(text)


def _bounded(found: Fraction, what: str) -> Fraction:
    if found < 0:
        raise SpecError(f"{what} is at least 0, not {float(max(found, Fraction(-_MOST))):g}")
    if found > _MOST:
        raise SpecError(f"{what} is above 10^15, which no machine has")
    return found


def whole(value: object, what: str, *, least: int = 0) -> int:
    """A whole number, or text that is one, of at least ``least``."""
    found = number(value, what)
    if found.denominator != 1:
        raise SpecError(f"{what} is a whole number, not {value!r}")
    if found < least:
        raise SpecError(f"{what} is at least {least}, not {value!r}")
    return int(found)


def millicores(value: object, what: str) -> int:
    """Cores (``2``, ``0.5``, ``"0.5"``, ``"500m"``) in thousandths, rounded up."""
    if isinstance(value, str) and value.strip().endswith("m"):
        return math.ceil(number(value.strip()[:-1], what))
    return math.ceil(number(value, what) * MILLI)


def mebibytes(value: object, what: str) -> int:
    """MiB, rounded up."""
    return math.ceil(number(value, what))


def cores(milli: int) -> str:
    """Thousandths of a core as people read them.

    >>> cores(1930)
    '1.93'
    """
    return f"{milli / MILLI:.3f}".rstrip("0").rstrip(".")
