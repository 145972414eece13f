"""Reading compose files: several files, the files that they include, and services they extend."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from symphony.errors import SpecError
from symphony.importing import merge_compose_files, numbers
from symphony.importing.interpolation import Interpolation
from symphony.importing.result import Imported
from symphony.model.document.other_formats.values import mapping

_NAMES = ("compose.yml", "compose.yaml", "docker-compose.yml", "docker-compose.yaml")
_OVERRIDES = (
    "compose.override.yml",
    "compose.override.yaml",
    "docker-compose.override.yml",
    "docker-compose.override.yaml",
)
_RESOURCES = ("services", "volumes", "networks", "secrets", "configs", "models")
_URL = re.compile(r"[a-z+]+://|git@|github\.com/|docker-image:|service:")


@dataclass(frozen=True, kw_only=True)
class _Project:
    """The place from which files are read.

    ``directory`` is the directory to which relative paths in the files are relative. ``values``
    contains the variables in the files ``.env``, and ``included`` the files that include this one.
    """

    directory: Path
    values: Mapping[str, str]
    included: tuple[Path, ...] = field(default=())


def read(paths: Sequence[Path], imported: Imported) -> dict[str, Any]:
    """Return the contents of compose files, which are merged in the given order.

    Variables become parameters in the document of ``imported``. If there is one file with a
    default name, the file in the same directory whose name contains ``override`` is merged into it,
    as compose does. Relative paths are relative to the directory of the first file. Raises
    `NotFound` or `SpecError` if a file cannot be read.
    """
    base = paths[0].absolute().parent
    override = _override(paths)
    if override is not None:
        imported.omit(override.name, "its settings are merged into the result")
        paths = [*paths, override]
    interpolation = Interpolation(imported)
    project = _Project(directory=base, values=variables_in([base / ".env"]))
    merged = _Reader(interpolation, imported).files(paths, project)
    contents = interpolation.finished(merge_compose_files.without_tags(merged))
    if interpolation.parameters:
        imported.document["parameters"] = interpolation.parameters
    if not isinstance(contents.get("services"), Mapping):
        raise SpecError(f"{paths[0]}: the file has no services; give a compose file or a Procfile")
    services = dict(contents["services"])
    for name, service in services.items():
        if isinstance(service, Mapping):
            services[name] = merge_compose_files.with_unique_items(service)
    contents["services"] = services
    return dict(contents)


def _override(paths: Sequence[Path]) -> Path | None:
    """Return the file that compose merges into a file with a default name, if there is one."""
    if len(paths) > 1 or paths[0].name not in _NAMES:
        return None
    candidates = [paths[0].parent / name for name in _OVERRIDES]
    return next((path for path in candidates if path.is_file()), None)


def variables_in(paths: Sequence[Path]) -> dict[str, str]:
    """Return the variables in the given env files that exist. Later files take precedence."""
    from symphony.model.document import env_files

    result: dict[str, str] = {}
    for path in paths:
        if path.is_file():
            result.update(env_files.read(path, os.environ))
    return result


class _Reader:
    def __init__(self, interpolation: Interpolation, imported: Imported) -> None:
        self._interpolation = interpolation
        self._imported = imported

    def files(self, paths: Sequence[Path], project: _Project) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for path in paths:
            result = merge_compose_files.merged(result, self._file(path, project))
        return result

    def _file(self, path: Path, project: _Project) -> dict[str, Any]:
        """Return the contents of one file, with the files that it includes."""
        contents = self._contents(path, project)
        services = contents.get("services")
        if isinstance(services, Mapping):
            extension = _Extension(self, path, project, services)
            contents["services"] = {name: extension.service(name, ()) for name in services}
        includes = self._interpolation.resolved(contents.pop("include", None))
        for include in self._includes(path, includes):
            other = self._included(path, include, project)
            for key in _RESOURCES:
                if isinstance(other.get(key), Mapping):
                    contents[key] = merge_compose_files.merged(
                        other[key], contents.get(key), (key,)
                    )
        return contents

    def _contents(self, path: Path, project: _Project) -> dict[str, Any]:
        from symphony.model.document.documents import from_yaml, read_text

        tags = {**merge_compose_files.TAGS, **numbers.TAGS}
        data, _ = from_yaml(path, read_text(path), lambda *_: True, tags)
        if not isinstance(data, Mapping):
            raise SpecError(f"{path}: the file is not a mapping; give a compose file or a Procfile")
        self._convert_numbers(data.get("services"))
        data = merge_compose_files.mapped(data, str)
        services = data.get("services")
        for service in services.values() if isinstance(services, Mapping) else ():
            if isinstance(service, dict) and isinstance(service.get("environment"), (list, dict)):
                service["environment"] = _with_values(service["environment"], project.values)
        return dict(self._interpolation.replaced(data, project.values))

    def _convert_numbers(self, services: Any) -> None:
        """Replace the numbers in variables and build arguments as compose does."""
        for name, service in services.items() if isinstance(services, dict) else ():
            given = service if isinstance(service, dict) else {}
            build = given.get("build")
            arguments = build.get("args") if isinstance(build, dict) else None
            for key, values in (("environment", given.get("environment")), ("build", arguments)):
                if isinstance(values, dict):
                    self._convert_values(f"services.{name}.{key}", values)

    def _convert_values(self, where: str, values: dict[str, Any]) -> None:
        for key, item in values.items():
            text = item.value() if isinstance(item, numbers.Number) else item
            if text != item:
                values[key] = text
                problem = f"the value is {text}, as compose reads the number {item}"
                fix = "write it in quotes if it is a text"
                self._imported.omit(f"{where}.{key}", problem, fix)

    def extends(self, service: Mapping[str, Any]) -> Any:
        """Return the value of the key ``extends`` of a service."""
        return self._interpolation.resolved(service.get("extends"))

    def _includes(self, path: Path, value: Any) -> list[dict[str, Any]]:
        result = []
        for item in _items(value):
            options = {"path": item} if isinstance(item, str) else item
            if not isinstance(options, Mapping) or not options.get("path"):
                raise SpecError(f"{path}: include: {item!r} names no file; write the path of one")
            result.append(dict(options))
        return result

    def _included(
        self, path: Path, options: Mapping[str, Any], project: _Project
    ) -> dict[str, Any]:
        paths = [project.directory / item for item in _texts(options["path"])]
        for item in paths:
            if _URL.match(str(options["path"])):
                raise SpecError(f"{path}: include: {options['path']} is not a file; copy it here")
            if item.resolve() in (*project.included, path.resolve()):
                raise SpecError(f"{path}: include: {item} includes itself; remove one include")
        directory = paths[0].parent
        if options.get("project_directory"):
            directory = project.directory / options["project_directory"]
        env_files = [project.directory / item for item in _texts(options.get("env_file"))]
        included = _Project(
            directory=directory,
            values={**variables_in(env_files or [directory / ".env"]), **project.values},
            included=(*project.included, path.resolve()),
        )
        contents = self.files(paths, included)
        return relocated(contents, directory, project.directory)

    def base_services(self, path: Path, project: _Project) -> dict[str, Any]:
        """Return the services of a file that a service extends."""
        contents = self._contents(path, replace(project, directory=path.parent))
        services = contents.get("services")
        return dict(services) if isinstance(services, Mapping) else {}


class _Extension:
    """The services of one file, each of which can extend another service."""

    def __init__(
        self, reader: _Reader, path: Path, project: _Project, services: Mapping[str, Any]
    ) -> None:
        self._reader = reader
        self._path = path
        self._project = project
        self._services = services

    def service(self, name: str, seen: tuple[tuple[Path, str], ...]) -> Any:
        """Return a service with the settings of the service that it extends.

        ``seen`` contains the services that extend this one.
        """
        if name not in self._services:
            raise SpecError(
                f"{self._path}: there is no service {name!r}, which another service extends; add it"
            )
        own = self._services[name]
        place = (self._path.resolve(), name)
        if place in seen:
            raise SpecError(f"{self._path}: service {name!r} extends itself; remove extends")
        extends = self._reader.extends(own) if isinstance(own, Mapping) else None
        if not extends:
            return own
        options = {"service": extends} if isinstance(extends, str) else extends
        if not isinstance(options, Mapping) or not options.get("service"):
            raise SpecError(f"{self._path}: service {name!r} extends no service; name one")
        rest = {key: value for key, value in own.items() if key != "extends"}
        base = self._base(options, (*seen, place))
        return merge_compose_files.merged(base, rest, ("services", name))

    def _base(self, options: Mapping[str, Any], seen: tuple[tuple[Path, str], ...]) -> Any:
        name = str(options["service"])
        file = options.get("file")
        if not file:
            return self.service(name, seen)
        path = self._project.directory / str(file)
        other = replace(self._project, directory=path.parent)
        services = self._reader.base_services(path, other)
        service = _Extension(self._reader, path, other, services).service(name, seen)
        contents = relocated({"services": {name: service}}, path.parent, self._project.directory)
        return contents["services"][name]


def _with_values(environment: Any, values: Mapping[str, str]) -> dict[str, Any]:
    """Return variables in which those without a value refer to the variable with their name."""
    result = mapping(environment)
    for key, value in result.items():
        if value is None and key in values:
            result[key] = f"${{{key}}}"
    return result


def _texts(value: Any) -> list[str]:
    return [str(item) for item in _items(value)]


def _items(value: Any) -> list[Any]:
    """Return the items of a value that is a list, one item or nothing."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


# --- relative paths ---


def relocated(contents: Mapping[str, Any], old: Path, new: Path) -> dict[str, Any]:
    """Return contents whose relative paths are relative to ``new`` instead of ``old``."""
    result = dict(contents)
    if os.path.normpath(old) == os.path.normpath(new):
        return result

    def moved(path: Any) -> Any:
        return _moved(path, old, new)

    for key in ("secrets", "configs"):
        result[key] = {
            name: _with_moved(item, ("file",), moved)
            for name, item in (result.get(key) or {}).items()
        }
    services = dict(result.get("services") or {})
    for name, service in services.items():
        if isinstance(service, Mapping):
            services[name] = _relocated_service(service, moved)
    result["services"] = services
    return result


def _relocated_service(service: Mapping[str, Any], moved: Any) -> dict[str, Any]:
    result = dict(service)
    build = result.get("build")
    if isinstance(build, Mapping):
        result["build"] = _with_moved({"context": ".", **build}, ("context",), moved)
    elif build is not None:
        result["build"] = moved(build)
    for key, name in (("env_file", "path"), ("label_file", "path"), ("volumes", "source")):
        items = result.get(key)
        if isinstance(items, (str, list)):
            given = items if isinstance(items, list) else [items]
            result[key] = [_moved_item(item, key, name, moved) for item in given]
    return result


def _moved_item(item: Any, key: str, name: str, moved: Any) -> Any:
    if isinstance(item, Mapping):
        is_volume = key == "volumes" and item.get("type") != "bind"
        return item if is_volume else _with_moved(item, (name,), moved)
    if key != "volumes":
        return moved(item)
    source, colon, rest = str(item).partition(":")
    return f"{moved(source)}{colon}{rest}" if source.startswith(".") else item


def _with_moved(item: Any, names: Sequence[str], moved: Any) -> Any:
    if not isinstance(item, Mapping):
        return item
    result = dict(item)
    for key in names:
        if key in result:
            result[key] = moved(result[key])
    return result


def _moved(path: Any, old: Path, new: Path) -> Any:
    if not isinstance(path, str) or path.startswith(("/", "~", "$", "\1")) or _URL.match(path):
        return path
    relative = os.path.relpath(old / path, new)
    return relative if relative.startswith("..") else f"./{relative}"
