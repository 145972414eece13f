"""Selecting processes by names, groups, replicated names and patterns.

The same rules apply to the processes of a description and to those of a launched experiment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Protocol

from symphony.errors import NotFound, shown
from symphony.names import did_you_mean, join_names


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


def select_names(
    experiment: str, processes: Sequence[Selectable], names: Iterable[str]
) -> set[str]:
    """Return the names of the processes that ``names`` select.

    Each of ``names`` is a process, ``group/process``, a group, or a process or group with a count,
    such as ``agent`` for ``agent-0`` and ``agent-1``. It can also be a pattern, such as
    ``agent-*``. Raises `NotFound` if a name selects no process. ``experiment`` is the name of the
    experiment for this error.
    """
    selected: set[str] = set()
    for name in names:
        found = matching_names(processes, name)
        if not found:
            raise nothing_selected(experiment, processes, name)
        selected.update(found)
    return selected


def matching_names(processes: Sequence[Selectable], name: str) -> list[str]:
    """Return the names of the processes that one name selects, if there are any."""
    copies = re.compile(rf"{re.escape(name)}(-[0-9]+)+")

    def is_copy(other: str | None) -> bool:
        return other is not None and copies.fullmatch(other) is not None

    tests: tuple[Callable[[Selectable], bool], ...] = (
        lambda process: name in (process.name, process.path),
        lambda process: name == process.group,
        lambda process: is_copy(process.name) or is_copy(process.path),
        lambda process: is_copy(process.group),
        lambda process: fnmatchcase(process.name, name) or fnmatchcase(process.path, name),
    )
    for test in tests:
        found = [process.name for process in processes if test(process)]
        if found:
            return found
    return []


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
