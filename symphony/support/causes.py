"""Messages about many names, grouped by what is said about them. Pure.

A message about a thousand processes with the same problem names three of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from symphony.support.data_classes import dataclass, field
from symphony.support.names import join_names

MAX_NAMES = 3


@dataclass(slots=True, kw_only=True)
class Group:
    """The names with the same cause. The ``cause`` is that of the first one."""

    cause: str
    names: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return join_names(self.names, limit=MAX_NAMES)


def group_by_cause(causes: Iterable[tuple[str, str]]) -> list[Group]:
    """Group names by their causes, in the order in which the causes occur first.

    ``causes`` contains each name with its cause. Causes that differ only in the name itself count
    as the same.

    >>> [str(group) for group in group_by_cause((name, "it failed") for name in "abcde")]
    ['a, b, c and 2 more']
    """
    groups: dict[str, Group] = {}
    for name, cause in causes:
        group = groups.setdefault(renamed(cause, name, "\0"), Group(cause=cause))
        group.names.append(name)
    return list(groups.values())


def renamed(cause: str, name: str, new: str) -> str:
    """Return a cause in which ``new`` replaces each occurrence of the name as a word."""
    if not name:
        return cause
    return re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", lambda _: new, cause)
