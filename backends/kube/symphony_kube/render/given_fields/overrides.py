"""Overrides (pod_yml and container_yml), and a search for override fields that a server drops.
Pure.

Servers older than Kubernetes 1.25 silently drop fields that they do not know. Dropped fields are
missing from the response.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from symphony.support.names import did_you_mean

# The lists whose items are not identified by ``name``, each mapped to the field that identifies its
# items.
MERGE_KEYS = {"volumeMounts": "mountPath", "volumeDevices": "devicePath"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """The fields that a user merges over a rendered object.

    * ``unit``: the process or group to which the object belongs.
    * ``description``: the override in words, such as ``pod_yml of process 'db'``.
    * ``path``: the path to the overridden part of the object, as a sequence of keys and names of
      list items.
    * ``fields``: the content of the override.
    """

    unit: str
    description: str
    path: tuple[str, ...]
    fields: Mapping[str, Any]


def dropped_fields(override: Override, answer: Mapping[str, Any]) -> list[str]:
    """Return the fields of an override that are missing from the object that the server returned.

    Each field is described by its path in the override. If the returned object contains a field
    with a similar name, a hint names that field.
    """
    target: Any = answer
    for key in override.path:
        if isinstance(target, list):
            target = _find_item(target, key, "name")
        else:
            target = target.get(key)
        if target is None:  # The server returned an object with an unexpected structure.
            return []
    return list(_missing(override.fields, target, "", ""))


def _missing(fields: Any, answer: Any, key: str, path: str) -> Iterator[str]:
    """Yield the paths of the fields in ``fields`` that are missing from ``answer``.

    ``key`` is the name of the field that contains ``fields``, and ``path`` is the path of that
    field.
    """
    if isinstance(fields, Mapping) and isinstance(answer, Mapping):
        for name, value in fields.items():
            field_path = f"{path}.{name}" if path else name
            if name in answer:
                yield from _missing(value, answer[name], name, field_path)
            elif _has_content(value):
                hint = did_you_mean(name, answer).removeprefix("; ")
                yield f"{field_path} ({hint})" if hint else field_path
    elif isinstance(fields, list) and isinstance(answer, list):
        for index, item in enumerate(fields):
            yield from _missing_in_list(item, answer, key, f"{path}[{index}]")


def _missing_in_list(item: Any, answer: list[Any], key: str, path: str) -> list[str]:
    """Return the fields of a list item that are missing from its counterpart in the response.

    The counterpart is the item with the same name. If the list item has no name, the counterpart is
    the item with the fewest missing fields.
    """
    name_key = MERGE_KEYS.get(key, "name")
    candidates = answer
    if isinstance(item, Mapping) and name_key in item:
        counterpart = _find_item(answer, item[name_key], name_key)
        candidates = [] if counterpart is None else [counterpart]
    differences = [list(_missing(item, candidate, key, path)) for candidate in candidates]
    return min(differences, key=len, default=[])


def _find_item(items: list[Any], name: Any, name_key: str) -> Any:
    for item in items:
        if isinstance(item, Mapping) and item.get(name_key) == name:
            return item
    return None


def _has_content(value: Any) -> bool:
    """Return whether a server always returns a known field that has this value.

    A server can omit fields with empty values.
    """
    if isinstance(value, Mapping):
        return any(_has_content(item) for item in value.values())
    if isinstance(value, list):
        return any(_has_content(item) for item in value)
    return bool(value)
