"""Determine which starts a command does not wait for any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from symphony.plan import start_order
from symphony.status import ENDED, ReasonCode
from symphony_kube.render.roster import Unit
from symphony_kube.state.observe import Observation
from symphony_kube.state.pod_status import ContainerStatus

# A process with one of these reasons does not start soon. A command does not wait until it starts.
_OBSTACLES = frozenset(
    {
        ReasonCode.UNSCHEDULABLE,
        ReasonCode.IMAGE_UNAVAILABLE,
        ReasonCode.MOUNT_FAILED,
        ReasonCode.NOT_PERMITTED,
        ReasonCode.CANNOT_START,
        ReasonCode.BACKING_OFF,
    }
)
# How long a process must have such a reason before a command gives up the start of others that wait
# for this process. Some obstacles are gone in a moment, such as a node that is full until a stopped
# Pod has left it.
OBSTACLE_SECONDS = 30.0


class StartObstacles:
    """The obstacles to the starts that a command waits for.

    ``roster`` contains the units of the command, and ``requested`` those of them that it starts.
    Both can grow. ``is_supervised`` returns whether a supervisor starts the processes that the
    command does not start. If ``awaits_others`` is true, the command also waits for processes that
    the supervisor creates.
    """

    def __init__(
        self,
        roster: Mapping[str, Unit],
        requested: Mapping[str, int],
        is_supervised: Callable[[], bool],
        *,
        awaits_others: bool,
    ) -> None:
        self._roster = roster
        self._requested = requested
        self._is_supervised = is_supervised
        self._awaits_others = awaits_others
        # The processes with obstacles to their start, and the times on the monotonic clock at which
        # they were seen first.
        self._obstacles: dict[str, float] = {}

    def note(self, observation: Observation) -> None:
        """Note since when processes have had obstacles to their start."""
        now = time.monotonic()
        self._obstacles = {
            process: self._obstacles.get(process, now)
            for process, container in observation.containers.items()
            if has_obstacle(container)
        }

    def next_lasting(self) -> float | None:
        """Return the time in seconds until another obstacle has lasted for `OBSTACLE_SECONDS`."""
        now = time.monotonic()
        ends = [since + OBSTACLE_SECONDS for since in self._obstacles.values()]
        return min((end - now for end in ends if end > now), default=None)

    def waits_in_vain(self, name: str, observation: Observation) -> bool:
        """Return whether the start conditions of a unit cannot be met by what the command does."""
        conditions = self._roster[name].starts_after
        if start_order.verdict(conditions, observation.containers) is start_order.START:
            return False
        for process, condition in conditions.items():
            unit = self._started_units().get(process)
            container = observation.containers[process]
            verdict = start_order.verdict({process: condition}, observation.containers)
            is_left_alone = unit is None and not self._awaits_others
            if is_left_alone or verdict.word != "wait":
                continue
            if unit is None:
                # The process is created by the supervisor.
                if container.state not in ENDED and not self._does_not_start(process):
                    return False
                continue
            if not self._does_not_start(process) and not self.waits_in_vain(unit, observation):
                return False
        return True

    def find(self, name: str, observation: Observation) -> list[str]:
        """Return the processes with obstacles for which a unit waits, and which the command
        starts.
        """
        found = []
        for process, condition in self._roster[name].starts_after.items():
            verdict = start_order.verdict({process: condition}, observation.containers)
            unit = self._started_units().get(process)
            if unit is None or verdict.word != "wait":
                continue
            if self._does_not_start(process):
                found.append(process)
            else:
                found += self.find(unit, observation)
        return found

    def prevent_creation(self, name: str, observation: Observation) -> bool:
        """Return whether a unit that the supervisor creates will not be created soon."""
        states = [observation.containers[process] for process in self._roster[name].processes]
        return any(item.state in ENDED or has_obstacle(item) for item in states)

    def _does_not_start(self, process: str) -> bool:
        """Return whether a process has an obstacle for which the command does not wait."""
        since = self._obstacles.get(process)
        if since is None:
            return False
        return time.monotonic() >= since + OBSTACLE_SECONDS or self._is_supervised()

    def _started_units(self) -> dict[str, str]:
        """Return the processes that the command starts, with their units."""
        return {
            process: name for name in self._requested for process in self._roster[name].processes
        }


def has_obstacle(container: ContainerStatus) -> bool:
    """Return whether a process does not start soon."""
    return container.cause.code in _OBSTACLES
