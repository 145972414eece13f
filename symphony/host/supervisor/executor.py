"""Carrying out what the supervisor has decided: starting and stopping processes, and testing them.

An executor decides nothing about an experiment. It reports what has happened to its caller.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.host.processes.identity import ProcessId
from symphony.host.processes.spec import (
    DIRECTORY_VARIABLE,
    SLURM_JOB_VARIABLE,
    ProcessSpec,
    with_directory_variable,
    with_thread_limit,
)
from symphony.host.run.directory import RunDirectory
from symphony.host.run.note import NoteWriter
from symphony.host.supervisor.children import Child, Children, JoinableTerminal
from symphony.host.supervisor.event_loop import ErrorCallback, EventLoop
from symphony.host.supervisor.held_resources import HeldResources
from symphony.host.supervisor.probes import failing_probe
from symphony.host.supervisor.process_host import ProcessHost
from symphony.host.supervisor.readiness import ReadinessMonitor
from symphony.host.supervisor.supervised_process import ProcessTable, SupervisedProcess
from symphony.plan.state import Track

if TYPE_CHECKING:
    from symphony.line_search import SearchProcess

# The interval at which the executor polls programs whose exit it cannot wait for.
CHECK_INTERVAL_SECONDS = 0.05

# A function that is called with a process, its child or the error that prevented its start, and the
# length of its log before the start.
OnStart = Callable[[SupervisedProcess, "Child | OSError", int], None]


class Executor:
    """The executor of one run, whose processes are those of ``processes``.

    ``children`` starts them, and ``host`` is the machines on which they run. ``env`` contains the
    variables that they share. ``resources`` are released when they are needed or no more needed.
    ``on_error`` is called with unexpected errors that do not prevent other steps.
    """

    def __init__(
        self,
        run: RunDirectory,
        loop: EventLoop,
        processes: ProcessTable,
        children: Children,
        host: ProcessHost,
        resources: HeldResources,
        env: Mapping[str, str],
        notes: NoteWriter,
        on_error: ErrorCallback,
    ) -> None:
        self._run = run
        self._loop = loop
        self._processes = processes
        self._children = children
        self._host = host
        self._resources = resources
        self._env = env
        # Starting processes changes the environment of this process.
        self._inherited_env = dict(os.environ)
        self._notes = notes
        self._on_error = on_error
        children.keep_terminals(host.is_stopping)
        self.logs = host.record_logs(loop, run, self._log_limits(), notes)
        self._search_process = _search_process(processes.specs.values())

    def _log_limits(self) -> dict[str, int]:
        return {name: spec.log_limit for name, spec in self._processes.specs.items()}

    @property
    def has_children(self) -> bool:
        """True if a process is running."""
        return len(self._children) > 0

    # --- starting ---

    def start(self, names: Sequence[str], on_start: OnStart, *, is_refusable: bool = False) -> None:
        """Start processes in one batch, and call ``on_start`` with each result.

        If ``is_refusable`` is true, an exception of ``on_start`` ends the start, and is raised.
        Otherwise, it is reported, and the other processes are started.
        """
        processes = [self._processes.present[name] for name in names]
        for process in processes:
            self._resources.close_holds(process.spec.releases)
        log_starts = {
            process.name: _file_size(self._run.log(process.name))
            for process in processes
            if process.spec.ready
        }

        def report(process: SupervisedProcess, child: Child | OSError) -> None:
            if not isinstance(child, OSError):
                process.child, process.is_adopted = child, False
            on_start(process, child, log_starts.get(process.name, 0))

        not_started = {process.name: process for process in processes}
        specs = [self._with_derived_variables(process.spec) for process in processes]
        try:
            for spec, child in self._children.start(specs, self._env):
                report(not_started.pop(spec.name), child)
        except Exception as exc:
            # The backend may have started other processes without reporting them.
            for name, process in not_started.items():
                process.child = self._children.get(name)
            if is_refusable:
                raise
            self._on_error(exc)
            for process in not_started.values():
                report(process, process.child or OSError(errno.EIO, str(exc)))
        self._loop.post(lambda: self.logs.watch(names))

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
        ranks = self._processes.ranks_with(spec.name)
        spec = with_thread_limit(spec, len(ranks), cores, environment)
        if SLURM_JOB_VARIABLE not in environment or self._host.is_remote:
            return spec
        from symphony.host.processes.slurm_task import with_task_of_this_node

        # The experiment was launched in a job of Slurm, whose tasks are not the ranks.
        return with_task_of_this_node(spec, len(ranks), environment)

    def replace_master_ports(self, units: Iterable[str]) -> None:
        """Let the ranks of units meet at another port, if necessary, before they restart."""
        for unit in units:
            from symphony.host.supervisor.master_ports import replace_master_port

            try:
                new = replace_master_port(self._run, self._host, unit)
            except OSError as exc:
                # The manifest cannot be written. Most servers can bind the previous port, too.
                self._on_error(exc)
                continue
            if new is None:
                continue
            for name in self._processes.units[unit]:
                process = self._processes.present[name]
                process.spec = new.spec(process.spec)
            self._env = {**self._env, **new.shared_env()}
            self._resources.holds.update(new.holds)
            self.prepare_children(self._run.load_manifest(is_new=True)["env"])

    def adopt(self, tracks: Mapping[str, Track]) -> list[SupervisedProcess]:
        """Take over the running processes of a supervisor that was killed, and return them."""
        adopted: list[SupervisedProcess] = []
        for child in self._children.adopt([self._processes[name].spec for name in tracks], tracks):
            process = self._processes[child.name]
            process.child, process.is_adopted = child, True
            adopted.append(process)
        names = [process.name for process in adopted]
        self._loop.post(lambda: self.logs.watch(names))
        return adopted

    # --- readiness ---

    def test_readiness(
        self,
        process: SupervisedProcess,
        child: Child,
        log_start: int,
        *,
        timeout: float | None,
        is_active: Callable[[], bool],
        on_ready: Callable[[], None],
        on_timeout: Callable[[str], None],
        on_result: Callable[[str], None],
    ) -> None:
        """Test a process until it is ready; see `ReadinessMonitor`."""
        spec = process.spec
        try:
            probe = self._host.make_probe(
                spec,
                ProcessId(child.pid, child.birth),
                self._run.log(spec.name),
                log_start,
                {**self._env, **spec.env},
                self._search_process,
            )
        except Exception as exc:
            probe = failing_probe(f"the probe cannot be run: {exc}")
        monitor = ReadinessMonitor(
            self._loop,
            probe,
            timeout,
            is_active=is_active,
            on_ready=on_ready,
            on_timeout=on_timeout,
            on_result=on_result,
        )
        monitor.start()

    # --- stopping ---

    def terminate(self, process: SupervisedProcess, grace: float) -> None:
        """Ask a running process to exit, and kill it after ``grace`` seconds."""
        child = process.child
        if child is not None:
            self.begin_stop(process, ProcessId(child.pid, child.birth), grace)
            self._loop.after(grace, lambda: self.kill(process, child))

    def begin_stop(self, process: SupervisedProcess, program: ProcessId, grace: float) -> None:
        """Begin to stop the programs of a process, which are killed after ``grace`` seconds.

        ``program`` is the child of the process, which can have exited.
        """
        from symphony.host.supervisor.stopper import StopOrder

        spec = self._processes.running_spec(process)
        self._host.begin_stop(
            self._loop,
            spec,
            program,
            StopOrder.of(spec, grace),
            # The command needs the environment, and thousands of processes can be stopped at once.
            {**self._env, **spec.env} if spec.stop_command else {},
            lambda problem: self._notes.set(f"stop {process.name}", problem),
        )

    def kill(self, process: SupervisedProcess, child: Child) -> None:
        """Kill the process group of a child, if it is running."""
        if process.child is child:
            self._signal_group(process, child, signal.SIGKILL)

    def _signal_group(self, process: SupervisedProcess, child: Child, number: int) -> bool:
        """Send a signal to the process group of a child. Return False if it has no members."""
        program = ProcessId(child.pid, child.birth)
        has_exited = process.is_adopted and not self._host.is_running(child.name, program)
        # Another program has collected the exit status, so the pid could have been reused.
        if has_exited and not self._host.is_group_of_run(child.pid, self._processes.leaders()):
            return False
        return self._host.signal_group(child.name, child.pid, number)

    def kill_all(self) -> None:
        """Kill all processes, and the programs that exited processes have left behind."""
        for process in self._processes.running():
            child = process.child
            if child is not None:
                self._signal_group(process, child, signal.SIGKILL)
                self.begin_stop(process, ProcessId(child.pid, child.birth), 0.0)
        for process in self._processes:
            if process.leftovers is not None:
                self.begin_stop(process, process.leftovers, 0.0)

    def note_exit(self, process: SupervisedProcess, child: Child) -> bool:
        """Note that a child has exited. Return whether programs that belong to it may be running.

        In this case, the caller calls `stop_leftovers`.
        """
        program = ProcessId(child.pid, child.birth)
        self._host.handle_exit(child.name, program)
        has_leftovers = self._host.is_stopping(child.name) or self._signal_group(process, child, 0)
        process.is_adopted = False
        return has_leftovers

    def stop_leftovers(
        self,
        process: SupervisedProcess,
        program: ProcessId,
        grace: float,
        on_gone: Callable[[], None],
    ) -> None:
        """Stop the programs that an exited process has left behind, and wait for their exits.

        In a stop, they have received the signal, or receive it when it is their turn. ``on_gone``
        is called when none of them is running any more.
        """
        process.leftovers = program
        if not self._host.is_stopping(process.name):
            self.begin_stop(process, program, grace)

        def check() -> None:
            if self._host.is_stopping(process.name):
                self._loop.after(CHECK_INTERVAL_SECONDS, check)
                return
            process.leftovers = None
            on_gone()

        check()

    def is_group_running(self, group: int) -> bool:
        """Return whether a process group exists and contains a process of the run."""
        return self._host.is_group_of_run(group, self._processes.leaders())

    def is_running(self, process: SupervisedProcess) -> bool:
        """Return whether the child of a process is running. Its exit may not be reported yet."""
        program = process.identity()
        return program is not None and self._host.is_running(process.name, program)

    # --- other steps ---

    def send_signal(
        self, names: Sequence[str], number: signal.Signals, *, force: bool
    ) -> Mapping[str, str]:
        """Send a signal to the programs of running processes that handle it.

        Return why it cannot be sent to processes; see `ProcessHost.send_signals`.
        """
        leaders = self._processes.leaders()
        return self._host.send_signals({name: leaders[name] for name in names}, number, force=force)

    def terminal(self, name: str) -> JoinableTerminal | None:
        """Return the terminal of a running process, or None if it has none."""
        return self._children.terminal(name)

    def release_unused_gpus(self, name: str) -> None:
        """Release the GPUs of an exited process, unless descendants of it are still running.

        Descendants outside its process group keep the GPUs until the experiment finishes.
        """
        if name not in self._resources.gpus:
            return
        if not self._host.has_descendants(name, self._processes.leaders()):
            self._resources.release_gpus(name)

    def change(self, env: Mapping[str, str]) -> None:
        """Use the changed descriptions of the processes. ``env`` are their shared variables."""
        self._env = {**self._inherited_env, **env}
        self.logs.set_limits(self._log_limits())
        if self._search_process is None:
            self._search_process = _search_process(self._processes.specs.values())

    def prepare_children(self, env: Mapping[str, str]) -> None:
        """Prepare to start processes of a changed experiment; see `Children.change`."""
        self._children.change(list(self._processes.present), env)

    def remove(self, name: str) -> None:
        """Remove what an exited process has left behind that a change has removed."""
        self._resources.release_gpus(name)
        self._children.remove(name)

    def discard(self) -> None:
        """Remove everything that the processes of a rolled-back launch have left behind."""
        self._children.discard()


def _search_process(specs: Iterable[ProcessSpec]) -> SearchProcess | None:
    """Return the process that searches logs, or None if no readiness test needs it."""
    if not any(spec.ready and "log" in spec.ready for spec in specs):
        return None
    from symphony.line_search import SearchProcess

    return SearchProcess()


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
