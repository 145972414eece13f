"""Changing the number of replicas of a loaded experiment."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from symphony.errors import SpecError, shown
from symphony.model.document import parameters
from symphony.model.document.replicas import MEMBERS
from symphony.model.document_path import RANKS, REPLICA_KEYS, REPLICAS
from symphony.support.names import did_you_mean, join_names

_PARAMETER = re.compile(rf"\$\{{({parameters.PARAMETER_NAME_PATTERN.pattern})\}}")
_COUNT = re.compile(r"[0-9]+")
_DIFFERENCE = re.compile(r"[+-][0-9]+")


@dataclass(frozen=True, slots=True)
class Source:
    """The document from which an experiment was loaded, and the values of its parameters."""

    document: Mapping[str, Any]
    parameters: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Source:
        """Create a source from the output of `to_dict`."""
        return cls(data["document"], data["parameters"])

    @property
    def declared_parameters(self) -> Collection[str]:
        """The names of the parameters that the document declares, with or without a value."""
        return self.document.get("parameters") or {}

    def to_dict(self) -> dict[str, Any]:
        """Return the source as a dictionary of JSON-serializable values."""
        return {"document": dict(self.document), "parameters": dict(self.parameters)}

    def renamed(self, name: str) -> Source:
        """Return the source of an experiment with another name."""
        return replace(self, document={**self.document, "name": name})

    def scaled(self, counts: Mapping[str, int | str]) -> Source:
        """Return the source of an experiment with other numbers of replicas.

        ``counts`` maps the names of replicated processes and groups to numbers, or to differences
        such as ``"+2"`` and ``"-1"``. If the number in the file is a parameter, the parameter is
        changed, which can affect other parts of the file too. Raises SpecError if a name is unknown
        or has no replicas, or if a number is not valid.
        """
        document = copy.deepcopy(dict(self.document))
        values = dict(self.parameters)
        for name, count in counts.items():
            entry, key = _find(document, name)
            parameter = _parameter_of(entry[key], values)
            present = entry[key] if parameter is None else values[parameter]
            number = _number(name, count, present)
            if parameter is None:
                entry[key] = number
            else:
                values[parameter] = str(number)
        return Source(document, values)


def _find(document: Mapping[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """Return the description of a replicated process or group, and its key for the number."""
    replicated: dict[str, tuple[dict[str, Any], str]] = {}
    single: list[str] = []
    units: list[str] = []
    for origin, entry in _entries(document.get(MEMBERS)):
        key = _replica_key(entry)
        if entry.get(RANKS) is not None:
            units.append(origin)
        elif key is None:
            single.append(origin)
        else:
            replicated[origin] = (entry, key)
    if name in replicated:
        return replicated[name]
    if name in units or re.sub(r"-[0-9]+$", "", name) in units:
        raise SpecError(
            f"{name!r} has ranks, and the number of ranks of a running unit cannot change; change "
            "it in the file, and run 'up' with the file, which restarts all ranks"
        )
    if name in single:
        raise SpecError(
            f"{name!r} has no replicas; add '{REPLICAS}: 1' to it in the experiment file, which "
            f"renames it to '{name}-0', and run 'up' with the file"
        )
    original = re.sub(r"(-[0-9]+)+$", "", name)
    if original in replicated:
        raise SpecError(f"{name!r} is one of the copies of {original!r}; scale {original!r}")
    hint = did_you_mean(name, replicated) or f"; replicated are {join_names(replicated)}"
    raise SpecError(f"there is no replicated process or group {shown(name)}{hint}")


def _entries(described: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(described, dict):
        return
    for name, entry in described.items():
        if isinstance(entry, dict):
            yield name, entry
            yield from _entries(entry.get(MEMBERS))
        else:
            yield name, {}


def _replica_key(entry: Mapping[str, Any]) -> str | None:
    keys = (key for key in REPLICA_KEYS if key != RANKS)
    return next((key for key in keys if entry.get(key) is not None), None)


def _parameter_of(value: Any, values: Mapping[str, str]) -> str | None:
    """Return the parameter to which a number of replicas refers, or None."""
    match = _PARAMETER.fullmatch(value) if isinstance(value, str) else None
    return match[1] if match is not None and match[1] in values else None


def _number(name: str, count: int | str, present: Any) -> int:
    """Return the new number of replicas. ``present`` is the number in the file."""
    text = str(count)
    if _COUNT.fullmatch(text):
        return int(text)
    if not _DIFFERENCE.fullmatch(text):
        raise SpecError(
            f"the number of replicas of {name!r} must be a whole number, such as 16, or a "
            f"difference, such as +2, not {shown(count)}"
        )
    if not _COUNT.fullmatch(str(present)):
        raise SpecError(
            f"the number of replicas of {name!r} is {shown(present)} in the file; give a number "
            f"instead of {text}"
        )
    number = int(str(present)) + int(text)
    if number < 0:
        raise SpecError(f"{name!r} has {present} replicas, so {text} is not possible")
    return number
