"""Selecting processes by names, groups, replicated names and patterns.

The same rules apply to the processes of a description and to those of a launched experiment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Protocol

from symphony.errors import NotFound, shown
from symphony.support.names import did_you_mean, join_names


class Selectable(Protocol):
    """A process of a description or of a launched experiment."""

    @property
    def name(self) -> str:
        """The name of the process."""

    @property
    def group(self) -> str | None:
        """The name of the group, or None."""

    @property
    def path(self) -> str:
        """The path: ``group/process``, or ``process``."""


class NameIndex:
    """The processes that names select. To look up a name takes the same time in an experiment of
    any size, except for a pattern.
    """

    def __init__(self, processes: Sequence[Selectable]) -> None:
        self._processes = processes
        self._named: dict[str, list[str]] = {}
        self._members: dict[str, list[str]] = {}
        self._copies: dict[str, list[str]] = {}
        self._copies_of_groups: dict[str, list[str]] = {}
        for process in processes:
            name, group = process.name, process.group
            forms = dict.fromkeys((name, process.path))
            for form in forms:
                self._named.setdefault(form, []).append(name)
            for origin in dict.fromkeys(each for form in forms for each in _origins(form)):
                self._copies.setdefault(origin, []).append(name)
            if group is not None:
                self._members.setdefault(group, []).append(name)
                for origin in _origins(group):
                    self._copies_of_groups.setdefault(origin, []).append(name)

    def matching(self, name: str) -> list[str]:
        """Return the names of the processes that one name selects, if there are any."""
        for index in (self._named, self._members, self._copies, self._copies_of_groups):
            if name in index:
                return index[name]
        if not is_pattern(name):
            return []
        return [
            process.name
            for process in self._processes
            if fnmatchcase(process.name, name) or fnmatchcase(process.path, name)
        ]


def _origins(name: str) -> Iterator[str]:
    """Yield the names of which ``name`` can be a copy, such as ``a-0`` and ``a`` for ``a-0-1``."""
    origin, hyphen, number = name.rpartition("-")
    while hyphen and number.isascii() and number.isdigit():
        yield origin
        origin, hyphen, number = origin.rpartition("-")


def select_names(
    experiment: str, processes: Sequence[Selectable], names: Iterable[str]
) -> set[str]:
    """Return the names of the processes that ``names`` select.

    Each of ``names`` is a process, ``group/process``, a group, or a process or group with a count,
    such as ``agent`` for ``agent-0`` and ``agent-1``. It can also be a pattern, such as
    ``agent-*``. Raises `NotFound` if a name selects no process. ``experiment`` is the name of the
    experiment for this error.
    """
    index = NameIndex(processes)
    selected: set[str] = set()
    for name in names:
        found = index.matching(name)
        if not found:
            raise nothing_selected(experiment, processes, name)
        selected.update(found)
    return selected


def matching_names(processes: Sequence[Selectable], name: str) -> list[str]:
    """Return the names of the processes that one name selects, if there are any."""
    return NameIndex(processes).matching(name)


def is_pattern(name: str) -> bool:
    """Return whether ``name`` is a pattern, such as ``agent-*``."""
    return any(char in name for char in "*?[")


def nothing_selected(experiment: str, processes: Sequence[Selectable], name: str) -> NotFound:
    """Return the error for a name that selects no process."""
    names = [process.name for process in processes]
    groups = {process.group for process in processes if process.group is not None}
    known = [*names, *sorted(groups), *(process.path for process in processes if process.group)]
    if is_pattern(name):
        problem = f"no process of experiment {experiment!r} matches {shown(name)}"
        return NotFound(f"{problem}; its processes are {join_names(names)}")
    hint = did_you_mean(name, known) or f"; its processes are {join_names(names)}"
    return NotFound(f"experiment {experiment!r} has no process or group {shown(name)}{hint}")


def names_beginning_with(text: str, known: Iterable[str]) -> list[str]:
    """Return the names that begin with ``text``. No name begins with an empty text."""
    return [name for name in known if text and name.startswith(text)]
