"""Set settings from values in the form of a file, by calls of the methods of `Component`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from symphony.errors import SpecError, shown
from symphony.model.error_collector import ErrorCollector
from symphony.model.settings import validators
from symphony.model.settings.setting_types import VOLUME_KINDS
from symphony.model.settings.table import SETTINGS, FileForm, Setting
from symphony.model.settings.value_types import Field

if TYPE_CHECKING:
    from symphony.model.experiment.component import Component


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
        from symphony.model.document.foreign_keys import process_hint

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
                self._apply(component, SETTINGS[key], value)

    def _apply(self, component: Component, setting: Setting, value: Any) -> None:
        form = setting.form
        if form is FileForm.ATTRIBUTE:
            setattr(component, setting.method, value)
        elif form is FileForm.VOLUMES:
            self._mount_volumes(component, value)
        elif form is FileForm.LIST_OF_KEYWORDS:
            method = getattr(component, setting.method)
            for index, item in enumerate(_items(value, setting.name)):
                with self._errors.at(index):
                    self._call_with_keywords(method, setting.fields, item, setting.name)
        else:
            self._call(getattr(component, setting.method), setting, value)

    def _call(self, method: Callable[..., Any], setting: Setting, value: Any) -> None:
        form = setting.form
        is_mapping = isinstance(value, Mapping)
        is_word = form is FileForm.KEYWORDS_OR_WORD and not is_mapping
        if form is FileForm.VALUE or is_word:
            method(value)
        elif form in (FileForm.KEYWORDS, FileForm.KEYWORDS_OR_WORD):
            self._call_with_keywords(method, setting.fields, value, setting.name)
        elif form is FileForm.KEYWORDS_OR_FLAG:
            if value is not False:
                keywords = {} if value is True else value
                self._call_with_keywords(method, setting.fields, keywords, setting.name)
        elif form is FileForm.PAIRS or is_mapping:
            self._call_with_pairs(method, value, setting.name)
        else:
            method(value)

    def _call_with_pairs(self, method: Callable[..., Any], value: Any, subject: str) -> None:
        for key, item in validators.mapping(value, subject).items():
            with self._errors.at(key):
                method(key, item)

    def _call_with_keywords(
        self, method: Callable[..., Any], fields: Mapping[str, Field], value: Any, subject: str
    ) -> None:
        """Call a method with the items of a mapping as keyword arguments, if all the items are
        valid.
        """
        given = validators.mapping(value, subject)
        known = self.known_keys(given, fields, subject)
        missing = [
            name for name, field in fields.items() if field.required and given.get(name) is None
        ]
        for name in missing:
            self._errors.add(SpecError(f"{subject} needs {name}", path=()))
        valid = self.valid_options(
            fields, {name: item for name, item in known.items() if name not in missing}
        )
        if not missing and len(valid) == len(known):
            method(**valid)

    def _mount_volumes(self, component: Component, value: Any) -> None:
        for index, volume in enumerate(_items(value, "volumes")):
            with self._errors.at(index):
                if not isinstance(volume, Mapping) or len(volume) != 1:
                    from symphony.model.document.foreign_keys import volume_hint

                    raise SpecError(
                        "a volume must have one kind with its settings, such as nfs: {...}, "
                        f"not {shown(volume)}{volume_hint(volume)}"
                    )
                kinds = validators.mapping(volume, "a volume")
                ((kind, details),) = kinds.items()
                validators.refuse_unknown([kind], VOLUME_KINDS, "a volume")
                _, fields = VOLUME_KINDS[kind]
                with self._errors.at(kind):
                    self._call_with_keywords(
                        getattr(component, f"mount_{kind}"),
                        fields,
                        {} if details is None else details,
                        f"a volume of kind {kind}",
                    )


def _items(value: Any, subject: str) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise SpecError(f"{subject} must be a list, not {shown(value)}")
    return value
