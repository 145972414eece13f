"""Calling the handlers of a configuration."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from symphony.config import fields
from symphony.errors import SpecError, SymphonyError

Handler = Callable[[Any], object]


def check(field: object, handler: object) -> None:
    """Refuse what cannot be a field, and a handler that cannot be called."""
    if not isinstance(field, str) or not field:
        raise SpecError(f"a field of a configuration is text, not {field!r}")
    if field == fields.PROFILES:
        raise SpecError(
            f"{fields.PROFILES!r} has no handlers: register one for the fields that profiles set"
        )
    if not callable(handler):
        raise SpecError(f"the handler of {field!r} is a function of the new value, not {handler!r}")


def call(field: str, handler: Handler, value: Any) -> None:
    """Call a handler with the new value of a field; what goes wrong is a `SpecError` unless it is one of symphony's."""
    try:
        handler(value)
    except SymphonyError:
        raise
    except Exception as exc:
        said = f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
        raise SpecError(f"{field} cannot be {value!r}: its handler failed: {said}") from exc


def tell_again(handlers: Mapping[str, Sequence[Handler]], values: Mapping[str, Any]) -> None:
    """Tell handlers the values that hold again, after one of them has refused a change."""
    for field, value in values.items():
        for handler in handlers[field]:
            with contextlib.suppress(Exception):  # what is raised is the refusal
                handler(value)
