"""The configuration at one time: `Configuration`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from symphony.errors import SpecError, shown
from symphony.support.argument_checks import check_methods
from symphony.support.data_classes import dataclass, field

if TYPE_CHECKING:
    from pathlib import Path

    from symphony.config.fields import KeyPath
    from symphony.config.merging import ConfigSource, SourcedValue, UntrustedFile

DEFAULT_BACKEND = "local"
# The source of the default values.
BUILT_IN_SOURCE = "built-in"
BACKEND_OPTION, PROFILE_OPTION = "--backend", "--profile"


class ConfiguredValues(ABC):
    """The effective values of a configuration and their sources."""

    @abstractmethod
    def current(self) -> Configuration:
        """Return what is configured now. The result does not change later.

        Raises `SpecError` if a file or a variable is invalid.
        """

    @property
    def username(self) -> str | None:
        """The user name that prefixes the names of new experiments, or None if none is set."""
        return self.current().value("username")  # type: ignore[no-any-return]

    @property
    def experiment_folder(self) -> Path | None:
        """The directory in which every launch is saved, or None if launches are not saved."""
        path = self.current().value("experiment_folder")
        if path is None:
            return None
        from pathlib import Path

        return Path(path)

    @property
    def backend(self) -> str:
        """The backend to use if the program does not name one."""
        return self.current().value("backend") or DEFAULT_BACKEND

    @property
    def profile(self) -> str | None:
        """The name of the selected profile, or None if no profile is selected."""
        return self.current().value("profile")  # type: ignore[no-any-return]

    def get(self, field: str, default: Any = None) -> Any:
        """Return the value of a field, or ``default`` if the field is not set.

        ``backend`` always has a value, because it has a built-in default. The values of
        ``resources`` and ``options`` are dictionaries. Raises `SpecError` if the field does not
        exist.
        """
        self._check_known(field)
        if field == "backend":
            return self.backend
        value = self.current().value(field)
        return default if value is None else value

    def settings(self) -> dict[str, SourcedValue]:
        """Return a mapping from each field that is set, such as ``resources.cpu``, to its value.

        Each value includes its source. ``backend`` is always included, because it has a built-in
        default.
        """
        from symphony.config.merging import SourcedValue

        settings = {".".join(key): sourced for key, sourced in self.current().effective.items()}
        if "backend" in settings:
            return settings
        return {"backend": SourcedValue(DEFAULT_BACKEND, BUILT_IN_SOURCE), **settings}

    def experiment_name(self, name: str) -> str:
        """Return ``name``, prefixed with the user name if one is set.

        A name that already begins with the user name and a hyphen is not changed.
        """
        username = self.username
        if username is None:
            return name
        from symphony.config.fields import with_username

        return with_username(username, name)

    def options_for(self, backend: str, names: Iterable[str]) -> dict[str, Any]:
        """Return the options that are configured for a backend.

        ``names`` contains the names of the options that the backend's class accepts. Fields such as
        ``namespace`` are included only if ``names`` contains them.
        """
        if self.is_empty():
            return {}
        from symphony.config.fields import BACKEND_OPTION_FIELDS

        known = set(names)
        options: dict[str, Any] = {}
        for name in BACKEND_OPTION_FIELDS:
            value = self.current().value(name) if name in known else None
            if value is not None:
                options[name] = value
        by_backend = self.current().value("options") or {}
        options.update(by_backend.get(backend, {}))
        return options

    def source(self, field: str) -> str | None:
        """Return the source of a field's value, such as a file and line or a variable.

        Return None if the field is not set, or if ``--backend`` is the only setting.
        """
        if self.is_empty():
            return None
        sourced = self.current().effective.get((field,))
        return None if sourced is None else sourced.source

    def profile_of(self, field: str) -> str | None:
        """Return the profile that sets a field's effective value, or None if no profile sets it."""
        if self.is_empty():
            return None
        _, parent = self.current().find_source((field,))
        return parent[-1] if parent else None

    def position(self, *keys: str) -> str | None:
        """Return the position in a file at which a field or a group of fields is set.

        ``keys`` is the path of the field or the group, such as ``"options", "kube"``. Return None
        if no file sets it.
        """
        if self.is_empty():
            return None
        source, parent = self.current().find_source(keys)
        if source is None or source.position is None:
            return None
        return source.position((*parent, *keys))

    def profiles(self) -> list[str]:
        """Return the names of all profiles."""
        names: dict[str, None] = {}
        for source in self.current().sources:
            names.update(dict.fromkeys(source.profiles))
        return list(names)

    def untrusted_files(self) -> list[UntrustedFile]:
        """Return the configuration files that are ignored, completely or in part.

        ``str()`` of an item is a message for the user.
        """
        files = [source.untrusted for source in self.current().sources]
        return [file for file in files if file is not None]

    def is_empty(self) -> bool:
        """Return whether nothing except ``--backend`` is configured. This check is fast."""
        current = self.current()
        return PROFILE_OPTION not in current.command_line and not current.sources

    def _own_fields(self) -> Collection[str]:
        """Return the fields that the program has defined."""
        return self.current().own_fields

    def _check_known(self, field: str) -> None:
        from symphony.config import fields
        from symphony.support.names import OWN_KEY_PREFIX, did_you_mean

        known = (*fields.FIELDS, *fields.GROUPS, *self._own_fields())
        if field not in known and not field.startswith(OWN_KEY_PREFIX):
            raise SpecError(
                f"a configuration has no key {shown(field)}{did_you_mean(field, known)}"
            )


check_methods(ConfiguredValues)


@dataclass(frozen=True)
class Configuration(ConfiguredValues):
    """The configuration at one time. It is read once, and passed to everything that depends on it.

    ``command_line`` maps options to their values. ``sources`` are all other sources, beginning with
    the one that takes precedence. ``own_fields`` are the fields that the program has defined.
    """

    command_line: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[ConfigSource, ...] = ()
    own_fields: tuple[str, ...] = ()

    def current(self) -> Configuration:
        """Return this object."""
        return self

    @cached_property
    def effective(self) -> Mapping[KeyPath, SourcedValue]:
        """Each field that is set, with its effective value. Raises `SpecError` if a profile that is
        selected does not exist.
        """
        from symphony.config.merging import merge_sources
        from symphony.config.read_sources import from_command_line

        return merge_sources([from_command_line(self.command_line), *self.sources])

    def value(self, name: str) -> Any:
        """Return the value of the field ``name`` or None. Fields of a group are a dictionary."""
        if self.is_empty():
            return self.command_line.get(BACKEND_OPTION) if name == "backend" else None
        from symphony.config.fields import GROUPS, nested

        if name in GROUPS:
            members = {
                key[1:]: sourced.value for key, sourced in self.effective.items() if key[0] == name
            }
            return nested(members) or None
        sourced = self.effective.get((name,))
        return None if sourced is None else sourced.value

    def find_source(self, key: KeyPath) -> tuple[ConfigSource | None, KeyPath]:
        """Return the source of a value, and the parent key under which that source sets it.

        If ``key`` is a group, return the source of its first value. If the key is not set, or is
        set on the command line, the source is None.
        """
        for found_key, sourced in self.effective.items():
            if found_key[: len(key)] != key:
                continue
            for source in self.sources:
                parent = source.parent_of(found_key, sourced)
                if parent is not None:
                    return source, parent
            break
        return None, ()
