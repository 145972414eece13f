"""Copying and merging the values of settings."""

from __future__ import annotations

import copy
from typing import Any

SCALAR_TYPES = frozenset({str, int, float, bool, type(None)})


def copied(value: Any) -> Any:
    """Return a deep copy. Most values are scalars, or contain only scalars, and are copied fast."""
    kind = type(value)
    if kind in SCALAR_TYPES:
        return value
    if kind is list and SCALAR_TYPES.issuperset(map(type, value)):
        return value.copy()
    if kind is dict and SCALAR_TYPES.issuperset(map(type, value.values())):
        return value.copy()
    return copy.deepcopy(value)


# A test has exactly one kind, code has one directory, and a stop command is one command.
_NOT_MERGED = frozenset({"ready", "healthy", "code", "stop_command"})


def merged(outer: dict[str, Any], inner: dict[str, Any]) -> dict[str, Any]:
    """Return the settings ``inner`` with the settings ``outer`` as their defaults; see
    `Settings.under`.
    """
    result = dict(outer)
    for name, value in inner.items():
        if name in _NOT_MERGED:
            result[name] = value
        elif isinstance(value, list):
            inherited = outer.get(name, [])
            result[name] = [*inherited, *(item for item in value if item not in inherited)]
        elif isinstance(value, dict):
            result[name] = deep_merged(outer.get(name, {}), value)
        else:
            result[name] = value
    return result


def deep_merged(outer: dict[str, Any], inner: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of ``outer`` updated from ``inner``, with mappings merged at every depth."""
    result = dict(outer)
    for key, value in inner.items():
        existing = result.get(key)
        if isinstance(existing, dict) and isinstance(value, dict):
            result[key] = deep_merged(existing, value)
        else:
            result[key] = value
    return result
