"""Stopping processes, reporting their exits, and waiting for what they leave in their groups."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from symphony.plan.actions import Stop
from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.supervisor.children import Child
from symphony.supervised.supervisor.execution.background import BackgroundPrograms
from symphony.supervised.supervisor.execution.executor_context import (
    CHECK_INTERVAL_SECONDS,
    ExecutorContext,
)
from symphony.supervised.supervisor.execution.starter import Starter
from symphony.supervised.supervisor.execution.supervised_process import SupervisedProcess
from symphony.supervised.supervisor.process_host import LogRecorder

if TYPE_CHECKING:
    from symphony.supervised.processes.spec import ProcessSpec
    from symphony.supervised.supervisor.execution.stopper import StopOrder

# Shells use these exit codes for a command that they could not run. Larger ones are signals.
_SHELL_CODES = (126, 127)
_LARGEST_EXIT_CODE = 128


class StopsAndExits:
    """The part of an executor that stops processes and reports their exits; see `Executor`.

    ``starter`` has the variables of their stop commands. ``free`` is called with the name of a
    process that has exited for good, when nothing of its group is running any more. ``background``
    finds what processes that succeed leave running.
    """

    def __init__(
        self,
        context: ExecutorContext,
        logs: LogRecorder,
        starter: Starter,
        free: Callable[[str], None],
        background: BackgroundPrograms,
    ) -> None:
        self._run = context.run
        self._loop = context.loop
        self._processes = context.processes
        self._host = context.host
        self._notes = context.notes
        self._facts = context.facts
        self._now = context.now
        self._logs = logs
        self._starter = starter
        self._free = free
        self._background = background

    def stop_all(self, actions: Sequence[Stop]) -> None:
        """Ask processes to exit."""
        now = self._now()
        for action in actions:
            self._stop(action, now)
        names = [action.process for action in actions]
        # The programs exit on other cores meanwhile, because the signals are sent first.
        self._loop.post(lambda: self._logs.pause(names))

    def _stop(self, action: Stop, now: float) -> None:
        process, seen = self._processes[action.process], self._facts.seen(action.process)
        grace = max(0.0, action.kill_at - now)
        kill_at = action.kill_at if seen.kill_at is None else min(action.kill_at, seen.kill_at)
        signaled_at = now if seen.signaled_at is None else seen.signaled_at
        child = process.child
        if child is not None:
            self._begin_stop(process, ProcessId(child.pid, child.birth), grace)
        elif process.leftovers is not None:
            self._begin_stop(process, process.leftovers, grace)
            self._poll_leftovers(process)
        self._facts.note(process.name, signaled_at=signaled_at, kill_at=kill_at)

    def _begin_stop(self, process: SupervisedProcess, program: ProcessId, grace: float) -> None:
        """Begin to stop the programs of a process, which are killed after ``grace`` seconds.

        ``program`` is the child of the process, which can have exited.
        """
        spec = process.running_spec or process.spec
        self._host.begin_stop(
            self._loop,
            spec,
            program,
            self._order_of(spec, grace),
            # The command needs the environment, and thousands of processes can be stopped at once.
            {**self._starter.env, **spec.env} if spec.stop_command else {},
            lambda problem: self._notes.set(f"stop {process.name}", problem),
        )

    @functools.cached_property
    def _order_of(self) -> Callable[[ProcessSpec, float], StopOrder]:
        # Most experiments are not stopped, so the module is imported later.
        from symphony.supervised.supervisor.execution.stopper import StopOrder

        return StopOrder.of

    def kill(self, process: SupervisedProcess) -> None:
        """Kill the programs of a process."""
        child = process.child
        if child is not None:
            self._signal_group(process, child, signal.SIGKILL)
            self._begin_stop(process, ProcessId(child.pid, child.birth), 0.0)
        elif process.leftovers is not None:
            self._begin_stop(process, process.leftovers, 0.0)
            self._poll_leftovers(process)
        now = self._now()
        seen = self._facts.seen(process.name)
        signaled_at = now if seen.signaled_at is None else seen.signaled_at
        self._facts.note(process.name, killed=True, signaled_at=signaled_at, kill_at=now)

    def _signal_group(self, process: SupervisedProcess, child: Child, number: int) -> bool:
        """Send a signal to the process group of a child. Return False if it has no members."""
        program = ProcessId(child.pid, child.birth)
        has_exited = process.is_adopted and not self._host.is_running(child.name, program)
        # Another program has collected the exit status, so the pid could have been reused.
        if has_exited and not self._host.is_group_of_run(child.pid, self._processes.leaders()):
            return False
        return self._host.signal_group(child.name, child.pid, number)

    def handle_exit(
        self, child: Child, code: int | None, reason: str = "", log_bytes: int | None = None
    ) -> None:
        """Report the exit of a child; see `ExitCallback`."""
        process = self._processes[child.name]
        process.child = None
        self._logs.record(child.name)
        program = ProcessId(child.pid, child.birth)
        remains_of_stop = self._host.handle_exit(child.name, program)
        if remains_of_stop is None:
            has_leftovers = self._signal_group(process, child, 0)
        else:
            # The end of a stop says that nothing is left.
            has_leftovers = remains_of_stop
        process.is_adopted = False
        if has_leftovers:
            process.leftovers = program
        is_unexplained = code and not reason and code <= _LARGEST_EXIT_CODE
        if is_unexplained and code not in _SHELL_CODES and self._run.is_disk_full():
            reason = "no space was left on the disk of its log"
        self._facts.note(
            child.name,
            running=False,
            testing=False,
            exit_code=code,
            reason=reason,
            log_bytes=log_bytes,
            since=self._now(),
            leftovers=has_leftovers,
        )
        if code == 0 and self._facts.seen(child.name).signaled_at is None:
            self._background.note_exit(child.name)
        kill_at = self._facts.seen(child.name).kill_at if has_leftovers else None
        if kill_at is not None:
            # The stop of the process continues.
            if not remains_of_stop:
                self._begin_stop(process, program, max(0.0, kill_at - self._now()))
            self._poll_leftovers(process)

    def _poll_leftovers(self, process: SupervisedProcess) -> None:
        """Report when nothing is running any more that an exited process has left behind."""
        if process.is_polled:
            return
        process.is_polled = True

        def check() -> None:
            if self._host.is_stopping(process.name):
                self._loop.after(CHECK_INTERVAL_SECONDS, check)
                return
            process.is_polled = False
            process.leftovers = None
            if process.is_freed:
                self._free(process.name)
            self._facts.note(process.name, leftovers=False)

        check()
