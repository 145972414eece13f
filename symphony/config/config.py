"""`SymphonyConfig`: the effective configuration of this program."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from symphony.config import locations
from symphony.config.configuration import (
    BACKEND_OPTION,
    PROFILE_OPTION,
    Configuration,
    ConfiguredValues,
)
from symphony.errors import SpecError, SymphonyError, shown
from symphony.support.argument_checks import check_methods
from symphony.support.attribute_checks import CheckedAttributes
from symphony.support.directories.home import home_directory

if TYPE_CHECKING:
    from pathlib import Path

    from symphony.config.merging import ConfigSource

Handler = Callable[[Any], object]

# The source of values that the program sets.
PROGRAM_SOURCE = "the program"


class SymphonyConfig(ConfiguredValues, CheckedAttributes):
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
    # The sources outside the program, preceded by the directory and the variables of that time.
    _read: tuple[object, list[ConfigSource]] | None
    _current: Configuration | None

    def __new__(cls) -> SymphonyConfig:
        """Return the only instance."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance.reset()
        return cls._instance

    def __repr__(self) -> str:
        return "SymphonyConfig()"

    def warn_of_untrusted_files(self) -> None:
        """Issue a warning for each file that is ignored.

        The command line reports these files itself, so it causes no warnings.
        """
        if self._is_command_line:
            return
        import warnings

        for file in self.untrusted_files():
            warnings.warn(str(file), UserWarning, stacklevel=5)

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
        self._current = None
        try:
            value = self.current().value(field)
            if value is not None:
                _call_handler(field, handler, value)
        except BaseException:
            self._handlers[field].remove(handler)
            if is_new:
                del self._handlers[field]
            self._current = None
            raise

    def reset(self) -> None:
        """Remove the handlers and all settings made by the program or on the command line.

        Afterwards, the values from files and environment variables apply again.
        """
        self._program_sources = []
        self._command_line = {}
        self._is_command_line = False
        self._handlers = {}
        self._read = None
        self._current = None

    def set_command_line(self, options: Mapping[str, Any]) -> None:
        """Set the options given on the command line, such as ``{"--profile": "gke"}``."""
        known = (BACKEND_OPTION, PROFILE_OPTION)
        for option, value in options.items():
            if option not in known or not isinstance(value, str):
                raise SpecError(f"options must map {' and '.join(known)} to names")
        self._command_line = dict(options)
        self._is_command_line = True
        self._current = None

    # --- implementation ---

    def current(self) -> Configuration:
        """Return what is configured now. The result does not change later.

        The files and variables are read again if the working directory or one of the variables in
        `locations.WATCHED_VARIABLES` has changed. Raises `SpecError` if one of them is invalid.
        """
        directory = locations.working_directory()
        watched = [os.environ.get(name) for name in locations.WATCHED_VARIABLES]
        key = (directory, *watched)
        if self._read is None or self._read[0] != key:
            self._current = None
            self._read = (key, _read_external_sources(directory))
        if self._current is None:
            sources = (*self._program_sources, *self._read[1])
            self._current = Configuration(self._command_line, sources, tuple(self._handlers))
        return self._current

    def _own_fields(self) -> Collection[str]:
        return self._handlers

    def _add_source(self, source: ConfigSource) -> None:
        """Add a source with a higher priority than the program's other sources.

        The handlers of the changed fields are called. If a handler raises an error, the source is
        removed, and these handlers are called with the previous values.
        """
        fields = self._own_fields()
        previous_values = {field: self.current().value(field) for field in fields}
        previous_sources = self._program_sources
        self._program_sources = [source, *previous_sources]
        self._current = None
        changed: list[str] = []
        try:
            for field in fields:
                value = self.current().value(field)
                if value == previous_values[field]:
                    continue
                changed.append(field)
                for handler in self._handlers[field]:
                    _call_handler(field, handler, value)
        except BaseException:
            self._program_sources = previous_sources
            self._current = None
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
