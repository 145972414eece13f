"""The supervisors of an experiment, one after another: each is killed, and the next one begins."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from simulate.executor import Executor
from simulate.past import EVICTION_CAUSE
from simulate.promises import RECORD, Broken
from simulate.supervisor import Killed, Supervisor
from simulate.world import World
from symphony.plan.policies import Ending
from symphony.plan.requests import continue_elsewhere
from symphony.plan.restart_policy import Restart
from symphony.plan.state import RunState
from symphony.status import ReasonCode

GUARDIAN_KILLED = "guardian-killed"
# After this time, a supervisor has replaced a guardian that was killed.
GUARDIAN_SECONDS = 0.5
# After this time, a user types a command if nobody supervises the experiment.
REPAIR_SECONDS = 3.0
# After this time, the system starts an experiment again that it has evicted.
EVICTION_SECONDS = 2.0
EVICTION = Ending(
    action="restart",
    reason="the system restarts the experiment",
    reason_code=ReasonCode.EVICTED,
    cause=EVICTION_CAUSE,
    restart=Restart(delay=0.0, in_row=0),
)


class Succession:
    """Begins the supervisors of a history, and buries them.

    A guardian begins the next supervisor, and keeps the exit codes of the processes that exit in
    the meantime. If it is dead, too, the next command of a user begins the supervisor.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.killed_at: float | None = None
        # The state of the supervisor that was killed last.
        self._lost_state: RunState | None = None
        self._guardian_dead_since: float | None = None
        # True until it is recorded that the experiment continues on another machine.
        self._is_moving = False

    def _new_supervisor(self) -> Supervisor:
        world = self._world
        executor = Executor(
            world.clock,
            world.machine,
            world.processes,
            world.scenario,
            world.ledger.note_kill,
        )
        supervisor = Supervisor(
            world.clock,
            world.wish,
            world.record,
            executor,
            world.ledger,
            world.points,
            world.counts.actions,
            world.tell,
            checks_all=world.checks_all,
        )
        executor.kills_at_once = world.ledger.experiment.kills_at_once
        executor.eviction = world.eviction
        return supervisor

    def begin(self, lost_since: float | None) -> None:
        """Begin a supervisor.

        Nobody has kept the exit codes of the processes that have exited since ``lost_since``.
        """
        world = self._world
        if self._is_moving:
            self._continue_elsewhere(None)
            return
        supervisor = self._new_supervisor()
        if self.killed_at is not None:
            self._check_read_back(supervisor.state)
            supervisor.executor.adopt(supervisor.state, lost_since=lost_since)
        world.supervisor = supervisor
        if self.killed_at is not None:
            world.say("a new supervisor begins")
        self.guard(supervisor.begin)
        self.step()

    def step(self) -> None:
        """Let the supervisor decide."""
        world = self._world
        supervisor = world.supervisor
        if supervisor is None:
            return
        self.guard(supervisor.step)
        world.outcome.steps += supervisor.steps
        supervisor.steps = 0
        if supervisor.has_finished and world.supervisor is supervisor:
            if supervisor.state.finished:
                world.has_finished = True
            else:
                world.ledger.check_nothing_left()
                self.leave(supervisor)

    def guard(self, do: Callable[[], object]) -> None:
        """Let the supervisor do something, during which it can be killed."""
        try:
            do()
        except Killed:
            self._bury()

    def _bury(self) -> None:
        """Forget a killed supervisor, and begin another one later."""
        world = self._world
        supervisor = world.supervisor
        if supervisor is None or supervisor.crash is None:
            return
        if supervisor.has_finished and not supervisor.state.finished:
            self.leave(supervisor)
            return
        if supervisor.state.finished:
            # Nobody replaces a supervisor that has nothing to do.
            world.has_finished = True
            return
        crash = supervisor.crash
        world.outcome.steps += supervisor.steps
        world.supervisor = None
        self._lost_state = supervisor.state
        self.killed_at = world.clock.now
        world.say(f"the supervisor is killed; the next one begins in {crash.downtime:g} s")
        lost_since = world.clock.now if crash.codes_lost else None
        world.clock.after(crash.downtime, self._begin_next, lost_since)

    def kill_guardian(self) -> None:
        """Kill the guardian. The supervisor, if one is running, replaces it."""
        world = self._world
        if self._guardian_dead_since is not None:
            return
        world.say("the guardian is killed")
        self._guardian_dead_since = world.clock.now
        if world.supervisor is not None:
            world.clock.after(GUARDIAN_SECONDS, self._replace_guardian, world.supervisor)

    def _replace_guardian(self, supervisor: Supervisor) -> None:
        if self._is_present(supervisor):
            self._guardian_dead_since = None

    def _begin_next(self, lost_since: float | None) -> None:
        """Begin the next supervisor, or wait for a user if there is no guardian."""
        dead_since = self._guardian_dead_since
        if dead_since is None or self.killed_at is None:
            self.begin(lost_since)
            return
        self._world.say("nobody begins a supervisor until a user types a command")
        since = max(dead_since, self.killed_at)
        since = since if lost_since is None else min(since, lost_since)
        self._world.clock.after(REPAIR_SECONDS, self._repair, since)

    def _repair(self, lost_since: float) -> None:
        """Begin a supervisor and a guardian, because a user has typed a command."""
        self._guardian_dead_since = None
        self.begin(lost_since)

    def leave(self, supervisor: Supervisor) -> None:
        """Let the experiment rest until the system starts it again."""
        supervisor.executor.is_dead = True
        self._world.supervisor = None
        self._lost_state = None
        self._is_moving = True
        self._world.clock.after(EVICTION_SECONDS, self._continue_elsewhere)

    def _continue_elsewhere(self, _: object) -> None:
        """Start the experiment again on another machine."""
        world = self._world
        world.eviction = None
        world.machine.latest.clear()
        supervisor = self._new_supervisor()
        world.supervisor = supervisor
        world.say("the system starts the experiment again")
        now = world.clock.now
        events = continue_elsewhere(world.wish, supervisor.state, EVICTION, now)
        for event in events:
            if self._is_present(supervisor):
                self.guard(partial(supervisor.write, event))
        if self._is_present(supervisor):
            self._is_moving = False
            self.step()

    def _is_present(self, supervisor: Supervisor) -> bool:
        """Return whether a supervisor has not been killed and has not ended."""
        return self._world.supervisor is supervisor

    def _check_read_back(self, state: RunState) -> None:
        """Check that a new supervisor has read the state of the one that was killed."""
        lost = self._lost_state
        if lost is None or lost.revision != self._world.wish.revision:
            # The change was not recorded, so the old state has other processes.
            return
        self._world.ledger.checked[RECORD] += 1
        if state != lost:
            raise Broken(RECORD, f"the record says {state}, not {lost}")
