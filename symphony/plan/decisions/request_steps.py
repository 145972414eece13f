"""Continue the requests of users that are recorded and not done yet.

A request to stop or restart processes stops them in waves, in the reverse of the start order. A
process that a request starts again has exited completely before, with all programs that it has left
behind, and so have the processes of the request for which it waits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from symphony.plan.actions import Action, Clear, Release, Remove, Reserve
from symphony.plan.decisions.draft import Draft
from symphony.plan.decisions.executions import record_stopped
from symphony.plan.decisions.starts import is_startable_by_user
from symphony.plan.state import Request
from symphony.status import State

KINDS = ("stop", "start", "restart", "change")
# Times that differ by less than this are the same.
TOLERANCE_SECONDS = 0.001


def continue_requests(draft: Draft) -> None:
    """Record the next steps of all requests, and which of them are done."""
    for number in list(draft.state.requests):
        # An earlier request cannot remove it, but it can change the states of its processes.
        request = draft.state.requests[number]
        if request.kind not in KINDS:
            # Another version of symphony has recorded it.
            _end(draft, number, "")
        elif request.kind == "stop":
            _continue_stop(draft, number, request)
        else:
            _continue_start(draft, number, request)


def request_actions(draft: Draft) -> list[Action]:
    """Return the actions with which requests continue, apart from starts and stops."""
    clears: dict[str, Clear] = {}
    actions: list[Action] = []
    for request in draft.state.requests.values():
        if request.kind == "change":
            _add_clears(draft, removed_names(draft), False, clears)
            actions.extend(_removals(draft))
        if request.kind == "stop":
            _add_clears(draft, request.names, False, clears)
            continue
        names = to_start(draft, request)
        _add_clears(draft, names, True, clears)
        if not draft.state.is_stopping_all:
            reserved = [name for name in names if _must_reserve(draft, name)]
            actions.extend(Reserve(name, "a request starts it") for name in reserved)
    return [*clears.values(), *actions]


def current_wave(draft: Draft, names: Iterable[str], *, is_together: bool = False) -> list[str]:
    """Return those of the processes ``names`` that are stopped now.

    The others are stopped when these have exited. If ``is_together`` is true, all are stopped now.
    """
    running = [name for name in names if not draft.is_gone(name)]
    if is_together or len(running) < 2:
        return running
    depths = {name: draft.depth_of(name) for name in running}
    deepest = max(depths.values())
    return [name for name in running if depths[name] == deepest]


def targets(draft: Draft, request: Request) -> list[str]:
    """Return the processes that a request stops."""
    if request.kind == "start":
        return []
    if request.kind == "change":
        return [*removed_names(draft), *request.names]
    return request.names


def removed_names(draft: Draft) -> list[str]:
    """Return the processes that a change has removed, and of which something is left."""
    names = dict.fromkeys(draft.state.leaving)
    tracks = draft.state.tracks
    names.update(dict.fromkeys(name for name in draft.observation.processes if name not in tracks))
    return list(names)


def to_start(draft: Draft, request: Request) -> list[str]:
    """Return the processes that a request still has to start."""
    tracks = draft.state.tracks
    names = [name for name in request.names if name in tracks]
    if request.kind == "start":
        names = [name for name in names if is_startable_by_user(tracks[name])]
    return [name for name in names if not draft.seen(name).unavailable]


# --- stops ---


def _continue_stop(draft: Draft, number: int, request: Request) -> None:
    names = [name for name in request.names if name in draft.state.tracks]
    if not draft.state.stopping:
        # A restart of the experiment does not start them either.
        for name in names:
            is_pending = draft.state.tracks[name].state is State.PENDING
            if is_pending and not draft.seen(name).starting:
                record_stopped(draft, name)
    if not draft.state.is_stopping_all:
        _terminate_wave(draft, request, names)
    if all(_is_over(draft, name) for name in names):
        _end(draft, number, "")


def _is_over(draft: Draft, name: str) -> bool:
    """Return whether nothing of a stopped process is running.

    If the whole experiment is being stopped, the programs that processes have left behind are
    stopped at its end.
    """
    return draft.is_gone(name) and (draft.state.is_stopping_all or draft.is_clear(name))


def grace_in(draft: Draft, name: str) -> float:
    """Return the grace period of a process in seconds.

    That of a request replaces that of the process, unless the whole experiment is being stopped. If
    several requests stop it, the shortest one applies.
    """
    own = draft.wish_of(name).grace
    if draft.state.is_stopping_all:
        return own
    graces = []
    for request in draft.requests_for(name):
        if request.kind != "start":
            graces.append(own if request.grace is None else request.grace)
    return min(graces, default=own)


def _terminate_wave(draft: Draft, request: Request, names: Iterable[str]) -> None:
    """Record that the next wave of processes is stopped, and when they are killed."""
    restarted = set() if request.kind == "stop" else set(request.names)
    for name in current_wave(draft, names, is_together=request.grace == 0):
        track = draft.state.tracks.get(name) or draft.state.leaving.get(name)
        if track is None or track.pid is None:
            continue
        kill_at = draft.now + grace_in(draft, name)
        if track.kill_at is None or _is_other_time(draft, name, track.kill_at, kill_at):
            restarts = name in restarted
            draft.record("terminating", name, kill_at=kill_at, restarts=restarts)


def _is_other_time(draft: Draft, name: str, recorded: float, kill_at: float) -> bool:
    """Return whether a process that is being stopped is killed at another time than recorded.

    The time can become earlier. If a supervisor was killed before it had sent the signal, the grace
    period begins when the signal is sent.
    """
    seen = draft.seen(name)
    is_begun = seen.signaled_at is not None or seen.kill_at is not None or seen.killed
    is_later = kill_at > recorded + TOLERANCE_SECONDS
    is_earlier = kill_at < recorded - TOLERANCE_SECONDS
    return is_earlier or (is_later and not is_begun)


# --- starts, restarts and changes ---


def _continue_start(draft: Draft, number: int, request: Request) -> None:
    stopped = targets(draft, request)
    if draft.state.is_stopping_all:
        error = _interruption(draft) if to_start(draft, request) else ""
        if all(map(draft.is_gone, stopped)) and _is_change_over(draft, request):
            _end(draft, number, error)
        return
    _terminate_wave(draft, request, stopped)
    for name in _startable(draft, request, stopped):
        draft.record("start-requested", name)
    request = draft.state.requests[number]
    if to_start(draft, request) or not all(map(draft.is_gone, targets(draft, request))):
        return
    if _is_change_over(draft, request):
        reasons = [draft.seen(name).unavailable for name in request.names]
        _end(draft, number, "; ".join(dict.fromkeys(filter(None, reasons))))


def _interruption(draft: Draft) -> str:
    verb = "restarted after a failure" if draft.state.restarting else "stopped"
    return f"the experiment is being {verb}"


def _startable(draft: Draft, request: Request, stopped: Collection[str]) -> list[str]:
    """Return the processes that a request can start now, in the order of their declaration.

    A process cannot start before the processes of the request for which it waits have exited,
    because it would start while these are still ready from before.
    """
    wanted = set(to_start(draft, request))
    if not wanted:
        return []
    wish = draft.wish
    stopped = [*stopped, *_stopped_by_units(draft, wanted)]
    blocked = {name for name in stopped if not draft.is_gone(name)}
    # The ports that are in use until other processes have exited.
    used = {port: name for name in blocked for port in draft.wish_of(name).ports}
    remaining = [
        name
        for name in wish.processes
        if name in wanted and _is_free(draft, name, used) and not _must_reserve(draft, name)
    ]
    blocked |= wanted.difference(remaining)
    while True:
        free = [
            name
            for name in remaining
            if blocked.isdisjoint(wish.ranks_with(name))
            and blocked.isdisjoint(wish.processes[name].starts_after)
        ]
        if len(free) == len(remaining):
            return free
        blocked.update(set(remaining).difference(free))
        remaining = free


def _stopped_by_units(draft: Draft, names: Iterable[str]) -> list[str]:
    """Return the ranks that their units stop, and that start together with the processes ``names``.

    This concerns only requests to start processes. The others stop all ranks by themselves.
    """
    ranks: list[str] = []
    for gang in {draft.wish.processes[name].gang for name in names}:
        if gang is not None and draft.decide_unit(gang) is not None:
            ranks += draft.wish.gangs[gang]
    return ranks


def _is_free(draft: Draft, name: str, used: Mapping[int, str]) -> bool:
    """Return whether nothing of a process is running, and no other one uses its ports."""
    if not draft.is_gone(name) or not draft.is_clear(name):
        return False
    return all(used.get(port, name) == name for port in draft.wish.processes[name].ports)


def _must_reserve(draft: Draft, name: str) -> bool:
    return draft.wish.processes[name].reserves and not draft.seen(name).reserved


def _is_change_over(draft: Draft, request: Request) -> bool:
    """Return whether nothing is left of what a change has removed."""
    if request.kind != "change":
        return True
    return not removed_names(draft) and draft.observation.released >= draft.state.revision


def _removals(draft: Draft) -> list[Action]:
    """Return the actions that remove what a change has removed from the experiment."""
    removed = removed_names(draft)
    revision = draft.state.revision
    if not removed and draft.observation.released < revision:
        return [Release(revision)]
    cause = "it does not belong to the experiment any more"
    return [Remove(name, cause) for name in removed if _is_over(draft, name)]


def _add_clears(
    draft: Draft, names: Iterable[str], spares_commands: bool, clears: dict[str, Clear]
) -> None:
    """Add the actions for programs that the processes ``names`` have left behind."""
    if draft.state.is_stopping_all:
        # They are stopped at the end.
        return
    cause = "before it starts again" if spares_commands else "it is stopped"
    for name in names:
        if not draft.is_gone(name) or draft.is_clear(name) or draft.seen(name).clearing:
            continue
        earlier = clears.get(name)
        if earlier is None or earlier.spares_commands:
            kill_at = draft.now + grace_in(draft, name)
            clears[name] = Clear(name, cause, kill_at, spares_commands)


def _end(draft: Draft, number: int, error: str) -> None:
    draft.record("request-done", number=number)
    draft.answers[number] = error
