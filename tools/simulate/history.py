"""Run one scenario from the launch to the end, and check the promises."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from simulate.clock import LAUNCH_TIME, Clock
from simulate.executor import Executor
from simulate.ledger import Ledger
from simulate.machine import Machine, Program
from simulate.past import EVICTION_CAUSE, Asked
from simulate.promises import ENDS, NO_ERROR, RECORD, SECOND_UP, Broken
from simulate.record import Record
from simulate.scenario import Happening, Process, Scenario
from simulate.supervisor import CrashPoints, Killed, Supervisor
from simulate.wishes import wish_of
from symphony.plan.policies import Ending
from symphony.plan.requests import Refused, accept, check_change, continue_elsewhere, stop_all
from symphony.plan.restart_policy import Restart
from symphony.plan.state import RunState, fold
from symphony.plan.wish import difference
from symphony.status import ENDED, ReasonCode

Tell = Callable[[str], None]

# The experiment is stopped after this time, if it has not ended before.
HORIZON_SECONDS = 60.0
# A stop takes less time than this, whatever happens during it.
_STOP_SECONDS = 400.0
_MOST_MOMENTS = 2000
# After this time, the system starts an experiment again that it has evicted.
EVICTION_SECONDS = 2.0
EVICTION = Ending(
    action="restart",
    reason="the system restarts the experiment",
    reason_code=ReasonCode.EVICTED,
    cause=EVICTION_CAUSE,
    restart=Restart(delay=0.0, in_row=0),
)
# In one of so many histories, each decision without actions is repeated, and the record is read at
# the end also if the supervisor was never killed.
CHECK_ALL_EVERY = 4


@dataclass(slots=True)
class Outcome:
    """What a history has shown. ``broken`` is the promise that was broken, or None."""

    steps: int = 0
    broken: Broken | None = None
    actions: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    promises: Counter[str] = field(default_factory=Counter)


def run_history(scenario: Scenario, tell: Tell | None = None) -> Outcome:
    """Run a scenario, and return what it has shown. ``tell`` receives the story line by line."""
    outcome = Outcome()
    world = World(scenario, outcome, tell)
    try:
        world.run()
    except Broken as broken:
        outcome.broken = broken
    except Exception as exc:
        outcome.broken = _error(exc)
    outcome.events, outcome.promises = world.ledger.events, world.ledger.checked
    return outcome


def _error(exc: Exception) -> Broken:
    frame = traceback.extract_tb(exc.__traceback__)[-1]
    where = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
    return Broken(NO_ERROR, f"{type(exc).__name__}: {exc} ({where})")


class World:
    """Everything that exists in one history."""

    def __init__(self, scenario: Scenario, outcome: Outcome, tell: Tell | None) -> None:
        self._scenario = scenario
        self._outcome = outcome
        self._tell_line = tell
        self._tell = None if tell is None else self._tell_with_time
        self._clock = Clock()
        self._machine = Machine(self._clock, self._notice)
        self.ledger = Ledger(scenario, self._clock, self._machine)
        self._record = Record(scenario.record_limit)
        self._points = CrashPoints(scenario.crashes)
        self._processes = {process.name: process for process in scenario.processes}
        self._wish = wish_of(scenario, scenario.processes, ends_with=scenario.ends_with)
        self._supervisor: Supervisor | None = None
        self._killed_at: float | None = None
        # The state of the supervisor that was killed last.
        self._lost_state: RunState | None = None
        self._eviction: Ending | None = None
        # True until it is recorded that the experiment continues on another machine.
        self._is_moving = False
        # These checks take much time, and most faults show in many histories.
        self._checks_all = scenario.seed % CHECK_ALL_EVERY == 0
        self._is_down_requested = False
        self._has_finished = False
        self._stop_begins: float | None = None

    # --- the course of time ---

    def run(self) -> None:
        """Run the history until the experiment has ended."""
        clock = self._clock
        for happening in self._scenario.happenings:
            clock.after(happening.at, self._happen, happening)
        clock.after(HORIZON_SECONDS, self._end_at_horizon)
        self._begin_supervisor(None)
        for _ in range(_MOST_MOMENTS):
            if self._has_finished:
                break
            self._advance()
        else:
            raise Broken(ENDS, f"{_MOST_MOMENTS} moments were not enough")
        self._check_end()

    def _advance(self) -> None:
        """Go to the next moment at which something happens."""
        clock, supervisor = self._clock, self._supervisor
        following = clock.next_time
        wake_at = None if supervisor is None else supervisor.wake_at
        if wake_at is not None and (following is None or wake_at < following):
            following = max(wake_at, clock.now)
        if self._is_quiet(following):
            self._check_quiet()
            return
        if following is None:
            raise Broken(ENDS, "the experiment has not ended, and nothing happens any more")
        if self._stop_begins is not None and following > self._stop_begins + _STOP_SECONDS:
            raise Broken(ENDS, f"a stop lasts more than {_STOP_SECONDS} s")
        clock.now = following
        clock.run_due()
        self._step()

    def _is_quiet(self, following: float | None) -> bool:
        """Return whether nothing will happen before the horizon."""
        if self._is_down_requested or self._supervisor is None:
            return False
        return following is None or following >= LAUNCH_TIME + HORIZON_SECONDS

    def _check_quiet(self) -> None:
        supervisor = self._supervisor
        if supervisor is None:
            return
        if supervisor.wake_at is None and self._clock.is_settled:
            self.ledger.check_quiet(supervisor.state)
        self._check_second_up(supervisor)
        self._clock.now = LAUNCH_TIME + HORIZON_SECONDS
        self._end_at_horizon(None)
        self._step()

    def _end_at_horizon(self, _: object) -> None:
        if not self._is_down_requested:
            self._request_down("down")

    # --- supervisors ---

    def _notice(self, program: Program) -> None:
        if self._tell is not None:
            self._tell(_program_line(program))
        if self._supervisor is not None:
            self._supervisor.executor.notice(program)

    def _new_supervisor(self) -> Supervisor:
        executor = Executor(
            self._clock, self._machine, self._processes, self._scenario, self.ledger.note_kill
        )
        supervisor = Supervisor(
            self._clock,
            self._wish,
            self._record,
            executor,
            self.ledger,
            self._points,
            self._outcome.actions,
            self._tell,
            checks_all=self._checks_all,
        )
        executor.kills_at_once = self.ledger.experiment.kills_at_once
        executor.eviction = self._eviction
        return supervisor

    def _begin_supervisor(self, lost_since: float | None) -> None:
        if self._is_moving:
            self._continue_elsewhere(None)
            return
        supervisor = self._new_supervisor()
        if self._killed_at is not None:
            self._check_read_back(supervisor.state)
            supervisor.executor.adopt(supervisor.state, lost_since=lost_since)
        self._supervisor = supervisor
        if self._killed_at is not None:
            self._say("a new supervisor begins")
        self._guard(supervisor.begin)
        self._step()

    def _step(self) -> None:
        """Let the supervisor decide."""
        supervisor = self._supervisor
        if supervisor is None:
            return
        self._guard(supervisor.step)
        self._outcome.steps += supervisor.steps
        supervisor.steps = 0
        if supervisor.has_finished and self._supervisor is supervisor:
            if supervisor.state.finished:
                self._has_finished = True
            else:
                self.ledger.check_nothing_left()
                self._leave(supervisor)

    def _guard(self, do: Callable[[], object]) -> None:
        """Let the supervisor do something, during which it can be killed."""
        try:
            do()
        except Killed:
            self._bury()

    def _bury(self) -> None:
        """Forget a killed supervisor, and begin another one later."""
        supervisor = self._supervisor
        if supervisor is None or supervisor.crash is None:
            return
        if supervisor.has_finished and not supervisor.state.finished:
            self._leave(supervisor)
            return
        if supervisor.state.finished:
            # Nobody replaces a supervisor that has nothing to do.
            self._has_finished = True
            return
        crash = supervisor.crash
        self._outcome.steps += supervisor.steps
        self._supervisor = None
        self._lost_state = supervisor.state
        self._killed_at = self._clock.now
        self._say(f"the supervisor is killed; the next one begins in {crash.downtime:g} s")
        lost_since = self._clock.now if crash.codes_lost else None
        self._clock.after(crash.downtime, self._begin_supervisor, lost_since)

    # --- what users and the outside world do ---

    def _happen(self, happening: Happening) -> None:
        kind = happening.kind
        if self._has_finished:
            return
        if kind in ("evicted", "node-lost", "deleted", "drained", "preempted"):
            self._disrupt(happening)
        elif kind in ("down", "down-now"):
            self._request_down(kind)
        elif kind == "evict-all":
            self._evict(happening)
        elif self._supervisor is not None and not self._is_down_requested:
            self._guard(lambda: self._request(happening))

    def _evict(self, happening: Happening) -> None:
        """Let the system stop the whole experiment, as a batch system does.

        The value of the happening says how: it asks the supervisor to stop the processes first, or
        kills everything at once. In both cases, the experiment is started again later.
        """
        supervisor = self._supervisor
        if supervisor is None:
            return
        state = supervisor.state
        if state.created is None or state.stopping or state.finished:
            return
        self._say(f"the system evicts the experiment ({happening.value})")
        self.ledger.experiment.is_evicted = True
        self._eviction = EVICTION
        if happening.value == "asks":
            supervisor.executor.eviction = EVICTION
            return
        for program in self._machine.programs:
            # On the machine where the experiment continues, nobody knows the exit codes.
            program.code_lost = program.code_lost or not program.exit_recorded
            self._machine.disrupt(program, "evicted")
            self._machine.kill(program)
        self.ledger.forget_unrecorded()
        self._leave(supervisor)

    def _leave(self, supervisor: Supervisor) -> None:
        """Let the experiment rest until the system starts it again."""
        supervisor.executor.is_dead = True
        self._supervisor = None
        self._lost_state = None
        self._is_moving = True
        self._clock.after(EVICTION_SECONDS, self._continue_elsewhere)

    def _continue_elsewhere(self, _: object) -> None:
        """Start the experiment again on another machine."""
        self._eviction = None
        self._machine.latest.clear()
        supervisor = self._new_supervisor()
        self._supervisor = supervisor
        self._say("the system starts the experiment again")
        now = self._clock.now
        events = continue_elsewhere(self._wish, supervisor.state, EVICTION, now)
        for event in events:
            if self._supervisor is supervisor:
                self._guard(partial(supervisor.write, event))
        if self._supervisor is supervisor:
            self._is_moving = False
            self._step()

    def _disrupt(self, happening: Happening) -> None:
        for name in happening.names:
            program = self._machine.latest.get(name)
            if program is not None and program.ended is None:
                self._machine.disrupt(program, happening.kind)

    def _request_down(self, kind: str) -> None:
        """Stop the experiment, at the latest when a supervisor runs again."""
        supervisor = self._supervisor
        if supervisor is None:
            self._clock.after(0.5, self._request_down, kind)
            return
        if self._has_finished:
            return
        self._is_down_requested = True
        self._stop_begins = self._clock.now
        self._say(f"a user stops the experiment ({kind})")
        is_now = kind == "down-now"
        self.ledger.stop_all(at_once=is_now, kills=is_now)
        supervisor.executor.kills_at_once = supervisor.executor.kills_at_once or is_now
        events = stop_all(supervisor.state, self._clock.now, is_together=is_now)
        for event in events:
            self._guard(partial(supervisor.write, event))
        if not supervisor.state.stopping:
            # The user notices that the supervisor was killed before, and repeats the command.
            self._clock.after(0.5, self._request_down, kind)

    def _request(self, happening: Happening) -> None:
        supervisor = self._supervisor
        if supervisor is None:
            return
        state = supervisor.state
        if state.is_stopping_all or state.finished or state.created is None:
            return
        if happening.kind in ("up", "scale"):
            self._change(supervisor, happening)
        elif happening.kind == "up-again":
            self._check_second_up(supervisor)
        elif happening.kind == "signal":
            self._signal(supervisor, happening.names)
        else:
            self._request_processes(supervisor, happening)

    def _request_processes(self, supervisor: Supervisor, happening: Happening) -> None:
        kind, state, now = happening.kind, supervisor.state, self._clock.now
        known = [name for name in happening.names if name in self._wish.processes]
        if not known:
            return
        try:
            accepted = accept(self._wish, state, kind, known, happening.value, now)
        except Refused as exc:
            self._say(f"a user requests {kind} of {', '.join(known)}, which is refused: {exc}")
            return
        self._say(f"a user requests {kind} of {', '.join(known)}")
        for event in accepted.events:
            names = event["names"]
            concerned = self._concerned(kind, names, state)
            asked = Asked(
                accepted.number, kind, tuple(names), happening.value, now, concerned=concerned
            )
            supervisor.write(event, partial(self.ledger.accept, asked, accepted.prevented))

    def _concerned(self, kind: str, names: list[str], state: RunState) -> tuple[str, ...]:
        """Return the processes on which a request has an effect."""
        tracks, machine = state.tracks, self._machine
        if kind == "stop":
            return tuple(name for name in names if tracks[name].state not in ENDED)
        if kind != "start":
            return tuple(names)
        idle = [name for name in names if not machine.runs(name) and tracks[name].pid is None]
        waiting = [name for name in idle if tracks[name].next_start is not None]
        return tuple(name for name in idle if tracks[name].state in ENDED or name in waiting)

    def _signal(self, supervisor: Supervisor, names: list[str]) -> None:
        for name in names:
            track = supervisor.state.tracks.get(name)
            if track is not None and track.pid is not None:
                event = {"event": "signaled", "at": self._clock.now, "process": name}
                supervisor.write({**event, "signal": "SIGUSR1"})

    def _change(self, supervisor: Supervisor, happening: Happening) -> None:
        """Replace the wish, as `up` and `scale` do."""
        processes = changed_processes(list(self._processes.values()), happening)
        ends_with = [name for name in self._scenario.ends_with if name in processes]
        wish = wish_of(self._scenario, list(processes.values()), ends_with=ends_with)
        found = difference(self._wish, wish)
        changed = [*found.added, *found.removed, *found.restarted]
        revision = supervisor.state.revision + 1
        try:
            check_change(supervisor.state, revision, changed)
        except Refused:
            return
        if not changed:
            return
        event = {
            "event": "changed",
            "at": self._clock.now,
            "revision": revision,
            "added": list(found.added),
            "removed": list(found.removed),
            "restarted": list(found.restarted),
        }
        before = [*found.removed, *found.restarted]
        previous = [self._wish.processes[name] for name in before]
        self._say(f"a user changes the experiment: {found}")
        self._wish = wish_of(
            self._scenario,
            list(processes.values()),
            ends_with=ends_with,
            previous=previous,
            change=event,
        )
        self._processes.update(processes)
        for name in found.removed:
            # The executor still stops it.
            self._processes.pop(name)
        number = supervisor.state.request_count + 1
        names = (*found.added, *found.restarted)
        asked = Asked(number, "change", names, None, self._clock.now, found.removed)
        self.ledger.accept(asked, {}, list(processes.values()))
        self.ledger.experiment.ends_with = ends_with
        supervisor.wish = self._wish
        supervisor.executor.reserve_for(names)
        # The supervisor records the change before it accepts another request.
        supervisor.step()

    # --- checks of the whole ---

    def _check_second_up(self, supervisor: Supervisor) -> None:
        """Check that the same wish differs in nothing from the present one."""
        self.ledger.checked[SECOND_UP] += 1
        again = wish_of(
            self._scenario,
            list(self._processes.values()),
            ends_with=self.ledger.experiment.ends_with,
        )
        found = difference(self._wish, again)
        if found.added or found.removed or found.restarted:
            raise Broken(SECOND_UP, f"a second up changes {found}")
        del supervisor

    def _check_read_back(self, state: RunState) -> None:
        """Check that a new supervisor has read the state of the one that was killed."""
        lost = self._lost_state
        if lost is None or lost.revision != self._wish.revision:
            # The change was not recorded, so the old state has other processes.
            return
        self.ledger.checked[RECORD] += 1
        if state != lost:
            raise Broken(RECORD, f"the record says {state}, not {lost}")

    def _check_end(self) -> None:
        supervisor = self._supervisor
        if supervisor is None:
            raise Broken(ENDS, "the experiment has ended without a supervisor")
        self.ledger.check_finished(supervisor.state)
        self.ledger.checked[ENDS] += 1
        self.ledger.checked[NO_ERROR] += 1
        if not supervisor.state.finished:
            raise Broken(ENDS, "the supervisor has ended, but the record does not say so")
        if not self._checks_all and self._killed_at is None:
            return
        self.ledger.checked[RECORD] += 1
        names = [*self._wish.processes, *self._wish.previous]
        read = fold(names, self._record.read())
        if read != supervisor.state:
            raise Broken(RECORD, f"the record says {read}, not {supervisor.state}")

    def _say(self, text: str) -> None:
        if self._tell is not None:
            self._tell(text)

    def _tell_with_time(self, text: str) -> None:
        if self._tell_line is not None:
            self._tell_line(f"{self._clock.now - LAUNCH_TIME:7.1f}  {text}")


def changed_processes(processes: list[Process], happening: Happening) -> dict[str, Process]:
    """Return the processes after a change of the scenario."""
    found = {process.name: process for process in processes}
    if happening.kind == "scale":
        return _scaled(found, happening.value)
    name = happening.names[0] if happening.names else ""
    if happening.value == "add" or name not in found:
        number = len(found)
        while f"p{number}" in found:
            number += 1
        found[f"p{number}"] = Process(f"p{number}", grace=2.0)
    elif happening.value == "alter":
        found[name] = replace(found[name], version=found[name].version + 1)
    elif len(found) > 1:
        _remove(found, [name])
    return found


def _scaled(found: dict[str, Process], count: int) -> dict[str, Process]:
    """Return as many processes as a user wants: the last ones go, and copies are added."""
    names = list(found)
    if count and count < len(names):
        _remove(found, names[count:])
        return found
    for number in range(len(names), count):
        name = f"p{number}"
        if name not in found:
            found[name] = replace(found[names[0]], name=name, gang=None, starts_after={})
    return found


def _remove(found: dict[str, Process], names: list[str]) -> None:
    for name in names:
        del found[name]
    for other in list(found.values()):
        rest = {key: value for key, value in other.starts_after.items() if key in found}
        if len(rest) != len(other.starts_after):
            found[other.name] = replace(other, starts_after=rest)


def _program_line(program: Program) -> str:
    name = f"{program.name} (execution {program.attempt})"
    if program.ended is None:
        return f"{name} is ready" if program.ready is not None else f"{name} runs"
    if program.disrupted:
        return f"{name} is gone: {program.disrupted}"
    if program.strays_until is not None:
        return f"{name} exits with {program.code} and leaves a child behind"
    return f"{name} and its children have exited ({program.code})"
