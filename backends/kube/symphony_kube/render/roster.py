"""Who belongs to an experiment, as written on its first Pod: so one list of Pods tells of those still to come. Pure."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A Pod or a Job to be: a lone process, or a group with its members.

    ``starts_after`` has, by process, the condition to wait for. ``ready`` has, by process, how long it may take to
    become ready, in seconds, for those that have a test; ``logs`` the regular expression of those whose log tells.
    ``connects`` has, by process, the services it connects to, and ``serves``, by member of a group, those that it
    serves itself: of all others a Service tells.
    """

    name: str
    group: bool = False
    processes: tuple[str, ...]
    job: bool = False
    restart: str = "Never"
    starts_after: dict[str, str] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    connects: dict[str, list[str]] = field(default_factory=dict)
    serves: dict[str, list[str]] = field(default_factory=dict)


Roster = tuple[Unit, ...]


def encode(roster: Roster) -> str:
    """The roster as the text of an annotation: ten thousand processes stay far below what one may hold (256 KiB)."""
    units = [{key: value for key, value in asdict(unit).items() if value} for unit in roster]
    data = json.dumps(units, separators=(",", ":"), sort_keys=True).encode()
    return base64.b64encode(zlib.compress(data, 6)).decode()


def decode(text: str) -> Roster:
    """The roster that `encode` wrote. Raises ValueError for what is none."""
    try:
        units: list[Mapping[str, Any]] = json.loads(
            zlib.decompress(base64.b64decode(text, validate=True))
        )
        return tuple(Unit(**{**unit, "processes": tuple(unit["processes"])}) for unit in units)
    except (zlib.error, TypeError, KeyError) as exc:
        raise ValueError(f"not a roster: {exc}") from exc
