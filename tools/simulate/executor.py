"""The simulated executor: it carries actions out on the simulated machines, and reports facts.

Like the executors of the product, it decides nothing. What it knows about its own actions is known
at once. What it learns from the machines can come late, twice and out of order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import cycle, repeat

from simulate.clock import Clock
from simulate.machine import Machine, Program
from simulate.scenario import Execution, Process, Scenario
from symphony.plan.actions import Clear, Kill, Remove, Reserve, Start, Stop, Sweep
from symphony.plan.disruption import Disruption, DisruptionCause
from symphony.plan.observation import Known, Observation, Seen
from symphony.plan.policies import Ending
from symphony.plan.state import RunState

# After this time, a server whose answer was out of date knows what has happened.
RESYNC_SECONDS = 1.0

_CAUSES = {
    "evicted": DisruptionCause.EVICTED,
    "node-lost": DisruptionCause.NODE_LOST,
    "deleted": DisruptionCause.REMOVED,
    "drained": DisruptionCause.DRAINED,
    "preempted": DisruptionCause.PREEMPTED,
}


class _Known:
    """What the executor knows about one process; see `Seen`."""

    __slots__ = (
        "attempt",
        "cleared",
        "clearing",
        "code",
        "disruption",
        "done_by",
        "failed",
        "failed_tests",
        "kill_at",
        "killed",
        "leftovers",
        "placed",
        "program",
        "ready",
        "reserved",
        "running",
        "signaled_at",
        "since",
        "starting",
        "test_result",
    )

    def __init__(self, test_result: str = "") -> None:
        self.attempt = -1
        # What the readiness test says as long as it fails.
        self.test_result = test_result
        self.starting = self.failed = self.running = self.ready = False
        self.failed_tests = 0
        self.code: int | None = None
        self.since: float | None = None
        self.signaled_at: float | None = None
        self.kill_at: float | None = None
        self.killed = self.leftovers = False
        self.cleared = self.clearing = self.reserved = False
        self.disruption: Disruption | None = None
        self.done_by = ""
        self.placed = False
        self.program: Program | None = None

    def begin(self, attempt: int) -> None:
        """Forget the previous execution."""
        self.attempt = attempt
        self.starting, self.failed, self.running, self.ready = True, False, False, False
        self.code = self.since = self.signaled_at = self.kill_at = None
        self.killed = self.leftovers = self.cleared = self.clearing = False
        self.disruption = self.program = None
        self.placed, self.done_by, self.failed_tests = False, "", 0

    def seen(self) -> Seen:
        """Return the facts as the product's executors report them."""
        pid = 0 if self.program is None else self.program.pid
        # All fields in their order: a call with names takes twice as long.
        return Seen(
            self.attempt,
            self.starting,
            self.failed,
            False,  # refused
            self.running,
            self.code,
            "No such file or directory" if self.failed else "",
            None,  # log_bytes
            self.since,
            pid,
            float(pid),
            0,  # log_start
            self.disruption,
            self.ready,
            "" if self.ready else self.test_result,
            False,  # testing
            self.failed_tests,
            "no response" if self.failed_tests else "",
            self.signaled_at,
            self.kill_at,
            self.killed,
            self._background(),
            self._is_in_background(),
            self.leftovers,
            self.cleared,
            self.clearing,
            self.reserved,
            "",  # unavailable
            self.done_by,
            None,  # reason_code
            self.placed,
            self.program.placed if self.placed and self.program is not None else None,
        )

    def _background(self) -> str:
        """Return the name of a child that has left the group of a program, or ``""``."""
        program = self.program
        if program is None or self.running or self.code != 0 or self.signaled_at is not None:
            return ""
        return "child" if program.execution.child_left_group else ""

    def _is_in_background(self) -> bool:
        return bool(self._background()) and self.program is not None and _is_stray(self.program)


class _Snapshot:
    """The facts about a program at one moment, on their way to the executor."""

    __slots__ = ("code", "failed_tests", "leftovers", "placed", "program", "ready", "running")

    def __init__(self, program: Program) -> None:
        self.program = program
        self.running = program.ended is None
        self.code = program.code
        self.ready = program.ready is not None
        self.failed_tests = program.failed_tests
        self.placed = program.placed is not None
        self.leftovers = _has_leftovers(program)

    @property
    def is_latest(self) -> bool:
        """True if nothing has changed since then."""
        program = self.program
        return (
            self.running == (program.ended is None)
            and self.ready == (program.ready is not None)
            and self.failed_tests == program.failed_tests
            and self.placed == (program.placed is not None)
            and self.leftovers == _has_leftovers(program)
        )


class Executor:
    """The executor of one supervisor. Its memory ends with the supervisor.

    ``behaviours`` maps names to what the executions of processes do. ``scenario`` says how late the
    reports are. ``on_kill`` is called with each program that is killed because its time is over.
    """

    def __init__(
        self,
        clock: Clock,
        machine: Machine,
        behaviours: Mapping[str, Process],
        scenario: Scenario,
        on_kill: Callable[[Program], None],
    ) -> None:
        self._clock = clock
        self._machine = machine
        self._behaviours = behaviours
        self._on_kill = on_kill
        self._delays: Iterator[float] = cycle(scenario.delays) if scenario.delays else repeat(0.0)
        self._repeats: Iterator[bool] = (
            cycle(scenario.repeats) if scenario.repeats else repeat(False)
        )
        self._known: dict[str, _Known] = {}
        # The processes of which the reported facts are out of date.
        self._changed: dict[str, _Known] = {}
        self._reported = Known()
        self._strays: bool | None = False
        self._strays_since: float | None = None
        self._strays_killed = False
        self.is_dead = False
        self.released = 0
        self.eviction: Ending | None = None
        self.kills_at_once = False

    # --- facts ---

    def observation(self) -> Observation:
        """Return what is known now."""
        self._report_changes()
        reported = self._reported
        return Observation(reported.processes, *self.circumstances, reported.active, reported.news)

    def _report_changes(self) -> None:
        """Add the facts that have changed to those that the next observation contains."""
        if not self._changed:
            return
        reported = self._reported
        for name, known in self._changed.items():
            seen = known.seen()
            # A fact that is repeated is no news, as for the executors of the product.
            if seen != reported.processes.get(name):
                reported.put(name, seen)
        self._changed.clear()

    @property
    def circumstances(
        self,
    ) -> tuple[bool | None, float | None, bool, int, Ending | None, bool]:
        """The facts of an observation that concern no single process."""
        return (
            self._strays,
            self._strays_since,
            self._strays_killed,
            self.released,
            self.eviction,
            self.kills_at_once,
        )

    @property
    def has_news(self) -> bool:
        """True if something is new about a process since the latest decision."""
        self._report_changes()
        return self._reported.news is None or bool(self._reported.news)

    def note_decision(self) -> None:
        """Note that a decision has considered what is known."""
        self._reported.note_decision()

    def adopt(self, state: RunState, *, lost_since: float | None) -> None:
        """Look for the programs that the executor of a killed supervisor has started.

        Nobody has kept the exit codes of those that have exited since ``lost_since``, and of those
        that ran on another machine.
        """
        for name, track in (*state.tracks.items(), *state.leaving.items()):
            if track.pid is not None and name not in self._machine.latest:
                known = self._know(name)
                known.begin(track.attempts - 1)
                known.starting = False
                self._show(name, known)
        for name, program in self._machine.latest.items():
            known = self._know(name)
            known.begin(program.attempt)
            known.program, known.starting = program, False
            known.signaled_at, known.since = program.terminated, program.started
            known.running = program.ended is None
            known.ready = program.ready is not None
            known.failed_tests = program.failed_tests
            known.placed = program.placed is not None
            known.disruption = _disruption(program)
            if program.ended is not None:
                is_lost = lost_since is not None and program.ended >= lost_since
                program.code_lost = program.code_lost or (is_lost and not program.exit_recorded)
                known.code = program.reported_code
                known.since = program.ended
                known.leftovers = _has_leftovers(program)
            self._show(name, known)
        self._strays = None
        self.reserve_for(self._behaviours)

    def notice(self, program: Program) -> None:
        """Report a change of a program, as late and as often as the scenario says."""
        snapshot = _Snapshot(program)
        delay = next(self._delays)
        if delay:
            self._clock.after(delay, self._report, snapshot)
        else:
            self._report(snapshot)
        if next(self._repeats):
            self._clock.after(next(self._delays), self._report, snapshot)

    def note_started_again(self, program: Program) -> None:
        """Note that the platform has started a process again by itself."""
        known = self._know(program.name)
        known.begin(program.attempt)
        known.program, known.starting, known.running = program, False, True
        known.since, known.done_by = program.started, "the platform"
        known.placed = program.placed is not None
        self._show(program.name, known)

    def _report(self, snapshot: _Snapshot) -> None:
        if self.is_dead:
            return
        program = snapshot.program
        if self._strays and not self._all_strays():
            self._strays, self._strays_since, self._strays_killed = False, None, False
        name = program.name
        known = self._known.get(name)
        if known is None or known.attempt > program.attempt:
            # The executors of the product number the executions, so that they notice this.
            return
        if known.program is not program:
            # A process that was removed and added again begins with the same number.
            return
        if not snapshot.is_latest:
            # A server that answers from a cache says later what is true now.
            self._clock.after(RESYNC_SECONDS, self._report, _Snapshot(program))
        known.starting, known.running, known.ready = False, snapshot.running, snapshot.ready
        known.since = program.started if snapshot.running else program.ended
        known.placed, known.failed_tests = snapshot.placed, snapshot.failed_tests
        known.code = program.reported_code if snapshot.code is not None else None
        known.leftovers = snapshot.leftovers
        known.disruption = _disruption(program)
        if known.clearing and not self._has_strays(name):
            known.clearing, known.cleared = False, True
        self._show(name, known)

    def _know(self, name: str) -> _Known:
        known = self._known.get(name)
        if known is None:
            behaviour = self._behaviours.get(name)
            has_probe = behaviour is not None and behaviour.has_probe
            known = self._known[name] = _Known("connection refused" if has_probe else "")
        return known

    def _show(self, name: str, known: _Known) -> None:
        self._changed[name] = known

    def _has_strays(self, name: str) -> bool:
        """Return whether programs run that earlier executions of a process have left behind."""
        return any(each.name == name and _is_stray(each) for each in self._machine.with_children)

    def _all_strays(self) -> list[Program]:
        return [program for program in self._machine.with_children if _is_stray(program)]

    def program_of(self, name: str) -> Program | None:
        """Return the latest execution of a process that the executor knows, or None."""
        known = self._known.get(name)
        return None if known is None else known.program

    def is_starting(self, name: str) -> bool:
        """Return whether a process is being started as far as the executor knows."""
        known = self._known.get(name)
        return known is not None and known.starting

    # --- actions ---

    def start(self, action: Start) -> Program | None:
        """Start a process, unless this attempt has begun already."""
        name = action.process
        known = self._know(name)
        if known.attempt >= action.attempt:
            return None
        known.begin(action.attempt)
        self._strays, self._strays_since, self._strays_killed = None, None, False
        execution = execution_of(self._behaviours[name], action.attempt)
        if execution.cannot_start:
            known.starting, known.failed = False, True
            self._show(name, known)
            failed = Program(name, action.attempt, 0, execution, self._clock.now)
            failed.ended = self._clock.now
            return failed
        program = self._machine.start(name, action.attempt, execution)
        known.program = program
        self._show(name, known)
        self.notice(program)
        return program

    def stop(self, action: Stop) -> None:
        """Begin to stop a process and what remains of its process group."""
        known = self._know(action.process)
        program = known.program
        if known.kill_at is None or action.kill_at < known.kill_at:
            known.kill_at = action.kill_at
            self._clock.after(
                max(0.0, action.kill_at - self._clock.now), self._kill_late, (known, program)
            )
        if known.signaled_at is None:
            known.signaled_at = self._clock.now
        self._show(action.process, known)
        if program is not None:
            self._machine.terminate(program)

    def _kill_late(self, target: tuple[_Known, Program | None]) -> None:
        """Kill a process when the time that `Stop` has named has come."""
        known, program = target
        is_due = known.kill_at is not None and known.kill_at <= self._clock.now
        if self.is_dead or program is None or self._known.get(program.name) is not known:
            return
        if known.program is not program or not is_due:
            return
        if not known.killed:
            known.killed = True
            self._show(program.name, known)
            self._machine.kill(program)
            self._on_kill(program)

    def kill(self, action: Kill) -> Program | None:
        """Kill a process and what remains of its process group, and return it."""
        known = self._know(action.process)
        program = known.program
        known.killed = True
        self._show(action.process, known)
        if program is not None:
            self._machine.kill(program)
        return program

    def clear(self, action: Clear) -> None:
        """Stop what the previous executions of a process have left behind."""
        name = action.process
        known = self._know(name)
        strays = [each for each in self._all_strays() if each.name == name]
        known.cleared, known.clearing = not strays, bool(strays)
        self._show(name, known)
        for program in strays:
            self._machine.terminate(program)
            delay = max(0.0, action.kill_at - self._clock.now)
            self._clock.after(delay, self._machine.kill, program)

    def reserve(self, action: Reserve) -> None:
        """Reserve the resources of a process."""
        self.reserve_for([action.process])

    def reserve_for(self, names: Iterable[str]) -> None:
        """Reserve the resources of processes, as a change and a new supervisor do."""
        for name in names:
            if self._behaviours[name].reserves:
                known = self._know(name)
                known.reserved = True
                self._show(name, known)

    def free(self, name: str) -> None:
        """Release the resources of a process that has exited."""
        known = self._known.get(name)
        if known is not None and known.reserved:
            known.reserved = False
            self._show(name, known)

    def remove(self, action: Remove) -> None:
        """Forget a process."""
        self._known.pop(action.process, None)
        self._changed.pop(action.process, None)
        self._reported.forget(action.process)
        self._machine.latest.pop(action.process, None)

    def sweep(self, action: Sweep) -> None:
        """Stop the programs that belong to no process."""
        strays = self._all_strays()
        if not strays:
            self._strays, self._strays_since, self._strays_killed = False, None, False
            return
        if self._strays_since is None:
            self._strays_since = self._clock.now
        self._strays = True
        self._strays_killed = self._strays_killed or action.kill
        for program in strays:
            if action.kill:
                self._machine.kill(program)
            else:
                self._machine.terminate(program)


def execution_of(process: Process, attempt: int) -> Execution:
    """Return what an execution of a process does."""
    return process.executions[min(attempt, len(process.executions) - 1)]


def _has_leftovers(program: Program) -> bool:
    return program.strays_until is not None and not program.execution.child_left_group


def _is_stray(program: Program) -> bool:
    return program.strays_until is not None and program.execution.child_left_group


def _disruption(program: Program) -> Disruption | None:
    if not program.disrupted:
        return None
    return Disruption(cause=_CAUSES[program.disrupted], node="node1", detail="its Pod was deleted")
