"""The settings of an object, and how one of them is set."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from symphony.model.error_collector import ErrorCollector
from symphony.model.settings.own_settings import OwnSettings
from symphony.model.settings.table import POD, SETTINGS
from symphony.support.attribute_checks import CheckedAttributes

if TYPE_CHECKING:
    from typing_extensions import Self


class SettingOwner(CheckedAttributes):
    """An object with settings."""

    _settings: OwnSettings

    def _set(self, name: str, value: object, errors: ErrorCollector | None = None) -> Self:
        """Set a setting to a value in one of the forms of a file.

        Raises `SpecError` if the value is invalid, or if the object cannot have the setting. With
        ``errors``, the errors in the parts of the value are added to it instead, and only the valid
        parts are set.
        """
        setting = SETTINGS[name]
        if setting.level == POD:
            self._refuse_pod_setting(setting.method)
        if errors is None or setting.read is None:
            parsed = setting.parse(value, setting.subject)
        else:
            parsed = setting.read(value, setting.subject, errors)
        self._combine(name, parsed)
        return self

    def _combine(self, name: str, parsed: Any) -> None:
        """Combine a value in its normalized form with the earlier value of a setting."""
        earlier = getattr(self._settings, name)
        if SETTINGS[name].replaced:
            self._settings.replace(name, parsed)
        elif isinstance(parsed, dict):
            earlier.update(parsed)
        elif parsed is not None:
            add_new(earlier, (item for item in parsed if item is not None))

    def _refuse_pod_setting(self, call: str) -> None:
        """Raise `SpecError` if the object shares its group's Pod."""


def add_new(existing: list[Any], items: Iterable[Any]) -> None:
    """Append the items that ``existing`` does not contain yet."""
    existing.extend(item for item in items if item not in existing)
