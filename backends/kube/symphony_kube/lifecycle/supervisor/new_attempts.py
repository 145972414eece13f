"""The attempts of units that have no Pod: what they continue, and why they start. Pure.

The Pod of a unit that a disruption has ended can be gone. The next attempt is then created from the
description of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from symphony.plan.decide import Decision
from symphony.status import ReasonCode
from symphony_kube.render.roster import Roster, units_of_ranks
from symphony_kube.state.control_state import FIRST_ATTEMPT, Attempt
from symphony_kube.state.missing_units import LOST_POD
from symphony_kube.state.observe import Observation


def find_losses(decision: Decision, roster: Roster) -> dict[str, str]:
    """Return the units that start again after disruptions according to a decision, with the
    reasons.
    """
    unit_of = {name: unit.name for unit in roster for name in unit.processes}
    gangs = units_of_ranks(roster)
    losses = {}
    for event in decision.events:
        if event["event"] == "exited" and event.get("reason_code") is ReasonCode.DISRUPTED:
            losses[unit_of[event["process"]]] = event["cause"]
    for gang, unit_decision in decision.units.items():
        if unit_decision.reason_code is ReasonCode.DISRUPTED:
            losses.update((rank.name, unit_decision.reason) for rank in gangs[gang])
    return losses


def attempt_of_new(
    name: str, roster: Roster, observation: Observation, losses: Mapping[str, str]
) -> Attempt:
    """Return the attempt of a unit without a Pod.

    A rank joins the attempt of the other ranks that have Pods. If there are none, all ranks begin
    the same new attempt. A disruption does not count as a restart.
    """
    names = [name]
    for ranks in units_of_ranks(roster).values():
        members = [rank.name for rank in ranks]
        if name in members:
            names = members
    known = [observation.unit_statuses.get(each) for each in names]
    statuses = [status for status in known if status is not None]
    present = [status.attempt for status in statuses if status.exists]
    if present:
        return max(present, key=lambda attempt: attempt.number)
    reason = losses.get(name, "")
    if not statuses:
        return replace(FIRST_ATTEMPT, lost=reason)
    last = max((status.attempt for status in statuses), key=lambda attempt: attempt.number)
    restarts = max(status.restarts for status in statuses)
    return replace(last, number=last.number + 1, restarts=restarts, lost=reason or LOST_POD)
