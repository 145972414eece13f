"""What the outside world does: machines are lost, and the system stops experiments."""

from __future__ import annotations

from simulate.executor import execution_of
from simulate.machine import Program
from simulate.scenario import Happening
from simulate.succession import EVICTION, Succession
from simulate.world import World

# What takes processes away at once, and what signals them before it kills them.
SUDDEN_DISRUPTIONS = ("evicted", "node-lost", "deleted")
SLOW_DISRUPTIONS = ("drained", "preempted")
STARTED_AGAIN = "started-again"


class Outside:
    """The outside world of an experiment."""

    def __init__(self, world: World, succession: Succession) -> None:
        self._world = world
        self._succession = succession

    def disrupt(self, happening: Happening) -> None:
        """Take processes away, each with what it has started."""
        machine = self._world.machine
        for name in happening.names:
            program = machine.latest.get(name)
            if program is None or program.ended is not None:
                continue
            if happening.kind in SLOW_DISRUPTIONS:
                machine.drain(program, happening.kind)
            else:
                machine.disrupt(program, happening.kind)

    def start_again(self, happening: Happening) -> None:
        """Let the platform start processes again by itself, as the kubelet does with containers."""
        world = self._world
        for name in happening.names:
            program = world.machine.latest.get(name)
            if program is None or not self._can_start_again(name, program):
                continue
            execution = execution_of(world.processes[name], program.attempt + 1)
            if execution.cannot_start:
                continue
            following = world.machine.start_again(program, execution)
            world.say(f"the platform starts {name} again (execution {following.attempt})")
            world.ledger.note_started_again(following)
            if world.supervisor is not None:
                world.supervisor.executor.note_started_again(following)

    def _can_start_again(self, name: str, program: Program) -> bool:
        """Return whether a process is running, and its restart policy permits a restart."""
        experiment = self._world.ledger.experiment
        past = experiment.pasts.get(name)
        if past is None or experiment.stopping_since is not None or experiment.is_restarting:
            return False
        is_asked = past.is_stopped or past.may_start or past.settings.gang is not None
        is_signaled = program.terminated is not None or bool(program.disrupted)
        is_signaled = is_signaled or program.placed is None
        if is_asked or is_signaled or program.ended is not None or not program.start_recorded:
            return False
        limit = past.settings.max_restarts
        has_restarts = limit is None or past.restarts < limit
        return past.settings.restart != "Never" and has_restarts

    def evict(self, happening: Happening) -> None:
        """Let the system stop the whole experiment, as a batch system does.

        The value of the happening says how: it asks the supervisor to stop the processes first, or
        kills everything at once. In both cases, the experiment is started again later.
        """
        world = self._world
        supervisor = world.supervisor
        if supervisor is None:
            return
        state = supervisor.state
        if state.created is None or state.stopping or state.finished:
            return
        world.say(f"the system evicts the experiment ({happening.value})")
        world.ledger.experiment.is_evicted = True
        world.eviction = EVICTION
        if happening.value == "asks":
            supervisor.executor.eviction = EVICTION
            return
        for program in world.machine.programs:
            # On the machine where the experiment continues, nobody knows the exit codes.
            program.code_lost = program.code_lost or not program.exit_recorded
            world.machine.disrupt(program, "evicted")
            world.machine.kill(program)
        world.ledger.forget_unrecorded()
        self._succession.leave(supervisor)
