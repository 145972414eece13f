"""The supervisor of one experiment. It runs as a process that is detached from the launcher.

::

    executor ─> facts ─> decide ─> events, which are recorded, and actions ─> executor

`symphony.plan.decide` decides: in which order processes start, whether they are restarted, when
they are stopped and when the experiment has finished. `Executor` carries its actions out and
reports facts. `Record` keeps the events, which other programs read. `DecisionLoop` connects the
three. This module begins, ends and continues the supervision of a run.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from symphony.plan import requests
from symphony.plan.actions import Answer, Finish
from symphony.plan.policies import Ending, Policies
from symphony.plan.restart_policy import Backoff
from symphony.plan.state import Event, fold
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record import control_socket
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.note import NoteWriter
from symphony.supervised.supervisor.children import Child, Children, ExitCallback
from symphony.supervised.supervisor.clock import LaunchClock, boot_time
from symphony.supervised.supervisor.decision_loop import DecisionLoop
from symphony.supervised.supervisor.event_loop import ERROR_PAUSE_SECONDS, EventLoop
from symphony.supervised.supervisor.execution.executor import Executor
from symphony.supervised.supervisor.execution.executor_context import (
    CHECK_INTERVAL_SECONDS,
    ExecutorContext,
)
from symphony.supervised.supervisor.execution.facts import Facts
from symphony.supervised.supervisor.execution.held_resources import HeldResources
from symphony.supervised.supervisor.execution.supervised_process import (
    ProcessTable,
    SupervisedProcess,
)
from symphony.supervised.supervisor.live_record import Record
from symphony.supervised.supervisor.process_host import ProcessHost, ThisHost
from symphony.supervised.supervisor.serving.requested_steps import RequestedSteps
from symphony.supervised.supervisor.serving.usage_on_demand import UsageOnDemand
from symphony.supervised.supervisor.wishes import Wishes

if TYPE_CHECKING:
    import socket

    from symphony.supervised.supervisor.guarding import Guard
    from symphony.supervised.supervisor.serving.request_server import RequestServer

ROLL_BACK_GRACE_SECONDS = 1.0
# How long a program that replaces a killed supervisor waits for the exits in the meantime.
RESUME_SECONDS = 1.0

STOP_SIGNAL, KILL_SIGNAL = signal.SIGTERM, signal.SIGQUIT


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

    No process of the run was created before ``since``; see `membership.RunProcesses`. A supervisor
    that replaces another one does not know this time.

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
        backoff: Backoff | None = None,
        policies: Policies | None = None,
        events: Iterable[Event] = (),
        change: Event | None = None,
        old_specs: Mapping[str, ProcessSpec] | None = None,
        lost_ports: Collection[int] = (),
        since: float = 0.0,
        host: ProcessHost | None = None,
        eviction: Callable[[], Ending | None] = lambda: None,
    ) -> None:
        self._directory = run
        self._notes = NoteWriter(run)
        self._is_recheck_scheduled = False
        self._last_error = ""
        self._loop = EventLoop(self._handle_error)
        self._clock = LaunchClock()
        self._facts = Facts(lambda: self._decisions.advance_soon())
        self._processes = ProcessTable(specs, old_specs or {})
        self._record = Record(
            run,
            self._loop,
            self._notes,
            state=fold([*specs, *self._processes.old_specs], events),
            processes=len(specs),
            on_complete=self._exit_if_finished,
            now=lambda: self._clock.now(),
        )
        self._state = self._record.state
        self.missing_support = self._record.missing_support()
        self._host = host or ThisHost(run_id, record_path=run.stop_record, since=since)
        resources = HeldResources(
            run,
            holds=holds or {},
            gpus=gpus or {},
            lost_ports=lost_ports,
            is_remote=self._host.is_remote,
        )
        context = ExecutorContext(
            run=run,
            loop=self._loop,
            processes=self._processes,
            children=children(self._loop, run, self._handle_exit),
            host=self._host,
            resources=resources,
            notes=self._notes,
            facts=self._facts,
            state=self._state,
            now=lambda: self._clock.now(),
            on_error=self._handle_error,
        )
        self._executor = Executor(context, env)
        self._wishes = Wishes(
            self._processes,
            policies or Policies(),
            backoff or Backoff(),
            change=change,
            reserves_gpus=not self._host.is_remote,
        )
        self._processes.on_change = self._wishes.renew
        self._requested_steps = RequestedSteps(
            run,
            self._record,
            self._processes,
            self._executor,
            resources,
            self._host,
            self._wishes,
            UsageOnDemand(run, self._loop, self._processes, self._host),
        )
        self._control_socket: socket.socket | None = None
        self._control: RequestServer | None = None
        self._eviction = eviction
        self._decisions = DecisionLoop(
            self._loop,
            self._facts,
            self._wishes,
            self._record,
            self._executor,
            self._requested_steps,
            self._answer,
            self._finish,
        )
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
        self._executor.starter.refuses_launch = is_refusable
        self._decisions.advance()
        # The starts of some processes make others start.
        while self._decisions.is_due:
            self._decisions.advance()
        self._executor.starter.refuses_launch = False

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
        now = self._clock.now()
        self._record.add_all(requests.continue_elsewhere(self._wishes.present, state, ending, now))
        self._decisions.advance()

    def _record_launch(self) -> None:
        launched = boot_time()
        self._record.add("launched", boot_seconds=launched)
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
            self._record.add("supervisor-replaced", reason="the supervisor was killed")
        change = self._wishes.present.change
        if change is not None and change["revision"] > state.revision:
            self._record.add_change(change)
        self._processes.restore_leaving(state.leaving)
        self._executor.adopt(state)
        self._requested_steps.resume_change()
        # The exits that have already been noticed are handled first.
        self._loop.post(self._decisions.advance)
        exited = [
            process
            for process in self._processes.running()
            if process.is_adopted and not self._executor.is_running(process)
        ]
        deadline = time.monotonic() + RESUME_SECONDS
        self._loop.post(lambda: self._call_when_recorded(exited, deadline, on_resumed))

    def record_event(self, kind: str, reason: str) -> None:
        """Record an event that concerns the whole experiment and changes nothing in its state."""
        self._record.add(kind, reason=reason)

    def _call_when_recorded(
        self, exited: Sequence[SupervisedProcess], deadline: float, callback: Callable[[], None]
    ) -> None:
        """Call a function when the exits of adopted children are recorded, at the latest at a
        deadline.
        """
        remaining = [process for process in exited if process.is_adopted]
        if remaining and time.monotonic() < deadline:
            self._loop.after(
                CHECK_INTERVAL_SECONDS,
                lambda: self._call_when_recorded(remaining, deadline, callback),
            )
            return
        self._decisions.advance()
        callback()

    def prepare_stop(self) -> None:
        """Import the modules that a stop needs, and adopt the orphans of the processes.

        A launch does not wait for this. When the experiment is stopped, it may not be possible to
        open more files.
        """
        from symphony.supervised.processes import membership
        from symphony.supervised.record import interruption
        from symphony.supervised.supervisor.execution import stopper, strays
        from symphony.supervised.supervisor.orphans import OrphanReaper

        del membership, interruption, stopper, strays
        if not self._host.is_remote:
            OrphanReaper(
                self._loop, lambda: {leader.pid for leader in self._processes.leaders().values()}
            ).start()

    def watch_guardian(self, guard: Guard) -> None:
        """Replace the guardian of this supervisor if it is killed before the experiment ends."""
        guard.watch(self._loop, lambda: not self._state.finished)

    def run(self) -> None:
        """Supervise the processes until all of them have exited."""
        self._loop.post(self._decisions.advance)
        self._loop.post(self._requested_steps.apply_record_usage)
        self._loop.run()

    def roll_back(self) -> None:
        """Stop a failed launch's processes, wait until they exit, and remove what they leave
        behind.
        """
        self._loop.after(ROLL_BACK_GRACE_SECONDS, self._kill)
        self.stop()
        self.run()
        self._executor.discard()

    def stop_or_evict(self) -> None:
        """Stop the experiment, because the user or the system has requested it."""
        eviction = self._facts.eviction
        if eviction is not None and eviction.restart is not None:
            return
        ending = self._eviction()
        if ending is None or self._state.finished or self._state.stopping:
            self.stop()
        else:
            self._facts.note_eviction(ending)
            self._decisions.advance()

    def stop(self) -> None:
        """Send SIGTERM to every running process, and SIGKILL to each process that outlives its
        grace period.
        """
        if self._state.finished:
            # The supervisor is still running only because the log cannot be written.
            self._exit()
            return
        is_together = self._directory.stops_together()
        now = self._clock.now()
        self._record.add_all(requests.stop_all(self._state, now, is_together=is_together))
        self._decisions.advance()

    def _kill(self) -> None:
        """Kill every process immediately, without a grace period."""
        self._facts.note_kill()
        self.stop()
        self._decisions.advance()

    # --- the end ---

    def _answer(self, answer: Answer) -> None:
        if self._control is not None:
            self._control.answer(answer.number, answer.error)

    def _finish(self, action: Finish) -> None:
        # If the log cannot be written, the supervisor keeps running until all events are written.
        # An experiment that the user stops is usually deleted next, so its supervisor does not
        # wait.
        is_stopped = self._state.stopping and self._state.ending is None
        if action.is_evicted or self._record.is_complete or is_stopped:
            self._exit()

    # --- requests; see `symphony.supervised.supervisor.serving.request_server` ---

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

    def _get_control(self) -> RequestServer:
        if self._control is None:
            # Most experiments receive no requests, so the launch does not import the module.
            from symphony.supervised.supervisor.serving.request_server import RequestServer

            self._control = RequestServer(
                self._requested_steps, self._loop, self._decisions.advance_soon
            )
        return self._control

    def _handle_exit(
        self, child: Child, code: int | None, reason: str = "", log_bytes: int | None = None
    ) -> None:
        self._executor.stops_and_exits.handle_exit(child, code, reason, log_bytes)

    def _exit_if_finished(self) -> None:
        if self._state.finished:
            self._exit()

    def _exit(self) -> None:
        if self._state.finished:
            # No other supervisor will need the environment of the launcher.
            with contextlib.suppress(OSError):
                self._directory.launch_settings.unlink()
                self._directory.exits.unlink(missing_ok=True)
        self._decisions.send_answers()
        self._record.close()
        self._loop.stop()

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
        self._decisions.advance()


def log_exception(exc: BaseException) -> None:
    """Write an exception to the supervisor's log, if the log can be written."""
    # If no more files can be opened, the module `traceback` cannot be imported. This function is
    # always available.
    with contextlib.suppress(OSError):
        sys.__excepthook__(type(exc), exc, exc.__traceback__)
