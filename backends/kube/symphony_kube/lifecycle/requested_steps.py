"""Determine the next steps of the requests of users by `symphony.plan.decide`.

Nothing is decided about the end of the experiment, and nothing is created that has not existed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from symphony.plan.actions import Kill, Start, Stop
from symphony.plan.decide import decide
from symphony.plan.state import Request, apply
from symphony_kube.lifecycle.supervisor.facts import Cache, describe
from symphony_kube.lifecycle.supervisor.wishes import make_wish
from symphony_kube.render.roster import Roster
from symphony_kube.state.observe import Observation
from symphony_kube.state.pod_status import NOT_CREATED


class Steps(NamedTuple):
    """The units with which requests continue now.

    ``starts`` contains those whose next attempt can be created. ``stops`` maps those that are
    stopped to the times at which they are killed, in seconds since the epoch, or to infinity if
    their nodes do this. ``kills`` contains those that are killed now. ``wake_at`` is the time at
    which more can follow, or None.
    """

    starts: Collection[str]
    stops: Mapping[str, float]
    kills: Collection[str]
    wake_at: float | None


_NO_STEPS = Steps((), {}, (), None)


class RequestedSteps:
    """Determines the next steps of the requests in an experiment with the units ``roster``."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._wish = make_wish(roster)
        self._cache: Cache = {}

    def find(self, observation: Observation, now: float, request: Request | None = None) -> Steps:
        """Return the next steps of all recorded requests, and of ``request``, which is not recorded
        yet, or not in all units.

        If a command was not recorded in all of its units, because the client was killed, no unit
        is started again until the command is repeated.
        """
        statuses = observation.unit_statuses
        waiting = {name for name, status in statuses.items() if status.waits_for_start}
        is_restarting = any(status.control.start for status in statuses.values())
        if request is None and not waiting and not is_restarting:
            return _NO_STEPS
        state, facts = describe(self._roster, observation, now=now, cache=self._cache)
        if request is not None:
            number = len(state.requests) + 1
            apply(state, _requested(request, number, now))
        decision = decide(self._wish, state, facts, now)
        unit_of = {name: unit.name for unit in self._roster for name in unit.processes}
        starts: dict[str, None] = {}
        stops: dict[str, float] = {}
        kills: dict[str, None] = {}
        for action in decision.actions:
            if isinstance(action, Start) and unit_of[action.process] in waiting:
                starts[unit_of[action.process]] = None
            elif isinstance(action, Stop):
                unit = unit_of[action.process]
                stops[unit] = min(action.kill_at, stops.get(unit, action.kill_at))
            elif isinstance(action, Kill):
                stops[unit_of[action.process]] = now
                kills[unit_of[action.process]] = None
        return Steps(starts, stops, kills, decision.wake_at)


def stopped_now(
    roster: Roster, observation: Observation, units: Collection[str], now: float
) -> list[str]:
    """Return which of ``units`` are stopped first if all of them are stopped.

    The others are stopped when these have ended. ``roster`` is that with which they were started.
    """
    wanted = set(units)
    names = [name for unit in roster if unit.name in wanted for name in unit.processes]
    missing = {name: NOT_CREATED for unit in roster for name in unit.processes}
    known = replace(observation, containers={**missing, **observation.containers})
    steps = RequestedSteps(roster).find(known, now, Request("stop", names))
    return [name for name in steps.stops if name in wanted]


def _requested(request: Request, number: int, now: float) -> dict[str, object]:
    return {
        "event": "requested",
        "at": now,
        "number": number,
        "request": request.kind,
        "names": request.names,
        "grace": request.grace,
    }
