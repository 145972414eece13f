"""The settings of a process or group that a program changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symphony.errors import SpecError, error_path, shown
from symphony.model.settings.merging import SCALAR_TYPES
from symphony.model.settings.table import SETTINGS, UNSET, Settings
from symphony.support.names import did_you_mean


class OwnSettings(Settings):
    """The settings of a component. In contrast to `Settings`, values are validated when an
    attribute is set.
    """

    def __init__(self) -> None:
        # This is faster than setting the attributes one by one.
        vars(self).update(vars(Settings()))

    def replace(self, name: str, value: Any) -> None:
        """Set a setting to a value in its normalized form."""
        vars(self)[name] = value

    # mypy accepts any attribute of a class that has __setattr__.
    if not TYPE_CHECKING:

        def __setattr__(self, name: str, value: object) -> None:
            setting = SETTINGS.get(name)
            if setting is None:
                hint = did_you_mean(name, SETTINGS)
                raise SpecError(f"there is no setting {shown(name)}{hint}")
            if not _is_unset(name, value):
                value = setting.parse(value, name)
            object.__setattr__(self, name, value)

    def check(self) -> None:
        """Raise `SpecError` if the program has changed a value in place, and the new value is not
        in its normalized form.
        """
        values = vars(self)
        if values == UNSET:
            # This is the most frequent case.
            return
        for name, value in values.items():
            # The value None and other scalars have been parsed, and cannot change in place.
            if type(value) not in SCALAR_TYPES and not _is_unset(name, value):
                check_unchanged(SETTINGS[name].parse(value, name), value, name)


def _is_unset(name: str, value: object) -> bool:
    unset = UNSET[name]
    # The comparison of an object of another type can raise an error.
    return value is unset or (type(value) is type(unset) and value == unset)


def check_unchanged(parsed: object, value: object, subject: str) -> None:
    """Raise `SpecError` if ``value`` differs from its normalized form ``parsed``."""
    if parsed != value:
        with error_path(subject):
            raise SpecError(f"{subject} must be {shown(parsed)}, not {shown(value)}")
