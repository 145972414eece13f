"""Reading a configuration file: YAML, JSON or TOML, told apart by name, and by content where the name says nothing."""

from __future__ import annotations

import importlib
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from symphony.config import fields
from symphony.config.merging import Given, Layer
from symphony.errors import SpecError
from symphony.model.files import Where, from_json, from_yaml, read_text, told

_FORMS = {".yml": "YAML", ".yaml": "YAML", ".json": "JSON", ".toml": "TOML"}
# A line that begins a table or sets a key, as TOML writes them and YAML does not.
_TOML_LINE = re.compile(r"""\s*(\[{1,2}[-\w."' ]+\]{1,2}|[-\w."' ]+=.*)\s*(#.*)?$""")


def layer(path: Path, own: Collection[str] = (), *, found: bool) -> Layer:
    """What a file says. ``found`` is whether it was looked for, not named. Raises `SpecError` and `NotFound`."""
    text = read_text(path)
    data, where = _READERS[form(path, text)](path, text)
    with told(where):
        content = fields.read({} if data is None else data, path.absolute().parent, own)
    return Layer(
        values=_given(content.values, where),
        profiles={
            name: _given(settings, where, (fields.PROFILES, name))
            for name, settings in content.profiles.items()
        },
        file=found,
        where=where,
    )


def _given(
    settings: fields.Values, where: Where, below: fields.Place = ()
) -> dict[fields.Place, Given]:
    return {place: Given(value, where((*below, *place))) for place, value in settings.items()}


def form(path: Path, text: str) -> str:
    """``YAML``, ``JSON`` or ``TOML``."""
    named = _FORMS.get(path.suffix.lower())
    if named:
        return named
    if text.lstrip().startswith("{"):
        return "JSON"
    first = next(
        (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")),
        "",
    )
    return "TOML" if _TOML_LINE.match(first) else "YAML"


def _yaml(path: Path, text: str) -> tuple[Any, Where]:
    return from_yaml(path, text, fields.is_text)


def _json(path: Path, text: str) -> tuple[Any, Where]:
    return from_json(path, text)


def _toml(path: Path, text: str) -> tuple[Any, Where]:
    try:
        data = _toml_reader(path)(text)
    except ValueError as exc:
        what, _, place = str(exc).partition(" (at ")
        found = re.match(r"line (\d+), column (\d+)", place)
        where = f":{found[1]}:{found[2]}" if found else ""
        raise SpecError(f"{path}{where}: not TOML: {what.rstrip('.')}") from exc
    # TOML has dates, which no value here is; as text they are what was written.
    return json.loads(json.dumps(data, default=str)), lambda _: str(path)


def _toml_reader(path: Path) -> Callable[[str], dict[str, Any]]:
    name = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    try:
        loads: Callable[[str], dict[str, Any]] = importlib.import_module(name).loads
    except ModuleNotFoundError as exc:
        raise SpecError(
            f"{path}: reading TOML on this Python needs the package {name!r}: pip install {name}; or write YAML"
        ) from exc
    return loads


_READERS: dict[str, Callable[[Path, str], tuple[Any, Where]]] = {
    "YAML": _yaml,
    "JSON": _json,
    "TOML": _toml,
}


def only(paths: Collection[Path]) -> Path:
    """The one file of a folder, or an error that names the others."""
    first, *others = paths
    if others:
        names = " and ".join(path.name for path in paths)
        raise SpecError(
            f"{first.parent}: {names} are two configurations of one folder; keep one of them"
        )
    return first


def refuse_strangers(path: Path) -> None:
    """Refuse a file that anybody could have put there: one of another user in a folder that all may write to."""
    try:
        owner, folder = path.stat().st_uid, path.parent.stat()
    except OSError:
        return  # reading it will say what is wrong
    if owner not in (0, os.getuid()) and folder.st_mode & stat.S_IWOTH:
        raise SpecError(
            f"{path}: belongs to another user, in a folder that everybody may write to, and is not read; "
            f"if you trust it, name it: SYMPHONY_CONFIG={path}"
        )
