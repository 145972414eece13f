"""The simulated machines: the programs that run there, whoever started them.

This module is the truth with which the record is compared. It knows nothing of decisions.
"""

from __future__ import annotations

from collections.abc import Callable

from simulate.clock import Clock
from simulate.scenario import Execution

TERM_CODE, KILL_CODE = 143, 137
# The time between the signals of a machine that is emptied.
DRAIN_SECONDS = 4.0
# The time between two health tests, the number of those that fail before a program recovers, and
# of those that are made of a program that does not recover.
TEST_SECONDS, TESTS_BEFORE_RECOVERY, MOST_FAILED_TESTS = 1.0, 2, 4


class Program:
    """One execution of a process.

    ``code`` is None while it runs, and also if it vanished with its machine; ``ended`` is the time
    of its exit. ``terminated`` is the time of the first SIGTERM. ``killed`` is true if it has
    received SIGKILL. ``reported_code`` is the exit code as far as anybody can know it: nobody keeps
    it if the supervisor and its guardian are dead. ``disrupted`` says what took it away or is doing
    so, if anything. ``strays_until`` is the time at which the children that it has left behind
    exit, or None if there are none. ``is_counted`` is true if it counts as a restart. ``placed`` is
    the time at which a machine was found for it, or None. Without a machine, it has no exit code.
    ``failed_tests`` is the number of health tests in a row that have failed, and
    ``most_failed_tests`` the largest number until now. ``unhealthy_recorded`` is true if it was
    recorded that it is stopped because of them.
    """

    __slots__ = (
        "attempt",
        "code",
        "code_lost",
        "disrupted",
        "ended",
        "execution",
        "exit_recorded",
        "failed_tests",
        "is_counted",
        "killed",
        "late_recorded",
        "most_failed_tests",
        "name",
        "pid",
        "placed",
        "ready",
        "start_recorded",
        "started",
        "strays_terminated",
        "strays_until",
        "terminated",
        "unhealthy_recorded",
    )

    def __init__(self, name: str, attempt: int, pid: int, execution: Execution, at: float) -> None:
        self.name = name
        self.attempt = attempt
        self.pid = pid
        self.execution = execution
        self.started = at
        self.placed: float | None = None
        self.ready: float | None = None
        self.ended: float | None = None
        self.code: int | None = None
        self.terminated: float | None = None
        self.killed: float | None = None
        self.is_counted = self.late_recorded = False
        self.failed_tests = self.most_failed_tests = 0
        self.unhealthy_recorded = False
        self.code_lost = self.start_recorded = self.exit_recorded = False
        self.disrupted = ""
        self.strays_until: float | None = None
        self.strays_terminated: float | None = None

    @property
    def reported_code(self) -> int | None:
        """The exit code that the record can contain."""
        return None if self.code_lost else self.code

    @property
    def is_lost(self) -> bool:
        """True if it was taken away before it had succeeded or failed."""
        if self.ended is None or self.unhealthy_recorded:
            return False
        return bool(self.disrupted) and self.reported_code != 0

    @property
    def has_succeeded(self) -> bool:
        """True if its exit code counts, and is 0."""
        return self.reported_code == 0 and not self.unhealthy_recorded


class Machine:
    """The machines of an experiment.

    ``on_change`` is called with a program that became ready or exited, or whose children exited.
    """

    def __init__(self, clock: Clock, on_change: Callable[[Program], None]) -> None:
        self._clock = clock
        self._on_change = on_change
        self.programs: list[Program] = []
        # The latest execution of each process.
        self.latest: dict[str, Program] = {}
        # The exited programs that have left children behind.
        self.with_children: list[Program] = []

    def report_nothing(self) -> None:
        """Call ``on_change`` no more."""
        self._on_change = _ignore

    def start(self, name: str, attempt: int, execution: Execution) -> Program:
        """Start a program."""
        pid = len(self.programs) + 1
        program = Program(name, attempt, pid, execution, self._clock.now)
        self.programs.append(program)
        self.latest[name] = program
        if execution.placed_after == 0.0:
            self._begin(program)
        elif execution.placed_after is not None:
            self._clock.after(execution.placed_after, self._place, program)
        return program

    def _place(self, program: Program) -> None:
        if program.ended is None:
            self._begin(program)
            self._on_change(program)

    def _begin(self, program: Program) -> None:
        """Let a program begin on a machine that was found for it."""
        program.placed = self._clock.now
        execution = program.execution
        if execution.ready_after is not None:
            self._clock.after(execution.ready_after, self._become_ready, program)
        if execution.exits_after is not None:
            self._clock.after(execution.exits_after, self._exit_by_itself, program)
        if execution.unhealthy_after is not None:
            begin = execution.ready_after or 0.0
            self._clock.after(begin + execution.unhealthy_after, self._fail_test, program)

    def start_again(self, program: Program, execution: Execution) -> Program:
        """Start a program again as a platform does by itself, so that nobody observes its exit."""
        program.ended, program.code, program.code_lost = self._clock.now, 1, True
        return self.start(program.name, program.attempt + 1, execution)

    def terminate(self, program: Program) -> None:
        """Send SIGTERM to a program, or to the children that it has left behind."""
        now = self._clock.now
        if program.ended is None:
            if program.terminated is not None:
                return
            program.terminated = now
            if program.placed is None:
                self._clock.after(0.0, self._exit_after_drain, program)
            elif program.execution.stops_after is not None:
                self._clock.after(program.execution.stops_after, self._exit_after_term, program)
        elif program.strays_until is not None and program.strays_terminated is None:
            program.strays_terminated = now
            if not program.execution.child_ignores_term:
                self._end_strays(program)

    def kill(self, program: Program) -> None:
        """Send SIGKILL to a program and to all its children."""
        if program.ended is None:
            program.killed = self._clock.now
            self._exit(program, KILL_CODE, with_children=True)
        elif program.strays_until is not None:
            self._end_strays(program)

    def disrupt(self, program: Program, how: str) -> None:
        """Take a program away with its children: its machine is lost, or it is evicted."""
        if program.ended is None:
            program.disrupted = how
            self._exit(program, None, with_children=True)

    def drain(self, program: Program, how: str) -> None:
        """Take a program away as a machine does that is emptied: signal it, and kill it later."""
        if program.ended is not None or program.disrupted or program.placed is None:
            return
        program.disrupted = how
        self._on_change(program)
        seconds = program.execution.stops_after
        if seconds is not None and seconds < DRAIN_SECONDS:
            self._clock.after(seconds, self._exit_after_term, program)
        else:
            self._clock.after(DRAIN_SECONDS, self._exit_after_drain, program)

    def runs(self, name: str) -> bool:
        """Return whether the latest execution of a process or a child of it runs."""
        program = self.latest.get(name)
        return program is not None and (program.ended is None or has_strays(program))

    def _become_ready(self, program: Program) -> None:
        if program.ended is None and program.ready is None:
            program.ready = self._clock.now
            self._on_change(program)

    def _fail_test(self, program: Program) -> None:
        """Let a health test of a program fail, and the next ones too."""
        if program.ended is not None:
            return
        program.failed_tests += 1
        program.most_failed_tests = max(program.most_failed_tests, program.failed_tests)
        if program.execution.recovers and program.failed_tests == TESTS_BEFORE_RECOVERY:
            self._clock.after(TEST_SECONDS, self._recover, program)
        elif program.failed_tests < MOST_FAILED_TESTS:
            self._clock.after(TEST_SECONDS, self._fail_test, program)
        self._on_change(program)

    def _recover(self, program: Program) -> None:
        if program.ended is None:
            program.failed_tests = 0
            self._on_change(program)

    def _exit_by_itself(self, program: Program) -> None:
        if program.ended is None:
            self._exit(program, program.execution.code)

    def _exit_after_term(self, program: Program) -> None:
        if program.ended is None:
            self._exit(program, TERM_CODE)

    def _exit_after_drain(self, program: Program) -> None:
        if program.ended is None:
            self._exit(program, KILL_CODE, with_children=True)

    def _exit(self, program: Program, code: int | None, *, with_children: bool = False) -> None:
        program.ended, program.code = self._clock.now, None if program.placed is None else code
        seconds = program.execution.child_seconds
        if seconds is not None and not with_children:
            program.strays_until = self._clock.now + seconds
            self.with_children.append(program)
            self._clock.after(seconds, self._strays_exit, program)
        self._on_change(program)

    def _strays_exit(self, program: Program) -> None:
        if program.strays_until is not None:
            self._end_strays(program)

    def _end_strays(self, program: Program) -> None:
        program.strays_until = None
        self.with_children.remove(program)
        self._on_change(program)


def _ignore(_program: Program) -> None:
    pass


def has_strays(program: Program) -> bool:
    """Return whether children of an exited program run."""
    return program.strays_until is not None
