"""Reading a configuration file in YAML, JSON or TOML.

The suffix of the file determines its format. If the suffix is unknown, the contents determine the
format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from symphony.config import fields
from symphony.config.merging import ConfigSource, SourcedValue
from symphony.errors import SpecError
from symphony.model.document.documents import (
    Locator,
    decode,
    errors_with_position,
    from_json,
    from_toml,
    from_yaml,
    read_bytes,
)
from symphony.model.limits import MAX_CONFIGURATION_BYTES

_FORMATS = {".yml": "YAML", ".yaml": "YAML", ".json": "JSON", ".toml": "TOML"}
# A line that begins a table or sets a key in TOML but not in YAML.
_TOML_LINE = re.compile(r"""\s*(\[{1,2}[-\w."' ]+\]{1,2}|[-\w."' ]+=.*)\s*(#.*)?$""")


def read_file(path: Path, own_fields: Collection[str] = (), *, is_found_file: bool) -> ConfigSource:
    """Read a configuration file.

    ``own_fields`` are fields that the program has added. ``is_found_file`` is true if symphony
    found the file, by searching or through SYMPHONY_CONFIG, and false if the program loaded it
    explicitly by its path. Raises `NotFound` if the file does not exist, and `SpecError` if its
    contents are invalid.
    """
    data = read_bytes(path, MAX_CONFIGURATION_BYTES)
    return parse_file(path, data, own_fields, is_found_file=is_found_file)


def parse_file(
    path: Path, data: bytes, own_fields: Collection[str] = (), *, is_found_file: bool
) -> ConfigSource:
    """Parse ``data``, the contents of a configuration file; see `read_file`."""
    text = decode(path, data)
    parse = _PARSERS[detect_format(path, text)]
    document, position = parse(path, text)
    with errors_with_position(position):
        base = path.absolute().parent
        content = fields.read_content({} if document is None else document, base, own_fields)
    profiles = {
        name: _with_positions(values, position, (fields.PROFILES, name))
        for name, values in content.profiles.items()
    }
    return ConfigSource(
        values=_with_positions(content.values, position),
        profiles=profiles,
        is_found_file=is_found_file,
        position=position,
    )


def _with_positions(
    values: fields.Values, position: Locator, parent: fields.KeyPath = ()
) -> dict[fields.KeyPath, SourcedValue]:
    return {key: SourcedValue(value, position((*parent, *key))) for key, value in values.items()}


def detect_format(path: Path, text: str) -> str:
    """Return the format of a file: ``YAML``, ``JSON`` or ``TOML``."""
    by_suffix = _FORMATS.get(path.suffix.lower())
    if by_suffix:
        return by_suffix
    if text.lstrip().startswith("{"):
        return "JSON"
    for line in text.splitlines():
        is_comment = line.lstrip().startswith("#")
        if line.strip() and not is_comment:
            return "TOML" if _TOML_LINE.match(line) else "YAML"
    return "YAML"


def _parse_yaml(path: Path, text: str) -> tuple[Any, Locator]:
    return from_yaml(path, text, fields.is_text_field)


_PARSERS: dict[str, Callable[[Path, str], tuple[Any, Locator]]] = {
    "YAML": _parse_yaml,
    "JSON": from_json,
    "TOML": from_toml,
}


def only_file(paths: Sequence[Path]) -> Path:
    """Return the only configuration file in a directory. Raise `SpecError` if there are several."""
    if len(paths) > 1:
        names = " and ".join(path.name for path in paths)
        raise SpecError(
            f"{paths[0].parent}: {names} are configurations of the same directory; keep one of them"
        )
    return paths[0]
