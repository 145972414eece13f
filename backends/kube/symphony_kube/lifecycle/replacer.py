"""Create the next attempts of units when they can start."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from symphony_kube.lifecycle import attempts
from symphony_kube.lifecycle.create import in_parallel
from symphony_kube.lifecycle.supervisor.decisions import find_startable
from symphony_kube.render.roster import Roster
from symphony_kube.state.observe import Observation

if TYPE_CHECKING:
    from symphony_kube.api.client import Api
    from symphony_kube.api.labels import Scope


class Replacer:
    """Creates the next attempts of units. Each object of this class creates an attempt once."""

    def __init__(self, api: Api, scope: Scope) -> None:
        self._api = api
        self._scope = scope
        self._replaced: set[tuple[str, int]] = set()

    def replace(
        self,
        roster: Roster,
        observation: Observation,
        *,
        now: float,
        round: int = 0,
        begun: Iterable[str] = (),
    ) -> float | None:
        """Replace the attempts whose next attempt can start at the time ``now``.

        ``begun`` contains the units in which the creation of the next attempt has begun, but the
        client or supervisor may have been killed. It is completed. Return the time of the next
        start that is already known, or None.
        """
        times = []
        names = [
            name
            for name in begun
            if (name, observation.unit_statuses[name].attempt.number) not in self._replaced
        ]
        for name in find_startable(roster, observation):
            unit = observation.unit_statuses[name]
            if (name, unit.attempt.number) in self._replaced:
                continue
            if unit.control.start > now:
                times.append(unit.control.start)
            else:
                names.append(name)
        deadline = observation.status.deadline

        def replace_one(name: str) -> None:
            unit = observation.unit_statuses[name]
            attempts.replace_attempt(self._api, self._scope, unit, deadline=deadline, round=round)

        in_parallel(replace_one, names, threads=self._api.connections)
        self._replaced.update(
            (name, observation.unit_statuses[name].attempt.number) for name in names
        )
        return min(times, default=None)
