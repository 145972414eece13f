"""Reading configuration sources: the command line, the program, environment variables and files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from symphony.config import fields, locations
from symphony.config.merging import ConfigSource, SourcedValue
from symphony.errors import NotFound, SpecError, dotted, error_path, shown
from symphony.support.argument_checks import is_path

# The command-line options that set a field of the configuration.
COMMAND_LINE_OPTIONS = {"--backend": "backend", "--profile": "profile"}


def from_command_line(options: Mapping[str, str]) -> ConfigSource:
    """Return a source for command-line options. ``options`` maps the options to their values."""
    values: dict[fields.KeyPath, SourcedValue] = {}
    for option, value in options.items():
        values[(COMMAND_LINE_OPTIONS[option],)] = SourcedValue(value, option)
    return ConfigSource(values=values)


def from_program(
    settings: Mapping[str, Any], name: str, own_fields: Collection[str] = ()
) -> ConfigSource:
    """Return a source for settings that the calling program passes.

    ``settings`` has the structure of a configuration file. ``name`` is the name of the source.
    Raises `SpecError` if a setting is invalid; the message names the key.
    """
    base = locations.working_directory() or Path("/")
    try:
        content = fields.read_content(settings, base, own_fields)
    except SpecError as exc:
        key = dotted(exc.path)
        raise SpecError(f"{key}: {exc}" if key else str(exc), path=exc.path) from exc
    profiles = {profile: _with_source(values, name) for profile, values in content.profiles.items()}
    return ConfigSource(values=_with_source(content.values, name), profiles=profiles)


def _with_source(values: fields.Values, source: str) -> dict[fields.KeyPath, SourcedValue]:
    return {key: SourcedValue(value, source) for key, value in values.items()}


def from_environment(environ: Mapping[str, str]) -> ConfigSource:
    """Return a source for the environment variables.

    An empty variable removes the value that a source with a lower priority sets. Raises `SpecError`
    if a value is invalid; the message names the variable.
    """
    base = locations.working_directory() or Path("/")
    values: dict[fields.KeyPath, SourcedValue] = {}
    for variable, field in locations.VARIABLES.items():
        text = environ.get(variable)
        if text is None:
            continue
        value = None
        if text:
            try:
                with error_path(field):
                    value = fields.FIELDS[field](text, base)
            except SpecError as exc:
                raise SpecError(f"{variable}: {exc}", path=exc.path) from exc
        values[(field,)] = SourcedValue(value, variable)
    return ConfigSource(values=values)


def read_sources(
    environ: Mapping[str, str],
    project_files: Sequence[Path],
    named_file: str | None,
    user_files: Sequence[Path],
) -> list[ConfigSource]:
    """Return a source for the environment variables and one for each file, highest priority first.

    A file that is found in two ways is read only once. A file that is not trusted is ignored, at
    least in part; see `symphony.config.trust`. Raises `SpecError` if a variable or a file is
    invalid, or if a directory contains several configuration files. Raises `NotFound` if
    ``named_file`` does not exist.
    """
    sources = []
    environment = from_environment(environ)
    if environment.values:
        sources.append(environment)
    if project_files or named_file or user_files:
        sources += _read_files(environ, project_files, named_file, user_files)
    return sources


def _read_files(
    environ: Mapping[str, str],
    project_files: Sequence[Path],
    named_file: str | None,
    user_files: Sequence[Path],
) -> list[ConfigSource]:
    # These modules import the YAML and JSON parsers, so they are imported only if there are files.
    from symphony.config import file_formats, trust

    named = _named_path(named_file) if named_file else None
    sources: dict[Path, ConfigSource] = {}
    if project_files:
        project = file_formats.only_file(project_files)
        if named is not None and project.resolve() == named.resolve():
            # By naming the file, the user trusts it.
            sources[project.resolve()] = file_formats.read_file(project, is_found_file=True)
        else:
            sources[project.resolve()] = trust.read_project_file(project, environ)
    if named is not None and named.resolve() not in sources:
        sources[named.resolve()] = file_formats.read_file(named, is_found_file=True)
    if user_files:
        user = file_formats.only_file(user_files)
        if user.resolve() not in sources:
            sources[user.resolve()] = trust.read_user_file(user)
    return list(sources.values())


def _named_path(named_file: str) -> Path:
    path = locations.expand_user(named_file)
    if not is_path(path):
        raise SpecError(f"{locations.FILE_VARIABLE} must be a path, not {shown(named_file)}")
    if not path.exists():
        raise NotFound(f"{locations.FILE_VARIABLE} is {path}, but there is no such file")
    return path
