"""Details about a process that are not part of its status."""

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

    ``facts`` maps property names, such as ``command``, ``image`` and ``node``, to their values.
    ``resources`` contains the resource requests and limits. ``addresses`` maps the name of each
    service to the address (``host:port``) at which the process reaches it. ``events`` is sorted
    from oldest to newest.
    """

    status: ProcessStatus
    facts: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)
    events: tuple[ProcessEvent, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the details and the status fields as a dictionary that can be written as JSON."""
        return {
            **self.status.to_dict(),
            "facts": dict(self.facts),
            "resources": dict(self.resources),
            "addresses": dict(self.addresses),
            "events": [asdict(event) for event in self.events],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], status: ProcessStatus) -> ProcessDetails:
        """Return the details that `to_dict` has converted, with ``status`` as the status.

        Raises KeyError or TypeError if ``data`` is damaged.
        """
        return cls(
            status=status,
            facts=data["facts"],
            resources=data["resources"],
            addresses=data["addresses"],
            events=tuple(ProcessEvent(**event) for event in data["events"]),
        )
