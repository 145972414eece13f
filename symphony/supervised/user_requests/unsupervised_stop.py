"""Stopping the processes of a run without a supervisor, as `symphony.plan.decide` decides.

A supervisor can be killed, and no new one is started in order to delete the experiment. If it was
killed during a stop, this stop is continued. Nothing is recorded, because another program that
stops the run observes the same.
"""

from __future__ import annotations

import heapq
import itertools
import queue
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from symphony.errors import BackendError
from symphony.plan.actions import Action, Finish, Kill, Remove, Stop, Sweep
from symphony.plan.decide import decide
from symphony.plan.requests import stop_all
from symphony.plan.state import RunState, Track, apply, fold
from symphony.plan.wish import ProcessWish, Wish
from symphony.supervised.processes.identity import ProcessId, is_alive
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import (
    EventReader,
    fold_run,
    names_in,
    previous_processes,
    recorded_leaders,
)
from symphony.supervised.record.status import stop_begins
from symphony.supervised.supervisor.execution.facts import Facts
from symphony.supervised.supervisor.execution.stopper import StopOrder
from symphony.supervised.supervisor.process_host import ThisHost
from symphony.supervised.supervisor.wishes import process_wish
from symphony.support.inherited_signals import default_actions_in_children

# The interval at which descendants are polled that have left their process groups.
_POLL_SECONDS = 0.02

Manifest = Mapping[str, Any] | None


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
    run: RunDirectory, manifest: Manifest, *, in_order: bool = True, at_once: bool = False
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
    leaders = _find_leaders(run, run_id, state)
    stop = _Stop(run, run_id, manifest, state, leaders)
    if not stop.host.has_processes(leaders):
        return
    for event in stop_all(state, time.time(), is_together=not in_order):
        apply(state, event)
    if at_once:
        stop.facts.note_kill()
    # A command that stops a process must not ignore the signals that this program ignores.
    with default_actions_in_children():
        stop.run_until_finished()


class _Stop:
    """The stop of a run: its wish, its state, what is known about its processes, and the executor.

    ``leaders`` maps the names of the running processes to their identities.
    """

    def __init__(
        self,
        run: RunDirectory,
        run_id: str,
        manifest: Manifest,
        state: RunState,
        leaders: Mapping[str, ProcessId],
    ) -> None:
        self._run = run
        self._manifest = manifest
        self._state = state
        self._timers = TimerQueue()
        self._is_due = True
        self._is_finished = False
        self._specs = _specs(manifest, state)
        names = dict.fromkeys((*self._specs, *state.tracks, *state.leaving, *leaders))
        self._wish = Wish([self._wish_of(name) for name in names])
        self.host = ThisHost(
            run_id, self._note_stopped, record_path=run.stop_record, observes_exits=False
        )
        self.facts = Facts(self._note_news)
        # The programs that are stopped: processes, and what others have left behind.
        self._programs = dict(leaders)
        self._note_processes(leaders)

    def _wish_of(self, name: str) -> ProcessWish:
        spec = self._specs.get(name)
        return ProcessWish(name) if spec is None else process_wish(spec)

    # --- what is known ---

    def _note_processes(self, leaders: Mapping[str, ProcessId]) -> None:
        """Note which processes are running, and which have left programs behind."""
        state, recorded = self._state, recorded_leaders(self._state)
        for name in leaders:
            if name not in state.tracks and name not in state.leaving:
                state.tracks[name] = Track()
        state.renew_index()
        begins = self._stop_begins()
        for name, track in {**state.leaving, **state.tracks}.items():
            leader = leaders.get(name)
            if leader is not None:
                is_recorded = leader == recorded.get(name)
                self.facts.note(
                    name,
                    attempt=track.attempts - 1 if is_recorded else track.attempts,
                    running=True,
                    pid=leader.pid,
                    birth=leader.birth,
                )
                if self.host.was_asked_to_exit(leader):
                    self.facts.note(name, signaled_at=begins.get(name, time.time()))
                continue
            if track.group is not None and self.host.is_group_of_run(track.group, leaders):
                # The creation time of the process that has exited is not known any more.
                self._programs[name] = ProcessId(track.group, 0.0)
            is_left = name in self._programs
            if is_left or track.pid is not None:
                self.facts.note(name, attempt=track.attempts - 1, leftovers=is_left)
        self.facts.note_released(state.revision)
        self.facts.note_unknown_strays()

    def _stop_begins(self) -> Mapping[str, float]:
        """Return when a supervisor that was killed has begun to stop the whole experiment."""
        known = {**self._state.leaving, **self._state.tracks}
        items = [
            {"name": name, "starts_after": spec.starts_after}
            for name, spec in self._specs.items()
            if name in known
        ]
        return stop_begins(self._state, items)

    def _note_stopped(self, name: str) -> None:
        self.facts.note(name, running=False, leftovers=False)

    def _note_news(self) -> None:
        self._is_due = True

    # --- decisions ---

    def run_until_finished(self) -> None:
        """Decide and execute until nothing of the run is running."""
        while not self._is_finished:
            self._is_due = False
            now = time.time()
            decision = decide(self._wish, self._state, self.facts.observation(), now)
            self._state = decision.state or self._state
            self.facts.note_decision()
            self._execute(decision.actions)
            if decision.wake_at is not None:
                self._timers.after(max(0.0, decision.wake_at - now), self._note_news)
            self._timers.run_while(lambda: not self._is_due and not self._is_finished)

    def _execute(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Stop):
                self._begin_stop(action.process, action.kill_at)
            elif isinstance(action, Kill):
                self._begin_stop(action.process, time.time())
                self.facts.note(action.process, killed=True)
            elif isinstance(action, Remove):
                self.facts.forget(action.process)
            elif isinstance(action, Sweep):
                self._sweep(kill=action.kill)
            elif isinstance(action, Finish):
                self._is_finished = True

    def _begin_stop(self, name: str, kill_at: float) -> None:
        now, seen = time.time(), self.facts.seen(name)
        signaled_at = now if seen.signaled_at is None else seen.signaled_at
        self.facts.note(name, signaled_at=signaled_at, kill_at=kill_at)
        spec = self._specs.get(name) or ProcessSpec(name=name, argv=("",), cwd="/")
        program = self._programs[name]
        order = StopOrder.of(spec, max(0.0, kill_at - now))
        env = _environment(self._run, self._manifest, spec, program) if order.command else {}
        self.host.begin_stop(self._timers, spec, program, order, env, lambda _: None)

    def _sweep(self, *, kill: bool) -> None:
        were_found = self.host.stop_strays({}, kill=kill)
        self.facts.note_strays(were_found, now=time.time(), killed=kill)
        if were_found:
            self._timers.after(_POLL_SECONDS, self._sweep_again)

    def _sweep_again(self) -> None:
        observation = self.facts.observation()
        if observation.strays:
            self._sweep(kill=observation.strays_killed)


def _read_state(run: RunDirectory, manifest: Manifest) -> RunState:
    """Return the state according to the events. Events that cannot be read are ignored."""
    try:
        events = EventReader(run.events).read_new()
    except OSError:
        events = []
    return fold(names_in(events), events) if manifest is None else fold_run(manifest, events)


def _find_leaders(run: RunDirectory, run_id: str, state: RunState) -> dict[str, ProcessId]:
    """Return the running processes, also those whose start is not recorded."""
    from symphony.supervised.processes.membership import find_session_leaders

    recorded = recorded_leaders(state) if run.is_of_this_boot() else {}
    running = {name: leader for name, leader in recorded.items() if is_alive(leader)}
    return {**find_session_leaders(run_id), **running}


def _specs(manifest: Manifest, state: RunState) -> dict[str, ProcessSpec]:
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


def _environment(
    run: RunDirectory, manifest: Manifest, spec: ProcessSpec, leader: ProcessId
) -> Mapping[str, str]:
    """Return the environment of the command that stops a process."""
    from symphony.supervised.access.exec_command import initial_environment

    try:
        return initial_environment(run, manifest or {"env": {}}, spec, leader.pid) or {}
    except OSError:
        # The secrets cannot be read. The command may not need them.
        return dict(spec.env)
