"""The translation of a key of another program into settings of symphony."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

NOTHING = "nothing to do"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A part of a value that has no equivalent, and what the user can do instead.

    ``key`` is the key in the value that the note concerns, if it is only one.
    """

    problem: str
    fix: str = NOTHING
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """The settings of a process in an experiment file that have the meaning of a foreign key."""

    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()


class Untranslatable(Exception):
    """The value of a foreign key has an unexpected form."""


# Translates the value of a key. The second argument is the name of the process.
Translate = Callable[[Any, str], Translation]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKey:
    """A key of another program. ``example`` shows the corresponding key of symphony, if any."""

    translate: Translate
    example: str = ""
