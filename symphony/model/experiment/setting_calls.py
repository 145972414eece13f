"""Set settings from values in the form of a file, by calls of the methods of `Component`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from symphony.model.error_collector import ErrorCollector
from symphony.model.settings import validators
from symphony.model.settings.table import SETTINGS
from symphony.model.settings.value_types import Field

if TYPE_CHECKING:
    from symphony.model.experiment.component import Component


# The methods that create the copies of a process, for which a file has keys.
_FUNCTIONS_FOR_COPIES = {"count": "new_replicas", "replicas": "new_replicas", "ranks": "new_ranks"}


def set_settings(component: Component, values: Mapping[str, Any]) -> None:
    """Set the settings that a program has given as keyword arguments. None has no effect.

    Raises `SpecError` for an unknown key, with the suggestion that a file with this key would get,
    and for an invalid value.
    """
    errors = ErrorCollector()
    calls = SettingCalls(errors)
    known = (*component.option_names, *SETTINGS)

    def hint(key: str, value: Any) -> str:
        # A program without errors needs no hints.
        from symphony.model.document.other_formats.hints import process_hint

        function = _FUNCTIONS_FOR_COPIES.get(key)
        if function is not None:
            return f"; in Python, use {function}({component.name!r}, {value})"
        return process_hint(key, value, component.name, known)

    subject = f"{component.kind} {component.name!r}"
    given = calls.known_keys(values, known, subject, hint)
    calls.apply(component, {key: value for key, value in given.items() if value is not None})
    for error in errors.errors:
        raise error


class SettingCalls:
    """Calls of setting methods, which add the errors in the values to a collector."""

    def __init__(self, errors: ErrorCollector) -> None:
        self._errors = errors

    def known_keys(
        self,
        data: Mapping[str, Any],
        known: Collection[str],
        subject: str,
        hint: Callable[[str, Any], str] = lambda _key, _value: "",
    ) -> dict[str, Any]:
        """Return the items with known keys, and add an error for each unknown key.

        ``hint`` returns the end of the error message for an unknown key and its value.
        """
        result: dict[str, Any] = {}
        for key, value in data.items():
            if key in known:
                result[key] = value
            else:
                self._errors.add(validators.unknown_key(key, known, subject, hint(key, value)))
        return result

    def valid_options(
        self, fields: Mapping[str, Field], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the options that are valid, and add an error for each invalid option."""
        valid: dict[str, Any] = {}
        for key, value in options.items():
            with self._errors.at():
                if value is not None or not fields[key].nullable:
                    fields[key].parse(value)
                valid[key] = value
        return valid

    def apply(self, component: Component, values: Mapping[str, Any]) -> None:
        """Set the given settings of a component, except those with invalid values."""
        for key, value in values.items():
            with self._errors.at(key):
                component._set(key, value, self._errors)
