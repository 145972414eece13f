"""What is known of one process, beyond how it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from symphony.status import ProcessStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEvent:
    """Something that happened to a process: when, in seconds since the epoch (None: unknown), and what, in a line."""

    at: float | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDetails:
    """All that matters about one process.

    ``facts`` are what it is and where it runs, in words (``command``, ``image``, ``node``), ``resources`` what it
    asks for and may use at most, ``addresses`` where it reaches each service (``host:port``), ``events`` what
    happened to it, oldest first.
    """

    status: ProcessStatus
    facts: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)
    events: tuple[ProcessEvent, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The details as JSON knows them: what the status has, and the others beside it."""
        return {
            **self.status.to_dict(),
            "facts": dict(self.facts),
            "resources": dict(self.resources),
            "addresses": dict(self.addresses),
            "events": [asdict(event) for event in self.events],
        }
