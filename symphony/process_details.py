"""Details of one process in addition to its status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from symphony.status import ProcessStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEvent:
    """An event in the life of a process.

    ``at`` is the time in seconds since the epoch, or None if it is not known. ``text`` is one line.
    """

    at: float | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDetails:
    """The status of a process, with its settings, its addresses and its events.

    ``facts`` are its properties as text, such as ``command``, ``image`` and ``node``.
    ``resources`` are its requests and limits. ``addresses`` has the address (``host:port``) at
    which the process reaches each service. ``events`` are sorted by time, the oldest first.
    """

    status: ProcessStatus
    facts: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)
    events: tuple[ProcessEvent, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the details, and the fields of the status, as a dictionary for JSON."""
        return {
            **self.status.to_dict(),
            "facts": dict(self.facts),
            "resources": dict(self.resources),
            "addresses": dict(self.addresses),
            "events": [asdict(event) for event in self.events],
        }
