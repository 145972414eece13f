"""The declaration of the code of processes: a directory, and the files in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from symphony.errors import SpecError, shown
from symphony.model.settings import validators
from symphony.model.settings.value_types import (
    FLAG,
    NONEMPTY_TEXT,
    STRINGS,
    Field,
    ValueType,
    any_of,
    field_table,
    object_schema,
    parse_record,
)

if TYPE_CHECKING:
    from symphony.model.experiment.process import Process

CODE_FIELDS = field_table(
    Field(
        name="path",
        type=NONEMPTY_TEXT,
        description="the directory of the code, relative to the experiment file",
        subject="the path of the code",
        required=True,
    ),
    Field(
        name="include",
        type=STRINGS,
        description="patterns as in .gitignore; only matching files belong to the code; the "
        "default is all files",
    ),
    Field(
        name="exclude",
        type=STRINGS,
        description="patterns as in .gitignore of files that do not belong to the code; a pattern "
        "that begins with ! includes files again that git or .symphonyignore ignores",
    ),
    Field(
        name="sync",
        type=FLAG,
        description="whether up sends only the changed files to running containers on Kubernetes, "
        "and restarts the program in place; the default is false",
    ),
)


def _code(value: object, subject: str) -> dict[str, Any] | bool:
    """Return the code as a mapping with `CODE_FIELDS`, or False for no code."""
    if isinstance(value, Mapping):
        parsed = parse_record(CODE_FIELDS, value, subject)
        return {key: item for key, item in parsed.items() if item not in ([], False)}
    if value is False:
        return False
    if isinstance(value, bool):
        raise SpecError(f"{subject} must be a directory, such as '.', or false, not {shown(value)}")
    return {"path": str(validators.path(value, subject))}


CODE = ValueType(
    any_of({"const": False}, {"type": "string", "minLength": 1}, object_schema(CODE_FIELDS)), _code
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSource:
    """The code of a process: ``path`` is a directory, or the archive of an earlier snapshot.

    ``include`` and ``exclude`` contain patterns, and ``sync`` is true if changed files are sent to
    running containers; see `CODE_FIELDS`. Sources with the same files are equal.
    """

    path: str
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    sync: bool = field(default=False, compare=False)


def code_source(process: Process) -> CodeSource | None:
    """Return the code of a process, which it can inherit from its group and its experiment."""
    group = process.group
    experiment = process.experiment if group is None else group.experiment
    inherited = None if experiment is None else experiment.code
    if group is not None and group.settings.code is not None:
        inherited = group.settings.code
    own = process.settings.code
    given: Any = inherited if own is None else own
    if not given:
        return None
    return CodeSource(
        path=given["path"],
        include=tuple(given.get("include", ())),
        exclude=tuple(given.get("exclude", ())),
        sync=given.get("sync", False),
    )
