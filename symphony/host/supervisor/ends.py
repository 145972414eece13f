"""The ends of a run: its policies and deadlines, and stopping and finishing the experiment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from symphony.host.supervisor.executor import CHECK_INTERVAL_SECONDS
from symphony.host.supervisor.supervised_process import SupervisedProcess
from symphony.host.supervisor.supervision import Supervision
from symphony.plan.policies import (
    DEADLINE_EXCEEDED,
    RESTART,
    Ending,
    RestartHistory,
    decide_end,
    seconds_to_deadline,
)
from symphony.plan.state import Track, after
from symphony.plan.unit_decision import FAIL_UNIT, RESTART_UNIT, UnitDecision
from symphony.status import ENDED, ReasonCode, State

# The longest time by which a deadline can be missed because the machine was suspended.
DEADLINE_CHECK_SECONDS = 30.0


class Ends:
    """The decisions that end processes, units of ranks or the whole experiment.

    ``start_or_decide`` starts those of the given processes that can start; see `Starts`.
    ``on_finished`` is called when the end of the experiment is recorded.
    """

    def __init__(
        self,
        supervision: Supervision,
        start_or_decide: Callable[[Iterable[str]], None],
        on_exit: Callable[[], None],
    ) -> None:
        self._supervision = supervision
        self._loop = supervision.loop
        self._record = supervision.record
        self._state = supervision.state
        self._processes = supervision.processes
        self._executor = supervision.executor
        self._start_or_decide = start_or_decide
        self._exit = on_exit
        self._restart_due = 0.0
        # The waves of a stop of all processes that have not begun yet; see `plan.stop_order`.
        self._waves: list[list[str]] = []
        self._wave: list[str] = []
        self.is_evicted = False
        """True if the system stops the experiment and starts it again later."""

    # --- the policies of the experiment and of units; see `symphony.plan.unit_decision` ---

    def apply_policies(self) -> None:
        """Stop or restart the experiment or a unit of ranks if its policies require it."""
        self._apply_to_units()
        if not self._state.stopping:
            ending = self._decide_end(self._state.tracks)
            if ending is not None:
                self.end(ending)

    def _apply_to_units(self) -> None:
        """Stop the other ranks of each unit in which a rank has failed or will be restarted."""
        for ranks in self._processes.units.values():
            decision = self._supervision.decide_unit(ranks[0])
            if decision is not None:
                for rank in ranks:
                    self._apply_to_rank(self._processes[rank], decision)

    def _apply_to_rank(self, process: SupervisedProcess, decision: UnitDecision) -> None:
        name, track = process.name, self._state.tracks[process.name]
        if process.child is not None:
            if process.stopping_rank is not process.child:
                process.stopping_rank = process.child
                self._terminate(process)
        elif decision.action == FAIL_UNIT and track.state is State.PENDING:
            self.record_final(
                "never", name, reason=decision.reason, reason_code=ReasonCode.UNIT_FAILED
            )
        elif decision.action == RESTART_UNIT and track.state in ENDED:
            # A rank that has succeeded starts again with the others.
            self._record.add("start-requested", name)

    def _decide_end(self, tracks: Mapping[str, Track]) -> Ending | None:
        state, launched = self._state, self._state.created or 0.0
        return decide_end(
            self._supervision.policies,
            tracks,
            launched=launched,
            now=self._supervision.clock.now(),
            history=RestartHistory(
                restarts=state.restarts - state.evictions,
                in_row=state.restarts_in_row,
                started=state.restarted or launched,
            ),
            backoff=self._supervision.backoff,
        )

    def end(self, ending: Ending) -> None:
        """Record a decision about the experiment, and carry it out."""
        self._record.add_ending(ending)
        if ending.restart is None:
            self.stop_processes()
        else:
            self.stop_for_restart(ending.restart.delay)

    # --- stopping ---

    def stop_processes(self) -> None:
        """Stop the running processes, and record that no other process will start."""
        for name, track in self._state.tracks.items():
            if self._processes.child(name) is None and track.state is State.PENDING:
                self.record_stopped_before(name)
        self._terminate_all()
        self.finish_if_all_ended()

    def stop_for_restart(self, delay: float) -> None:
        """Stop the running processes. After ``delay`` seconds, the experiment starts again."""
        self._terminate_all()
        self._restart_due = time.monotonic() + delay
        self._loop.after(delay, self.finish_if_all_ended)

    def stop_together(self) -> None:
        """Stop the processes whose turn has not come at once."""
        self._waves = [[name for wave in self._waves for name in wave]]
        self._wave = []
        self.terminate_next_wave()

    def kill_all(self) -> None:
        """Kill all processes, which are being stopped, without a grace period."""
        self._waves.clear()
        self._executor.kill_all()

    def _terminate_all(self) -> None:
        """Stop all running processes, wave by wave, in the reverse of the start order.

        If the user does not want to wait for the order, all of them form one wave.
        """
        running = [process.name for process in self._processes.running()]
        if self._state.stopping and self._state.together_since is not None:
            self._waves = [running]
        else:
            self._waves = self._processes.stop_waves(running)
        self._wave = []
        self.terminate_next_wave()

    def terminate_next_wave(self) -> None:
        """Stop the next wave of processes, if no process of the present one is running."""
        while self._waves and all(map(self._processes.is_gone, self._wave)):
            self._wave = self._waves.pop(0)
            for name in self._wave:
                process = self._processes.get(name)
                if process is not None:
                    self._terminate(process)

    def _terminate(self, process: SupervisedProcess) -> None:
        if process.child is None:
            return
        elapsed = 0.0
        if process.stop_begin is not None:
            elapsed = max(0.0, time.time() - process.stop_begin)
            process.stop_begin = None
        self._executor.terminate(process, max(0.0, process.spec.grace - elapsed))

    # --- the end of the run ---

    def finish_if_all_ended(self) -> None:
        """Finish the experiment, or start it again, if nothing of it is running any more."""
        self.apply_policies()
        is_active = self._executor.has_children or self._processes.has_leftovers()
        if is_active or self._state.finished:
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
        if self._supervision.strays.stop_all():
            self._loop.after(CHECK_INTERVAL_SECONDS, self.finish_if_all_ended)
            return
        self._executor.logs.close()
        self._supervision.resources.release_all_gpus()
        self._record.add("finished")
        # If the log cannot be written, the supervisor keeps running until all events are written.
        # An experiment that the user stops is usually deleted next, so its supervisor does not
        # wait.
        is_stopped = self._state.stopping and self._state.ending is None
        if self._record.is_complete or is_stopped:
            self._exit()

    def _restart_if_due(self) -> None:
        """Start the experiment again if its delay has passed and nothing of it is running."""
        if time.monotonic() < self._restart_due:
            return
        if self._supervision.strays.stop_all():
            self._loop.after(CHECK_INTERVAL_SECONDS, self.finish_if_all_ended)
            return
        if self.is_evicted:
            self._executor.logs.close()
            self._exit()
            return
        self._supervision.strays.reset()
        for process in self._processes:
            process.is_overdue, process.deadline = False, None
        self._record.add("restarted")
        self._start_or_decide(self._processes.present)

    # --- events ---

    def record_stopped_before(self, name: str) -> None:
        """Record that a process that waits for its start is stopped."""
        word = "started" if self._state.tracks[name].started is None else "restarted"
        self._record.add("never", name, **self.stop_details(f"stopped before it {word}"))

    def record_final(
        self, event: str, name: str, *, at: float | None = None, **details: Any
    ) -> None:
        """Record that a process has exited or cannot start, and that its own restart policy does
        not restart it.

        If the experiment is restarted because of this, the restart is recorded first. Otherwise, a
        reader could see that all processes have finished.
        """
        at = at or time.time()
        is_part = name in self._state.tracks
        is_restarted_on_failure = self._supervision.policies.on_failure == RESTART
        if is_restarted_on_failure and not self._state.is_stopping_all and is_part:
            line = {"event": event, "at": at, **details}
            track = after(self._state.tracks[name], line)
            ending = self._decide_end({**self._state.tracks, name: track})
            if ending is not None and ending.restart is not None:
                self.end(ending)
        if self._state.restarting and is_part:
            if event == "never":
                # The restart is already recorded for a process that is not running.
                return
            details.update(
                reason_code=ReasonCode.EXPERIMENT_RESTARTS,
                restarts_in=max(0.0, self._state.restart_at - at),
                cause=self._state.restart_cause,
            )
        self._record.add(event, name, at=at, **details)

    def stop_details(self, reason: str) -> dict[str, Any]:
        """Return the details of the event for a process that is stopped.

        ``reason`` is the reason if the user has stopped the experiment.
        """
        ending = self._state.ending
        if ending is None:
            return {"stopped": True, "reason": reason, "reason_code": ReasonCode.STOPPED}
        details: dict[str, Any] = {"reason": ending.reason, "reason_code": ending.reason_code}
        return {"stopped": True, **details} if ending.stops else details

    # --- deadlines ---

    def check_deadline(self) -> None:
        """Stop the experiment at its deadline, and schedule the next check."""
        policies = self._supervision.policies
        if policies.deadline is None or self._state.finished:
            return
        self.apply_policies()
        if not self._state.stopping:
            launched, now = self._state.created or 0.0, self._supervision.clock.now()
            remaining = seconds_to_deadline(policies, launched=launched, now=now)
            self._after_by_clock(remaining or 0.0, self.check_deadline)

    def watch_deadline(self, process: SupervisedProcess) -> None:
        """Stop a process when its own deadline has passed since its first start."""
        deadline = process.spec.deadline
        if deadline is not None and process.deadline is None:
            process.deadline = self._supervision.clock.now() + deadline
            self._check_process_deadline(process)

    def resume_deadlines(self) -> None:
        """Continue to watch the deadlines of the processes that have been started."""
        for name, track in self._state.tracks.items():
            process = self._processes[name]
            deadline = process.spec.deadline
            if deadline is not None and track.first_started is not None:
                process.deadline = track.first_started + deadline
                self._check_process_deadline(process)

    def _check_process_deadline(self, process: SupervisedProcess) -> None:
        due, track = process.deadline, self._state.tracks.get(process.name)
        if due is None or track is None or track.state in ENDED or self._state.is_stopping_all:
            return
        remaining = due - self._supervision.clock.now()
        if remaining > 0:
            self._after_by_clock(remaining, lambda: self._check_process_deadline(process))
            return
        process.is_overdue = True
        if process.child is not None:
            self._terminate(process)
            return
        self.record_final(
            "never",
            process.name,
            reason=DEADLINE_EXCEEDED,
            reason_code=ReasonCode.DEADLINE_EXCEEDED,
        )
        self._start_or_decide(self._processes.followers_of(process.name))

    def _after_by_clock(self, seconds: float, callback: Callable[[], None]) -> None:
        """Call ``callback`` after at most ``seconds`` seconds.

        The timers of the event loop do not advance while the machine is suspended, so a long time
        is divided into shorter ones.
        """
        self._loop.after(min(seconds, DEADLINE_CHECK_SECONDS), callback)
