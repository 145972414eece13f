"""Starting and testing processes, as `symphony.plan.decide` has decided."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.plan.actions import Start
from symphony.plan.state import Track
from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.processes.spec import (
    DIRECTORY_VARIABLE,
    SLURM_JOB_VARIABLE,
    ProcessSpec,
    with_directory_variable,
    with_thread_limit,
)
from symphony.supervised.supervisor.children import Child, StartRefused
from symphony.supervised.supervisor.execution.executor_context import ExecutorContext
from symphony.supervised.supervisor.execution.health import HealthMonitor
from symphony.supervised.supervisor.execution.probes import Probe, failing_probe
from symphony.supervised.supervisor.execution.readiness import ReadinessMonitor
from symphony.supervised.supervisor.execution.supervised_process import SupervisedProcess
from symphony.supervised.supervisor.process_host import LogRecorder

if TYPE_CHECKING:
    from symphony.line_search import SearchProcess


class LaunchRefused(Exception):
    """A process could not be started while the experiment was being launched."""


class Starter:
    """The part of an executor that starts processes; see `Executor`."""

    def __init__(self, context: ExecutorContext, env: Mapping[str, str], logs: LogRecorder) -> None:
        self._run = context.run
        self._loop = context.loop
        self._processes = context.processes
        self._children = context.children
        self._host = context.host
        self._resources = context.resources
        self.env = env
        # Starting processes changes the environment of this process.
        self._inherited_env = dict(os.environ)
        self._logs = logs
        self._facts = context.facts
        self._state = context.state
        self._now = context.now
        self._on_error = context.on_error
        self._search_process = _search_process(self._processes.specs.values())
        self.refuses_launch = False
        """True if a process that cannot be started ends the launch with `LaunchRefused`."""

    def start(self, actions: Sequence[Start]) -> None:
        """Start processes in one batch. An execution that has begun already is not repeated."""
        self._replace_master_ports(actions)
        processes = [
            self._processes.present[action.process]
            for action in actions
            if self._facts.seen(action.process).attempt < action.attempt
        ]
        log_starts = {
            process.name: _file_size(self._run.log(process.name))
            for process in processes
            if process.spec.ready
        }
        specs = {process.name: self._with_derived_variables(process.spec) for process in processes}
        for action in actions:
            if action.process in specs:
                self._facts.begin(action.process, action.attempt)
        started = [process for process in processes if self._take_resources(process)]
        not_started = {process.name: process for process in started}
        try:
            batch = [specs[process.name] for process in started]
            for spec, child in self._children.start(batch, self.env):
                process = not_started.pop(spec.name)
                self._note_start(process, child, log_starts.get(spec.name, 0))
        except Exception as exc:
            refuses_launch, self.refuses_launch = self.refuses_launch, False
            for name, process in not_started.items():
                # The backend may have started the process without reporting it.
                unreported = self._children.get(name) or OSError(errno.EIO, str(exc))
                self._note_start(process, unreported, log_starts.get(name, 0))
            if refuses_launch:
                raise
            self._on_error(exc)
        names = [process.name for process in started]
        self._loop.post(lambda: self._logs.watch(names))

    def _take_resources(self, process: SupervisedProcess) -> bool:
        """Release the ports that a process is about to serve. Return False if it cannot start."""
        reason = self._resources.find_lost(process)
        if reason:
            self._note_failure(process, StartRefused(errno.EBUSY, f"cannot start: {reason}"))
            return False
        self._resources.close_holds(process.spec.releases)
        return True

    def _note_start(
        self, process: SupervisedProcess, child: Child | OSError, log_start: int
    ) -> None:
        if isinstance(child, OSError):
            self._note_failure(process, child)
            return
        spec = process.spec
        process.child, process.running_spec = child, spec
        process.is_adopted = process.is_freed = False
        self._facts.note(
            process.name,
            starting=False,
            running=True,
            pid=child.pid,
            birth=child.birth,
            since=self._now(),
            log_start=log_start,
            testing=spec.ready is not None,
        )
        if spec.ready is not None:
            self._test_readiness(process, child, log_start, spec.ready_timeout)
        else:
            self._test_health(process, child)

    def _note_failure(self, process: SupervisedProcess, error: OSError) -> None:
        reason = _start_error_message(process.spec, error)
        self._facts.note(
            process.name,
            starting=False,
            failed=True,
            # For example, the user has closed the tmux session, which will not be created again.
            refused=isinstance(error, StartRefused),
            reason=reason,
            since=self._now(),
        )
        if self.refuses_launch:
            raise LaunchRefused(f"process {process.spec.path!r}: {reason}") from error

    def _with_derived_variables(self, spec: ProcessSpec) -> ProcessSpec:
        """Return a description with the variables that follow from the other settings.

        `os.environ` contains the variables of the process that was started last, so they must not
        be derived from it.
        """
        environment = {**self._inherited_env, **self.env}
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
        from symphony.supervised.processes.slurm_task import with_task_of_this_node

        # The experiment was launched in a job of Slurm, whose tasks are not the ranks.
        return with_task_of_this_node(spec, len(ranks), environment)

    def _replace_master_ports(self, actions: Iterable[Start]) -> None:
        """Let the ranks of units that restart as a whole meet at another port, if necessary."""
        restarted = {action.process for action in actions if action.attempt > 0}
        if not restarted:
            return
        for unit, ranks in self._processes.units.items():
            if not restarted.issuperset(ranks):
                continue
            from symphony.supervised.supervisor.execution.master_ports import replace_master_port

            try:
                new = replace_master_port(self._run, self._host, unit)
            except OSError as exc:
                # The manifest cannot be written. Most servers can bind the previous port, too.
                self._on_error(exc)
                continue
            if new is None:
                continue
            for name in ranks:
                process = self._processes.present[name]
                process.spec = new.spec(process.spec)
            self._processes.on_change()
            self.env = {**self.env, **new.shared_env()}
            self._resources.holds.update(new.holds)
            self.prepare_children(self._run.load_manifest(is_new=True)["env"])

    # --- changes and new supervisors ---

    def change(self, env: Mapping[str, str]) -> None:
        """Use the changed descriptions of the processes. ``env`` are their shared variables."""
        self.env = {**self._inherited_env, **env}
        if self._search_process is None:
            self._search_process = _search_process(self._processes.specs.values())

    def prepare_children(self, env: Mapping[str, str]) -> None:
        """Prepare to start processes of a changed experiment; see `Children.change`."""
        self._children.change(list(self._processes.present), env)

    def adopt(self, tracks: Mapping[str, Track]) -> None:
        """Take over the running processes of a supervisor that was killed."""
        begins = self._stop_begins()
        specs = [self._processes[name].spec for name in tracks]
        adopted: list[str] = []
        for child in self._children.adopt(specs, tracks):
            process, track = self._processes[child.name], tracks[child.name]
            adopted.append(child.name)
            process.child, process.is_adopted = child, True
            process.running_spec = process.spec
            if track.outdated:
                process.running_spec = self._processes.old_specs.get(child.name, process.spec)
            is_recorded = track.pid is not None
            is_tested = process.spec.ready is not None and not track.ready
            if track.outdated or process.is_leaving:
                is_tested = False
            is_late = track.not_ready_in_time
            self._facts.note(
                child.name,
                attempt=track.attempts - 1 if is_recorded else track.attempts,
                running=True,
                pid=child.pid,
                birth=child.birth,
                since=track.started if is_recorded else self._now(),
                log_start=track.log_start,
                ready=track.ready,
                test_result=track.test_result,
                testing=is_tested and not is_late,
            )
            if self._host.was_asked_to_exit(ProcessId(child.pid, child.birth)):
                begin = begins.get(child.name, self._now())
                self._facts.note(child.name, signaled_at=begin)
            if is_tested:
                elapsed = self._now() - (track.started or self._now())
                timeout = None if is_late else max(0.0, process.spec.ready_timeout - elapsed)
                self._test_readiness(process, child, track.log_start, timeout)
            elif not (track.outdated or process.is_leaving or track.unhealthy):
                self._test_health(process, child)
        self._loop.post(lambda: self._logs.watch(adopted))

    def _stop_begins(self) -> Mapping[str, float]:
        """Return when a supervisor that was killed has begun to stop the whole experiment."""
        if not self._state.stopping:
            return {}
        from symphony.supervised.record.status import stop_begins

        specs = [process.spec for process in self._processes]
        return stop_begins(
            self._state, [{"name": spec.name, "starts_after": spec.starts_after} for spec in specs]
        )

    # --- readiness and health ---

    def _test_readiness(
        self, process: SupervisedProcess, child: Child, log_start: int, timeout: float | None
    ) -> None:
        """Test a process until it is ready; see `ReadinessMonitor`."""
        name = process.name

        def on_ready() -> None:
            self._facts.note(name, ready=True, testing=False)
            self._test_health(process, child)

        monitor = ReadinessMonitor(
            self._loop,
            self._make_probe(process, child, log_start, "ready"),
            timeout,
            is_active=functools.partial(self._is_tested, process, child),
            on_ready=on_ready,
            on_timeout=lambda result: self._facts.note(name, test_result=result, testing=False),
            on_result=lambda result: self._facts.note(name, test_result=result),
        )
        monitor.start()

    def _test_health(self, process: SupervisedProcess, child: Child) -> None:
        """Test a process as long as it is running, if it has a health test."""
        name, healthy = process.name, process.spec.healthy
        if healthy is None:
            return
        monitor = HealthMonitor(
            self._loop,
            self._make_probe(process, child, 0, "healthy"),
            every=healthy["every"],
            timeout=healthy["timeout"],
            is_active=functools.partial(self._is_tested, process, child),
            on_result=lambda failures, result: self._facts.note(
                name, failed_tests=failures, health_result=result
            ),
        )
        monitor.start()

    def _make_probe(
        self, process: SupervisedProcess, child: Child, log_start: int, setting: str
    ) -> Probe:
        name, spec = process.name, process.spec
        try:
            return self._host.make_probe(
                spec,
                ProcessId(child.pid, child.birth),
                self._run.log(name),
                log_start,
                {**self.env, **spec.env},
                self._search_process,
                setting=setting,
            )
        except Exception as exc:
            return failing_probe(f"the probe cannot be run: {exc}")

    def _is_tested(self, process: SupervisedProcess, child: Child) -> bool:
        """Return whether the tests of an execution continue."""
        is_stopping = self._state.is_stopping_all or self._is_stopping(process.name)
        return process.child is child and not is_stopping

    def _is_stopping(self, name: str) -> bool:
        """Return whether a process is being stopped, or will be when its turn has come."""
        if self._facts.seen(name).signaled_at is not None:
            return True
        requests = self._state.requests.values()
        return any(request.kind != "start" and name in request.names for request in requests)


def _search_process(specs: Iterable[ProcessSpec]) -> SearchProcess | None:
    """Return the process that searches logs, or None if no readiness test needs it."""
    if not any(spec.ready and "log" in spec.ready for spec in specs):
        return None
    from symphony.line_search import SearchProcess

    return SearchProcess()


def _file_size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _start_error_message(spec: ProcessSpec, exc: OSError) -> str:
    if isinstance(exc, StartRefused):
        return exc.strerror or str(exc)
    program = spec.argv[0]
    message = f"cannot start {program!r}: {exc.strerror or exc}"
    if exc.filename and exc.filename != program:
        message = f"{message}: {exc.filename}"
    return message
