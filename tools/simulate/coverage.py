"""What a run of histories should contain, so that a gap shows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from simulate.promises import PROMISES

ACTIONS = (
    "Start",
    "Stop",
    "Kill",
    "Clear",
    "Reserve",
    "Remove",
    "Release",
    "Sweep",
    "Answer",
    "Finish",
)
EVENTS = (
    "launched",
    "supervisor-replaced",
    "requested",
    "request-done",
    "waiting",
    "started",
    "start-failed",
    "ready",
    "not-ready",
    "tested",
    "unhealthy",
    "background",
    "exited",
    "never",
    "terminating",
    "start-requested",
    "signaled",
    "stopping",
    "ending",
    "restarting",
    "restarted",
    "changed",
    "finished",
)


@dataclass(slots=True)
class Counts:
    """What histories contain: ``actions`` counts the executed actions by their kind, ``events`` the
    recorded events, and ``promises`` how often each promise was checked.
    """

    actions: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    promises: Counter[str] = field(default_factory=Counter)


__all__ = ["ACTIONS", "EVENTS", "PROMISES", "Counts"]
