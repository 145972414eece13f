"""Merge pod_yml and container_yml into rendered objects. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from symphony.errors import SpecError, shown
from symphony_kube.render.given_fields.overrides import MERGE_KEYS

# In these lists, each item must contain exactly one of several alternative fields: a variable has a
# value or a source, and a volume has a type. If an override sets a different alternative, the
# original field is removed.
_ALTERNATIVES = frozenset({"env", "volumes"})


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of ``base`` into which ``over`` is merged. The arguments are not changed.

    Values in ``over`` take precedence. Mappings are merged key by key, and a null value removes a
    key. A list of named items is merged by ``name`` (a list of mounts by path), and new items are
    appended. All other lists are replaced.
    """
    result = dict(base)
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge_value(result.get(key), value, key)
    return result


def _merge_value(base: Any, value: Any, key: str) -> Any:
    if isinstance(value, Mapping):
        return merge(base if isinstance(base, Mapping) else {}, value)
    name_key = MERGE_KEYS.get(key, "name")
    if _is_named_list(value, name_key) and _is_named_list(base, name_key):
        return _merge_lists(base, value, key, name_key)
    return value


def _is_named_list(value: Any, name_key: str) -> bool:
    """Return whether ``value`` is a list of mappings that all have a string under ``name_key``."""
    if not isinstance(value, list):
        return False
    return all(isinstance(item, Mapping) and isinstance(item.get(name_key), str) for item in value)


def _merge_lists(base: list[Any], over: list[Any], key: str, name_key: str) -> list[Any]:
    result = list(base)
    positions: dict[str, int] = {}
    for position, item in enumerate(base):
        positions.setdefault(item[name_key], position)
    for item in over:
        found = positions.get(item[name_key])
        if found is None:
            result.append(merge({}, item))
            continue
        old = result[found]
        if key in _ALTERNATIVES:
            old = {field: old[field] for field in old if field in item}
        result[found] = merge(old, item)
    return result


def to_plain_data(value: Any, where: str) -> Any:
    """Check that ``value`` is JSON data, and return it as plain dictionaries, lists and scalars.

    ``where`` describes the location of the value in messages. Raises `SpecError` if the value is
    not JSON data.
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Mapping):
        return {
            _check_key(key, where): to_plain_data(item, f"{where}.{key}")
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [to_plain_data(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise SpecError(
        f"{where} must be text, a number, true, false, a list or a mapping, not {shown(value)}"
    )


def _check_key(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise SpecError(f"{where} has a key that is not text: {key!r}; quote it")
    return key
