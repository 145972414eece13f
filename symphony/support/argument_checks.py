"""Checks of the arguments of public methods, so that all methods report the same errors.

The checks follow from the annotations. For example, an argument that is annotated with ``str`` must
be a string. An argument whose annotation is not in the table is not checked.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from types import FunctionType
from typing import Any, NamedTuple

from symphony.errors import SpecError, shown

_MAX_COUNT = 2**63 - 1
# The limits of Linux: PATH_MAX without the final NUL, and NAME_MAX.
_MAX_PATH_BYTES = 4095
_MAX_NAME_BYTES = 255


class Check(NamedTuple):
    """A check of a value: a function that returns whether the value is valid, and the words for a
    valid value in the error message.
    """

    accepts: Callable[[Any], bool]
    expected: str


def is_path(value: object) -> bool:
    """Return whether ``value`` is a path that the operating system accepts.

    A path with a line break is refused, because error messages have one line.
    """
    if not isinstance(value, (str, os.PathLike)):
        return False
    try:
        encoded = os.fsencode(value)
    except (TypeError, UnicodeEncodeError):
        return False
    has_forbidden_character = any(char in encoded for char in (b"\0", b"\n", b"\r"))
    parts = encoded.split(b"/")
    is_too_long = len(encoded) > _MAX_PATH_BYTES or max(map(len, parts)) > _MAX_NAME_BYTES
    return bool(encoded) and not has_forbidden_character and not is_too_long


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return is_number and 0 <= value <= _MAX_COUNT


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return not math.isnan(float(value))
    except OverflowError:
        return False


def _is_list_of_text(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(map(_is_text, value))


def _is_iterable(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))


_TEXT = Check(_is_text, "text")
_FUNCTION = Check(callable, "a function")
# The keys are annotations without ``| None``.
CHECKS: dict[str, Check] = {
    "str": _TEXT,
    "bool": Check(_is_flag, "True or False"),
    "int": Check(_is_count, "a whole number of at least 0"),
    "float": Check(_is_number, "a number"),
    "float | str": Check(lambda value: _is_number(value) or _is_text(value), "a number or text"),
    "Callable[[str], None]": _FUNCTION,
    "Callable[[SymphonyError], None]": _FUNCTION,
    "str | os.PathLike[str]": Check(is_path, "a path"),
    "Sequence[str]": Check(_is_list_of_text, "a list of names"),
    "Iterable[str]": Check(_is_iterable, "a list of names"),
    "Mapping[str, Any]": Check(lambda value: isinstance(value, Mapping), "a mapping"),
}


def check_methods(
    cls: type[Any], checks: Mapping[str, Check] = CHECKS, *, also: Collection[str] = ()
) -> None:
    """Make every public method that ``cls`` itself defines, and those in ``also``, check its
    arguments.

    ``checks`` maps annotations without ``| None`` to their checks.
    """
    for name, value in list(vars(cls).items()):
        if isinstance(value, FunctionType) and (name in also or not name.startswith("_")):
            setattr(cls, name, _checked(value, checks))


def _checked(method: FunctionType, checks: Mapping[str, Check]) -> Callable[..., Any]:
    """Return a method that checks its arguments before it calls ``method``."""
    code = method.__code__
    positional = code.co_varnames[: code.co_argcount]
    annotations = method.__annotations__

    @functools.wraps(method)
    def checked(*args: Any, **keywords: Any) -> Any:
        # If there are too many or too few arguments, the call itself raises Python's TypeError.
        for name, value in (*zip(positional, args, strict=False), *keywords.items()):
            _check_argument(name, value, annotations.get(name, ""), checks)
        return method(*args, **keywords)

    return checked


def _check_argument(name: str, value: object, annotation: str, checks: Mapping[str, Check]) -> None:
    """Raise `SpecError` if ``value`` is not valid for ``annotation``."""
    if value is None and annotation.endswith("| None"):
        return
    check = checks.get(annotation.removesuffix(" | None"))
    if check is not None and not check.accepts(value):
        raise SpecError(f"{name} must be {check.expected}, not {shown(value)}{_name_of(value)}")


def _name_of(value: Any) -> str:
    """Return a hint for an object that was given instead of its name."""
    has_name = isinstance(getattr(type(value), "name", None), property)
    return f"; use its name, {value.name!r}" if has_name else ""
