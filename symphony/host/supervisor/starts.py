"""Starting processes: the start order, readiness, and the restarts of processes."""

from __future__ import annotations

import dataclasses
import errno
import functools
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from symphony.host.processes.spec import ProcessSpec
from symphony.host.supervisor.children import Child, StartRefused
from symphony.host.supervisor.ends import Ends
from symphony.host.supervisor.event_loop import ErrorCallback
from symphony.host.supervisor.executor import CHECK_INTERVAL_SECONDS
from symphony.host.supervisor.previous_executions import PreviousExecutions
from symphony.host.supervisor.supervised_process import SupervisedProcess
from symphony.host.supervisor.supervision import Supervision
from symphony.plan import restart_policy, start_order
from symphony.plan.state import Track
from symphony.status import ENDED, ReasonCode, State, not_ready_reason

# The reason of a process that waits until programs of its previous execution have exited.
WAITING_FOR_LEFTOVERS = "waiting for programs of its previous execution to exit"


class LaunchRefused(Exception):
    """A process could not be started while the experiment was being launched."""


class Starts:
    """The decisions that start processes, and what follows from their starts.

    ``on_error`` is called with unexpected errors that do not prevent other steps.
    """

    def __init__(
        self,
        supervision: Supervision,
        ends: Ends,
        on_error: ErrorCallback,
    ) -> None:
        self._supervision = supervision
        self._loop = supervision.loop
        self._record = supervision.record
        self._state = supervision.state
        self._processes = supervision.processes
        self._executor = supervision.executor
        self._ends = ends
        self._on_error = on_error
        self._previous_executions = PreviousExecutions(
            supervision.loop,
            supervision.host,
            leaders=self._processes.leaders,
            grace=lambda name: self._processes[name].spec.grace,
            on_cleared=self.start_or_decide,
        )

    # --- the start order ---

    def start_or_decide(self, names: Iterable[str], *, launching: bool = False) -> None:
        """Start the processes in ``names`` that can start now, in one batch.

        The start of a process, or the decision that it will never start, affects the processes that
        start after it. Repeat the procedure for those processes until nothing changes. Raises
        LaunchRefused if ``launching`` is true and a process cannot be started.
        """
        if not launching:
            self._ends.apply_policies()
        while names and not self._state.is_stopping_all:
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
                names.extend(self._processes.followers_of(name))
        if not launching:
            self._ends.finish_if_all_ended()

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
            and self._processes.is_gone(name)
        ]
        if not restarted:
            return set()
        exited = [name for name in tracks if self._processes.is_gone(name)]
        try:
            return self._previous_executions.clear(exited, restarted)
        except OSError as exc:
            # The programs cannot be listed. The processes must start nevertheless.
            self._on_error(exc)
            return set()

    def _record_obstacle(self, name: str, verdict: start_order.Verdict) -> None:
        """Record why a process cannot start now, or why it will never start."""
        if verdict.word == "never":
            self._ends.record_final(
                "never", name, reason=verdict.reason, reason_code=ReasonCode.NEVER_STARTED
            )
        elif verdict.reason != self._state.tracks[name].reason:
            is_restart = verdict.reason == WAITING_FOR_LEFTOVERS
            details: dict[str, Any] = {"reason_code": ReasonCode.BACKING_OFF} if is_restart else {}
            self._record.add("waiting", name, reason=verdict.reason, **details)

    def _verdict(self, name: str, blocked: Collection[str]) -> start_order.Verdict | None:
        """Return the verdict on whether a process can start now. Those in ``blocked`` must wait.

        Return None if the process has already started, is backing off or will never start.
        """
        track, process = self._state.tracks[name], self._processes.present[name]
        if process.is_delayed or self._supervision.decide_unit(name) is not None:
            return None
        # A timer starts a process again whose first start has failed.
        if track.state is not State.PENDING or track.started is not None or track.failures_in_row:
            return None
        verdict = start_order.verdict(process.spec.starts_after, self._state.tracks)
        if verdict is start_order.START and name in blocked:
            return start_order.Verdict("wait", WAITING_FOR_LEFTOVERS)
        return verdict

    def _start(self, names: Sequence[str], *, launching: bool = False) -> None:
        if not launching:
            self._executor.replace_master_ports(self._restarted_units(names))
        available = [name for name in names if self._is_available(self._processes[name])]

        def handle_start(
            process: SupervisedProcess, child: Child | OSError, log_start: int
        ) -> None:
            self.handle_start(process, child, log_start, launching=launching)

        self._executor.start(available, handle_start, is_refusable=launching)

    def _restarted_units(self, names: Collection[str]) -> list[str]:
        """Return the units that start again as a whole when ``names`` are started."""
        started = set(names)
        return [
            unit
            for unit, ranks in self._processes.units.items()
            if started.issuperset(ranks) and self._state.tracks[ranks[0]].group is not None
        ]

    def _is_available(self, process: SupervisedProcess) -> bool:
        """Return whether a process can be started with its ports and GPUs.

        If it cannot, record this.
        """
        reason = self._supervision.resources.find_lost(process)
        if not reason:
            return True
        error = StartRefused(errno.EBUSY, f"cannot start: {reason}")
        self._handle_failed_start(process.spec, error, str(error.strerror))
        return False

    def handle_start(
        self,
        process: SupervisedProcess,
        child: Child | OSError,
        log_start: int,
        *,
        launching: bool = False,
    ) -> None:
        """Record that a process has started, or that it could not be started.

        Raises LaunchRefused if ``launching`` is true and the process could not be started.
        """
        spec = process.spec
        if isinstance(child, OSError):
            reason = _start_error_message(spec, child)
            if launching:
                raise LaunchRefused(f"process {spec.path!r}: {reason}") from child
            self._handle_failed_start(spec, child, reason)
            return
        self._previous_executions.note_start(spec.name)
        is_ready = spec.ready is None
        details = {} if is_ready else {"log_start": log_start}
        self._record.add(
            "started", child.name, pid=child.pid, birth=child.birth, ready=is_ready, **details
        )
        self._ends.watch_deadline(process)
        if not is_ready:
            self.monitor_readiness(process, child, log_start)

    def _handle_failed_start(self, spec: ProcessSpec, error: OSError, reason: str) -> None:
        restart = None
        now = time.time()
        # For example, the user has closed the tmux session, which will not be created again.
        if not isinstance(error, StartRefused):
            # The process did not run, so the time since its previous start does not count as run
            # time.
            track = dataclasses.replace(self._state.tracks[spec.name], started=None)
            restart = restart_policy.decide_restart(
                spec.restart, track, None, now, self._supervision.backoff
            )
        if restart is None:
            self._ends.record_final(
                "never", spec.name, reason=reason, reason_code=ReasonCode.CANNOT_START
            )
            return
        self._record.add("start-failed", spec.name, at=now, **back_off_details(restart, reason))
        self.schedule_restart(spec.name, restart.delay)

    # --- readiness ---

    def monitor_readiness(
        self, process: SupervisedProcess, child: Child, log_start: int, *, elapsed: float = 0.0
    ) -> None:
        """Test whether a process that started ``elapsed`` seconds ago is ready."""
        name, spec = process.name, process.spec

        def is_active() -> bool:
            is_stopping = self._state.is_stopping_all or process.requested_stop is not None
            return process.child is child and not is_stopping

        def handle_ready() -> None:
            self._record.add("ready", name)
            self.start_or_decide(self._processes.followers_of(name))

        def handle_timeout(result: str) -> None:
            reason = not_ready_reason(result, spec.ready_timeout)
            self._record.add("not-ready", name, reason=reason, result=result)
            self.start_or_decide(self._processes.followers_of(name))

        def handle_result(result: str) -> None:
            is_late = self._state.tracks[name].not_ready_in_time
            reason = not_ready_reason(result, spec.ready_timeout if is_late else None)
            self._record.add("tested", name, reason=reason, result=result)

        is_late = self._state.tracks[name].not_ready_in_time
        self._executor.test_readiness(
            process,
            child,
            log_start,
            timeout=None if is_late else max(0.0, spec.ready_timeout - elapsed),
            is_active=is_active,
            on_ready=handle_ready,
            on_timeout=handle_timeout,
            on_result=handle_result,
        )

    # --- restarts ---

    def schedule_restart(self, name: str, delay: float) -> None:
        """Start a process again after ``delay`` seconds. Its next start is recorded."""
        next_start = self._state.tracks[name].next_start
        if delay:
            # The programs that the process has left behind are stopped in the meantime.
            self._loop.post(functools.partial(self._stop_left_behind, name))
        self._loop.after(delay, lambda: self._restart(name, next_start))

    def _stop_left_behind(self, name: str) -> None:
        self._blocked_by_leftovers([name])

    def _restart(self, name: str, next_start: float | None) -> None:
        """Start a process again, unless a request has stopped or started it, or the experiment was
        restarted, since ``next_start``, the time of its next start, was recorded.
        """
        track = self._state.tracks.get(name)
        if track is None or self._state.is_stopping_all:
            return
        if track.state is not State.PENDING or track.next_start != next_start:
            return
        ranks = self._processes.ranks_with(name)
        is_requested = self._supervision.is_unit_requested(name)
        is_unit_busy = is_requested or not all(map(self._processes.is_gone, ranks))
        names = ranks or [name]
        if (
            self._processes[name].leftovers is not None
            or is_unit_busy
            or self._blocked_by_leftovers(names)
        ):
            self._loop.after(CHECK_INTERVAL_SECONDS, lambda: self._restart(name, next_start))
            return
        self._start(names)
        for started in names:
            self.start_or_decide(self._processes.followers_of(started))

    # --- requests and new supervisors ---

    def stop_pending(self, name: str) -> None:
        """Record that a process that waits for its start or restart is stopped."""
        self._ends.record_stopped_before(name)
        self.start_or_decide(self._processes.followers_of(name))

    def start_again(self, names: Sequence[str]) -> None:
        """Start processes that are not running, as soon as their start conditions are met."""
        self.cancel_starts(names)
        for name in names:
            self._record.add("start-requested", name)
        self.start_or_decide(names)

    def cancel_starts(self, names: Iterable[str]) -> None:
        """Do not delay the starts of processes any more."""
        for name in names:
            process = self._processes.present.get(name)
            if process is not None:
                process.is_delayed = False

    def waits_for_leftovers(self, name: str) -> bool:
        """Return whether a process waits until programs of its previous execution have exited."""
        track = self._state.tracks.get(name)
        if track is None:
            return False
        return track.state is State.PENDING and track.reason == WAITING_FOR_LEFTOVERS

    def adopt(self) -> None:
        """Take over the processes of a supervisor that was killed, and their resources."""
        tracks: dict[str, Track] = {**self._state.tracks, **self._state.leaving}
        resources = self._supervision.resources
        for process in self._executor.adopt(tracks):
            child, track = process.child, tracks[process.name]
            if child is None:
                continue
            is_current = not track.outdated and not process.is_leaving
            if track.state is not State.RUNNING:
                self.handle_start(process, child, track.log_start)
            elif process.spec.ready is not None and is_current and not track.ready:
                elapsed = time.time() - (track.started or 0.0)
                self.monitor_readiness(process, child, track.log_start, elapsed=elapsed)
        for name, track in tracks.items():
            process = self._processes[name]
            if track.state not in ENDED and not resources.lease_gpus(process.spec):
                process.has_lost_gpus = True
        processes = self._processes.present.values()
        problems = [reason for process in processes if (reason := resources.find_lost(process))]
        if problems:
            message = f"{problems[0]}, while the experiment had no supervisor"
            self._supervision.notes.set("leases", message)

    def resume_restarts(self) -> None:
        """Schedule the restarts that the restart policies have caused."""
        requested: set[str] = set()
        for request in self._state.requests.values():
            requested.update(request.names)
        for name, track in self._state.tracks.items():
            is_backing_off = track.state is State.PENDING and track.next_start is not None
            if is_backing_off and name not in requested:
                self.schedule_restart(name, max(0.0, (track.next_start or 0.0) - time.time()))


def back_off_details(restart: restart_policy.Restart, cause: str) -> dict[str, Any]:
    """Return the details of an event after which a process will be started again."""
    delay = f"in {restart.delay:g} s" if restart.delay else "now"
    return {
        "reason": f"restarts {delay} ({cause})",
        "cause": cause,
        "reason_code": ReasonCode.BACKING_OFF,
        "restarts_in": restart.delay,
        "in_row": restart.in_row,
    }


def _start_error_message(spec: ProcessSpec, exc: OSError) -> str:
    if isinstance(exc, StartRefused):
        return exc.strerror or str(exc)
    program = spec.argv[0]
    message = f"cannot start {program!r}: {exc.strerror or exc}"
    if exc.filename and exc.filename != program:
        message = f"{message}: {exc.filename}"
    return message
