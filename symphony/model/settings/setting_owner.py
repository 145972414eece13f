"""The settings of an object, and how one of them is set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony.model.settings.own_settings import OwnSettings
from symphony.model.settings.table import POD, SETTINGS
from symphony.support.attribute_checks import CheckedAttributes

if TYPE_CHECKING:
    from typing_extensions import Self


class SettingOwner(CheckedAttributes):
    """An object with settings."""

    _settings: OwnSettings

    def _set(self, name: str, value: object) -> Self:
        """Set a setting to a value in one of the forms of a file.

        Raises `SpecError` if the value is invalid, or if the object cannot have the setting.
        """
        setting = SETTINGS[name]
        if setting.level == POD:
            self._refuse_pod_setting(name)
        self._settings.replace(name, setting.parse(value, name))
        return self

    def _refuse_pod_setting(self, call: str) -> None:
        """Raise `SpecError` if the object shares its group's Pod."""
