"""Decide which processes are stopped or killed now."""

from __future__ import annotations

from collections.abc import Collection

from symphony.plan.actions import Kill, Stop
from symphony.plan.decisions.draft import Draft
from symphony.plan.decisions.request_steps import TOLERANCE_SECONDS, current_wave, grace_in
from symphony.plan.observation import Seen
from symphony.plan.policies import DEADLINE_EXCEEDED

REQUESTED = "requested"


def stop_actions(draft: Draft) -> list[Stop | Kill]:
    """Return the actions for the processes that are stopped now, or are killed now."""
    actions: list[Stop | Kill] = []
    is_stopping_all = draft.state.is_stopping_all
    wave = _wave_of_all(draft) if is_stopping_all else ()
    for name in draft.active if is_stopping_all else _restless(draft):
        seen = draft.seen(name)
        if not seen.running and not seen.leftovers:
            continue
        cause = _cause_of_end(draft) if name in wave else _own_cause(draft, name, seen)
        if cause:
            _add_stop(draft, name, seen, cause, actions)
    return actions


def _restless(draft: Draft) -> list[str]:
    """Return the processes that can have to be stopped although the whole experiment is not.

    Most processes are stopped by a request only, and no request stops most of them.
    """
    calm = draft.wish.independent & draft.state.index.calm
    return [name for name in draft.active if name not in calm]


def _wave_of_all(draft: Draft) -> Collection[str]:
    """Return the processes that are stopped now if the whole experiment is being stopped."""
    state = draft.state
    is_together = state.stopping and state.together_since is not None
    is_together = is_together or draft.observation.kills_at_once
    return frozenset(current_wave(draft, draft.present(), is_together=is_together))


def _cause_of_end(draft: Draft) -> str:
    state = draft.state
    if state.restarting:
        return f"the experiment restarts: {state.restart_cause}"
    return REQUESTED if state.ending is None else state.ending.reason


def _own_cause(draft: Draft, name: str, seen: Seen) -> str:
    """Return why a process is stopped although the whole experiment is not, or ``""``."""
    state = draft.state
    if not seen.running:
        return "programs of its process group have outlived it"
    track = state.tracks.get(name)
    if track is None:
        # A change can have removed it while it was being started, which is not recorded.
        leaving = state.leaving.get(name)
        is_stopped = leaving is None or leaving.kill_at is not None
        return "it does not belong to the experiment any more" if is_stopped else ""
    if track.kill_at is not None:
        return _cause_of_request(draft, name)
    if state.is_stopping_all:
        return ""
    process = draft.wish.processes[name]
    if process.gang is not None:
        decision = draft.decide_unit(process.gang)
        if decision is not None:
            return decision.reason
    if track.unhealthy and track.pid is not None:
        return track.unhealthy
    if process.deadline is not None and track.first_started is not None and track.pid is not None:
        # A late report can show a process as running whose exit is recorded, which has no pid.
        due = track.first_started + process.deadline
        if draft.now >= due:
            return DEADLINE_EXCEEDED
        # It also applies while the process waits for its turn to be stopped by a request.
        draft.wake(due)
    return ""


def _cause_of_request(draft: Draft, name: str) -> str:
    for request in draft.requests_for(name):
        if request.kind == "restart":
            return "a restart is requested"
        if request.kind == "change":
            return "its description has changed"
    return REQUESTED


def _add_stop(draft: Draft, name: str, seen: Seen, cause: str, actions: list[Stop | Kill]) -> None:
    """Add the action with which the stop of a process begins or continues, if there is one."""
    kill_at = draft.now if draft.observation.kills_at_once else _kill_time(draft, name, seen)
    if kill_at <= draft.now:
        if not seen.killed:
            actions.append(Kill(name, cause))
        return
    if seen.kill_at is None or kill_at < seen.kill_at - TOLERANCE_SECONDS:
        actions.append(Stop(name, cause, kill_at))
    draft.wake(kill_at)


def _kill_time(draft: Draft, name: str, seen: Seen) -> float:
    """Return when a process that is being stopped is killed.

    The grace period begins with the signal, or with the stop of the whole experiment if this
    follows. A recorded time is not later, unless the supervisor that recorded it was killed before
    it had sent the signal.
    """
    state = draft.state
    since = state.stopping_since
    if seen.kill_at is not None and since is not None and since < (seen.signaled_at or 0.0):
        # The stop of the experiment has set this time, and no request changes it any more.
        return seen.kill_at
    begin = draft.now if seen.signaled_at is None else seen.signaled_at
    if state.stopping_since is not None and state.stopping_since > begin:
        begin = state.stopping_since
    kill_at = begin + grace_in(draft, name)
    if seen.kill_at is not None:
        kill_at = min(kill_at, seen.kill_at)
        if state.is_stopping_all:
            # No request changes the time that the executor knows.
            return kill_at
    elif seen.signaled_at is None:
        return kill_at
    track = state.tracks.get(name) or state.leaving.get(name)
    if track is not None and track.kill_at is not None:
        kill_at = min(kill_at, track.kill_at)
    return kill_at
