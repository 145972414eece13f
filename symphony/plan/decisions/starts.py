"""Decide which processes start now."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from symphony.plan import start_order
from symphony.plan.actions import Clear, Start
from symphony.plan.decisions.draft import Draft
from symphony.plan.decisions.executions import record_final
from symphony.plan.state import Track
from symphony.plan.unit_decision import FAIL_UNIT, UnitDecision
from symphony.status import ENDED, ReasonCode, State

# The reason of a process that waits until programs of its previous execution have exited.
WAITING_FOR_LEFTOVERS = "waiting for programs of its previous execution to exit"
STOPPED_WITH_UNIT = "stopped with its unit"


class Startable(Protocol):
    """A process whose start a user can request."""

    @property
    def state(self) -> State:
        """The current state of the process."""
        ...

    @property
    def waits_for_restart(self) -> bool:
        """True if the process starts again by itself after a delay."""
        ...


def record_obstacles(draft: Draft) -> None:
    """Record why processes cannot start now, or why they will never start."""
    waiting = draft.waiting()
    if not waiting:
        return
    held = held_by_requests(draft)
    for name in waiting:
        if name not in held and not draft.seen(name).starting:
            _record_obstacle(draft, name)


def _record_obstacle(draft: Draft, name: str) -> None:
    track, process = draft.state.tracks[name], draft.wish.processes[name]
    if not _waits_for_others(track) or draft.state.is_stopping_all:
        return
    if process.gang is not None and draft.is_stopped_unit(process.gang):
        if not draft.is_started_by_request(process.gang):
            # It had succeeded when a user stopped its unit, and the experiment was restarted later.
            draft.record("never", name, **draft.stop_details(STOPPED_WITH_UNIT))
        return
    unit = None if process.gang is None else draft.decide_unit(process.gang)
    if unit is not None and (unit.action == FAIL_UNIT or not _starts_anew(track)):
        return
    verdict = start_order.START
    if process.starts_after:
        verdict = start_order.verdict(process.starts_after, draft.state.tracks)
    if verdict.word == "never":
        code = ReasonCode.NEVER_STARTED
        record_final(draft, "never", name, reason=verdict.reason, reason_code=code)
    elif verdict.word == "wait":
        if verdict.reason != track.reason:
            draft.record("waiting", name, reason=verdict.reason)
    elif draft.seen(name).clearing and track.reason != WAITING_FOR_LEFTOVERS:
        code = ReasonCode.BACKING_OFF
        draft.record("waiting", name, reason=WAITING_FOR_LEFTOVERS, reason_code=code)


def held_by_requests(draft: Draft) -> set[str]:
    """Return the processes that only a request starts, when it has come so far."""
    held: set[str] = set()
    tracks = draft.state.tracks
    for request in draft.state.requests.values():
        if request.kind in ("restart", "change"):
            held.update(request.names)
        elif request.kind == "start":
            held.update(name for name in request.names if is_startable_by_user(tracks.get(name)))
    return held


def is_startable_by_user(process: Startable | None) -> bool:
    """Return whether a request to start a process has an effect on it."""
    if process is None or process.state is State.RUNNING:
        return False
    return process.state in ENDED or process.waits_for_restart


def start_actions(draft: Draft) -> list[Start | Clear]:
    """Return the actions for the processes that can start now."""
    if draft.state.is_stopping_all:
        return []
    actions: list[Start | Clear] = []
    held = held_by_requests(draft) if draft.state.requests else ()
    units: dict[str, UnitDecision | None] = {}
    for name in draft.waiting():
        if name in held:
            continue
        process = draft.wish.processes[name]
        if process.gang is None:
            _add_start(draft, name, draft.state.tracks[name], actions)
        elif process.gang not in units:
            units[process.gang] = draft.decide_unit(process.gang)
            _add_starts_of_unit(draft, process.gang, units[process.gang], held, actions)
    return actions


def _waits_for_others(track: Track) -> bool:
    """Return whether the start order determines when a process starts.

    Otherwise, it has started, or it is started again after a delay.
    """
    return track.state is State.PENDING and track.next_start is None


def _starts_anew(track: Track) -> bool:
    """Return whether the start order determines when a rank of a restarting unit starts.

    A user has started the rank, or it has never run. The unit itself starts the others again.
    """
    return _waits_for_others(track) and track.first_started is None


def _waits_for_disrupted(draft: Draft, name: str) -> bool:
    """Return whether a process that a disruption has taken away waits until others run again.

    The disruption can have taken away those that it starts after, too. It does not wait for others,
    and not for those that cannot start or are not ready in time, because it has run before.
    """
    tracks = draft.state.tracks
    for other, condition in draft.wish.processes[name].starts_after.items():
        track = tracks[other]
        if start_order.verdict({other: condition}, tracks).word != "wait" or track.stopped:
            continue
        is_starting = track.state is State.PENDING and (
            track.next_start is not None or _is_in_order(draft, other)
        )
        if is_starting or (track.state is State.RUNNING and condition == "ready"):
            return True
    return False


def _can_start(draft: Draft, name: str, track: Track) -> bool:
    """Return whether the time has come to start a process, and nothing of it is running."""
    if track.state is not State.PENDING or not draft.is_gone(name):
        return False
    if track.next_start is not None:
        if draft.now < track.next_start:
            draft.wake(track.next_start)
            return False
        is_disrupted = track.reason_code is ReasonCode.DISRUPTED
        return not (is_disrupted and _waits_for_disrupted(draft, name))
    return _is_in_order(draft, name)


def _is_in_order(draft: Draft, name: str) -> bool:
    """Return whether a process has to wait for no other one."""
    starts_after = draft.wish.processes[name].starts_after
    if not starts_after:
        return True
    return start_order.verdict(starts_after, draft.state.tracks) is start_order.START


def _add_start(draft: Draft, name: str, track: Track, actions: list[Start | Clear]) -> None:
    if not draft.is_gone(name):
        return
    if not draft.is_clear(name):
        # This also happens while the process waits for its next start.
        _add_clear(draft, name, actions)
        if track.next_start is not None and draft.now < track.next_start:
            draft.wake(track.next_start)
    elif _can_start(draft, name, track):
        actions.append(_start(draft, name, track))


def _add_starts_of_unit(
    draft: Draft,
    gang: str,
    decision: UnitDecision | None,
    held: Collection[str],
    actions: list[Start | Clear],
) -> None:
    """Start all ranks of a unit together, when none of them is running any more."""
    tracks = draft.state.tracks
    ranks = [name for name in draft.wish.gangs[gang] if name in tracks]
    pending = [name for name in ranks if tracks[name].state is State.PENDING]
    if held and not set(held).isdisjoint(ranks):
        # A request starts them.
        return
    if decision is None:
        # The ranks have not run yet, or a request has started them.
        if any(_is_being_stopped(draft, name) for name in ranks):
            # The others had failed before the request. Their previous executions exit first.
            return
        can_start = all(_can_start(draft, name, tracks[name]) for name in pending)
    else:
        if draft.now < decision.next_start:
            draft.wake(decision.next_start)
        can_start = len(pending) == len(ranks) and draft.now >= decision.next_start
        anew = [name for name in pending if _starts_anew(tracks[name])]
        can_start = can_start and all(_is_in_order(draft, name) for name in anew)
    if not all(draft.is_gone(name) for name in pending):
        return
    unclear = [name for name in pending if not draft.is_clear(name)]
    for name in unclear:
        _add_clear(draft, name, actions)
    if can_start and not unclear:
        actions.extend(_start(draft, name, tracks[name]) for name in pending)


def _is_being_stopped(draft: Draft, name: str) -> bool:
    seen = draft.seen(name)
    return seen.running and (seen.signaled_at is not None or seen.kill_at is not None)


def _add_clear(draft: Draft, name: str, actions: list[Start | Clear]) -> None:
    if draft.seen(name).clearing:
        return
    kill_at = draft.now + draft.wish.processes[name].grace
    actions.append(Clear(name, "before it starts again", kill_at))


def _start(draft: Draft, name: str, track: Track) -> Start:
    cause = draft.wish.start_causes[name]
    if track.next_start is not None:
        cause = f"again: {track.reason}" if track.reason else "again"
    return Start(name, cause, track.attempts)
