"""Explain why units of an experiment have not been created, or do not exist any more. Pure."""

from __future__ import annotations

import graphlib
from collections.abc import Mapping
from dataclasses import dataclass

from symphony.plan.disruption import lost_text
from symphony.plan.policies import DEADLINE_EXCEEDED
from symphony.plan.start_order import START, verdict
from symphony.status import ReasonCode, State
from symphony_kube.api.errors import one_line
from symphony_kube.record.creation_problems import Problem
from symphony_kube.render.roster import Unit
from symphony_kube.state.observed_attempt import POD_DELETED, POD_REMOVED
from symphony_kube.state.pod_status import NOT_CREATED, ContainerStatus
from symphony_kube.state.reasons import Reason, exit_unknown
from symphony_kube.state.unit_status import policy_of

# If a unit can be created but has not appeared after this time, the launcher or the supervisor is
# assumed to have exited.
CREATOR_GONE_SECONDS = 60.0
# The reason for a waiting process includes the reason for the process that it waits for, so a chain
# of waiting processes can lead to a long reason.
MAX_CHAINED_REASON_CHARS = 300
# The reason of a process whose Pod was deleted without being observed, and is created again.
LOST_POD = lost_text(POD_REMOVED)
_LOST = Reason(LOST_POD, ReasonCode.DISRUPTED)
# The reason of a process that was stopped at the deadline of the experiment.
_AFTER_DEADLINE = Reason(DEADLINE_EXCEEDED, ReasonCode.DEADLINE_EXCEEDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingUnits:
    """The explanation of why units do not exist at the time ``now``, in seconds since the epoch.

    If ``supervising`` is true, the supervisor will still create them, apart from those in
    ``created``, which it has created earlier. ``ended`` contains those of them that had ended.
    ``is_launched`` is true if the launch is known to be complete, and ``is_ending`` if the
    experiment ends. ``problems`` contains the states of units that could not be created.
    ``last_created`` is the time at which the newest object was created, whose creator was running.
    """

    now: float
    supervising: bool
    created: frozenset[str]
    ended: frozenset[str]
    is_launched: bool
    is_ending: bool
    problems: Mapping[str, ContainerStatus]
    last_created: float

    def explain(self, missing: list[Unit], containers: dict[str, ContainerStatus]) -> list[float]:
        """Record in ``containers`` why each of the ``missing`` units has not been created.

        Return the times at which these reasons can change.
        """
        expiries = []
        for unit in _in_start_order(missing):
            container, expiry = self._not_created(unit, containers)
            containers.update(dict.fromkeys(unit.processes, container))
            if expiry is not None:
                expiries.append(expiry)
        return expiries

    def _not_created(
        self, unit: Unit, containers: Mapping[str, ContainerStatus]
    ) -> tuple[ContainerStatus, float | None]:
        """Return the state of a unit that has not been created, and the time at which it expires.

        The time is None if the state does not expire.
        """
        problem = self.problems.get(unit.name)
        if unit.name in self.created or self._was_created_by_launch(unit):
            return self._deleted_unseen(unit, problem), None
        if problem is not None:
            return problem, None
        conditions = {
            process: condition
            for process, condition in unit.starts_after.items()
            if process in containers
        }
        decision = verdict(conditions, containers)
        if decision.word == "never":
            text = one_line(decision.reason, limit=MAX_CHAINED_REASON_CHARS)
            cause = Reason(text, ReasonCode.NEVER_STARTED)
            # The API server can stop a process at the deadline before the supervisor has decided to
            # end the experiment. The processes that wait for it have missed the deadline, too.
            if any(containers[process].cause == _AFTER_DEADLINE for process in conditions):
                cause = _AFTER_DEADLINE
            return ContainerStatus(state=State.FAILED, cause=cause), None
        if decision is not START:
            cause = Reason(decision.reason, ReasonCode.WAITING)
            return ContainerStatus(cause=cause), None
        if self.supervising:
            return NOT_CREATED, None
        return self._not_created_yet(unit, conditions, containers)

    def _not_created_yet(
        self,
        unit: Unit,
        conditions: Mapping[str, str],
        containers: Mapping[str, ContainerStatus],
    ) -> tuple[ContainerStatus, float | None]:
        """Return the state of a unit whose ``conditions`` are met, and the time at which it
        expires.
        """
        may_start_since = self.last_created
        for process, condition in conditions.items():
            met_since = _met_since(condition, containers[process], self.now)
            may_start_since = max(may_start_since, met_since)
        expiry = may_start_since + CREATOR_GONE_SECONDS
        if self.now < expiry:
            if self.is_launched and not unit.starts_after:
                # The launch has created the rank, and a supervisor can create it again.
                return ContainerStatus(cause=_LOST), expiry
            return NOT_CREATED, expiry
        if conditions:
            text = "never started: the supervisor of the experiment is not running"
            cause = Reason(text, ReasonCode.NEVER_STARTED)
        else:
            cause = exit_unknown(
                "its Pod does not exist: it was deleted, or the launcher exited too early"
            )
        return ContainerStatus(state=State.UNKNOWN, cause=cause), None

    def _deleted_unseen(self, unit: Unit, problem: ContainerStatus | None) -> ContainerStatus:
        """Return the state of a unit that was created, and whose Pod was deleted without being
        observed.

        Only the supervisor knows whether the processes of the unit had ended before. ``problem`` is
        the reason why the supervisor cannot create the Pod again, or None.
        """
        is_unfinished = policy_of(unit).policy == "Always"
        if self.supervising:
            is_unfinished = unit.name not in self.ended
        if not unit.replaced_if_lost or not is_unfinished or self.is_ending:
            return ContainerStatus(state=State.UNKNOWN, cause=POD_DELETED)
        return problem or ContainerStatus(cause=_LOST)

    def _was_created_by_launch(self, unit: Unit) -> bool:
        """Return whether the launch, which is complete, has created a unit without conditions.

        The supervisor can still create a unit again that it restarts.
        """
        if not self.is_launched:
            return False
        restarts = unit.supervised_restart or (unit.rank_of and unit.replaced_if_lost)
        return not (unit.starts_after or restarts)


def with_problem(problem: Problem) -> ContainerStatus:
    """Return the state of the processes of a unit that could not be created."""
    if problem.permanent:
        text = one_line(f"never started: {problem.text}", limit=MAX_CHAINED_REASON_CHARS)
        return ContainerStatus(
            state=State.FAILED, cause=Reason(text, ReasonCode.NEVER_STARTED), ended=problem.time
        )
    text = one_line(problem.text, limit=MAX_CHAINED_REASON_CHARS)
    return ContainerStatus(cause=Reason(text, ReasonCode.NOT_PERMITTED))


def _met_since(condition: str, container: ContainerStatus, now: float) -> float:
    """Return when a start condition was met, or ``now`` if the time is unknown."""
    times = {
        "ready": container.ready_since,
        "started": container.started,
        "succeeded": container.ended,
    }
    return times[condition] or now


def _in_start_order(units: list[Unit]) -> list[Unit]:
    """Return the units in an order in which each unit follows the units that it waits for."""
    if not any(unit.starts_after for unit in units):
        return units
    owners = {process: unit.name for unit in units for process in unit.processes}
    graph = {}
    for unit in units:
        graph[unit.name] = {owners[name] for name in unit.starts_after if name in owners}
    by_name = {unit.name: unit for unit in units}
    try:
        return [by_name[name] for name in graphlib.TopologicalSorter(graph).static_order()]
    except graphlib.CycleError:  # `resolve` rejects cycles, so a user has edited the roster.
        return units
