"""The encoding of the values that are stored in annotations and Secrets. Pure.

Each value is JSON, which is compressed if it can be large. Other users of the namespace may be able
to change what is stored, so that the decoders check it: if it is damaged, they raise ValueError and
nothing else.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from symphony.model.limits import MAX_BYTES

T = TypeVar("T")

_MAX_REVISION_DIGITS = 9


def to_text(value: object) -> str:
    """Encode a value as text."""
    return json.dumps(value, separators=(",", ":"))


def from_text(text: str) -> Any:
    """Decode a value that `to_text` encoded."""
    try:
        return json.loads(text)
    except RecursionError as exc:
        raise ValueError("not valid: nested too deeply") from exc


def compress(text: str) -> bytes:
    """Encode a text in a compressed form, for a Secret or a file."""
    return zlib.compress(text.encode(), 6)


def decompress(data: bytes, *, max_bytes: int = MAX_BYTES) -> str:
    """Decode a text that `compress` encoded.

    A text that is larger than ``max_bytes`` is damaged. With 0, there is no limit.
    """
    decompressor = zlib.decompressobj()
    try:
        text = decompressor.decompress(data, max_bytes)
    except zlib.error as exc:
        raise ValueError(f"not valid: {exc}") from exc
    if decompressor.unconsumed_tail:
        raise ValueError(f"not valid: larger than {max_bytes} bytes")
    return text.decode()


def pack(text: str) -> str:
    """Encode a text in a compressed form, for an annotation.

    All annotations of an object together have at most 256 KiB.
    """
    return base64.b64encode(compress(text)).decode()


def unpack(text: str) -> str:
    """Decode a text that `pack` encoded."""
    return decompress(base64.b64decode(text, validate=True))


def with_revision(text: str, revision: int) -> str:
    """Return an annotation value with the number of the change of the experiment that writes it.

    The roster and the policies are such values.
    """
    return f"{revision}:{text}"


def revision_of(text: str) -> int:
    """Return the number of the change that wrote an annotation value, or 0 for that of a launch."""
    number, separator, _ = text.partition(":")
    is_number = number.isdecimal() and len(number) <= _MAX_REVISION_DIGITS
    return int(number) if separator and is_number else 0


def without_revision(text: str) -> str:
    """Return an annotation value as it was before `with_revision`."""
    return text.partition(":")[2] if revision_of(text) else text


def build(kind: Callable[..., T], given: object) -> T:
    """Return an instance of the dataclass ``kind`` with decoded values for its fields.

    Fields that are missing have their default values. Other versions can have further fields, which
    are left out.
    """
    if not isinstance(given, dict):
        raise ValueError(f"not valid: {type(given).__name__} instead of an object")
    hints, required = _fields_of(kind)
    missing = required.difference(given)
    if missing:
        raise ValueError(f"not valid: {', '.join(sorted(missing))} missing")
    values = {}
    for name, value in given.items():
        if name in hints:
            values[name] = _checked(hints[name], value, name)
    return kind(**values)


@cache
def _fields_of(kind: Any) -> tuple[Mapping[str, Any], frozenset[str]]:
    """Return the type of each field of a dataclass, and the fields without default values."""
    hints = get_type_hints(kind)
    required = set()
    types = {}
    for field in fields(kind):
        types[field.name] = hints[field.name]
        if field.default is MISSING and field.default_factory is MISSING:
            required.add(field.name)
    return MappingProxyType(types), frozenset(required)


def _checked(hint: Any, value: Any, name: str) -> Any:
    """Return a decoded value as an instance of the type ``hint``."""
    if hint is Any or type(value) is hint:
        return value
    # Numbers without a fraction are integers in JSON.
    if hint is float and type(value) is int and abs(value) < 2**63:
        return float(value)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (list, tuple) and isinstance(value, list):
        return origin([_checked(arguments[0], item, name) for item in value])
    if origin is dict and isinstance(value, dict):
        return {key: _checked(arguments[1], item, name) for key, item in value.items()}
    raise ValueError(f"not valid: {name} is {value!r:.40}")
