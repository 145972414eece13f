"""Everything that exists in one history, and that its parts share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulate.clock import LAUNCH_TIME, Clock
from simulate.coverage import Counts
from simulate.ledger import Ledger
from simulate.machine import Machine, Program
from simulate.promises import SECOND_UP, Broken
from simulate.record import Record
from simulate.scenario import Scenario
from simulate.supervisor import CrashPoints, Supervisor
from simulate.wishes import wish_of
from symphony.plan.policies import Ending
from symphony.plan.wish import difference

Tell = Callable[[str], None]

# In one of so many histories, each decision without actions is repeated, and the record is read at
# the end also if the supervisor was never killed.
CHECK_ALL_EVERY = 8


@dataclass(slots=True)
class Outcome:
    """What a history has shown. ``broken`` is the promise that was broken, or None."""

    steps: int = 0
    broken: Broken | None = None


class World:
    """What exists in one history.

    ``processes`` are those of the present wish ``wish``. ``supervisor`` is None while none is
    running. ``eviction`` is why the system stops the experiment, or None.
    """

    def __init__(
        self, scenario: Scenario, outcome: Outcome, counts: Counts, tell: Tell | None
    ) -> None:
        self.scenario = scenario
        self.outcome = outcome
        self.counts = counts
        self._tell_line = tell
        self.tell = None if tell is None else self._tell_with_time
        self.clock = Clock()
        self.machine = Machine(self.clock, self._notice)
        self.ledger = Ledger(scenario, self.clock, self.machine, counts)
        self.record = Record(scenario.record_limit)
        self.points = CrashPoints(scenario.crashes)
        self.processes = {process.name: process for process in scenario.processes}
        self.wish = wish_of(scenario, scenario.processes, ends_with=scenario.ends_with)
        self.supervisor: Supervisor | None = None
        self.eviction: Ending | None = None
        # These checks take much time, and most faults show in many histories.
        self.checks_all = scenario.seed % CHECK_ALL_EVERY == 0
        self.has_finished = False
        self.is_down_requested = False
        self.stop_begins: float | None = None

    def _notice(self, program: Program) -> None:
        if self.tell is not None:
            self.tell(_program_line(program))
        if self.supervisor is not None:
            self.supervisor.executor.notice(program)

    def check_second_up(self) -> None:
        """Check that the same wish differs in nothing from the present one."""
        self.ledger.checked[SECOND_UP] += 1
        again = wish_of(
            self.scenario,
            list(self.processes.values()),
            ends_with=self.ledger.experiment.ends_with,
        )
        found = difference(self.wish, again)
        if found.added or found.removed or found.restarted:
            raise Broken(SECOND_UP, f"a second up changes {found}")

    def release(self) -> None:
        """Break the cycles of references, because their collection takes a tenth of the time."""
        self.clock.clear()
        self.machine.report_nothing()

    def say(self, text: str) -> None:
        """Add a line to the story, if somebody reads it."""
        if self.tell is not None:
            self.tell(text)

    def _tell_with_time(self, text: str) -> None:
        if self._tell_line is not None:
            self._tell_line(f"{self.clock.now - LAUNCH_TIME:7.1f}  {text}")


def _program_line(program: Program) -> str:
    name = f"{program.name} (execution {program.attempt})"
    if program.ended is None and program.disrupted:
        return f"{name} is signaled: {program.disrupted}"
    if program.ended is None and program.placed is None:
        return f"{name} waits for a machine"
    if program.ended is None and program.failed_tests:
        return f"{name} fails its health test ({program.failed_tests} in a row)"
    if program.ended is None:
        return f"{name} is ready" if program.ready is not None else f"{name} runs"
    if program.disrupted and program.code is None:
        return f"{name} is gone: {program.disrupted}"
    if program.strays_until is not None:
        return f"{name} exits with {program.code} and leaves a child behind"
    return f"{name} and its children have exited ({program.code})"
