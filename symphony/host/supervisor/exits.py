"""The exits of processes, and the programs that they leave behind."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from symphony.host.processes.identity import ProcessId
from symphony.host.supervisor.children import Child
from symphony.host.supervisor.ends import Ends
from symphony.host.supervisor.starts import Starts, back_off_details
from symphony.host.supervisor.supervised_process import SupervisedProcess
from symphony.host.supervisor.supervision import Supervision
from symphony.plan import restart_policy
from symphony.plan.policies import DEADLINE_EXCEEDED, RESTART
from symphony.plan.state import RESTART_REQUESTED
from symphony.plan.unit_decision import FAIL_UNIT
from symphony.status import ENDED, ReasonCode

# Shells use these exit codes for a command that they could not run.
_SHELL_REASONS = {126: "the command cannot be executed", 127: "the command was not found"}


class Exits:
    """The exits of processes.

    ``on_gone`` is called with the name of a process of which no program is running any more.
    """

    def __init__(
        self, supervision: Supervision, ends: Ends, starts: Starts, on_gone: Callable[[str], None]
    ) -> None:
        self._supervision = supervision
        self._record = supervision.record
        self._state = supervision.state
        self._processes = supervision.processes
        self._executor = supervision.executor
        self._ends = ends
        self._starts = starts
        self._on_gone = on_gone

    def handle_exit(
        self, child: Child, code: int | None, reason: str = "", log_bytes: int | None = None
    ) -> None:
        """Handle the exit of a child; see `ExitCallback`."""
        name = child.name
        process = self._processes[name]
        process.child = None
        self._executor.logs.record(name)
        now = time.time()
        stop = process.requested_stop
        restart = None
        if stop is not None and stop.restarts and not self._state.is_stopping_all:
            requested = restart_policy.Restart(delay=0.0, in_row=0)
            details = back_off_details(requested, RESTART_REQUESTED)
        elif (
            self._state.stopping
            or process.is_leaving
            or (stop is not None and not self._state.restarting)
        ):
            details = self._ends.stop_details("stopped")
        else:
            restart, details = self._decide_exit(process, code, reason, now)
        if log_bytes is not None:
            details["log_bytes"] = log_bytes
        if "restarts_in" not in details:
            # The GPUs must be free before the exit is recorded, because a program that waits for
            # the exit may then launch another experiment that needs them.
            self._release_unused_gpus(name)
        if restart is None:
            self._ends.record_final("exited", name, at=now, code=code, **details)
        else:
            self._record.add("exited", name, at=now, code=code, **details)
            self._starts.schedule_restart(name, restart.delay)
        if self._executor.note_exit(process, child):
            self.stop_leftovers(process, ProcessId(child.pid, child.birth))
        else:
            self._handle_gone(process)
        self._starts.start_or_decide(self._processes.followers_of(name))

    def _decide_exit(
        self, process: SupervisedProcess, code: int | None, reason: str, now: float
    ) -> tuple[restart_policy.Restart | None, dict[str, Any]]:
        """Return the restart of a process that no request has stopped, and the details of its exit.

        If the unit of a rank restarts or has failed, this determines what happens to the rank.
        """
        unit = self._supervision.decide_unit(process.name)
        if unit is not None and unit.action == FAIL_UNIT:
            return None, {"reason": unit.reason, "reason_code": ReasonCode.UNIT_FAILED}
        if unit is not None and not process.is_overdue:
            restart = restart_policy.Restart(max(0.0, unit.next_start - now), unit.in_row)
            return restart, back_off_details(restart, unit.reason)
        restart_of_process = self._decide_restart(process, code, now)
        if restart_of_process is None:
            return None, self._final_details(process, code, reason)
        exit_code = "unknown" if code is None else str(code)
        return restart_of_process, back_off_details(restart_of_process, f"exit code {exit_code}")

    def _decide_restart(
        self, process: SupervisedProcess, code: int | None, now: float
    ) -> restart_policy.Restart | None:
        """Return the restart of a process that has exited by itself, or None for no restart."""
        if process.is_overdue or self._state.restarting:
            return None
        policy, track = process.spec.restart, self._state.tracks[process.name]
        return restart_policy.decide_restart(policy, track, code, now, self._supervision.backoff)

    def _final_details(
        self, process: SupervisedProcess, code: int | None, reason: str
    ) -> dict[str, Any]:
        """Return the details of the exit of a process that its restart policy does not restart."""
        if process.is_overdue:
            return {"reason": DEADLINE_EXCEEDED, "reason_code": ReasonCode.DEADLINE_EXCEEDED}
        policy, track = process.spec.restart, self._state.tracks[process.name]
        reason_code, reason = _explain_exit(code, reason)
        if code and not reason and self._supervision.directory.is_disk_full():
            reason = "no space was left on the disk of its log"
        if policy.applies_to(code) and policy.is_used_up(track.retries):
            reason = _with_used_restarts(reason, policy)
        return {"reason": reason, "reason_code": reason_code}

    def _handle_gone(self, process: SupervisedProcess) -> None:
        """Continue what waits until no process of a group is running."""
        process.requested_stop = None
        self._ends.terminate_next_wave()
        self._on_gone(process.name)

    def stop_leftovers(self, process: SupervisedProcess, program: ProcessId) -> None:
        """Stop the programs that an exited process has left behind, and wait for their exits."""
        stop = process.requested_stop
        grace = process.spec.grace
        if self._supervision.skips_grace:
            grace = 0.0
        elif stop is not None:
            grace = min(grace, max(0.0, stop.kill_time - time.monotonic()))

        def handle_gone() -> None:
            track = self._state.tracks.get(process.name)
            if track is None or track.state in ENDED:
                self._release_unused_gpus(process.name)
            self._handle_gone(process)
            self._ends.finish_if_all_ended()

        self._executor.stop_leftovers(process, program, grace, handle_gone)

    def stop_leftovers_again(self) -> None:
        """Stop the programs that processes have left behind which exited under a supervisor that
        was killed.
        """
        groups = {
            name: track.group
            for name, track in self._state.tracks.items()
            if track.group is not None and self._processes.child(name) is None
        }
        for name, group in groups.items():
            if self._executor.is_group_running(group):
                # The creation time of the process that has exited is not known any more.
                self.stop_leftovers(self._processes[name], ProcessId(group, 0.0))

    def _release_unused_gpus(self, name: str) -> None:
        """Release the GPUs of an exited process, unless it can start again."""
        is_restarted_on_failure = self._supervision.policies.on_failure == RESTART
        if not is_restarted_on_failure or self._state.stopping:
            self._executor.release_unused_gpus(name)


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
