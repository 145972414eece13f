"""The supervisor of one experiment. It runs as a process that is detached from the launcher.

The supervisor starts the processes in dependency order, notices when they exit, restarts them,
probes their readiness and stops them. It records each of these steps in the event log, which other
programs read. The supervisor's own decisions depend on the recorded events; see
`symphony.plan.start_order` and `restart_policy`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.host.processes.identity import ProcessId
from symphony.host.processes.spec import (
    DIRECTORY_VARIABLE,
    GPU_VARIABLE,
    ProcessSpec,
    with_directory_variable,
    with_thread_limit,
)
from symphony.host.run import control_socket
from symphony.host.run.directory import RunDirectory, all_roots
from symphony.host.run.note import NoteWriter
from symphony.host.supervisor.children import (
    Child,
    Children,
    ExitCallback,
    JoinableTerminal,
    StartRefused,
)
from symphony.host.supervisor.clock import LaunchClock, boot_time
from symphony.host.supervisor.event_log import EventLog
from symphony.host.supervisor.event_loop import ERROR_PAUSE_SECONDS, EventLoop
from symphony.host.supervisor.previous_executions import PreviousExecutions
from symphony.host.supervisor.probes import failing_probe
from symphony.host.supervisor.process_host import ProcessHost, ThisHost, port_of
from symphony.host.supervisor.readiness import ReadinessMonitor
from symphony.plan import restart_policy, start_order
from symphony.plan.policies import (
    DEADLINE_EXCEEDED,
    RESTART,
    Ending,
    Policies,
    RestartHistory,
    decide_end,
    seconds_to_deadline,
)
from symphony.plan.state import RESTART_REQUESTED, Event, RunState, Track, after, apply, fold
from symphony.plan.stop_order import stop_waves
from symphony.plan.unit_decision import FAIL_UNIT, RESTART_UNIT, UnitDecision, decide_unit
from symphony.status import ENDED, ReasonCode, State, not_ready_reason

if TYPE_CHECKING:
    import socket

    from symphony.host.supervisor.change import Change
    from symphony.host.supervisor.control import Control
    from symphony.host.supervisor.usage import OnSample, UsageMonitor
    from symphony.line_search import SearchProcess

# The interval at which the supervisor polls processes whose exit it cannot wait for.
CHECK_INTERVAL_SECONDS = 0.05
ROLL_BACK_GRACE_SECONDS = 1.0
# The longest time by which a deadline can be missed because the machine was suspended.
DEADLINE_CHECK_SECONDS = 30.0
# The interval at which the supervisor tries again to write events that it could not write.
REWRITE_INTERVAL_SECONDS = 1.0
# How long a program that replaces a killed supervisor waits for the exits in the meantime.
RESUME_SECONDS = 1.0

# The reason of a process that waits until programs of its previous execution have exited.
WAITING_FOR_LEFTOVERS = "waiting for programs of its previous execution to exit"

STOP_SIGNAL, KILL_SIGNAL = signal.SIGTERM, signal.SIGQUIT

# Shells use these exit codes for a command that they could not run.
_SHELL_REASONS = {126: "the command cannot be executed", 127: "the command was not found"}


@dataclasses.dataclass(frozen=True, slots=True)
class RequestedStop:
    """The stop of a process on request. ``kill_time`` is on the monotonic clock."""

    kill_time: float
    restarts: bool


class LaunchRefused(Exception):
    """A process could not be started while the experiment was being launched."""


class Supervisor:
    """The supervisor of one experiment.

    ``holds`` maps each port to the file descriptor of its hold. The supervisor closes this
    descriptor just before it starts the process that serves the port. ``gpus`` maps each process
    name to the file descriptors of the process's GPU leases. The supervisor closes these
    descriptors when the process has exited for the last time. ``children`` creates the object that
    starts processes, and ``host`` is the machines on which they run. The default is this machine.
    When the supervisor receives SIGTERM, ``eviction`` returns why the system stops the experiment,
    or None if the user stops it. If the system starts it again later, the ending is a restart, and
    the supervisor exits when the processes have exited; see `continue_after_eviction`.

    ``missing_support`` is a message about what the file system does not support, or ``""``.

    If the supervisor replaces another one that was killed, ``events`` contains the recorded events,
    and ``lost_ports`` the ports that other programs have leased in the meantime. If the experiment
    was changed, ``change`` is the event of the latest change, which can be missing in ``events``,
    and ``old_specs`` describes the processes that it has removed or restarted, as they were before.
    Call `resume` instead of `launch`.
    """

    def __init__(
        self,
        run: RunDirectory,
        run_id: str,
        specs: Mapping[str, ProcessSpec],
        env: Mapping[str, str],
        children: Callable[[EventLoop, RunDirectory, ExitCallback], Children],
        *,
        holds: dict[int, int] | None = None,
        gpus: dict[str, list[int]] | None = None,
        backoff: restart_policy.Backoff | None = None,
        policies: Policies | None = None,
        events: Iterable[Event] = (),
        change: Event | None = None,
        old_specs: Mapping[str, ProcessSpec] | None = None,
        lost_ports: Collection[int] = (),
        host: ProcessHost | None = None,
        eviction: Callable[[], Ending | None] = lambda: None,
    ) -> None:
        self._directory = run
        self._run_id = run_id
        self._specs = specs
        self._env = env
        # Starting processes changes the environment of this process.
        self._inherited_env = dict(os.environ)
        self._holds = holds or {}
        self._gpus = gpus or {}
        self._backoff = backoff or restart_policy.Backoff()
        self._policies = policies or Policies()
        self._clock = LaunchClock()
        # The processes that are stopped because their own deadline has passed.
        self._overdue: set[str] = set()
        self._deadlines: dict[str, float] = {}
        self._restart_due = 0.0
        self._latest_change = change
        self._old_specs = old_specs or {}
        self._state = fold([*specs, *self._old_specs], events)
        # The ports and the users of GPUs that other experiments have leased; see `resume`.
        self._lost_ports = set(lost_ports)
        self._lost_gpus: set[str] = set()
        # The processes that were started by the supervisor that this one replaces.
        self._adopted: dict[str, Child] = {}
        self._notes = NoteWriter(run)
        self._event_log = EventLog(run, self._notes, len(specs), self._state)
        self.missing_support = self._event_log.missing_support()
        self._is_rewrite_scheduled = False
        self._is_recheck_scheduled = False
        self._last_error = ""
        self._loop = EventLoop(self._handle_error)
        self._children = children(self._loop, run, self._handle_exit)
        self._host = host or ThisHost(run_id, record_path=run.stop_record)
        self._children.keep_terminals(self._host.is_stopping)
        log_limits = {name: spec.log_limit for name, spec in specs.items()}
        self._log_times = self._host.record_logs(self._loop, run, log_limits, self._notes)
        self._search_process = _search_process(specs.values())
        # The processes that have exited, while programs that belong to them are still running.
        self._leftovers: dict[str, ProcessId] = {}
        self._previous_executions = PreviousExecutions(
            self._loop,
            self._host,
            leaders=self._leaders,
            grace=lambda name: self._spec(name).grace,
            on_cleared=self._start_or_decide,
        )
        self._followers = _group_followers(specs)
        self._units = _group_ranks(specs)
        # The processes that a request has stopped and that have not exited completely yet.
        self._requested_stops: dict[str, RequestedStop] = {}
        # The ranks that are being stopped because another rank of their unit has exited.
        self._stopping_ranks: dict[str, Child] = {}
        # The processes that a change has removed and that have not exited completely yet.
        self._leaving: dict[str, ProcessSpec] = {}
        # The processes that a change will start when others have exited.
        self._delayed: set[str] = set()
        # The waves of a stop of all processes that have not begun yet; see `plan.stop_order`.
        self._waves: list[list[str]] = []
        self._wave: list[str] = []
        # When a supervisor that was killed has begun to stop processes, in seconds since the epoch.
        self._stop_begins: dict[str, float] = {}
        self._control_socket: socket.socket | None = None
        self._control: Control | None = None
        self._usage: UsageMonitor | None = None
        self._sweep_deadline: float | None = None
        self._skip_grace = False
        self._eviction = eviction
        self._is_evicted = False
        self._loop.on_signal(STOP_SIGNAL, self.stop_or_evict)
        self._loop.on_signal(KILL_SIGNAL, self._kill)
        # A child process would inherit SIG_IGN, but it does not inherit a handler. These signals
        # therefore get a handler that does nothing.
        for number in (signal.SIGINT, signal.SIGHUP):
            self._loop.on_signal(number, lambda: None)

    # --- the run ---

    def launch(self, *, is_refusable: bool = True) -> None:
        """Start every process that can start immediately.

        Raises LaunchRefused if one of these processes cannot be started. In that case, call
        `roll_back`. If ``is_refusable`` is false, because the launcher does not wait for the
        result, such a process has failed instead.
        """
        self._listen()
        self._record_launch()
        self._start_or_decide(self._specs, launching=is_refusable)

    def continue_after_eviction(self, ending: Ending) -> None:
        """Continue a run that the system had stopped and starts again.

        No process of it is running. Call this method instead of `launch`. If ``ending`` is a
        restart, all processes start again. Otherwise, the experiment has finished.
        """
        state = self._state
        if state.created is None:
            # It was stopped before it had started a process.
            self.launch(is_refusable=False)
            return
        self._listen()
        # The machine can be another one, which was booted at another time.
        self._clock = LaunchClock(state.created, boot_time() - (time.time() - state.created))
        if not state.stopping and not (state.restarting and ending.restart):
            self._record_ending(ending)
        for name, track in (*state.tracks.items(), *state.leaving.items()):
            if track.pid is not None:
                self._record("exited", name, code=None, **self._eviction_details(ending))
        for number in list(state.requests):
            self.record_request_done(number)
        if state.stopping:
            self._stop_processes()
        else:
            self._record("restarted", evicted=True)
            self._start_or_decide(self._specs)

    def _eviction_details(self, ending: Ending) -> dict[str, Any]:
        """Return the details of the exit of a process that the system has stopped."""
        if ending.restart is None or self._state.stopping:
            return self._stop_details("stopped")
        return {
            "reason": ending.reason,
            "reason_code": ReasonCode.EXPERIMENT_RESTARTS,
            "restarts_in": ending.restart.delay,
            "cause": ending.cause,
        }

    def _record_launch(self) -> None:
        launched = boot_time()
        self._record("launched", boot_seconds=launched)
        self._clock = LaunchClock(self._state.created, launched)

    def resume(self, on_resumed: Callable[[], None]) -> None:
        """Continue the work of a supervisor that was killed.

        ``on_resumed`` is called in `run`, when the exits in the meantime have been recorded and the
        processes have been started that can start now.
        """
        state = self._state
        self._listen()
        if state.created is None:
            # The supervisor was killed before it had started a process.
            self._record_launch()
        else:
            self._clock = LaunchClock(state.created, state.launched_boot_seconds)
            self._record("supervisor-replaced", reason="the supervisor was killed")
        if self._latest_change is not None and self._latest_change["revision"] > state.revision:
            self._record_change(self._latest_change)
        self._leaving.update({name: self._old_specs[name] for name in state.leaving})
        self._adopt_processes()
        self._stop_leftovers_again()
        for number, request in list(state.requests.items()):
            # While the experiment is being stopped or restarted, requests are given up.
            self._get_control().resume(number, request)
        if state.stopping:
            self._stop_begins = self._recorded_stop_begins()
            self._stop_processes()
        elif state.restarting:
            self._stop_for_restart(max(0.0, state.restart_at - time.time()))
        else:
            self._resume_restarts()
        # The exits that have already been noticed are handled first.
        self._loop.post(self._resume_deadlines)
        self._loop.post(lambda: self._start_or_decide(self._specs))
        exited = [
            child
            for child in self._adopted.values()
            if not self._host.is_running(child.name, ProcessId(child.pid, child.birth))
        ]
        deadline = time.monotonic() + RESUME_SECONDS
        self._loop.post(lambda: self._call_when_recorded(exited, deadline, on_resumed))

    def _call_when_recorded(
        self, exited: Sequence[Child], deadline: float, callback: Callable[[], None]
    ) -> None:
        """Call a function when the exits of children are recorded, at the latest at a deadline."""
        remaining = [child for child in exited if self._children.get(child.name) is child]
        if remaining and time.monotonic() < deadline:
            self._loop.after(
                CHECK_INTERVAL_SECONDS,
                lambda: self._call_when_recorded(remaining, deadline, callback),
            )
            return
        callback()

    def _recorded_stop_begins(self) -> dict[str, float]:
        """Return when the supervisor that was killed has begun to stop processes."""
        from symphony.host.run.status import stop_begins

        specs = (*self._specs.values(), *self._leaving.values())
        return stop_begins(
            self._state, [{"name": spec.name, "starts_after": spec.starts_after} for spec in specs]
        )

    def _adopt_processes(self) -> None:
        tracks = {**self._state.tracks, **self._state.leaving}
        specs = [self._spec(name) for name in tracks]
        for child in self._children.adopt(specs, tracks):
            spec, track = self._spec(child.name), tracks[child.name]
            self._adopted[child.name] = child
            is_current = not track.outdated and child.name not in self._leaving
            if track.state is not State.RUNNING:
                self._handle_start(spec, child, track.log_start, launching=False)
            elif spec.ready is not None and is_current and not track.ready:
                elapsed = time.time() - (track.started or 0.0)
                self._monitor_readiness(child, track.log_start, elapsed=elapsed)
        names = list(self._adopted)
        self._loop.post(lambda: self._log_times.watch(names))
        for name, track in tracks.items():
            if track.state not in ENDED and not self.lease_gpus(name):
                self._lost_gpus.add(name)
        problems = [reason for name in self._specs if (reason := self._lost_resource(name))]
        if problems:
            self._notes.set("leases", f"{problems[0]}, while the experiment had no supervisor")

    def _stop_leftovers_again(self) -> None:
        """Stop the processes that remain in the process groups of exited processes."""
        groups = {
            name: track.group
            for name, track in self._state.tracks.items()
            if track.group is not None and self._children.get(name) is None
        }
        for name, group in groups.items():
            if self._host.is_group_of_run(group, self._leaders()):
                # The creation time of the process that has exited is not known any more.
                self._stop_leftovers(name, ProcessId(group, 0.0))

    def _resume_restarts(self) -> None:
        """Schedule the restarts that the restart policies have caused."""
        requested: set[str] = set()
        for request in self._state.requests.values():
            requested.update(request.names)
        for name, track in self._state.tracks.items():
            is_backing_off = track.state is State.PENDING and track.next_start is not None
            if is_backing_off and name not in requested:
                self._schedule_restart(name, max(0.0, (track.next_start or 0.0) - time.time()))

    def _resume_deadlines(self) -> None:
        for name, track in self._state.tracks.items():
            deadline = self._specs[name].deadline
            if deadline is not None and track.first_started is not None:
                self._deadlines[name] = track.first_started + deadline
                self._check_process_deadline(name)

    def prepare_stop(self) -> None:
        """Import the modules that a stop needs, and adopt the orphans of the processes.

        A launch does not wait for this. When the experiment is stopped, it may not be possible to
        open more files.
        """
        from symphony.host.processes import membership
        from symphony.host.supervisor import stopper
        from symphony.host.supervisor.orphans import OrphanReaper

        del membership, stopper
        if not self._host.is_remote:
            OrphanReaper(
                self._loop, lambda: {child.pid for child in self._running_children()}
            ).start()

    def run(self) -> None:
        """Supervise the processes until all of them have exited."""
        self._loop.post(self._check_deadline)
        self._loop.post(self._finish_if_all_ended)
        self._loop.post(self._apply_record_usage)
        self._loop.run()

    def roll_back(self) -> None:
        """Stop a failed launch's processes, wait until they exit, and remove what they leave
        behind.
        """
        self._loop.after(ROLL_BACK_GRACE_SECONDS, self._kill)
        self.stop()
        self.run()
        self._children.discard()

    def stop_or_evict(self) -> None:
        """Stop the experiment, because the user or the system has requested it."""
        if self._is_evicted:
            return
        ending = self._eviction()
        if ending is None or self._state.finished or self._state.stopping:
            self.stop()
        else:
            self._is_evicted = ending.restart is not None
            self._end(ending)

    def stop(self) -> None:
        """Send SIGTERM to every running process, and SIGKILL to each process that outlives its
        grace period.
        """
        if self._state.finished:
            # The supervisor is still running only because the log cannot be written.
            self._exit()
            return
        is_together = self._directory.stops_together()
        if self._state.stopping and (not is_together or self._state.together_since is not None):
            return
        is_first = not self._state.stopping
        details: dict[str, Any] = {"together": True} if is_together else {}
        self._record("stopping", **details)
        if is_first:
            self._stop_processes()
        else:
            self._waves = [[name for wave in self._waves for name in wave]]
            self._wave = []
            self._terminate_next_wave()

    def _stop_processes(self) -> None:
        """Stop the running processes, and record that no other process will start."""
        for name, track in self._state.tracks.items():
            if self._children.get(name) is None and track.state is State.PENDING:
                self._record_stopped_before(name)
        self._terminate_all()
        self._finish_if_all_ended()

    def _record_stopped_before(self, name: str) -> None:
        word = "started" if self._state.tracks[name].started is None else "restarted"
        self._record("never", name, **self._stop_details(f"stopped before it {word}"))

    def _terminate_all(self) -> None:
        """Stop all running processes, wave by wave, in the reverse of the start order.

        If the user does not want to wait for the order, all of them form one wave.
        """
        running = [child.name for child in self._running_children()]
        if self._state.stopping and self._state.together_since is not None:
            self._waves = [running]
        else:
            self._waves = self.stop_waves(running)
        self._wave = []
        self._terminate_next_wave()

    def stop_waves(self, names: Iterable[str]) -> list[list[str]]:
        """Return processes in the waves in which they are stopped; see `plan.stop_order`."""
        specs = {**self._specs, **self._leaving}
        return stop_waves(names, {name: spec.starts_after for name, spec in specs.items()})

    def grace_of(self, name: str) -> float:
        """Return the grace period of a process in seconds."""
        return self._spec(name).grace

    def _terminate_next_wave(self) -> None:
        """Stop the next wave of processes, if no process of the present one is running."""
        while self._waves and all(map(self.is_gone, self._wave)):
            self._wave = self._waves.pop(0)
            for name in self._wave:
                child = self._children.get(name)
                if child is not None:
                    self._terminate(child)

    def _terminate(self, child: Child) -> None:
        elapsed = 0.0
        begin = self._stop_begins.pop(child.name, None)
        if begin is not None:
            elapsed = max(0.0, time.time() - begin)
        grace = max(0.0, self._spec(child.name).grace - elapsed)
        self._begin_stop(child.name, ProcessId(child.pid, child.birth), grace)
        self._loop.after(grace, lambda: self._kill_child(child))

    def _begin_stop(self, name: str, process: ProcessId, grace: float) -> None:
        """Begin to stop the programs of a process, which are killed after ``grace`` seconds."""
        from symphony.host.supervisor.stopper import StopOrder

        spec = self._spec(name)
        if name in self._delayed:
            # A change restarts the process, which was started with the previous description.
            spec = self._old_specs.get(name, spec)
        self._host.begin_stop(
            self._loop,
            spec,
            process,
            StopOrder.of(spec, grace),
            # The command needs the environment, and thousands of processes can be stopped at once.
            {**self._env, **spec.env} if spec.stop_command else {},
            lambda problem: self._notes.set(f"stop {name}", problem),
        )

    def _kill_child(self, child: Child) -> None:
        if self._children.get(child.name) is child:
            self._signal_group(child, signal.SIGKILL)

    def _signal_group(self, child: Child, number: int) -> bool:
        """Send a signal to the process group of a child. Return False if it has no members."""
        is_adopted = self._adopted.get(child.name) is child
        process = ProcessId(child.pid, child.birth)
        has_exited = is_adopted and not self._host.is_running(child.name, process)
        # Another program has collected the exit status, so the pid could have been reused.
        if has_exited and not self._host.is_group_of_run(child.pid, self._leaders()):
            return False
        return self._host.signal_group(child.name, child.pid, number)

    def _kill(self) -> None:
        """Kill every process immediately, without a grace period."""
        self._skip_grace = True
        self.stop()
        self._waves.clear()
        for child in self._running_children():
            self._signal_group(child, signal.SIGKILL)
            self._begin_stop(child.name, ProcessId(child.pid, child.birth), 0.0)
        for name, process in self._leftovers.items():
            self._begin_stop(name, process, 0.0)

    # --- requests; see `symphony.host.supervisor.control` ---

    def _listen(self) -> None:
        """Accept requests from now on."""
        try:
            self._control_socket = control_socket.listen(self._directory)
        except OSError as exc:
            # Some file systems do not support sockets. The experiment runs without requests.
            log_exception(exc)
            return
        self._loop.watch(self._control_socket.fileno(), self._accept_request)

    def _accept_request(self) -> None:
        if self._control_socket is None:
            return
        self._get_control().accept(self._control_socket)

    def _get_control(self) -> Control:
        if self._control is None:
            # Most experiments receive no requests, so the launch does not import the module.
            from symphony.host.supervisor.control import Control

            self._control = Control(self, self._loop)
        return self._control

    def record_request(self, kind: str, names: Sequence[str], grace: float | None) -> int:
        """Record a request that begins, and return its number."""
        number = self._state.request_count + 1
        self._record("requested", number=number, request=kind, names=names, grace=grace)
        return number

    def record_request_done(self, number: int) -> None:
        """Record that a request is done, or that it will not be done."""
        self._record("request-done", number=number)

    @property
    def state(self) -> RunState:
        """The state of the experiment."""
        return self._state

    @property
    def specs(self) -> Mapping[str, ProcessSpec]:
        """The descriptions of the processes."""
        return self._specs

    def is_gone(self, name: str) -> bool:
        """Return whether neither a process nor a remaining member of its group is running."""
        return self._children.get(name) is None and name not in self._leftovers

    def announce_stop(self, name: str, *, restarts: bool) -> None:
        """Note that a process will be stopped, because its own restart policy applies no more."""
        previous = self._requested_stops.get(name)
        kill_time = math.inf if previous is None else previous.kill_time
        self._requested_stops[name] = RequestedStop(kill_time, restarts)

    def request_stop(self, name: str, grace: float | None, *, restarts: bool) -> None:
        """Stop a process, which will be started again if ``restarts`` is true.

        ``grace`` is the grace period in seconds, or None for that of the process. If the process is
        already being stopped, its grace period can only become shorter. When no process of its
        group is running any more, `Control.handle_gone` is called.
        """
        seconds = self._spec(name).grace if grace is None else grace
        kill_time = time.monotonic() + seconds
        previous = self._requested_stops.get(name)
        track = self._state.tracks.get(name) or self._state.leaving.get(name)
        recorded = None if track is None else track.kill_at
        if previous is not None:
            kill_time = min(kill_time, previous.kill_time)
        if recorded is not None:
            # A supervisor that was killed had begun to stop the process.
            kill_time = min(kill_time, time.monotonic() + recorded - time.time())
        stop = RequestedStop(kill_time, restarts)
        self._requested_stops[name] = stop
        child = self._children.get(name)
        if child is not None:
            kill_at = time.time() + max(0.0, kill_time - time.monotonic())
            self._record("terminating", name, kill_at=kill_at, restarts=restarts)
            remaining = max(0.0, kill_time - time.monotonic())
            self._begin_stop(name, ProcessId(child.pid, child.birth), remaining)
            self._loop.after(remaining, lambda: self._kill_stopped(stop, child))
        elif name in self._leftovers:
            self._begin_stop(name, self._leftovers[name], max(0.0, kill_time - time.monotonic()))

    def _kill_stopped(self, stop: RequestedStop, child: Child) -> None:
        if self._requested_stops.get(child.name) is stop:
            self._kill_child(child)

    def stop_strays_of(self, names: Collection[str], kill_time: float) -> bool:
        """Stop the descendants of exited processes that have left their process groups.

        Send SIGTERM once to each descendant and, from ``kill_time`` on the monotonic clock on,
        SIGKILL. Return whether there were any.
        """
        is_grace_over = self._is_grace_over(kill_time)
        return self._host.stop_strays(self._leaders(), kill=is_grace_over, owners=names)

    def stop_pending(self, name: str) -> None:
        """Record that a process that waits for its start or restart is stopped."""
        self._record_stopped_before(name)
        self._start_or_decide(self._followers.get(name, []))

    def start_again(self, names: Sequence[str]) -> None:
        """Start processes that are not running, as soon as their start conditions are met."""
        self._delayed.difference_update(names)
        for name in names:
            self._record("start-requested", name)
        self._start_or_decide(names)

    def waits_for_leftovers(self, name: str) -> bool:
        """Return whether a process waits until programs of its previous execution have exited."""
        track = self._state.tracks.get(name)
        if track is None:
            return False
        return track.state is State.PENDING and track.reason == WAITING_FOR_LEFTOVERS

    def cancel_starts(self, names: Iterable[str]) -> None:
        """Do not delay the starts of processes any more, because `start_again` is not called."""
        self._delayed.difference_update(names)

    def prepare_change(self, request: Mapping[str, Any]) -> Change:
        """Check that a change is possible; see `symphony.host.supervisor.change`."""
        from symphony.host.supervisor.change import prepare

        return prepare(self._directory, request, self._state, self._specs, self._host)

    def begin_change(
        self, change: Change, request: Mapping[str, Any], descriptors: list[int]
    ) -> int:
        """Replace the description of the experiment, and return the number of the request.

        Raises RequestRefused if a resource is missing. In this case, nothing is changed. The caller
        then stops the removed and restarted processes, and starts processes again with
        `start_again`.
        """
        from symphony.host.run import change_directory
        from symphony.host.supervisor.change import take_resources

        take_resources(change, request, descriptors, self._gpus, self._host)
        change_directory.commit(self._directory, change.event["directory"])
        self._leaving.update({name: self._specs[name] for name in change.removed})
        deadline = self._policies.deadline
        self._old_specs = change.old_specs
        self._specs, self._policies = change.specs, change.policies
        self._env = {**self._inherited_env, **change.manifest["env"]}
        self._followers = _group_followers(self._specs)
        self._units = _group_ranks(self._specs)
        self._holds.update(change.holds)
        self._gpus.update(change.gpus)
        for name in (*change.removed, *change.restarted):
            self._deadlines.pop(name, None)
            self._overdue.discard(name)
        self._delayed.update((*change.added, *change.restarted))
        self._record_change(change.event)
        number = self._state.request_count
        change_directory.finish(self._directory, change.manifest)
        self._event_log.set_processes(len(self._specs))
        self._log_times.set_limits({name: spec.log_limit for name, spec in self._specs.items()})
        if self._search_process is None:
            self._search_process = _search_process(self._specs.values())
        self._children.change(list(self._specs), change.manifest["env"])
        if self._policies.deadline != deadline:
            self._loop.post(self._check_deadline)
        self._apply_record_usage()
        # Other start conditions and policies can have an immediate effect.
        self._loop.post(lambda: self._start_or_decide(self._specs))
        return number

    def resume_change(self, to_start: Iterable[str]) -> Change:
        """Return the latest change, which a killed supervisor has begun.

        ``to_start`` contains the processes that it has not started yet.
        """
        from symphony.host.supervisor.change import resume

        self._delayed.update(to_start)
        return resume(self._directory, self._specs, self._old_specs)

    def _record_change(self, event: Event) -> None:
        details = {key: value for key, value in event.items() if key not in ("event", "at")}
        self._record("changed", **details)

    def end_change(self, change: Change) -> None:
        """Release the resources of the removed processes, which have exited."""
        for name in change.removed:
            self._leaving.pop(name, None)
            for descriptor in self._gpus.pop(name, []):
                os.close(descriptor)
            self._children.remove(name)
        for address in change.old_addresses:
            hold = self._holds.pop(port_of(address), None)
            if hold is not None:
                os.close(hold)
        change.close()
        self._host.release_addresses(change.old_addresses)
        self._loop.post(self._finish_if_all_ended)

    def _spec(self, name: str) -> ProcessSpec:
        """Return the description of a process, which can be one that a change has removed."""
        return self._specs.get(name) or self._leaving[name]

    def lease_gpus(self, name: str) -> bool:
        """Lease the GPUs of a process again. Return False if another experiment has leased them."""
        spec = self._spec(name)
        if not spec.gpus or name in self._gpus or self._host.is_remote:
            return True
        from symphony.host.resources.leases import GpuLeases
        from symphony.host.resources.unsupervised import UnsupervisedUsage

        unsupervised = UnsupervisedUsage(all_roots(self._directory.path.parent), self._directory)
        leases = GpuLeases(spec.env[GPU_VARIABLE].split(","), unsupervised)
        if leases.lease(len(leases.devices)) is None:
            return False
        self._gpus[name] = list(leases.leases.values())
        return True

    def send_signal(
        self, names: Sequence[str], number: signal.Signals, *, force: bool
    ) -> Mapping[str, str]:
        """Send a signal to the programs of running processes that handle it.

        Return why it cannot be sent to processes; see `ProcessHost.send_signals`.
        """
        leaders = self._leaders()
        problems = self._host.send_signals(
            {name: leaders[name] for name in names}, number, force=force
        )
        if not problems:
            for name in names:
                self._record("signaled", name, signal=number.name)
        return problems

    def terminal(self, name: str) -> JoinableTerminal | None:
        """Return the terminal of a running process, or None if it has none."""
        return self._children.terminal(name)

    # --- resource use ---

    def show_usage(self, client: socket.socket) -> None:
        """Send samples of the resource use to a client until it closes the connection."""
        self._get_usage().join(client)

    def _get_usage(self) -> UsageMonitor:
        if self._usage is None:
            # Most experiments do not record their resource use.
            from symphony.host.supervisor.usage import UsageMonitor

            self._usage = UsageMonitor(self._loop, self._directory, self._sample_usage)
        return self._usage

    def _sample_usage(self, on_sample: OnSample) -> None:
        specs = (*self._specs.values(), *self._leaving.values())
        devices = {spec.name: spec.devices for spec in specs if spec.devices}
        self._host.sample_usage(self._leaders(), devices, on_sample)

    def _apply_record_usage(self) -> None:
        """Begin or stop to record the resource use, as the policies require."""
        if self._policies.record_usage or self._usage is not None:
            self._get_usage().set_recording(self._policies.record_usage)

    def _running_children(self) -> list[Child]:
        found = (self._children.get(name) for name in (*self._specs, *self._leaving))
        return [child for child in found if child is not None]

    def _leaders(self) -> dict[str, ProcessId]:
        children = self._running_children()
        return {child.name: ProcessId(child.pid, child.birth) for child in children}

    # --- starting ---

    def _start_or_decide(self, names: Iterable[str], *, launching: bool = False) -> None:
        """Start the processes in ``names`` that can start now, in one batch.

        The start of a process, or the decision that it will never start, affects the processes that
        start after it. Repeat the procedure for those processes until nothing changes. Raises
        LaunchRefused if ``launching`` is true and a process cannot be started.
        """
        if not launching:
            self._apply_policies()
        while names and not self._is_stopping:
            to_start: list[str] = []
            never_start: list[str] = []
            names = list(dict.fromkeys(names))
            blocked = self._blocked_by_leftovers(names)
            for name in names:
                verdict = self._verdict(name, blocked)
                if verdict is start_order.START:
                    to_start.append(name)
                elif verdict is not None:
                    self._record_obstacle(name, verdict)
                    if verdict.word == "never":
                        never_start.append(name)
            self._start(to_start, launching=launching)
            names = []
            for name in (*to_start, *never_start):
                names.extend(self._followers.get(name, ()))
        if not launching:
            self._finish_if_all_ended()

    def _blocked_by_leftovers(self, names: Collection[str]) -> set[str]:
        """Return the processes of which programs of the previous execution are still running.

        These programs are stopped.
        """
        tracks = self._state.tracks
        # Processes that have not run yet need no look at all programs of the machine.
        restarted = [
            name
            for name in names
            if name in tracks
            and tracks[name].state is State.PENDING
            and tracks[name].group is not None
            and self.is_gone(name)
        ]
        if not restarted:
            return set()
        exited = [name for name in tracks if self.is_gone(name)]
        try:
            return self._previous_executions.clear(exited, restarted)
        except OSError as exc:
            # The programs cannot be listed. The processes must start nevertheless.
            self._handle_error(exc)
            return set()

    def _record_obstacle(self, name: str, verdict: start_order.Verdict) -> None:
        """Record why a process cannot start now, or why it will never start."""
        if verdict.word == "never":
            self._record_final(
                "never", name, reason=verdict.reason, reason_code=ReasonCode.NEVER_STARTED
            )
        elif verdict.reason != self._state.tracks[name].reason:
            is_restart = verdict.reason == WAITING_FOR_LEFTOVERS
            details: dict[str, Any] = {"reason_code": ReasonCode.BACKING_OFF} if is_restart else {}
            self._record("waiting", name, reason=verdict.reason, **details)

    def _stop_left_behind(self, name: str) -> None:
        self._blocked_by_leftovers([name])

    def _verdict(self, name: str, blocked: Collection[str]) -> start_order.Verdict | None:
        """Return the verdict on whether a process can start now. Those in ``blocked`` must wait.

        Return None if the process has already started, is backing off or will never start.
        """
        track = self._state.tracks[name]
        if name in self._delayed or self._decide_unit(self.ranks_with(name)) is not None:
            return None
        # A timer starts a process again whose first start has failed.
        if track.state is not State.PENDING or track.started is not None or track.failures_in_row:
            return None
        verdict = start_order.verdict(self._specs[name].starts_after, self._state.tracks)
        if verdict is start_order.START and name in blocked:
            return start_order.Verdict("wait", WAITING_FOR_LEFTOVERS)
        return verdict

    def _replace_master_ports(self, names: Collection[str]) -> None:
        """Let the ranks of units that restart as a whole meet at another port, if necessary."""
        started = set(names)
        for unit, ranks in self._units.items():
            if not started.issuperset(ranks) or self._state.tracks[ranks[0]].group is None:
                continue
            from symphony.host.supervisor.master_ports import replace_master_port

            try:
                new = replace_master_port(self._directory, self._host, unit)
            except OSError as exc:
                # The manifest cannot be written. Most servers can bind the previous port, too.
                self._handle_error(exc)
                continue
            if new is None:
                continue
            self._specs = {
                **self._specs,
                **{name: new.spec(self._specs[name]) for name in ranks},
            }
            self._env = {**self._env, **new.shared_env()}
            self._holds.update(new.holds)
            shared = self._directory.load_manifest(is_new=True)["env"]
            self._children.change(list(self._specs), shared)

    def _start(self, names: Sequence[str], *, launching: bool = False) -> None:
        if not launching:
            self._replace_master_ports(names)
        specs = [self._specs[name] for name in names if self._is_available(name)]
        for spec in specs:
            self._release_ports(spec)
        log_starts = {
            spec.name: _file_size(self._directory.log(spec.name)) for spec in specs if spec.ready
        }
        not_started = {spec.name: spec for spec in specs}
        try:
            for spec, child in self._children.start(
                list(map(self._with_derived_variables, specs)), self._env
            ):
                not_started.pop(spec.name, None)
                self._handle_start(spec, child, log_starts.get(spec.name, 0), launching=launching)
        except Exception as exc:
            if launching:
                raise
            self._handle_error(exc)
            for name, spec in not_started.items():
                # The backend may have started the process without reporting it.
                child = self._children.get(name) or OSError(errno.EIO, str(exc))
                self._handle_start(spec, child, log_starts.get(name, 0), launching=False)
        self._loop.post(lambda: self._log_times.watch(names))

    def _with_derived_variables(self, spec: ProcessSpec) -> ProcessSpec:
        """Return a description with the variables that follow from the other settings.

        `os.environ` contains the variables of the process that was started last, so they must not
        be derived from it.
        """
        environment = {**self._inherited_env, **self._env}
        if environment.get(DIRECTORY_VARIABLE) == self._inherited_env.get(DIRECTORY_VARIABLE):
            # The experiment does not set the variable.
            spec = with_directory_variable(spec)
        if spec.unit is None:
            return spec
        cores = len(os.sched_getaffinity(0))
        return with_thread_limit(spec, len(self.ranks_with(spec.name)), cores, environment)

    def _is_available(self, name: str) -> bool:
        """Return whether a process can be started with its ports and GPUs.

        If it cannot, record this.
        """
        reason = self._lost_resource(name)
        if not reason:
            return True
        error = StartRefused(errno.EBUSY, f"cannot start: {reason}")
        self._handle_failed_start(self._specs[name], error, str(error.strerror))
        return False

    def _lost_resource(self, name: str) -> str:
        """Return which resource of a process another experiment has leased, or ``""`` if none.

        If the resource is free again, lease it.
        """
        lost = self._lost_ports.intersection(self._specs[name].releases)
        for port in sorted(lost):
            from symphony.host.resources.leases import take_lease

            if take_lease("port", str(port)) is None:
                return f"another experiment has reserved port {port} of {name!r}"
            self._lost_ports.discard(port)
        if name in self._lost_gpus:
            if not self.lease_gpus(name):
                return f"another experiment has leased the GPUs of {name!r}"
            self._lost_gpus.discard(name)
        return ""

    def _handle_start(
        self, spec: ProcessSpec, child: Child | OSError, log_start: int, *, launching: bool
    ) -> None:
        """Record that a process has started, or that it could not be started.

        Raises LaunchRefused if ``launching`` is true and the process could not be started.
        """
        if isinstance(child, OSError):
            reason = _start_error_message(spec, child)
            if launching:
                raise LaunchRefused(f"process {spec.path!r}: {reason}") from child
            self._handle_failed_start(spec, child, reason)
            return
        self._previous_executions.note_start(spec.name)
        is_ready = spec.ready is None
        details = {} if is_ready else {"log_start": log_start}
        self._record(
            "started", child.name, pid=child.pid, birth=child.birth, ready=is_ready, **details
        )
        self._watch_deadline(spec)
        if not is_ready:
            self._monitor_readiness(child, log_start)

    def _handle_failed_start(self, spec: ProcessSpec, error: OSError, reason: str) -> None:
        if isinstance(error, StartRefused):
            # For example, the user has closed the tmux session, which will not be created again.
            self._record_final(
                "never", spec.name, reason=reason, reason_code=ReasonCode.CANNOT_START
            )
            return
        # The process did not run, so the time since its previous start does not count as run time.
        track = dataclasses.replace(self._state.tracks[spec.name], started=None)
        now = time.time()
        restart = restart_policy.decide_restart(spec.restart, track, None, now, self._backoff)
        if restart is None:
            self._record_final(
                "never", spec.name, reason=reason, reason_code=ReasonCode.CANNOT_START
            )
            return
        self._record("start-failed", spec.name, at=now, **_back_off_details(restart, reason))
        self._schedule_restart(spec.name, restart.delay)

    def _release_ports(self, spec: ProcessSpec) -> None:
        for port in spec.releases:
            hold = self._holds.pop(port, None)
            if hold is not None:
                os.close(hold)

    def _monitor_readiness(self, child: Child, log_start: int, *, elapsed: float = 0.0) -> None:
        """Test whether a process that started ``elapsed`` seconds ago is ready."""
        name = child.name
        spec = self._specs[name]

        def is_active() -> bool:
            is_stopping = self._is_stopping or name in self._requested_stops
            return self._children.get(name) is child and not is_stopping

        def handle_ready() -> None:
            self._record("ready", name)
            self._start_or_decide(self._followers.get(name, []))

        def handle_timeout(result: str) -> None:
            reason = not_ready_reason(result, spec.ready_timeout)
            self._record("not-ready", name, reason=reason, result=result)
            self._start_or_decide(self._followers.get(name, []))

        def handle_result(result: str) -> None:
            is_late = self._state.tracks[name].not_ready_in_time
            reason = not_ready_reason(result, spec.ready_timeout if is_late else None)
            self._record("tested", name, reason=reason, result=result)

        environment = {**self._env, **spec.env}
        log = self._directory.log(name)
        try:
            process = ProcessId(child.pid, child.birth)
            probe = self._host.make_probe(
                spec, process, log, log_start, environment, self._search_process
            )
        except Exception as exc:
            probe = failing_probe(f"the probe cannot be run: {exc}")
        is_late = self._state.tracks[name].not_ready_in_time
        monitor = ReadinessMonitor(
            self._loop,
            probe,
            None if is_late else max(0.0, spec.ready_timeout - elapsed),
            is_active=is_active,
            on_ready=handle_ready,
            on_timeout=handle_timeout,
            on_result=handle_result,
        )
        monitor.start()

    # --- exits and restarts ---

    def _handle_exit(
        self, child: Child, code: int | None, reason: str = "", log_bytes: int | None = None
    ) -> None:
        name = child.name
        self._log_times.record(name)
        now = time.time()
        stop = self._requested_stops.get(name)
        restart = None
        if stop is not None and stop.restarts and not self._is_stopping:
            requested = restart_policy.Restart(delay=0.0, in_row=0)
            details = _back_off_details(requested, RESTART_REQUESTED)
        elif (
            self._state.stopping
            or name in self._leaving
            or (stop is not None and not self._state.restarting)
        ):
            details = self._stop_details("stopped")
        else:
            restart, details = self._decide_exit(name, code, reason, now)
        if log_bytes is not None:
            details["log_bytes"] = log_bytes
        if "restarts_in" not in details:
            # The GPUs must be free before the exit is recorded, because a program that waits for
            # the exit may then launch another experiment that needs them.
            self._release_unused_gpus(name)
        if restart is None:
            self._record_final("exited", name, at=now, code=code, **details)
        else:
            self._record("exited", name, at=now, code=code, **details)
            self._schedule_restart(name, restart.delay)
        process = ProcessId(child.pid, child.birth)
        self._host.handle_exit(name, process)
        has_leftovers = self._host.is_stopping(name) or self._signal_group(child, 0)
        self._adopted.pop(name, None)
        if has_leftovers:
            self._stop_leftovers(name, process)
        else:
            self._handle_gone(name)
        self._start_or_decide(self._followers.get(name, []))

    def _decide_exit(
        self, name: str, code: int | None, reason: str, now: float
    ) -> tuple[restart_policy.Restart | None, dict[str, Any]]:
        """Return the restart of a process that no request has stopped, and the details of its exit.

        If the unit of a rank restarts or has failed, this determines what happens to the rank.
        """
        unit = self._decide_unit(self.ranks_with(name))
        if unit is not None and unit.action == FAIL_UNIT:
            return None, {"reason": unit.reason, "reason_code": ReasonCode.UNIT_FAILED}
        if unit is not None and name not in self._overdue:
            restart = restart_policy.Restart(max(0.0, unit.next_start - now), unit.in_row)
            return restart, _back_off_details(restart, unit.reason)
        restart_of_process = self._decide_restart(name, code, now)
        if restart_of_process is None:
            return None, self._final_details(name, code, reason)
        exit_code = "unknown" if code is None else str(code)
        return restart_of_process, _back_off_details(restart_of_process, f"exit code {exit_code}")

    def _decide_restart(
        self, name: str, code: int | None, now: float
    ) -> restart_policy.Restart | None:
        """Return the restart of a process that has exited by itself, or None for no restart."""
        if name in self._overdue or self._state.restarting:
            return None
        policy, track = self._specs[name].restart, self._state.tracks[name]
        return restart_policy.decide_restart(policy, track, code, now, self._backoff)

    def _final_details(self, name: str, code: int | None, reason: str) -> dict[str, Any]:
        """Return the details of the exit of a process that its restart policy does not restart."""
        if name in self._overdue:
            return {"reason": DEADLINE_EXCEEDED, "reason_code": ReasonCode.DEADLINE_EXCEEDED}
        policy, track = self._specs[name].restart, self._state.tracks[name]
        reason_code, reason = _explain_exit(code, reason)
        if code and not reason and self._directory.is_disk_full():
            reason = "no space was left on the disk of its log"
        if policy.applies_to(code) and policy.is_used_up(track.retries):
            reason = _with_used_restarts(reason, policy)
        return {"reason": reason, "reason_code": reason_code}

    def _handle_gone(self, name: str) -> None:
        """Continue the requests that wait until no process of a group is running."""
        self._requested_stops.pop(name, None)
        self._terminate_next_wave()
        if self._control is not None:
            self._control.handle_gone(name)

    def _schedule_restart(self, name: str, delay: float) -> None:
        next_start = self._state.tracks[name].next_start
        if delay:
            # The programs that the process has left behind are stopped in the meantime.
            self._loop.post(functools.partial(self._stop_left_behind, name))
        self._loop.after(delay, lambda: self._restart(name, next_start))

    def _restart(self, name: str, next_start: float | None) -> None:
        """Start a process again, unless a request has stopped or started it, or the experiment was
        restarted, since ``next_start``, the time of its next start, was recorded.
        """
        track = self._state.tracks.get(name)
        if track is None or self._is_stopping:
            return
        if track.state is not State.PENDING or track.next_start != next_start:
            return
        ranks = self.ranks_with(name)
        is_unit_busy = self._is_unit_requested(ranks) or not all(map(self.is_gone, ranks))
        if name in self._leftovers or is_unit_busy:
            self._loop.after(CHECK_INTERVAL_SECONDS, lambda: self._restart(name, next_start))
            return
        names = ranks or [name]
        if self._blocked_by_leftovers(names):
            self._loop.after(CHECK_INTERVAL_SECONDS, lambda: self._restart(name, next_start))
            return
        self._start(names)
        for started in names:
            self._start_or_decide(self._followers.get(started, []))

    def _stop_leftovers(self, name: str, process: ProcessId) -> None:
        """Stop the programs that an exited process has left behind, and wait for their exits.

        In a stop, they have received the signal, or receive it when it is their turn.
        """
        self._leftovers[name] = process
        if not self._host.is_stopping(name):
            stop = self._requested_stops.get(name)
            grace = self._spec(name).grace
            if self._skip_grace:
                grace = 0.0
            elif stop is not None:
                grace = min(grace, max(0.0, stop.kill_time - time.monotonic()))
            self._begin_stop(name, process, grace)

        def check() -> None:
            if self._host.is_stopping(name):
                self._loop.after(CHECK_INTERVAL_SECONDS, check)
                return
            del self._leftovers[name]
            track = self._state.tracks.get(name)
            if track is None or track.state in ENDED:
                self._release_unused_gpus(name)
            self._handle_gone(name)
            self._finish_if_all_ended()

        check()

    def _release_unused_gpus(self, name: str) -> None:
        """Release the GPUs of an exited process, unless descendants of it are still running.

        Descendants outside its process group keep the GPUs until the experiment finishes.
        """
        is_needed = self._policies.on_failure == RESTART and not self._state.stopping
        if name not in self._gpus or is_needed:
            return
        if self._host.has_descendants(name, self._leaders()):
            return
        for descriptor in self._gpus.pop(name, []):
            os.close(descriptor)

    # --- the end of the run ---

    def _finish_if_all_ended(self) -> None:
        self._apply_policies()
        if self._children or self._leftovers or self._state.finished:
            return
        if self._state.restarting:
            self._restart_if_due()
            return
        if self._state.waits_for_start:
            # The supervisor keeps running, so that a request can start the stopped processes.
            return
        if all(track.state in ENDED for track in self._state.tracks.values()):
            self._finish()

    def _finish(self) -> None:
        if self._sweep():
            self._loop.after(CHECK_INTERVAL_SECONDS, self._finish_if_all_ended)
            return
        self._log_times.close()
        for leases in self._gpus.values():
            for descriptor in leases:
                os.close(descriptor)
        self._gpus = {}
        self._record("finished")
        # If the log cannot be written, the supervisor keeps running until all events are written.
        # An experiment that the user stops is usually deleted next, so its supervisor does not
        # wait.
        is_stopped = self._state.stopping and self._state.ending is None
        if self._event_log.is_complete or is_stopped:
            self._exit()

    def _exit(self) -> None:
        if self._state.finished:
            # No other supervisor will need the environment of the launcher.
            with contextlib.suppress(OSError):
                self._directory.launch_settings.unlink()
        self._event_log.release_reserve()
        self._loop.stop()

    def _sweep(self) -> bool:
        """Stop the run's processes that are in none of the children's process groups.

        Send SIGTERM to each process when it is found, and SIGKILL after the experiment's longest
        grace period. Return whether there were any such processes.
        """
        try:
            return self._stop_strays()
        except Exception as exc:
            # The processes of the run cannot be listed. All other steps of a stop must follow.
            self._handle_error(exc)
            return False

    def _stop_strays(self) -> bool:
        deadline = self._sweep_deadline
        is_grace_over = self._is_grace_over(deadline)
        has_strays = self._host.stop_strays(self._leaders(), kill=is_grace_over)
        if has_strays and deadline is None:
            specs = (*self._specs.values(), *self._leaving.values())
            longest_grace = max(spec.grace for spec in specs)
            self._sweep_deadline = time.monotonic() + longest_grace
        return has_strays

    def _is_grace_over(self, kill_time: float | None) -> bool:
        """Return whether processes are killed now. ``kill_time`` is on the monotonic clock."""
        is_late = kill_time is not None and time.monotonic() >= kill_time
        return self._skip_grace or is_late

    # --- the policies of the experiment ---

    @property
    def _is_stopping(self) -> bool:
        """True if the processes are being stopped, for good or for a restart."""
        return self._state.is_stopping_all

    def _apply_policies(self) -> None:
        """Stop or restart the experiment or a unit of ranks if its policies require it."""
        self._apply_to_units()
        if not self._state.stopping:
            ending = self._decide_end(self._state.tracks)
            if ending is not None:
                self._end(ending)

    # --- units of ranks; see `symphony.plan.unit_decision` ---

    def ranks_with(self, name: str) -> list[str]:
        """Return all ranks of the unit of a process, or an empty list if it is not a rank."""
        spec = self._specs.get(name)
        if spec is None or spec.unit is None:
            return []
        return self._units[spec.unit]

    def _is_unit_requested(self, ranks: Collection[str]) -> bool:
        """Return whether a request is stopping or starting ranks of a unit."""
        requests = self._state.requests.values()
        return any(not set(request.names).isdisjoint(ranks) for request in requests)

    def _decide_unit(self, ranks: Sequence[str]) -> UnitDecision | None:
        """Return the decision about a unit. It follows only from the recorded events, so that a new
        supervisor comes to the same decision.
        """
        if not ranks or self._is_stopping or self._is_unit_requested(ranks):
            return None
        return decide_unit({name: self._state.tracks[name] for name in ranks})

    def _apply_to_units(self) -> None:
        """Stop the other ranks of each unit in which a rank has failed or will be restarted."""
        for ranks in self._units.values():
            decision = self._decide_unit(ranks)
            if decision is not None:
                for rank in ranks:
                    self._apply_to_rank(rank, decision)

    def _apply_to_rank(self, name: str, decision: UnitDecision) -> None:
        child, track = self._children.get(name), self._state.tracks[name]
        if child is not None:
            if self._stopping_ranks.get(name) is not child:
                self._stopping_ranks[name] = child
                self._terminate(child)
        elif decision.action == FAIL_UNIT and track.state is State.PENDING:
            self._record_final(
                "never", name, reason=decision.reason, reason_code=ReasonCode.UNIT_FAILED
            )
        elif decision.action == RESTART_UNIT and track.state in ENDED:
            # A rank that has succeeded starts again with the others.
            self._record("start-requested", name)

    def _decide_end(self, tracks: Mapping[str, Track]) -> Ending | None:
        state, launched = self._state, self._state.created or 0.0
        return decide_end(
            self._policies,
            tracks,
            launched=launched,
            now=self._clock.now(),
            history=RestartHistory(
                restarts=state.restarts - state.evictions,
                in_row=state.restarts_in_row,
                started=state.restarted or launched,
            ),
            backoff=self._backoff,
        )

    def _end(self, ending: Ending) -> None:
        self._record_ending(ending)
        if ending.restart is None:
            self._stop_processes()
        else:
            self._stop_for_restart(ending.restart.delay)

    def _record_ending(self, ending: Ending) -> None:
        details: dict[str, Any] = {
            "reason": ending.reason,
            "reason_code": ending.reason_code,
            "failed": ending.failed,
            "cause": ending.cause,
        }
        restart = ending.restart
        if restart is None:
            self._record("ending", action=ending.action, **details)
            return
        self._record("restarting", restarts_in=restart.delay, in_row=restart.in_row, **details)

    def _stop_for_restart(self, delay: float) -> None:
        """Stop the running processes. After ``delay`` seconds, the experiment starts again."""
        self._terminate_all()
        self._restart_due = time.monotonic() + delay
        self._loop.after(delay, self._finish_if_all_ended)

    def _restart_if_due(self) -> None:
        """Start the experiment again if its delay has passed and nothing of it is running."""
        if time.monotonic() < self._restart_due:
            return
        if self._sweep():
            self._loop.after(CHECK_INTERVAL_SECONDS, self._finish_if_all_ended)
            return
        if self._is_evicted:
            self._log_times.close()
            self._exit()
            return
        self._sweep_deadline = None
        self._overdue.clear()
        self._deadlines.clear()
        self._record("restarted")
        self._start_or_decide(self._specs)

    def _record_final(
        self, event: str, name: str, *, at: float | None = None, **details: Any
    ) -> None:
        """Record that a process has exited or cannot start, and that its own restart policy does
        not restart it.

        If the experiment is restarted because of this, the restart is recorded first. Otherwise, a
        reader could see that all processes have finished.
        """
        at = at or time.time()
        is_part = name in self._state.tracks
        if self._policies.on_failure == RESTART and not self._is_stopping and is_part:
            line = {"event": event, "at": at, **details}
            track = after(self._state.tracks[name], line)
            ending = self._decide_end({**self._state.tracks, name: track})
            if ending is not None and ending.restart is not None:
                self._end(ending)
        if self._state.restarting and is_part:
            if event == "never":
                # The restart is already recorded for a process that is not running.
                return
            details.update(
                reason_code=ReasonCode.EXPERIMENT_RESTARTS,
                restarts_in=max(0.0, self._state.restart_at - at),
                cause=self._state.restart_cause,
            )
        self._record(event, name, at=at, **details)

    def _stop_details(self, reason: str) -> dict[str, Any]:
        """Return the details of the event for a process that is stopped.

        ``reason`` is the reason if the user has stopped the experiment.
        """
        ending = self._state.ending
        if ending is None:
            return {"stopped": True, "reason": reason, "reason_code": ReasonCode.STOPPED}
        details: dict[str, Any] = {"reason": ending.reason, "reason_code": ending.reason_code}
        return {"stopped": True, **details} if ending.stops else details

    def _check_deadline(self) -> None:
        """Stop the experiment at its deadline, and schedule the next check."""
        if self._policies.deadline is None or self._state.finished:
            return
        self._apply_policies()
        if not self._state.stopping:
            launched, now = self._state.created or 0.0, self._clock.now()
            remaining = seconds_to_deadline(self._policies, launched=launched, now=now)
            self._after_by_clock(remaining or 0.0, self._check_deadline)

    def _watch_deadline(self, spec: ProcessSpec) -> None:
        """Stop a process when its own deadline has passed since its first start."""
        if spec.deadline is not None and spec.name not in self._deadlines:
            self._deadlines[spec.name] = self._clock.now() + spec.deadline
            self._check_process_deadline(spec.name)

    def _check_process_deadline(self, name: str) -> None:
        due = self._deadlines.get(name)
        track = self._state.tracks.get(name)
        if due is None or track is None or track.state in ENDED or self._is_stopping:
            return
        remaining = due - self._clock.now()
        if remaining > 0:
            self._after_by_clock(remaining, lambda: self._check_process_deadline(name))
            return
        self._overdue.add(name)
        child = self._children.get(name)
        if child is not None:
            self._terminate(child)
            return
        self._record_final(
            "never", name, reason=DEADLINE_EXCEEDED, reason_code=ReasonCode.DEADLINE_EXCEEDED
        )
        self._start_or_decide(self._followers.get(name, []))

    def _after_by_clock(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call ``callback`` after at most ``seconds`` seconds.

        The timers of the event loop do not advance while the machine is suspended, so a long time
        is divided into shorter ones.
        """
        self._loop.after(min(seconds, DEADLINE_CHECK_SECONDS), callback)

    # --- the event log ---

    def _record(
        self, event: str, process: str | None = None, *, at: float | None = None, **details: Any
    ) -> None:
        line: dict[str, Any] = {"event": event, "at": at or time.time()}
        if process is not None:
            line["process"] = process
        line.update(details)
        apply(self._state, line)
        self._event_log.append(line)
        self._schedule_rewrite()

    def _schedule_rewrite(self) -> None:
        if not self._event_log.is_complete and not self._is_rewrite_scheduled:
            self._is_rewrite_scheduled = True
            self._loop.after(REWRITE_INTERVAL_SECONDS, self._rewrite)

    def _rewrite(self) -> None:
        """Try again to write the events that could not be written."""
        self._is_rewrite_scheduled = False
        self._event_log.write_pending()
        self._schedule_rewrite()
        if self._state.finished and self._event_log.is_complete:
            self._exit()

    # --- unexpected errors ---

    def _handle_error(self, exc: Exception) -> None:
        """Report an unexpected error, and continue to supervise the processes.

        The interrupted step may have been incomplete, so check later which processes can start and
        whether the experiment has finished.
        """
        message = f"{type(exc).__name__}: {exc}"
        if message != self._last_error:
            # The same error can occur again every second.
            self._last_error = message
            log_exception(exc)
            self._notes.set(
                "error",
                f"an internal error occurred in the supervisor ({message}), so the states can be "
                f"wrong; see {self._directory.supervisor_log}",
            )
        if not self._is_recheck_scheduled:
            self._is_recheck_scheduled = True
            self._loop.after(ERROR_PAUSE_SECONDS, self._recheck)

    def _recheck(self) -> None:
        self._is_recheck_scheduled = False
        self._start_or_decide(self._specs)


def log_exception(exc: BaseException) -> None:
    """Write an exception to the supervisor's log, if the log can be written."""
    # If no more files can be opened, the module `traceback` cannot be imported. This function is
    # always available.
    with contextlib.suppress(OSError):
        sys.__excepthook__(type(exc), exc, exc.__traceback__)


def _search_process(specs: Iterable[ProcessSpec]) -> SearchProcess | None:
    """Return the process that searches logs, or None if no readiness test needs it."""
    if not any(spec.ready and "log" in spec.ready for spec in specs):
        return None
    from symphony.line_search import SearchProcess

    return SearchProcess()


def _group_ranks(specs: Mapping[str, ProcessSpec]) -> dict[str, list[str]]:
    """Return the names of the ranks of each unit."""
    units: dict[str, list[str]] = {}
    for name, spec in specs.items():
        if spec.unit is not None:
            units.setdefault(spec.unit, []).append(name)
    return units


def _group_followers(specs: Mapping[str, ProcessSpec]) -> dict[str, list[str]]:
    """Return a mapping from process names to the names of the processes that start after them."""
    followers: dict[str, list[str]] = {}
    for name, spec in specs.items():
        for other in spec.starts_after:
            followers.setdefault(other, []).append(name)
    return followers


def _start_error_message(spec: ProcessSpec, exc: OSError) -> str:
    if isinstance(exc, StartRefused):
        return exc.strerror or str(exc)
    program = spec.argv[0]
    message = f"cannot start {program!r}: {exc.strerror or exc}"
    if exc.filename and exc.filename != program:
        message = f"{message}: {exc.filename}"
    return message


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _explain_exit(code: int | None, reason: str) -> tuple[ReasonCode, str]:
    """Return the reason code and the reason for an exit.

    ``reason`` is the backend's explanation, or ``""`` if there is none. An empty ``reason`` is
    replaced by the meaning of the exit code if this meaning is known.
    """
    if code is None:
        return ReasonCode.LOST, f"exit status unknown: {reason}"
    signal_name = _signal_name(code)
    if signal_name:
        return ReasonCode.KILLED, reason or f"killed by {signal_name}"
    if code in _SHELL_REASONS:
        return ReasonCode.CANNOT_START, reason or _SHELL_REASONS[code]
    return ReasonCode.EXITED, reason


def _signal_name(code: int) -> str:
    """Return the name of the signal that an exit code indicates, or ``""`` if it indicates none."""
    if code <= 128:
        return ""
    try:
        return signal.Signals(code - 128).name
    except ValueError:
        return ""


def _with_used_restarts(reason: str, policy: restart_policy.RestartPolicy) -> str:
    """Return the reason for the last exit of a process that has no restart left."""
    if not policy.max_restarts:
        return reason
    text = f"not restarted again, because the limit is {policy.max_restarts}"
    return f"{reason}; {text}" if reason else text


def _back_off_details(restart: restart_policy.Restart, cause: str) -> dict[str, Any]:
    """Return the details of an event after which a process will be started again."""
    delay = f"in {restart.delay:g} s" if restart.delay else "now"
    return {
        "reason": f"restarts {delay} ({cause})",
        "cause": cause,
        "reason_code": ReasonCode.BACKING_OFF,
        "restarts_in": restart.delay,
        "in_row": restart.in_row,
    }
