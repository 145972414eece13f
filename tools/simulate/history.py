"""Run one scenario from the launch to the end, and check the promises."""

from __future__ import annotations

import traceback

from simulate.clock import LAUNCH_TIME
from simulate.coverage import Counts
from simulate.outside import SLOW_DISRUPTIONS, STARTED_AGAIN, SUDDEN_DISRUPTIONS, Outside
from simulate.promises import ENDS, NO_ERROR, RECORD, Broken
from simulate.scenario import Happening, Scenario
from simulate.succession import GUARDIAN_KILLED, Succession
from simulate.users import Users
from simulate.world import Outcome, Tell, World
from symphony.plan.state import fold

# The experiment is stopped after this time, if it has not ended before.
HORIZON_SECONDS = 60.0
# A stop takes less time than this, whatever happens during it.
_STOP_SECONDS = 400.0
_MOST_MOMENTS = 2000


def run_history(
    scenario: Scenario, tell: Tell | None = None, counts: Counts | None = None
) -> Outcome:
    """Run a scenario, and return what it has shown.

    ``tell`` receives the story line by line. What the history contains is added to ``counts``.
    """
    outcome = Outcome()
    world = World(scenario, outcome, counts or Counts(), tell)
    try:
        History(world).run()
    except Broken as broken:
        outcome.broken = broken
    except Exception as exc:
        outcome.broken = _error(exc)
    world.release()
    return outcome


def _error(exc: Exception) -> Broken:
    frame = traceback.extract_tb(exc.__traceback__)[-1]
    where = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
    return Broken(NO_ERROR, f"{type(exc).__name__}: {exc} ({where})")


class History:
    """The course of one history."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._succession = Succession(world)
        self._users = Users(world, self._succession)
        self._outside = Outside(world, self._succession)

    def run(self) -> None:
        """Run the history until the experiment has ended."""
        world = self._world
        clock = world.clock
        for happening in world.scenario.happenings:
            clock.after(happening.at, self._happen, happening)
        clock.after(HORIZON_SECONDS, self._end_at_horizon)
        self._succession.begin(None)
        for _ in range(_MOST_MOMENTS):
            if world.has_finished:
                break
            self._advance()
        else:
            raise Broken(ENDS, f"{_MOST_MOMENTS} moments were not enough")
        self._check_end()

    def _advance(self) -> None:
        """Go to the next moment at which something happens."""
        world = self._world
        clock, supervisor = world.clock, world.supervisor
        following = clock.next_time
        wake_at = None if supervisor is None else supervisor.wake_at
        if wake_at is not None and (following is None or wake_at < following):
            following = max(wake_at, clock.now)
        if self._is_quiet(following):
            self._check_quiet()
            return
        if following is None:
            raise Broken(ENDS, "the experiment has not ended, and nothing happens any more")
        if world.stop_begins is not None and following > world.stop_begins + _STOP_SECONDS:
            raise Broken(ENDS, f"a stop lasts more than {_STOP_SECONDS} s")
        clock.now = following
        clock.run_due()
        self._succession.step()

    def _is_quiet(self, following: float | None) -> bool:
        """Return whether nothing will happen before the horizon."""
        if self._world.is_down_requested or self._world.supervisor is None:
            return False
        return following is None or following >= LAUNCH_TIME + HORIZON_SECONDS

    def _check_quiet(self) -> None:
        world = self._world
        supervisor = world.supervisor
        if supervisor is None:
            return
        if supervisor.wake_at is None and world.clock.is_settled:
            world.ledger.check_quiet(supervisor.state)
        world.check_second_up()
        world.clock.now = LAUNCH_TIME + HORIZON_SECONDS
        self._end_at_horizon(None)
        self._succession.step()

    def _end_at_horizon(self, _: object) -> None:
        if not self._world.is_down_requested:
            self._users.request_down("down")

    def _happen(self, happening: Happening) -> None:
        world = self._world
        kind = happening.kind
        if world.has_finished:
            return
        if kind in SUDDEN_DISRUPTIONS or kind in SLOW_DISRUPTIONS:
            self._outside.disrupt(happening)
        elif kind == GUARDIAN_KILLED:
            self._succession.kill_guardian()
        elif kind == STARTED_AGAIN:
            self._outside.start_again(happening)
        elif kind in ("down", "down-now"):
            self._users.request_down(kind)
        elif kind == "evict-all":
            self._outside.evict(happening)
        elif world.supervisor is not None and not world.is_down_requested:
            self._succession.guard(lambda: self._users.request(happening))

    def _check_end(self) -> None:
        world = self._world
        supervisor = world.supervisor
        if supervisor is None:
            raise Broken(ENDS, "the experiment has ended without a supervisor")
        world.ledger.check_finished(supervisor.state)
        world.ledger.checked[ENDS] += 1
        world.ledger.checked[NO_ERROR] += 1
        if not supervisor.state.finished:
            raise Broken(ENDS, "the supervisor has ended, but the record does not say so")
        if not world.checks_all and self._succession.killed_at is None:
            return
        world.ledger.checked[RECORD] += 1
        names = [*world.wish.processes, *world.wish.previous]
        read = fold(names, world.record.read())
        if read != supervisor.state:
            raise Broken(RECORD, f"the record says {read}, not {supervisor.state}")
