"""Stopping the processes of a run without a supervisor, by the same rule as a supervisor.

A supervisor can be killed, and no new one is started in order to delete the experiment. If it was
killed during a stop, this stop is continued.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import queue
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from symphony.errors import BackendError
from symphony.plan.state import RunState, fold
from symphony.plan.stop_order import stop_waves
from symphony.supervised.processes.identity import ProcessId, is_alive
from symphony.supervised.processes.spec import DEFAULT_GRACE_SECONDS, ProcessSpec
from symphony.supervised.run.directory import RunDirectory
from symphony.supervised.run.event_file import (
    EventReader,
    fold_run,
    names_in,
    previous_processes,
    recorded_leaders,
)
from symphony.supervised.run.status import stop_begins
from symphony.supervised.supervisor.process_host import ThisHost
from symphony.supervised.supervisor.stopper import StopOrder
from symphony.support.inherited_signals import default_actions_in_children

# The interval at which descendants are polled that have left their process groups.
_POLL_SECONDS = 0.02


class TimerQueue:
    """The timers of a stop, which run in the thread that calls `run_while`."""

    def __init__(self) -> None:
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._posted: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, after ``seconds`` seconds."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), callback))

    def post(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` as soon as possible. Any thread can call this method."""
        self._posted.put(callback)

    def run_while(self, condition: Callable[[], bool]) -> None:
        """Call the callbacks that are due, until ``condition`` is false."""
        while condition():
            pause = None
            if self._timers:
                pause = max(0.0, self._timers[0][0] - time.monotonic())
            try:
                callback = self._posted.get(timeout=pause)
            except queue.Empty:
                _, _, callback = heapq.heappop(self._timers)
            callback()


def stop_unsupervised(
    run: RunDirectory,
    manifest: Mapping[str, Any] | None,
    *,
    in_order: bool = True,
    at_once: bool = False,
) -> None:
    """Stop the processes of a run that has no supervisor, and return when none of them is running.

    ``manifest`` is None if it is missing or damaged. For the options, see `Cluster.delete`.
    """
    run_id = run.run_id()
    if run_id is None:
        return
    state = _read_state(run, manifest)
    if state.finished:
        return
    host = ThisHost(run_id, record_path=run.stop_record, observes_exits=False)
    leaders = _leaders(run, run_id, state)
    if not host.has_processes(leaders):
        return
    specs = _specs(manifest, state)
    leaders = {**_leftovers(host, state, leaders), **leaders}
    graces = _graces(specs, state, at_once=at_once)
    timers = TimerQueue()
    # A command that stops a process must not ignore the signals that this program ignores.
    with default_actions_in_children():
        for wave in _waves(specs, leaders, state, in_order=in_order and not at_once):
            for name in wave:
                spec = specs.get(name) or ProcessSpec(name=name, argv=("",), cwd="/")
                begin_stop = functools.partial(host.begin_stop, timers, spec, leaders[name])
                order = StopOrder.of(spec, graces.get(name, 0.0 if at_once else spec.grace))
                env = _environment(run, manifest, spec, leaders[name]) if order.command else {}
                begin_stop(order, env, lambda _: None)
            timers.run_while(functools.partial(_is_any_stopping, host, wave))
    longest_grace = max((spec.grace for spec in specs.values()), default=DEFAULT_GRACE_SECONDS)
    deadline = time.monotonic() + (0.0 if at_once else longest_grace)
    while host.stop_strays({}, kill=time.monotonic() >= deadline):
        time.sleep(_POLL_SECONDS)


def _is_any_stopping(host: ThisHost, names: Sequence[str]) -> bool:
    return any(map(host.is_stopping, names))


def _read_state(run: RunDirectory, manifest: Mapping[str, Any] | None) -> RunState:
    """Return the state according to the events. Events that cannot be read are ignored."""
    try:
        events = EventReader(run.events).read_new()
    except OSError:
        events = []
    return fold(names_in(events), events) if manifest is None else fold_run(manifest, events)


def _leaders(run: RunDirectory, run_id: str, state: RunState) -> dict[str, ProcessId]:
    """Return the running processes, also those whose start is not recorded."""
    from symphony.supervised.processes.membership import find_session_leaders

    recorded = recorded_leaders(state) if run.is_of_this_boot() else {}
    running = {name: leader for name, leader in recorded.items() if is_alive(leader)}
    return {**find_session_leaders(run_id), **running}


def _leftovers(
    host: ThisHost, state: RunState, leaders: Mapping[str, ProcessId]
) -> dict[str, ProcessId]:
    """Return the process groups in which exited processes have left programs behind."""
    tracks = {**state.leaving, **state.tracks}
    groups = {
        name: track.group
        for name, track in tracks.items()
        if track.group is not None and name not in leaders
    }
    # The creation time of the process that has exited is not known any more.
    return {
        name: ProcessId(group, 0.0)
        for name, group in groups.items()
        if host.is_group_of_run(group, leaders)
    }


def _specs(manifest: Mapping[str, Any] | None, state: RunState) -> dict[str, ProcessSpec]:
    """Return the descriptions with which the processes were started.

    A description of another version of symphony is omitted.
    """
    if manifest is None:
        return {}
    items = {item["name"]: item for item in manifest["processes"]}
    for item in previous_processes(manifest):
        track = state.tracks.get(item["name"])
        if item["name"] not in items or (track is not None and track.outdated):
            items[item["name"]] = item
    specs: dict[str, ProcessSpec] = {}
    for name, item in items.items():
        try:
            specs[name] = ProcessSpec.from_dict(item)
        except (BackendError, TypeError, ValueError):
            continue
    return specs


def _graces(
    specs: Mapping[str, ProcessSpec], state: RunState, *, at_once: bool
) -> dict[str, float]:
    """Return the remaining grace periods in seconds. A stop can have begun before."""
    if at_once:
        return dict.fromkeys(specs, 0.0)
    items = [{"name": name, "starts_after": spec.starts_after} for name, spec in specs.items()]
    begins = stop_begins(state, items)
    now = time.time()
    graces: dict[str, float] = {}
    for name, spec in specs.items():
        track = state.tracks.get(name) or state.leaving.get(name)
        kill_time = begins.get(name, now) + spec.grace
        if track is not None and track.kill_at is not None:
            kill_time = min(kill_time, track.kill_at)
        graces[name] = max(0.0, kill_time - now)
    return graces


def _waves(
    specs: Mapping[str, ProcessSpec],
    leaders: Mapping[str, ProcessId],
    state: RunState,
    *,
    in_order: bool,
) -> list[list[str]]:
    if not in_order or state.together_since is not None:
        return [list(leaders)]
    return stop_waves(leaders, {name: spec.starts_after for name, spec in specs.items()})


def _environment(
    run: RunDirectory, manifest: Mapping[str, Any] | None, spec: ProcessSpec, leader: ProcessId
) -> Mapping[str, str]:
    """Return the environment of the command that stops a process."""
    from symphony.supervised.exec_command import initial_environment

    try:
        return initial_environment(run, manifest or {"env": {}}, spec, leader.pid) or {}
    except OSError:
        # The secrets cannot be read. The command may not need them.
        return dict(spec.env)
