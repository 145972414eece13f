"""What a run of histories should contain, so that a gap shows."""

from __future__ import annotations

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

__all__ = ["ACTIONS", "EVENTS", "PROMISES"]
