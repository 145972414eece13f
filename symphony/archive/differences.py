"""The differences between two runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from symphony.support.hidden_values import HiddenValues, shown_pair

Differences = dict[str, tuple[Any, Any]]


def find_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> Differences:
    """Return a mapping from the paths of the values that differ to both values.

    A missing value is None.

    >>> find_differences({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}})
    {'a.c': (2, 3)}
    """
    left, right = dict(_leaves(first)), dict(_leaves(second))
    paths = dict.fromkeys([*left, *right])
    return {
        path: (left.get(path), right.get(path))
        for path in paths
        if left.get(path) != right.get(path)
    }


def without_secrets(differences: Differences, hidden: HiddenValues) -> Differences:
    """Return differences in which secrets are hidden; see `symphony.support.hidden_values`.

    ``hidden`` contains the values that are hidden in all texts.
    """
    return {path: shown_pair(path, *values, hidden) for path, values in differences.items()}


def _leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if isinstance(item, dict) and item:
            yield from _leaves(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", item
