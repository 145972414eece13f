"""Replicas: a process or group in a file can stand for several copies.

``agent`` with ``replicas: 3`` stands for ``agent-0`` to ``agent-2``. In the process's description,
``${index}`` stands for the copy's number. If a group has replicas, its members' names contain the
number of the group's copy, because names must be unique in an experiment. In the members'
descriptions, ``${group_index}`` stands for this number. In members without replicas of their own,
``${index}`` has the same meaning as ``${group_index}``. ``count`` is a synonym for ``replicas``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from symphony.errors import SpecError, error_path, shown
from symphony.model.document.parameters import (
    GROUP_INDEX,
    INDEX,
    value_of_composed_text,
    value_of_text,
)
from symphony.model.document_path import (
    COUNT,
    RANK_OF,
    RANKS,
    REPLICA_KEYS,
    REPLICAS,
    DocumentPath,
    can_be_composed_number,
)
from symphony.model.error_collector import ErrorCollector
from symphony.model.settings import validators
from symphony.model.settings.value_types import MAX_REPLICAS

MEMBERS = "processes"
# A longer command would hide the rest of an error message.
_MAX_EXAMPLE_LENGTH = 160
REPLICATED = "replicated"

# Maps the name of each replicated process or group in the file to the names of its copies.
Copies = dict[str, list[str]]
# Maps the reference names `index` and `group_index` to a copy's numbers.
Indexes = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A process or a group in the experiment.

    ``origin`` is its name in the file, and ``data`` is its description with all index references
    replaced. ``members`` is None for a process.
    """

    name: str
    origin: str
    data: dict[str, Any]
    members: list[Entry] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expansion:
    """The processes and groups that a file describes. Each copy has its own entry.

    ``copies`` maps the name of each replicated process or group to the names of its copies. It does
    not contain a name that is also the name of an entry. ``absent`` contains the descriptions of
    the processes and groups that have no copies.
    """

    entries: list[Entry]
    copies: Copies
    absent: dict[str, dict[str, Any]]


def expand(processes: Mapping[str, Any], errors: ErrorCollector) -> Expansion:
    """Return the processes and groups that a file describes.

    A process that starts after a replicated process starts after all copies of that process.
    Invalid descriptions are omitted, and their errors are added to ``errors``.
    """
    return _Replication(errors).expand(processes)


class _Replication:
    """The expansion of the replicas in one file."""

    def __init__(self, errors: ErrorCollector) -> None:
        self._errors = errors
        self._copies: Copies = {}
        self._described: dict[str, dict[str, Any]] = {}

    def expand(self, processes: Mapping[str, Any]) -> Expansion:
        result: list[Entry] = []
        for origin, value in processes.items():
            with self._errors.at(origin):
                result += self._expand_member(origin, _description(value, origin))
        names = {entry.name for entry in result}
        for entry in result:
            names.update(member.name for member in entry.members or ())
        # In `starts_after`, a name is not replaced by the names of copies if the expanded
        # experiment itself contains a process or group with that name.
        copies = {name: copied for name, copied in self._copies.items() if name not in names}
        entries = [_start_after_copies(entry, copies) for entry in result]
        absent = {name: self._described[name] for name, copied in copies.items() if not copied}
        return Expansion(entries=entries, copies=copies, absent=absent)

    def _expand_member(self, origin: str, data: dict[str, Any]) -> list[Entry]:
        is_group = MEMBERS in data
        numbers = self._copy_numbers(data)
        if numbers is None:
            return [self._entry(origin, data, {})]
        self._declare_copies(origin, data)
        if isinstance(data.get(MEMBERS), Mapping):
            for name, member in data[MEMBERS].items():
                self._declare_copies(name, member)
        references = (INDEX, GROUP_INDEX) if is_group else (INDEX,)
        return [self._entry(origin, data, dict.fromkeys(references, number)) for number in numbers]

    def _entry(self, origin: str, data: Mapping[str, Any], indexes: Indexes) -> Entry:
        """Return the entry for a process or group, or for its copy with the given indexes."""
        suffix = list(indexes.values())[:1]
        if MEMBERS not in data:
            return self._copy(origin, data, indexes, suffix)
        own_data = {key: value for key, value in data.items() if key != MEMBERS}
        entry = self._copy(origin, own_data, indexes, suffix)
        return replace(entry, members=self._members(data[MEMBERS], indexes))

    def _members(self, value: Any, group_indexes: Indexes) -> list[Entry]:
        result: list[Entry] = []
        with self._errors.at(MEMBERS):
            described = {} if value is None else validators.mapping(value, MEMBERS)
            for origin, item in described.items():
                with self._errors.at(origin):
                    result += self._expand_group_member(
                        origin, _description(item, origin), group_indexes
                    )
        return result

    def _expand_group_member(
        self, origin: str, data: dict[str, Any], group_indexes: Indexes
    ) -> list[Entry]:
        group_suffix = [group_indexes[GROUP_INDEX]] if group_indexes else []
        with self._errors.at(RANKS):
            if data.get(RANKS) is not None:
                raise SpecError(
                    "a member of a group cannot have ranks; move the process out of the group"
                )
        numbers = self._copy_numbers(data)
        if numbers is None:
            return [self._copy(origin, data, group_indexes, group_suffix)]
        self._declare_copies(origin, data)
        return [
            self._copy(origin, data, {**group_indexes, INDEX: number}, [*group_suffix, number])
            for number in numbers
        ]

    def _copy(
        self, origin: str, data: Mapping[str, Any], indexes: Indexes, suffix: Iterable[int]
    ) -> Entry:
        """Return the entry whose name is ``origin`` followed by the numbers in ``suffix``."""
        name = "-".join([origin, *map(str, suffix)])
        if name != origin:
            self._copies.setdefault(origin, []).append(name)
        own_data = {key: value for key, value in data.items() if key not in REPLICA_KEYS}
        if indexes:
            replicated = replicated_services(own_data)
            own_data = _with_indexes(own_data, indexes, ())
            if replicated:
                own_data[REPLICATED] = replicated
        if data.get(RANKS) is not None:
            own_data[RANK_OF] = origin
        return Entry(name=name, origin=origin, data=own_data)

    def _copy_numbers(self, data: Mapping[str, Any]) -> range | None:
        """Return the numbers of the copies, or None if the description does not set their number.

        If the number is not valid, add the error and assume one copy, so that the other errors of
        the description are found too.
        """
        with self._errors.at():
            return _copy_numbers(data)
        return range(1)

    def _declare_copies(self, origin: str, data: Any) -> None:
        """Allow other processes to start after the copies of ``origin``, and to connect to the
        services that they bind, even if there are no copies.
        """
        self._copies.setdefault(origin, [])
        self._described[origin] = data if isinstance(data, dict) else {}


def _description(value: Any, origin: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        # A file without errors does not need these names.
        from symphony.model.experiment.process import PROCESS_OPTIONS
        from symphony.model.settings.table import SETTINGS

        if origin in PROCESS_OPTIONS or origin in SETTINGS:
            raise SpecError(
                f"process {origin!r} must be a mapping, not {shown(value)}; if {origin} is a "
                "setting, indent it below the name of a process"
            )
        setting = value.partition(":")[0] if isinstance(value, str) else ""
        if setting in PROCESS_OPTIONS or setting in SETTINGS:
            raise SpecError(
                f"process {origin!r} must be a mapping, not {shown(value)}; write a space after "
                f"'{setting}:'"
            )
        example = _description_of_command(value)
        if example:
            raise SpecError(
                f"process {origin!r} must be a mapping, not {shown(value)}; write "
                f"{origin}: {example}"
            )
    return validators.mapping(value, f"process {origin!r}")


def _description_of_command(value: Any) -> str:
    """Return the description of a process whose description is only its command, as YAML."""
    from symphony.model.document.other_formats.hints import flow_text

    key = "cmd" if isinstance(value, str) else "command"
    is_command = isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(word, (str, int)) for word in value)
    )
    text = flow_text({key: value}) if value and is_command else ""
    return text if len(text) <= _MAX_EXAMPLE_LENGTH and text.isprintable() else ""


def _copy_numbers(data: Mapping[str, Any]) -> range | None:
    """Return the numbers of the copies, or None if the description does not set their number."""
    given = [key for key in REPLICA_KEYS if data.get(key) is not None]
    if not given:
        return None
    if RANKS in given:
        _check_ranks(data, given)
    if len(given) > 1:
        raise SpecError(
            f"{REPLICAS} and {COUNT} are the same setting; remove {COUNT}", path=(COUNT,)
        )
    key = given[0]
    with error_path(key):
        count = validators.whole_number(data[key], key)
        if count > MAX_REPLICAS:
            raise SpecError(f"{key} must be at most {MAX_REPLICAS}, not {count}")
    return range(count)


def _check_ranks(data: Mapping[str, Any], given: list[str]) -> None:
    """Raise SpecError if the description of a process cannot have ranks."""
    if len(given) > 1:
        raise SpecError(
            f"a process with ranks cannot have {given[0]}; each copy would be a unit of its own, "
            "so describe each unit as a process",
            path=(given[0],),
        )
    if MEMBERS in data:
        raise SpecError("a group cannot have ranks; set ranks of a process", path=(RANKS,))
    if data[RANKS] == 0:
        raise SpecError("ranks must be at least 1, not 0", path=(RANKS,))


def replicated_services(data: Mapping[str, Any]) -> list[str]:
    """Return the services that all copies of a process or group bind or expose.

    A service whose name contains a reference to an index belongs to one copy only. A value that is
    not valid is ignored, because the loader reports it.
    """
    services: list[str] = []
    for key in ("binds", "exposes", REPLICATED):
        value = data.get(key)
        names = [value] if isinstance(value, str) else value
        if isinstance(names, (list, Mapping)):
            services += [name for name in names if isinstance(name, str) and "${" not in name]
    return list(dict.fromkeys(services))


def _start_after_copies(entry: Entry, copies: Copies) -> Entry:
    """Return the entry with replicated processes in ``starts_after`` replaced by their copies."""
    value = entry.data.get("starts_after")
    awaited = [value] if isinstance(value, str) else value
    if not isinstance(awaited, (list, Mapping)):
        return entry
    names = [name for name in awaited if isinstance(name, str)]
    if copies.keys().isdisjoint(names):
        return entry
    origins: dict[str, str] = {}
    for name in names:
        for copy in copies.get(name, [name]):
            origins[copy] = name
    starts_after: Any = list(origins)
    if isinstance(awaited, Mapping):
        starts_after = {copy: awaited[origin] for copy, origin in origins.items()}
    return replace(entry, data={**entry.data, "starts_after": starts_after})


# --- references to indexes ---

_REFERENCE = re.compile(rf"(\$+)\{{({INDEX}|{GROUP_INDEX})\}}")


def _with_indexes(value: Any, indexes: Indexes, path: DocumentPath) -> Any:
    """Return a value with its index references replaced, including those in keys.

    ``path`` leads to the value in the description of its process or group.
    """
    if isinstance(value, Mapping):
        return {
            _replace_in_text(key, indexes): _with_indexes(item, indexes, (*path, key))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_with_indexes(item, indexes, (*path, number)) for number, item in enumerate(value)]
    text = _replace_in_text(value, indexes)
    if text == value:
        return value
    whole_value = _REFERENCE.fullmatch(value)
    if whole_value is not None and whole_value[1] == "$":
        return value_of_text(text)
    return value_of_composed_text(text) if can_be_composed_number(path) else text


def _replace_in_text(value: Any, indexes: Indexes) -> Any:
    if not isinstance(value, str) or "${" not in value:
        return value
    return _REFERENCE.sub(lambda match: _replacement(match, indexes), value)


def _replacement(match: re.Match[str], indexes: Indexes) -> str:
    dollars, name = match.groups()
    if name not in indexes:
        return match[0]
    # Two dollar signs stand for one literal dollar sign, so an even number of dollar signs never
    # begins a reference.
    escaped_dollars = "$" * (len(dollars) // 2)
    if len(dollars) % 2 == 0:
        return f"{escaped_dollars}{{{name}}}"
    return f"{escaped_dollars}{indexes[name]}"
