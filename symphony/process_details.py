"""Details about a process that its status does not contain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from symphony.status import ProcessStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEvent:
    """An event in the lifetime of a process.

    ``at`` is the time in seconds since the epoch, or None if the time is unknown. ``text`` is one
    line.
    """

    at: float | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDetails:
    """The status of a process, together with its settings, its addresses and its events.

    ``facts`` maps the names of properties, such as ``command``, ``image`` and ``node``, to text.
    ``resources`` contains the requests and limits. ``addresses`` maps each service to the address
    (``host:port``) at which the process reaches the service. ``events`` are sorted from the oldest
    to the newest.
    """

    status: ProcessStatus
    facts: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)
    events: tuple[ProcessEvent, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the details and the fields of the status as a dictionary for JSON."""
        return {
            **self.status.to_dict(),
            "facts": dict(self.facts),
            "resources": dict(self.resources),
            "addresses": dict(self.addresses),
            "events": [asdict(event) for event in self.events],
        }
