"""`SymphonyConfig`: the effective configuration of this program."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from symphony.config import locations
from symphony.errors import SpecError, SymphonyError, shown
from symphony.support.argument_checks import check_methods
from symphony.support.attribute_checks import CheckedAttributes
from symphony.support.directories.home import home_directory

if TYPE_CHECKING:
    from pathlib import Path

    from symphony.config.fields import KeyPath
    from symphony.config.merging import ConfigSource, SourcedValue, UntrustedFile

Handler = Callable[[Any], object]

DEFAULT_BACKEND = "local"
# The names of sources other than files, variables and options.
BUILT_IN_SOURCE = "built-in"
PROGRAM_SOURCE = "the program"
BACKEND_OPTION, PROFILE_OPTION = "--backend", "--profile"


class SymphonyConfig(CheckedAttributes):
    """The configuration of this program. The constructor always returns the same object.

    The value of a field is taken from the first of these sources that sets the field:

    1. the command line
    2. the program, through `update` and the other methods of this class
    3. environment variables
    4. the selected profile
    5. the project's file: ``.symphony.yml`` in the working directory, or in the nearest parent
       directory that contains one; settings that need trust are ignored until the user runs
       ``symphony config trust``
    6. the file that the environment variable ``SYMPHONY_CONFIG`` names
    7. the user's own file: ``~/.config/symphony/config.yml``

    A profile that the command line or the program selects ranks directly below the source that
    selects it.

    Files are read when a value is first needed, and read again when the working directory or a
    relevant environment variable changes. The message of a `SpecError` about a file contains the
    file's path and, if it is known, the line number.
    """

    _instance: ClassVar[SymphonyConfig | None] = None

    _program_sources: list[ConfigSource]
    _command_line: dict[str, str]
    # True if the command line reports the files that are not trusted.
    _is_command_line: bool
    _handlers: dict[str, list[Handler]]
    # The sources outside the program, preceded by the cache key for which they were read.
    _cached_sources: tuple[object, list[ConfigSource]] | None
    _merged: dict[KeyPath, SourcedValue] | None

    def __new__(cls) -> SymphonyConfig:
        """Return the only instance."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance.reset()
        return cls._instance

    def __repr__(self) -> str:
        return "SymphonyConfig()"

    # --- the effective values ---

    @property
    def username(self) -> str | None:
        """The user name that prefixes the names of new experiments, or None if none is set."""
        return self._value("username")  # type: ignore[no-any-return]

    @property
    def experiment_folder(self) -> Path | None:
        """The directory in which every launch is saved, or None if launches are not saved."""
        path = self._value("experiment_folder")
        if path is None:
            return None
        from pathlib import Path

        return Path(path)

    @property
    def backend(self) -> str:
        """The backend to use if the program does not name one."""
        return self._value("backend") or DEFAULT_BACKEND

    @property
    def profile(self) -> str | None:
        """The name of the selected profile, or None if no profile is selected."""
        return self._value("profile")  # type: ignore[no-any-return]

    def get(self, field: str, default: Any = None) -> Any:
        """Return the value of a field, or ``default`` if the field is not set.

        ``backend`` always has a value, because it has a built-in default. The values of
        ``resources`` and ``options`` are dictionaries. Raises `SpecError` if the field does not
        exist.
        """
        self._check_known(field)
        if field == "backend":
            return self.backend
        value = self._value(field)
        return default if value is None else value

    def settings(self) -> dict[str, SourcedValue]:
        """Return a mapping from each field that is set, such as ``resources.cpu``, to its value.

        Each value includes its source. ``backend`` is always included, because it has a built-in
        default.
        """
        from symphony.config.merging import SourcedValue

        settings = {".".join(key): sourced for key, sourced in self._effective().items()}
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
        for field in BACKEND_OPTION_FIELDS:
            value = self._value(field) if field in known else None
            if value is not None:
                options[field] = value
        by_backend = self._value("options") or {}
        options.update(by_backend.get(backend, {}))
        return options

    def source(self, field: str) -> str | None:
        """Return the source of a field's value, such as a file and line or a variable.

        Return None if the field is not set, or if ``--backend`` is the only setting.
        """
        if self.is_empty():
            return None
        sourced = self._effective().get((field,))
        return None if sourced is None else sourced.source

    def profile_of(self, field: str) -> str | None:
        """Return the profile that sets a field's effective value, or None if no profile sets it."""
        if self.is_empty():
            return None
        _, parent = self._find_source((field,))
        return parent[-1] if parent else None

    def position(self, *keys: str) -> str | None:
        """Return the position in a file at which a field or a group of fields is set.

        ``keys`` is the path of the field or the group, such as ``"options", "kube"``. Return None
        if no file sets it.
        """
        if self.is_empty():
            return None
        source, parent = self._find_source(keys)
        if source is None or source.position is None:
            return None
        return source.position((*parent, *keys))

    def profiles(self) -> list[str]:
        """Return the names of all profiles."""
        names: dict[str, None] = {}
        for source in [*self._program_sources, *self._external_sources()]:
            names.update(dict.fromkeys(source.profiles))
        return list(names)

    def untrusted_files(self) -> list[UntrustedFile]:
        """Return the configuration files that are ignored, completely or in part.

        ``str()`` of an item is a message for the user.
        """
        files = [source.untrusted for source in self._external_sources()]
        return [file for file in files if file is not None]

    def warn_of_untrusted_files(self) -> None:
        """Issue a warning for each file that is ignored.

        The command line reports these files itself, so it causes no warnings.
        """
        if self._is_command_line:
            return
        import warnings

        for file in self.untrusted_files():
            warnings.warn(str(file), UserWarning, stacklevel=5)

    def is_empty(self) -> bool:
        """Return whether nothing except ``--backend`` is configured. This check is fast."""
        if self._program_sources or PROFILE_OPTION in self._command_line:
            return False
        return not self._external_sources()

    # --- changes by the program ---

    def set_username(self, username: str | None) -> None:
        """Set the prefix for the names of new experiments. Raises `SpecError` if it is invalid."""
        self.update({"username": username})

    def set_experiment_folder(self, folder: str | os.PathLike[str] | None) -> None:
        """Save every launch in the subdirectory of ``folder`` that has the experiment's name.

        If ``folder`` is None, launches are not saved.
        """
        self.update({"experiment_folder": folder})

    def update(self, settings: Mapping[str, Any]) -> None:
        """Set several fields from a mapping with the structure of a configuration file.

        Relative paths are relative to the working directory. Raises `SpecError` if a key or a value
        is invalid; in this case, no field is set.
        """
        from symphony.config.read_sources import from_program

        self._add_source(from_program(settings, PROGRAM_SOURCE, self._own_fields()))

    def load_config_file(self, path: str | os.PathLike[str]) -> None:
        """Set the values from a YAML, JSON or TOML file.

        The values override settings that the program made earlier, and are overridden by settings
        that it makes later. Raises `NotFound` if the file does not exist, and `SpecError` if its
        contents are invalid.
        """
        from symphony.config.file_formats import read_file
        from symphony.model.settings import validators

        file = validators.path(path, "path")
        self._add_source(read_file(file, self._own_fields(), is_found_file=False))

    def register_handler(self, field: str, handler: Handler) -> None:
        """Call ``handler`` with the new value whenever the program changes ``field``.

        If the field is already set, the handler is called immediately. The new value is None if the
        field is no longer set. If symphony does not define the field, registering a handler makes
        the field valid in `update` and `load_config_file`. In files that symphony finds by
        searching or through SYMPHONY_CONFIG, the names of your own keys must begin with ``x-``.

        If a handler raises an error, the change is rejected. A `SymphonyError` is raised unchanged,
        and any other exception is converted to a `SpecError`.
        """
        _check_handler(field, handler)
        is_new = field not in self._handlers
        self._handlers.setdefault(field, []).append(handler)
        try:
            value = self._value(field)
            if value is not None:
                _call_handler(field, handler, value)
        except BaseException:
            self._handlers[field].remove(handler)
            if is_new:
                del self._handlers[field]
            raise

    def reset(self) -> None:
        """Remove the handlers and all settings made by the program or on the command line.

        Afterwards, the values from files and environment variables apply again.
        """
        self._program_sources = []
        self._command_line = {}
        self._is_command_line = False
        self._handlers = {}
        self._cached_sources = None
        self._merged = None

    def set_command_line(self, options: Mapping[str, Any]) -> None:
        """Set the options given on the command line, such as ``{"--profile": "gke"}``."""
        known = (BACKEND_OPTION, PROFILE_OPTION)
        for option, value in options.items():
            if option not in known or not isinstance(value, str):
                raise SpecError(f"options must map {' and '.join(known)} to names")
        self._command_line = dict(options)
        self._is_command_line = True
        self._merged = None

    # --- implementation ---

    def _own_fields(self) -> list[str]:
        """Return the fields that have a handler, including those that symphony does not define."""
        return list(self._handlers)

    def _check_known(self, field: str) -> None:
        from symphony.config import fields
        from symphony.support.names import did_you_mean

        known = (*fields.FIELDS, *fields.GROUPS, *self._own_fields())
        if field not in known and not field.startswith(fields.OWN_KEY_PREFIX):
            raise SpecError(
                f"a configuration has no key {shown(field)}{did_you_mean(field, known)}"
            )

    def _value(self, field: str) -> Any:
        if self.is_empty():
            return self._command_line.get(BACKEND_OPTION) if field == "backend" else None
        from symphony.config.fields import GROUPS, nested

        effective = self._effective()
        if field in GROUPS:
            members = {
                key[1:]: sourced.value for key, sourced in effective.items() if key[0] == field
            }
            return nested(members) or None
        sourced = effective.get((field,))
        return None if sourced is None else sourced.value

    def _effective(self) -> dict[KeyPath, SourcedValue]:
        # This call resets self._merged if it reads the external sources again.
        external = self._external_sources()
        if self._merged is None:
            from symphony.config.merging import merge_sources
            from symphony.config.read_sources import from_command_line

            command_line = from_command_line(self._command_line)
            self._merged = merge_sources([command_line, *self._program_sources, *external])
        return self._merged

    def _find_source(self, key: KeyPath) -> tuple[ConfigSource | None, KeyPath]:
        """Return the source of a value, and the parent key under which that source sets it.

        If ``key`` is a group, return the source of its first value. If the key is not set, or is
        set on the command line, the source is None.
        """
        for found_key, sourced in self._effective().items():
            if found_key[: len(key)] != key:
                continue
            for source in [*self._program_sources, *self._external_sources()]:
                parent = source.parent_of(found_key, sourced)
                if parent is not None:
                    return source, parent
            break
        return None, ()

    def _external_sources(self) -> list[ConfigSource]:
        """Return the sources outside the program: the environment variables and the files.

        The sources are read again if the working directory or one of the variables in
        `locations.WATCHED_VARIABLES` has changed.
        """
        directory = locations.working_directory()
        watched = [os.environ.get(name) for name in locations.WATCHED_VARIABLES]
        cache_key = (directory, *watched)
        if self._cached_sources is None or self._cached_sources[0] != cache_key:
            self._merged = None
            self._cached_sources = (cache_key, _read_external_sources(directory))
        return self._cached_sources[1]

    def _add_source(self, source: ConfigSource) -> None:
        """Add a source with a higher priority than the program's other sources.

        The handlers of the changed fields are called. If a handler raises an error, the source is
        removed, and these handlers are called with the previous values.
        """
        fields = self._own_fields()
        previous_values = {field: self._value(field) for field in fields}
        previous_sources = self._program_sources
        self._program_sources = [source, *previous_sources]
        self._merged = None
        changed: list[str] = []
        try:
            for field in fields:
                value = self._value(field)
                if value == previous_values[field]:
                    continue
                changed.append(field)
                for handler in self._handlers[field]:
                    _call_handler(field, handler, value)
        except BaseException:
            self._program_sources = previous_sources
            self._merged = None
            for field in changed:
                for handler in self._handlers[field]:
                    # Raise the first error, and ignore errors that occur while the values are
                    # restored.
                    with contextlib.suppress(Exception):
                        handler(previous_values[field])
            raise


check_methods(SymphonyConfig)


def _check_handler(field: object, handler: object) -> None:
    """Raise `SpecError` if ``field`` cannot have handlers or ``handler`` is not callable."""
    from symphony.config.fields import PROFILES

    if not isinstance(field, str) or not field:
        raise SpecError(f"a field of a configuration must be text, not {shown(field)}")
    if field == PROFILES:
        raise SpecError(
            f"{PROFILES!r} cannot have handlers: register one for the fields that profiles set"
        )
    if not callable(handler):
        raise SpecError(
            f"the handler of {field!r} must be a function of the new value, not {shown(handler)}"
        )


def _call_handler(field: str, handler: Handler, value: Any) -> None:
    """Call a handler. Convert errors other than `SymphonyError` to `SpecError`."""
    try:
        handler(value)
    except SymphonyError:
        raise
    except Exception as exc:
        message = f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
        raise SpecError(f"{field} cannot be {shown(value)}: its handler failed: {message}") from exc


def _read_external_sources(directory: Path | None) -> list[ConfigSource]:
    """Read the environment variables and the files, if any are present."""
    environ = os.environ
    has_variables = any(name in environ for name in locations.VARIABLES)
    project_files = []
    if directory is not None:
        project_files = locations.project_files(directory, home_directory(environ))
    named_file = environ.get(locations.FILE_VARIABLE)
    user_files = locations.user_files(environ)
    if not (has_variables or project_files or named_file or user_files):
        return []
    # Import the readers only if there is something to read, because most programs have no
    # configuration.
    from symphony.config.read_sources import read_sources

    return read_sources(environ, project_files, named_file, user_files)
