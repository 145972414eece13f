"""Decide what a supervisor requests for the ranks of a unit. Pure.

What happens to a unit follows from the states of its ranks; see `symphony.plan.unit_decision`. The
supervisor records a restart in one rank first, together with the names of the others. Therefore, a
supervisor that replaces a killed one completes the restart, and no rank starts before all have been
stopped.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from symphony.plan.disruption import StartAgain
from symphony.plan.unit_decision import FAIL_UNIT, UnitDecision, decide_unit
from symphony.status import ReasonCode, State
from symphony_kube.lifecycle.supervisor.lost_units import decide_loss_of_ranks
from symphony_kube.render.roster import Roster, Unit, units_of_ranks
from symphony_kube.state.control_state import FIRST_ATTEMPT, Attempt
from symphony_kube.state.observe import Observation
from symphony_kube.state.pod_status import ContainerStatus
from symphony_kube.state.unit_status import UnitStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitAction:
    """The requests for the ranks of a unit.

    ``ranks`` are the ranks to stop. If ``start`` is not 0.0, they start again at this time, in
    seconds since the epoch, as the restart number ``in_row`` in a row. Otherwise, they have failed.
    ``code`` and ``reason`` describe the reason. If ``is_new`` is true, the first rank records the
    names of the others. ``never_start`` contains the ranks of a failed unit that have not been
    created.
    """

    ranks: tuple[str, ...] = ()
    never_start: tuple[str, ...] = ()
    reason: str
    code: ReasonCode = ReasonCode.BACKING_OFF
    start: float = 0.0
    in_row: int = 0
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class _Rank:
    """The state of a rank, for `decide_unit`."""

    state: State
    stopped: bool
    next_start: float | None
    ended: float | None
    failures_in_row: int
    exit_code: int | None
    reason: str
    reason_code: ReasonCode | None = None


# The reasons for which the supervisor itself restarts a unit of ranks.
RESTART_CODES = (
    ReasonCode.BACKING_OFF.value,
    ReasonCode.UNSCHEDULABLE.value,
    ReasonCode.DISRUPTED.value,
)


def decide_units(
    roster: Roster, observation: Observation, now: float, excluded: Collection[str] = ()
) -> tuple[UnitAction, ...]:
    """Return the requests for all units of ranks. ``now`` is in seconds since the epoch.

    The Pods of ranks in ``excluded`` are not created again after they were deleted.
    """
    actions = []
    for ranks in units_of_ranks(roster).values():
        action = _decide(ranks, observation, now, excluded)
        if action is not None:
            actions.append(action)
    return tuple(actions)


def find_deleted_ranks(roster: Roster, observation: Observation) -> set[str]:
    """Return the ranks without a Pod whose unit has started again since they were deleted.

    Their Pods are to be created again.
    """
    deleted: set[str] = set()
    for ranks in units_of_ranks(roster).values():
        deleted.update(_deleted_ranks(ranks, _statuses(ranks, observation)))
    return deleted


def attempt_of_other_ranks(
    name: str, roster: Roster, statuses: Mapping[str, UnitStatus]
) -> Attempt | None:
    """Return the latest attempt of the unit to which a rank belongs.

    Return None if the process is not a rank, or if no rank of the unit has a Pod.
    """
    for ranks in units_of_ranks(roster).values():
        names = [rank.name for rank in ranks]
        if name in names:
            return _latest_attempt({key: statuses[key] for key in names if key in statuses})
    return None


def seconds_to_release(roster: Roster, observation: Observation, now: float) -> float | None:
    """Return the time until the first unit is released whose ranks are not all scheduled, or None
    if there is no such unit.
    """
    times = []
    for ranks in units_of_ranks(roster).values():
        due = _release_time(ranks, _statuses(ranks, observation))
        if due is not None:
            times.append(max(0.0, due - now))
    return min(times, default=None)


def is_unit_stopping(ranks: Iterable[Unit], observation: Observation) -> bool:
    """Return whether ranks of a unit are still running that are to be started again, or whether
    this was not yet requested for all of them.
    """
    for name, status in _statuses(ranks, observation).items():
        is_requested = bool(status.control.stop or status.control.start)
        if name in observation.unfinished or (is_requested and not status.has_ended):
            return True
    return False


def can_create_ranks(ranks: Iterable[Unit], observation: Observation) -> bool:
    """Return whether ranks of a unit can be created that do not exist yet.

    They cannot if a user has stopped ranks of the unit, or if ranks are to be started again. They
    belong to the attempt of the other ranks, which must be known.
    """
    for status in _statuses(ranks, observation).values():
        if status.waits_for_start or status.control.replaced or _is_stopped_by_user(status):
            return False
    return not is_unit_stopping(ranks, observation)


def _statuses(ranks: Iterable[Unit], observation: Observation) -> dict[str, UnitStatus]:
    statuses = observation.unit_statuses
    return {rank.name: statuses[rank.name] for rank in ranks if rank.name in statuses}


def _latest_attempt(statuses: Mapping[str, UnitStatus]) -> Attempt | None:
    attempts = [status.attempt for status in statuses.values() if status.exists]
    return max(attempts, key=lambda attempt: attempt.number, default=None)


def _deleted_ranks(ranks: Iterable[Unit], statuses: Mapping[str, UnitStatus]) -> Iterator[str]:
    """Yield the ranks of a unit that `find_deleted_ranks` returns."""
    latest = _latest_attempt(statuses)
    if latest is None:
        return
    for rank in ranks:
        status = statuses.get(rank.name)
        if status is not None and status.exists:
            continue
        # A supervisor that has not observed the deletion does not know the attempt.
        known = FIRST_ATTEMPT if status is None else status.attempt
        if known.number < latest.number:
            yield rank.name


def _is_stopped_by_user(status: UnitStatus) -> bool:
    control = status.control
    has_failed = control.code == ReasonCode.UNIT_FAILED.value
    return bool(control.stop) and not control.start and not has_failed


def _is_restarting(status: UnitStatus, container: ContainerStatus) -> bool:
    is_requested = bool(status.control.start or status.control.replaced)
    return is_requested and container.state is not State.UNKNOWN


def _decide(
    ranks: list[Unit], observation: Observation, now: float, excluded: Collection[str]
) -> UnitAction | None:
    statuses, containers = _statuses(ranks, observation), observation.containers
    for status in statuses.values():
        action = _continue_restart(status, statuses)
        if action is not None:
            return action
    for name, status in statuses.items():
        if _is_stopped_by_user(status) or _is_restarting(status, containers[name]):
            return None
    lost = decide_loss_of_ranks(ranks, observation, _latest_attempt(statuses), excluded)
    if lost is not None:
        return _start_again(lost, statuses, now)
    created_again = set(_deleted_ranks(ranks, statuses)).difference(excluded)
    existing = [name for name, status in statuses.items() if status.exists]
    decision = decide_unit(
        {
            rank.name: _rank(
                containers[rank.name],
                statuses.get(rank.name),
                is_lost=rank.name in excluded and rank.name not in existing,
            )
            for rank in ranks
            if rank.name not in created_again
        }
    )
    if decision is None:
        return _release(ranks, statuses, observation.status.name, now)
    if decision.action == FAIL_UNIT:
        return _failure(decision, ranks, statuses, containers)
    existing.sort(key=lambda name: name != decision.rank)
    return UnitAction(
        ranks=tuple(existing),
        reason=decision.reason,
        start=decision.next_start,
        in_row=decision.in_row,
        is_new=True,
    )


def _start_again(
    lost: StartAgain, statuses: Mapping[str, UnitStatus], now: float
) -> UnitAction | None:
    """Return the requests for the ranks that have Pods, or None if none has one any more."""
    existing = tuple(name for name, status in statuses.items() if status.exists)
    if not existing:
        return None
    return UnitAction(
        ranks=existing, reason=lost.reason, code=ReasonCode.DISRUPTED, start=now, is_new=True
    )


def _continue_restart(status: UnitStatus, statuses: Mapping[str, UnitStatus]) -> UnitAction | None:
    """Return the requests that a killed supervisor has not recorded in all ranks."""
    control = status.control
    if control.code not in RESTART_CODES or not control.start:
        return None
    missed = []
    for name, number in control.attempts_of_others().items():
        other = statuses.get(name)
        if other is not None and not other.is_requested_by(control.command, number):
            missed.append(name)
    if not missed:
        return None
    return UnitAction(
        ranks=tuple(missed),
        reason=control.reason,
        code=ReasonCode(control.code),
        start=control.start,
        in_row=control.in_row,
    )


def _failure(
    decision: UnitDecision,
    ranks: Iterable[Unit],
    statuses: Mapping[str, UnitStatus],
    containers: Mapping[str, ContainerStatus],
) -> UnitAction | None:
    """Return the requests for the other ranks of a failed unit, or None if all have ended."""
    running = tuple(_running(statuses))
    never_start = tuple(
        rank.name
        for rank in ranks
        if rank.name not in statuses and containers[rank.name].state is State.PENDING
    )
    if not running and not never_start:
        return None
    return UnitAction(
        ranks=running,
        never_start=never_start,
        reason=decision.reason,
        code=ReasonCode.UNIT_FAILED,
    )


def _running(statuses: Mapping[str, UnitStatus]) -> Iterator[str]:
    for name, status in statuses.items():
        can_run = not status.has_ended or status.retry is not None
        if can_run and not status.control.stop and not status.control.replaced:
            yield name


# --- ranks that are not all scheduled ---


def _release_time(ranks: list[Unit], statuses: Mapping[str, UnitStatus]) -> float | None:
    """Return the time at which a unit is released if some of its ranks are still not scheduled.

    Return None if all ranks or no ranks are scheduled, or if the unit is never released.
    """
    within = ranks[0].within
    scheduled = [name for name, status in statuses.items() if _is_scheduled(status)]
    if not within or not 0 < len(scheduled) < len(ranks):
        return None
    if any(status.control.stop or status.control.replaced for status in statuses.values()):
        return None
    created = [pod.created for status in statuses.values() for pod in status.pods]
    return max(created) + within


def _is_scheduled(status: UnitStatus) -> bool:
    return any(pod.node for pod in status.pods)


def _release(
    ranks: list[Unit], statuses: Mapping[str, UnitStatus], experiment: str, now: float
) -> UnitAction | None:
    """Return the requests that release a unit whose ranks have not all been scheduled in time.

    Several units that wait for each other try again at different times.
    """
    due = _release_time(ranks, statuses)
    if due is None or now < due:
        return None
    existing = {name: status for name, status in statuses.items() if status.exists}
    waiting = [name for name, status in existing.items() if not _is_scheduled(status)]
    others = [name for name in existing if name not in waiting]
    within, count = ranks[0].within, len(others)
    attempt = statuses[others[0]].attempt.number
    identity = f"{experiment}/{ranks[0].rank_of}/{attempt}"
    fraction = zlib.crc32(identity.encode()) / 2**32
    return UnitAction(
        ranks=(*waiting, *others),
        reason=f"only {count} of {len(ranks)} ranks could be scheduled within {within:g} s",
        code=ReasonCode.UNSCHEDULABLE,
        start=now + within * (1 + fraction) / 2,
        is_new=True,
    )


def _rank(container: ContainerStatus, status: UnitStatus | None, *, is_lost: bool) -> _Rank:
    """Return the state of a rank. ``is_lost`` is true if its Pod is not created again."""
    retry = None if status is None else status.retry
    next_start, in_row = (None, 0) if retry is None else (retry.time, retry.in_row)
    is_lost = is_lost and status is not None and status.disruption is not None
    return _Rank(
        state=State.UNKNOWN if is_lost else container.state,
        stopped=container.stopped,
        next_start=next_start,
        ended=container.ended,
        failures_in_row=in_row,
        exit_code=container.exit_code,
        reason=container.reason,
    )
