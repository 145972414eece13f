"""The promises of one history: what has happened, and whether it was right."""

from __future__ import annotations

from collections.abc import Mapping

from simulate.clock import Clock
from simulate.coverage import Counts
from simulate.ends import check_finished, check_nothing_left, check_quiet
from simulate.machine import Machine, Program
from simulate.past import Asked, Experiment, Past
from simulate.promises import (
    ANSWERED,
    CAUSE,
    GRACE,
    HEALTH,
    NOTHING_LEFT,
    PROGRESS,
    STOP_ORDER,
    TRUTH,
    Broken,
)
from simulate.recorded import check_event
from simulate.scenario import Process, Scenario
from simulate.starts import check_start
from simulate.stops import check_kill, check_stop
from symphony.plan.state import Event, RunState


class Ledger:
    """What has happened in a history. Its methods raise Broken if a promise is broken.

    ``checked`` counts how often each promise was checked, and ``events`` the recorded events.
    """

    def __init__(self, scenario: Scenario, clock: Clock, machine: Machine, counts: Counts) -> None:
        self._clock = clock
        pasts = {process.name: Past(process) for process in scenario.processes}
        self.experiment = Experiment(scenario, machine, pasts, ends_with=list(scenario.ends_with))
        self.checked, self.events = counts.promises, counts.events
        self.is_exact = not scenario.crashes and not scenario.delays

    # --- requests ---

    def accept(
        self,
        asked: Asked,
        prevented: Mapping[int, str],
        changed: list[Process] | None = None,
    ) -> None:
        """Note that a request was accepted.

        ``prevented`` maps the numbers of earlier requests to what they do not do any more.
        ``changed`` are all processes after a change.
        """
        experiment = self.experiment
        for number in prevented:
            experiment.asked[number].is_replaced = True
        experiment.asked[asked.number] = asked
        if asked.kind != "start":
            pasts = (experiment.pasts.get(name) for name in (*asked.names, *asked.removed))
            asked.programs = [past.programs[-1] for past in pasts if past and past.programs]
        if changed is not None:
            self._change(asked, changed)
            return
        for name in asked.names:
            past = experiment.pasts[name]
            is_concerned = name in asked.concerned
            if asked.kind != "stop":
                past.was_stopped = past.is_stopped
                past.is_stopped = past.is_stopped and not is_concerned
            elif is_concerned or past.must_start:
                # A start that has not happened yet is stopped, too.
                past.is_stopped = True
                past.is_prevented = not is_concerned and not past.was_stopped
            past.may_start = asked.kind != "stop"
            past.must_start = asked.kind != "stop" and is_concerned
            if asked.kind != "start":
                past.allow_grace(asked.grace, asked.at)
                past.stop_request = asked

    def _change(self, asked: Asked, processes: list[Process]) -> None:
        pasts = self.experiment.pasts
        for name in asked.removed:
            past = pasts.pop(name)
            past.is_removed = True
            # The other ranks do not remember how often this one has restarted.
            gang = self.experiment.gangs.get(past.settings.gang or "")
            if gang is not None:
                gang.forget_restarts()
            past.allow_grace(None, asked.at)
            past.stop_request = asked
            self.experiment.gone.append(past)
        for process in processes:
            past = pasts.setdefault(process.name, Past(process))
            if process.name in asked.names:
                past.allow_grace(None, asked.at)
                past.was_stopped = past.is_stopped
                past.may_start, past.must_start, past.is_stopped = True, True, False
                past.stop_request = asked
                past.first_started = None
            past.settings = process

    def stop_all(self, *, at_once: bool, kills: bool) -> None:
        """Note that a user stops the experiment."""
        experiment = self.experiment
        experiment.is_stopped_by_user = True
        experiment.is_at_once = experiment.is_at_once or at_once
        experiment.kills_at_once = experiment.kills_at_once or kills

    def note_answer(self, number: int, error: str) -> None:
        """Check that a request is done when it is answered."""
        self.checked[ANSWERED] += 1
        asked = self.experiment.asked.get(number)
        if asked is None:
            raise Broken(ANSWERED, f"request {number} was answered, but nobody has made it")
        asked.is_answered = True
        if error or asked.is_replaced:
            return
        if self.experiment.stopping_since is not None or self.experiment.is_restarting:
            # What is left behind is stopped at the end.
            return
        for program in asked.programs:
            if program.ended is None:
                raise Broken(
                    ANSWERED, f"{asked.kind} was answered while {program.name} was running"
                )
            if program.strays_until is not None:
                message = f"{asked.kind} was answered while children of {program.name} ran"
                raise Broken(ANSWERED, message)

    # --- actions ---

    def note_start(self, name: str, program: Program | None) -> None:
        """Check a start. ``program`` is None if this execution has begun before."""
        if program is None:
            return
        past = self.experiment.past(name)
        if past is None:
            raise Broken(CAUSE, f"{name} was started, but there is no such process")
        failed = past.programs[-1] if past.programs else program
        if failed.execution.cannot_start and failed.attempt == program.attempt and past.programs:
            # The supervisor was killed before it had recorded the failed start.
            past.programs.pop()
            past.restarts -= failed.is_counted
            past.in_row -= failed.is_counted
        for promise in check_start(self.experiment, past, program):
            self.checked[promise] += 1
        past.programs.append(program)
        past.graces.clear()
        past.stop_request = None

    def note_started_again(self, program: Program) -> None:
        """Note that the platform has started a process again by itself."""
        past = self.experiment.pasts[program.name]
        past.programs.append(program)
        past.restarts += 1
        past.in_row = 0
        past.graces.clear()

    def check_stop(self, name: str) -> None:
        """Check the first signal to a running process."""
        self.checked[STOP_ORDER] += 1
        past = self.experiment.past(name)
        if past is not None:
            check_stop(self.experiment, past, self._clock.now)
            if not past.graces:
                past.allow_grace(None, self._clock.now)

    def note_kill(self, program: Program) -> None:
        """Check that a running program is killed only after its grace period."""
        self.checked[GRACE] += 1
        past = self.experiment.past(program.name)
        if past is not None and program.killed is not None:
            check_kill(self.experiment, past, program, is_exact=self.is_exact)

    def check_freed(self, name: str) -> None:
        """Check that the resources of a running process are not released."""
        past = self.experiment.past(name)
        if past is not None and past.is_running:
            raise Broken(TRUTH, f"the resources of {name} were released while it was running")

    def check_removed(self, name: str) -> None:
        """Check that a process that is forgotten does not run."""
        past = self.experiment.past(name)
        if past is not None and past.is_removed and past.is_running:
            raise Broken(NOTHING_LEFT, f"{name} was forgotten while it was running")

    # --- the record, and the end ---

    def note_event(self, event: Event) -> None:
        """Check a recorded event."""
        self.events[event["event"]] += 1
        self.checked[CAUSE] += 1
        self.checked[HEALTH] += event["event"] == "unhealthy"
        check_event(self.experiment, event)

    def check_quiet(self, state: RunState) -> None:
        """Check an experiment in which nothing more happens by itself."""
        self.checked[PROGRESS] += 1
        check_quiet(self.experiment, state)

    def forget_unrecorded(self) -> None:
        """Forget executions that nobody can know after the loss of the machine."""
        for past in self.experiment.pasts.values():
            while past.programs and not past.programs[-1].start_recorded:
                past.programs.pop()

    def check_nothing_left(self) -> None:
        """Check that nothing runs when the experiment ends or leaves a machine."""
        check_nothing_left(self.experiment)

    def check_finished(self, state: RunState) -> None:
        """Check the end of a history."""
        self.checked[TRUTH] += 1
        self.checked[NOTHING_LEFT] += 1
        check_finished(self.experiment, state)
