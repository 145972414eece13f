"""Accept or refuse the requests of users to a running experiment. Pure.

An accepted request is an event. Once this is recorded, `symphony.plan.decide` continues it and
records when it is done, whichever program has received the request.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from symphony.errors import shown
from symphony.plan.decisions.draft import Draft
from symphony.plan.decisions.executions import record_stopped
from symphony.plan.decisions.starts import Startable, is_startable_by_user
from symphony.plan.observation import Observation
from symphony.plan.policies import Ending
from symphony.plan.state import Event, Request, RunState
from symphony.plan.wish import Wish
from symphony.status import ReasonCode, State
from symphony.support.names import did_you_mean, join_names

STOP, START, RESTART, CHANGE = "stop", "start", "restart", "change"


class Refused(Exception):
    """A request cannot be done now. The message is for the user."""


class Busy(Refused):
    """A request cannot be done before another one that concerns the same processes is done."""


class Accepted(NamedTuple):
    """A request that was accepted, as the events to record.

    ``number`` is the number of the request. ``prevented`` maps the numbers of earlier requests to
    what the new one prevents them from doing, which is part of their answers.
    """

    number: int
    events: tuple[Event, ...]
    prevented: Mapping[int, str] = {}


def accept(
    wish: Wish, state: RunState, kind: str, names: Iterable[str], grace: float | None, now: float
) -> Accepted:
    """Accept a request to stop, start or restart the processes ``names``, with their whole units.

    ``grace`` is the grace period in seconds, or None for that of each process. A stop is always
    accepted, unless the whole experiment is being stopped. Raises Refused.
    """
    refuse_while_stopping(state)
    wanted = names_with_units(wish, names)
    prevented: dict[int, str] = {}
    if kind == STOP:
        prevented = _prevented(state, wanted)
    else:
        refuse_busy(state, wanted)
    number = state.request_count + 1
    event = {
        "event": "requested",
        "at": now,
        "number": number,
        "request": kind,
        "names": wanted,
        "grace": grace,
    }
    return Accepted(number, (event,), prevented)


def check_change(state: RunState, revision: int, names: Iterable[str]) -> None:
    """Check that a change with the number ``revision`` can be made now.

    ``names`` are the added, removed and restarted processes. Raises Refused.
    """
    refuse_while_stopping(state)
    if state.is_changing:
        raise Refused("another program is changing the experiment; try again")
    if revision != state.revision + 1:
        raise Refused("another program has changed the experiment; try again")
    refuse_busy(state, names)


def check_signal(wish: Wish, state: RunState, names: Iterable[str]) -> list[str]:
    """Return the processes to which a signal is sent. Raises Refused if one is not running."""
    refuse_while_stopping(state)
    wanted = known_names(wish, names)
    refuse_idle({name: state.tracks[name].state for name in wanted})
    return wanted


def finish(state: RunState, now: float) -> tuple[Event, ...]:
    """Return the event after which an experiment without running processes finishes.

    Raises Refused if it has running processes.
    """
    refuse_while_stopping(state)
    if not state.waits_for_start:
        raise Refused("processes of the experiment are running")
    return stop_all(state, now)


def stop_all(state: RunState, now: float, *, is_together: bool = False) -> tuple[Event, ...]:
    """Return the event with which the stop of the whole experiment begins, if it has not begun.

    If ``is_together`` is true, the stop does not follow the start order. A stop in progress can
    still change to this.
    """
    is_new = is_together and state.together_since is None
    if state.finished or (state.stopping and not is_new):
        return ()
    details = {"together": True} if is_together else {}
    return ({"event": "stopping", "at": now, **details},)


def continue_elsewhere(
    wish: Wish, state: RunState, ending: Ending, now: float
) -> tuple[Event, ...]:
    """Return the events of an experiment that the system has stopped and starts again.

    No process of it is running. If ``ending`` is a restart, all processes start again, unless the
    experiment was being stopped. Otherwise, it has finished.
    """
    draft = Draft(wish, state, Observation({}), now)
    is_restarting = state.restarting and ending.restart is not None
    if not state.stopping and not is_restarting:
        draft.record_ending(ending)
    for name, track in (*draft.state.tracks.items(), *draft.state.leaving.items()):
        if track.pid is not None:
            draft.record("exited", name, code=None, **_details_of_eviction(draft, ending))
    if not draft.state.stopping:
        _stop_requested(draft)
    for number in list(draft.state.requests):
        draft.record("request-done", number=number)
    if not draft.state.stopping:
        draft.record("restarted", evicted=True)
    return tuple(draft.events)


def _stop_requested(draft: Draft) -> None:
    """Record that the processes that a request was stopping are stopped, and do not start again."""
    for request in draft.state.requests.values():
        for name in request.names if request.kind == STOP else ():
            track = draft.state.tracks.get(name)
            if track is not None and track.state is State.PENDING:
                record_stopped(draft, name)


def _details_of_eviction(draft: Draft, ending: Ending) -> dict[str, Any]:
    if ending.restart is None or draft.state.stopping:
        return draft.stop_details("stopped")
    return {
        "reason": ending.reason,
        "reason_code": ReasonCode.EXPERIMENT_RESTARTS,
        "restarts_in": ending.restart.delay,
        "cause": ending.cause,
    }


# --- checks ---


def refuse_while_stopping(state: RunState) -> None:
    """Raise Refused if the experiment is being stopped or restarted."""
    if state.stopping or state.finished:
        raise Refused("the experiment is being stopped")
    if state.restarting:
        raise Refused("the experiment is being restarted after a failure; try again when it runs")


def refuse_busy(state: RunState, names: Iterable[str]) -> None:
    """Raise Busy if another request stops or starts one of the processes ``names``."""
    busy: set[str] = set()
    for request in state.requests.values():
        busy.update(request.names)
        if request.kind == CHANGE:
            busy.update(state.leaving)
    conflicts = [name for name in names if name in busy]
    if conflicts:
        raise Busy(
            f"another request is stopping or restarting {join_names(conflicts)}; "
            "try again when it is done"
        )


def refuse_idle(states: Mapping[str, State]) -> None:
    """Raise Refused if a signal is for processes of which one is not running.

    ``states`` maps the processes to their states.
    """
    idle = [name for name, state in states.items() if state is not State.RUNNING]
    if idle:
        raise Refused(
            f"no signal was sent, because these processes are not running: {join_names(idle)}"
        )


def is_unit_startable(
    processes: Collection[Startable], *, is_stopping: bool, is_starting: bool
) -> bool:
    """Return whether a request to start a unit, whose processes start together, has an effect.

    ``is_stopping`` is true if a request stops the unit, which then starts when it has exited.
    ``is_starting`` is true if its start was requested before. The request is recorded again, in
    case the program that recorded it was killed.
    """
    if is_starting:
        return True
    if any(process.state is State.RUNNING for process in processes):
        return is_stopping
    return any(is_startable_by_user(process) for process in processes)


def known_names(wish: Wish, names: Iterable[str]) -> list[str]:
    """Return names without repetitions. Raises Refused if one is not that of a process."""
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        if name not in wish.processes:
            raise Refused(f"there is no process {shown(name)}{did_you_mean(name, wish.processes)}")
    return wanted


def names_with_units(wish: Wish, names: Iterable[str]) -> list[str]:
    """Return names and the other ranks of the units that they contain; see `known_names`."""
    found: dict[str, None] = {}
    for name in known_names(wish, names):
        found.update(dict.fromkeys(wish.ranks_with(name)))
    return list(found)


def _prevented(state: RunState, names: Iterable[str]) -> dict[int, str]:
    """Return what a stop of processes prevents other requests from doing."""
    wanted = set(names)
    prevented: dict[int, str] = {}
    for number, request in state.requests.items():
        stopped = [
            name for name in request.names if name in wanted and _will_start(state, request, name)
        ]
        if stopped:
            prevented[number] = f"another request stopped {stopped[-1]!r}"
    return prevented


def _will_start(state: RunState, request: Request, name: str) -> bool:
    if request.kind == START:
        return is_startable_by_user(state.tracks.get(name))
    return request.kind in (RESTART, CHANGE)
