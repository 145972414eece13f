"""Find the units that a disruption has ended, and that the supervisor starts again. Pure.

What follows a disruption is decided in `symphony.plan.disruption`. This module tells apart how it
is carried out: the Pod of an eviction can remain, and then records the request for the next
attempt. If the Pod is gone, the next attempt is created at once, from the description of the run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from symphony.plan.disruption import (
    Disrupted,
    Disruption,
    StartAgain,
    decide_disruption,
    lost_text,
)
from symphony.status import ReasonCode
from symphony_kube.render.roster import Roster, Unit, units_of_ranks
from symphony_kube.state.control_state import FIRST_ATTEMPT, Attempt
from symphony_kube.state.observe import LOST_POD, Observation
from symphony_kube.state.unit_status import POD_REMOVED, UnitStatus, policy_of


def decide_loss_of_ranks(
    ranks: Iterable[Unit],
    observation: Observation,
    latest: Attempt | None,
    excluded: Collection[str],
) -> StartAgain | None:
    """Return what follows if ranks of a unit were lost, or None if none was.

    ``latest`` is the latest attempt of the ranks that have Pods. A rank that was lost in an earlier
    attempt belongs to a unit that has already been started again. Ranks in ``excluded`` cannot be
    created again.
    """
    members = {}
    first = None
    for rank in ranks:
        first = first or rank
        status = observation.unit_statuses.get(rank.name)
        attempt = FIRST_ATTEMPT if status is None else status.attempt
        is_old = latest is not None and attempt.number < latest.number
        lost = None
        if not is_old and rank.name not in excluded:
            lost = _disruption_of(rank, observation)
        members[rank.name] = Disrupted(disruption=lost)
    return None if first is None else decide_disruption(policy_of(first), members)


def find_lost(roster: Roster, observation: Observation) -> set[str]:
    """Return all units that a disruption has ended."""
    return {unit.name for unit in roster if _disruption_of(unit, observation) is not None}


def find_requested(roster: Roster, observation: Observation) -> dict[str, str]:
    """Return the lost units whose Pods remain, with the reasons for their next attempts.

    Ranks are not included; see `decide_loss_of_ranks`.
    """
    found = {}
    for unit in roster:
        status = observation.unit_statuses.get(unit.name)
        if unit.rank_of or status is None or status.disruption is None or not status.exists:
            continue
        found[unit.name] = lost_text(status.disruption)
    return found


def find_created(roster: Roster, observation: Observation) -> set[str]:
    """Return the lost units whose Pods are gone, so that their next attempts are created.

    If a rank has a Pod, the other ranks of its unit are stopped first.
    """
    found = {unit.name for unit in roster if not unit.rank_of and _is_gone(unit, observation)}
    for ranks in units_of_ranks(roster).values():
        statuses = [observation.unit_statuses.get(rank.name) for rank in ranks]
        if any(status is not None and status.exists for status in statuses):
            continue
        if any(_is_gone(rank, observation) for rank in ranks):
            found.update(rank.name for rank in ranks)
    return found


def next_attempt_of_lost(name: str, roster: Roster, observation: Observation) -> Attempt | None:
    """Return the next attempt of a unit that `find_created` has found, or None for another unit.

    All ranks of a unit have the same attempt. A disruption does not count as a restart.
    """
    if name not in find_created(roster, observation):
        return None
    (units,) = [units for units in _started_together(roster) if any(u.name == name for u in units)]
    members = {unit.name: Disrupted(disruption=_disruption_of(unit, observation)) for unit in units}
    decision = decide_disruption(policy_of(units[0]), members)
    reason = LOST_POD if decision is None else decision.reason
    statuses = observation.unit_statuses
    known = [statuses[unit.name] for unit in units if unit.name in statuses]
    if not known:
        return replace(FIRST_ATTEMPT, lost=reason)
    last = max((status.attempt for status in known), key=lambda attempt: attempt.number)
    restarts = max(status.restarts for status in known)
    return replace(last, number=last.number + 1, restarts=restarts, lost=reason)


def find_ended(roster: Roster, statuses: Mapping[str, UnitStatus]) -> tuple[set[str], set[str]]:
    """Return the units that have ended by themselves, and those that run or will run.

    Only units that are started again after a disruption are considered. Without this knowledge, a
    later supervisor would start a unit again whose Pod is deleted after its end.
    """
    ended, others = set(), set()
    for unit in roster:
        status = statuses.get(unit.name)
        if not unit.replaced_if_lost or status is None:
            continue
        starts = status.retry or status.disruption or status.control.start
        if status.has_ended and not starts and not status.control.replaced:
            ended.add(unit.name)
        else:
            others.add(unit.name)
    return ended, others


def _started_together(roster: Roster) -> Iterator[list[Unit]]:
    """Yield each unit alone, and the ranks of a unit of ranks together."""
    yield from ([unit] for unit in roster if not unit.rank_of)
    yield from units_of_ranks(roster).values()


def _is_gone(unit: Unit, observation: Observation) -> bool:
    """Return whether a unit is lost and has no Pod any more."""
    status = observation.unit_statuses.get(unit.name)
    has_pod = status is not None and status.exists
    return not has_pod and _disruption_of(unit, observation) is not None


def _disruption_of(unit: Unit, observation: Observation) -> Disruption | None:
    """Return the disruption that has ended a unit, or None.

    The Pod of a unit that has no status was deleted while no supervisor observed it.
    """
    status = observation.unit_statuses.get(unit.name)
    if status is not None:
        return status.disruption
    causes = [observation.containers[process].cause for process in unit.processes]
    is_missing = unit.name in observation.missing_units
    is_lost = is_missing and any(cause.code is ReasonCode.DISRUPTED for cause in causes)
    return POD_REMOVED if is_lost else None
