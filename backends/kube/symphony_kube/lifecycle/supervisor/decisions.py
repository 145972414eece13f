"""Decide what a supervisor does next. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from symphony.plan import start_order
from symphony_kube.render.roster import Roster
from symphony_kube.status.observe import Observation


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """What a supervisor does next.

    ``create`` contains the names of the units to create. ``finished`` is true if nothing is left to
    decide.
    """

    create: tuple[str, ...] = ()
    finished: bool = False


def decide(roster: Roster, observation: Observation, excluded: Collection[str] = ()) -> Decisions:
    """Decide which units to create.

    Units in ``excluded`` are not created. They have been created and deleted, or cannot be created.
    """
    create = []
    is_waiting = False
    for unit in roster:
        if unit.name not in observation.missing_units or unit.name in excluded:
            continue
        decision = start_order.verdict(unit.starts_after, observation.containers)
        if decision.word == "start":
            create.append(unit.name)
        elif decision.word == "wait":
            is_waiting = True
    return Decisions(create=tuple(create), finished=not create and not is_waiting)
