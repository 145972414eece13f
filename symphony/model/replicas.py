"""Counts: one process or group of a file that stands for several. Pure.

``agent`` with ``count: 3`` is ``agent-0`` to ``agent-2``, and ``${index}`` below it is the number of the copy. The
members of a group with a count have its number after their names, since names are unique in an experiment; below it
``${group_index}`` is that number, and so is ``${index}``, but for members that have a count of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from symphony.errors import SpecError, error_path
from symphony.model import validators
from symphony.model.parameters import GROUP_INDEX, INDEX, as_value

KEY = "count"
MEMBERS = "processes"
MOST = 10_000

Copies = dict[str, list[str]]  # by name in the file, the names of its copies


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A process or a group as it will be: ``origin`` is its name in the file, ``members`` are None of a process."""

    name: str
    origin: str
    data: dict[str, Any]
    members: list[Entry] | None = None


def entries(processes: Mapping[str, Any]) -> list[Entry]:
    """The processes and groups that a file describes, each copy by itself. Raises `SpecError`.

    What starts after something with a count starts after all its copies.
    """
    copies: Copies = {}
    found: list[Entry] = []
    for origin, described in processes.items():
        with error_path(origin):
            data = _mapping(described, f"process {origin!r}")
            numbers = _numbers(data)
            if numbers is None:
                found.append(_entry(origin, data, {}, copies))
            else:
                _note(copies, origin, data)
                keys = (INDEX, GROUP_INDEX) if MEMBERS in data else (INDEX,)
                found += [_entry(origin, data, dict.fromkeys(keys, at), copies) for at in numbers]
    known = {
        name
        for entry in found
        for name in (entry.name, *(member.name for member in entry.members or ()))
    }
    return [
        _after_copies(entry, {name: of for name, of in copies.items() if name not in known})
        for entry in found
    ]


def _entry(
    origin: str, data: Mapping[str, Any], numbers: Mapping[str, int], copies: Copies
) -> Entry:
    """A process or a group, or the copy of it that has these numbers."""
    suffix = [*numbers.values()][:1]
    if MEMBERS not in data:
        return _copy(origin, data, numbers, suffix, copies)
    own = {key: value for key, value in data.items() if key != MEMBERS}
    with error_path(MEMBERS):
        members = _members(_mapping(data[MEMBERS], MEMBERS), numbers, copies)
    return replace(_copy(origin, own, numbers, suffix, copies), members=members)


def _members(processes: Mapping[str, Any], group: Mapping[str, int], copies: Copies) -> list[Entry]:
    outer = [group[GROUP_INDEX]] if group else []
    found: list[Entry] = []
    for origin, described in processes.items():
        with error_path(origin):
            data = _mapping(described, f"process {origin!r}")
            numbers = _numbers(data)
            if numbers is None:
                found.append(_copy(origin, data, group, outer, copies))
            else:
                copies.setdefault(origin, [])
                found += [
                    _copy(origin, data, {**group, INDEX: at}, [*outer, at], copies)
                    for at in numbers
                ]
    return found


def _copy(
    origin: str,
    data: Mapping[str, Any],
    numbers: Mapping[str, int],
    suffix: Iterable[int],
    copies: Copies,
) -> Entry:
    """One component, called after its origin and the numbers in ``suffix``."""
    name = "-".join([origin, *map(str, suffix)])
    if name != origin:
        copies.setdefault(origin, []).append(name)
    own = {key: value for key, value in data.items() if key != KEY}
    return Entry(name=name, origin=origin, data=_filled(own, numbers) if numbers else own)


def _mapping(described: Any, what: str) -> dict[str, Any]:
    return validators.mapping({} if described is None else described, what)


def _numbers(data: Mapping[str, Any]) -> range | None:
    """The numbers of the copies, or None where there is no count."""
    if data.get(KEY) is None:
        return None
    with error_path(KEY):
        count = validators.whole(data[KEY], KEY)
        if count > MOST:
            raise SpecError(f"{KEY} is at most {MOST}, not {count}")
    return range(count)


def _note(copies: Copies, origin: str, data: Mapping[str, Any]) -> None:
    """That all these may be started after, even if there are no copies of them."""
    members = data.get(MEMBERS)
    for name in (origin, *(members if isinstance(members, Mapping) else ())):
        copies.setdefault(name, [])


def _after_copies(entry: Entry, copies: Copies) -> Entry:
    """``entry`` with all copies where it starts after something with a count."""
    after = entry.data.get("starts_after")
    names = [after] if isinstance(after, str) else after
    if not isinstance(names, (list, Mapping)) or copies.keys().isdisjoint(_texts(names)):
        return entry
    spread = {copy: name for name in _texts(names) for copy in copies.get(name, [name])}
    if isinstance(names, Mapping):
        return replace(
            entry,
            data={**entry.data, "starts_after": {copy: names[of] for copy, of in spread.items()}},
        )
    return replace(entry, data={**entry.data, "starts_after": list(spread)})


def _texts(names: Iterable[Any]) -> list[str]:
    return [name for name in names if isinstance(name, str)]


# --- ${index} ---

_REFERENCE = re.compile(rf"(\$+)\{{({INDEX}|{GROUP_INDEX})\}}")


def _filled(value: Any, numbers: Mapping[str, int]) -> Any:
    """``value`` with its numbers filled in, in keys too."""
    if isinstance(value, Mapping):
        return {
            _scalar(key, numbers, text=True): _filled(item, numbers) for key, item in value.items()
        }
    if isinstance(value, list):
        return [_filled(item, numbers) for item in value]
    return _scalar(value, numbers, text=False)


def _scalar(value: Any, numbers: Mapping[str, int], *, text: bool) -> Any:
    if not isinstance(value, str) or "${" not in value:
        return value
    found = _REFERENCE.sub(lambda match: _replacement(match, numbers), value)
    whole = _REFERENCE.fullmatch(value)
    return as_value(found) if whole and whole[1] == "$" and not text else found


def _replacement(match: re.Match[str], numbers: Mapping[str, int]) -> str:
    dollars, name = match.groups()
    if name not in numbers:
        return match[0]
    kept = "$" * (len(dollars) // 2)
    return f"{kept}{{{name}}}" if len(dollars) % 2 == 0 else f"{kept}{numbers[name]}"
