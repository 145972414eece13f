"""The images that an experiment builds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from symphony.errors import SpecError, error_path, shown
from symphony.model.settings import validators
from symphony.model.settings.value_types import (
    FLAG,
    NONEMPTY_TEXT,
    STRINGS,
    Field,
    ValueType,
    field_table,
    list_of,
    object_schema,
    parse_fields,
)

DOCKERFILE = "Dockerfile"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEntry:
    """A file or a directory in a build context. ``path`` is copied into the context as ``name``.

    If ``force_update`` is true, every build copies the entry again. Otherwise, unchanged files are
    kept.
    """

    name: str
    path: str
    force_update: bool = False

    def dump(self) -> dict[str, Any]:
        """Return the entry as a dictionary with the keys of an experiment file."""
        result: dict[str, Any] = {"name": self.name, "path": self.path}
        if self.force_update:
            result["force_update"] = True
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBuild:
    """A description of how to build one image.

    Paths are stored as the user wrote them. A relative path is relative to the experiment's
    ``base_dir``, and a leading ``~`` stands for the user's home directory. ``temp_directory`` is
    the directory in which the build context is assembled. The default is a directory in the user's
    cache directory. ``build_options`` contains additional arguments for the ``build`` command, such
    as ``--platform=linux/amd64``.
    """

    repository: str
    dockerfile: str = DOCKERFILE
    context_directories: tuple[ContextEntry, ...] = ()
    temp_directory: str | None = None
    build_options: tuple[str, ...] = ()

    def dump(self) -> dict[str, Any]:
        """Return the image, without its repository, as a dictionary with the keys of an experiment
        file.
        """
        options: dict[str, Any] = {
            "dockerfile": self.dockerfile,
            "context_directories": [entry.dump() for entry in self.context_directories],
            "temp_directory": self.temp_directory,
            "build_options": list(self.build_options),
        }
        return {key: value for key, value in options.items() if value}


def image_build(repository: object, options: Mapping[str, Any]) -> ImageBuild:
    """Return the description of an image. Options that are missing or None get their default
    values.

    Raises `SpecError` if a value is not valid or an option is unknown.
    """
    name = validators.repository(repository)
    validators.refuse_unknown(options, IMAGE_FIELDS, f"image {name!r}")
    return ImageBuild(repository=name, **parse_fields(IMAGE_FIELDS, options))


def context_entries(value: Iterable[Any]) -> tuple[ContextEntry, ...]:
    """Return the build context entries in ``value``, a list of ``{name, path, force_update}``.

    Raises `SpecError` if an entry is not valid or two entries have the same name.
    """
    if not isinstance(value, (list, tuple)):
        raise SpecError(
            "context_directories must be a list such as [{name: app, path: ./app}], "
            f"not {shown(value)}"
        )
    entries: dict[str, ContextEntry] = {}
    for index, item in enumerate(value):
        with error_path(index):
            entry = item if isinstance(item, ContextEntry) else _context_entry(item)
            other = entries.get(entry.name)
            if other is not None:
                raise SpecError(
                    f"two context entries are named {entry.name!r}: {other.path} and {entry.path}; "
                    "rename one of them"
                )
            entries[entry.name] = entry
    return tuple(entries.values())


def _context_entry(value: Any) -> ContextEntry:
    given = validators.mapping(value, "a context entry")
    validators.refuse_unknown(given, CONTEXT_ENTRY_FIELDS, "a context entry")
    for key in ("name", "path"):
        if given.get(key) is None:
            raise SpecError(
                f"a context entry needs a {key}: {{name: app, path: ./app}}, not {shown(value)}"
            )
    return ContextEntry(**parse_fields(CONTEXT_ENTRY_FIELDS, given))


def _entry_name(value: object, subject: str) -> str:
    name = validators.nonempty_text(value, subject)
    if "/" in name or "\\" in name or name in {".", ".."}:
        last_part = name.replace("\\", "/").rstrip("/").rpartition("/")[2].strip(".")
        hint = f"; for example {last_part!r}" if last_part else ""
        raise SpecError(
            f"{subject} must be a plain name, because every entry is at the top of the context, "
            f"not {name!r}{hint}"
        )
    return name


def _tuple_of_strings(value: validators.Strings, subject: str) -> tuple[str, ...]:
    return tuple(validators.strings(value, subject))


def _context_entries(value: Iterable[Any], _: str) -> tuple[ContextEntry, ...]:
    return context_entries(value)


_ENTRY_NAME = ValueType(
    {
        "type": ["string", "number", "boolean"],
        "pattern": r"^[^/\\]+$",
        "not": {"enum": [".", ".."]},
    },
    _entry_name,
)

CONTEXT_ENTRY_FIELDS = field_table(
    Field(
        name="name",
        type=_ENTRY_NAME,
        description="the name of the file or directory in the build context, without '/'",
        subject="the name of a context entry",
        required=True,
    ),
    Field(
        name="path",
        type=NONEMPTY_TEXT,
        description="the path of the file or directory",
        subject="the path of a context entry",
        required=True,
    ),
    Field(name="force_update", type=FLAG, description="copy unchanged files again for every build"),
)

IMAGE_FIELDS = field_table(
    Field(
        name="dockerfile",
        type=NONEMPTY_TEXT,
        description="The path of the Dockerfile; the default is Dockerfile.",
    ),
    Field(
        name="context_directories",
        type=ValueType(list_of(object_schema(CONTEXT_ENTRY_FIELDS)), _context_entries),
        description="The files and directories in the build context.",
    ),
    Field(
        name="temp_directory",
        type=NONEMPTY_TEXT,
        description="The directory in which the build context is assembled.",
    ),
    Field(
        name="build_options",
        type=ValueType(STRINGS.schema, _tuple_of_strings),
        description="Additional arguments for the build command.",
    ),
)
