"""Images that an experiment builds for itself: what they are made of, checked as it is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from symphony.errors import SpecError, error_path
from symphony.model import validators

ENTRY_KEYS = ("name", "path", "force_update")
IMAGE_KEYS = ("dockerfile", "context_directories", "temp_directory", "build_options")
DOCKERFILE = "Dockerfile"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEntry:
    """A file or folder of a build's context: ``path`` under the name ``name``.

    ``force_update`` gathers it anew at each build, where otherwise what has not changed is kept.
    """

    name: str
    path: str
    force_update: bool = False

    def dump(self) -> dict[str, Any]:
        """The entry in its file form."""
        told = {"force_update": True} if self.force_update else {}
        return {"name": self.name, "path": self.path, **told}


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBuild:
    """How the image of one repository is made.

    Paths are as they were given: relative ones are relative to the experiment's ``base_dir``, and a leading ``~``
    is the user's home. ``temp_directory`` is where the context is gathered, a folder of the user's cache unless set.
    ``build_options`` are further words for the engine's ``build``, such as ``--platform=linux/amd64``.
    """

    repository: str
    dockerfile: str = DOCKERFILE
    context_directories: tuple[ContextEntry, ...] = ()
    temp_directory: str | None = None
    build_options: tuple[str, ...] = ()

    def dump(self) -> dict[str, Any]:
        """The image in its file form, without its repository."""
        told: dict[str, Any] = {
            "dockerfile": self.dockerfile,
            "context_directories": [entry.dump() for entry in self.context_directories],
            "temp_directory": self.temp_directory,
            "build_options": list(self.build_options),
        }
        return {key: value for key, value in told.items() if value}


def image_build(repository: object, described: Mapping[str, Any]) -> ImageBuild:
    """Read how an image is made; what is not given, or None, is as it is without it. Raises `SpecError`."""
    name = validators.repository(repository)
    what = f"image {name!r}"
    validators.refuse_unknown(described, IMAGE_KEYS, what)
    given = {key: value for key, value in described.items() if value is not None}
    read: dict[str, Any] = {
        "dockerfile": lambda value: validators.path(value, f"the dockerfile of {what}"),
        "context_directories": context_entries,
        "temp_directory": lambda value: validators.path(value, f"the temp_directory of {what}"),
        "build_options": lambda value: tuple(validators.strings(value, f"build_options of {what}")),
    }
    found: dict[str, Any] = {}
    for key, value in given.items():
        with error_path(key):
            found[key] = read[key](value)
    return ImageBuild(repository=name, **found)


def context_entries(value: Iterable[Any]) -> tuple[ContextEntry, ...]:
    """Read the entries of a context, a list of ``{name, path, force_update}``. Raises `SpecError`."""
    if not isinstance(value, (list, tuple)):
        raise SpecError(
            f"context_directories is a list such as [{{name: app, path: ./app}}], not {value!r}"
        )
    found: dict[str, ContextEntry] = {}
    for index, described in enumerate(value):
        with error_path(index):
            entry = described if isinstance(described, ContextEntry) else _entry(described)
            if entry.name in found:
                paths = f"{found[entry.name].path} and {entry.path}"
                raise SpecError(
                    f"two context entries are named {entry.name!r}: {paths}; name one of them otherwise"
                )
            found[entry.name] = entry
    return tuple(found.values())


def _entry(described: Any) -> ContextEntry:
    given = validators.mapping(described, "a context entry")
    validators.refuse_unknown(given, ENTRY_KEYS, "a context entry")
    for key in ("name", "path"):
        if given.get(key) is None:
            raise SpecError(
                f"a context entry needs a {key}: {{name: app, path: ./app}}, not {described!r}"
            )
    with error_path("name"):
        name = _plain_name(given["name"])
    with error_path("path"):
        path = validators.path(given["path"], f"the path of context entry {name!r}")
    with error_path("force_update"):
        force = given.get("force_update") or False
        if not isinstance(force, bool):
            raise SpecError(
                f"force_update of context entry {name!r} is true or false, not {force!r}"
            )
    return ContextEntry(name=name, path=path, force_update=force)


def _plain_name(value: object) -> str:
    name = validators.path(value, "the name of a context entry")
    if "/" in name or "\\" in name or name in {".", ".."}:
        mended = name.replace("\\", "/").rstrip("/").rpartition("/")[2].strip(".")
        hint = f"; for example {mended!r}" if mended else ""
        raise SpecError(
            f"context entry {name!r} is no plain name: it lies at the top of the context{hint}"
        )
    return name
