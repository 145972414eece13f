"""Finding the operating system's processes that belong to each process of an experiment.

A sample is taken every second, so it must not examine all processes of the machine. A scan reads
only the processes that are known to belong to the experiment, and those that are new.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from symphony.supervised.processes.environment import read_environment
from symphony.supervised.processes.identity import RUN_ID_VARIABLE, ProcessId, Reading, read_usage
from symphony.supervised.processes.membership import list_pids

# A pid of another program that exits between two scans can be reused by a process of the
# experiment, so all pids are examined again from time to time.
EXAMINE_AGAIN_SECONDS = 10.0


class ProcessTrees:
    """The processes of a run, each with its descendants.

    A descendant stays in the tree if its parent exits. A descendant that was never seen together
    with its parent is recognized by the variables in its environment.
    """

    def __init__(self, run_id: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._run_id = run_id
        self._clock = clock
        # The birth and the owner of each process that belongs to the run, by its pid.
        self._members: dict[int, tuple[float, str]] = {}
        self._others: set[int] = set()
        self._examined_at = clock()

    def scan(self, leaders: Mapping[str, ProcessId]) -> dict[str, list[Reading]]:
        """Return the readings of the trees of ``leaders``, which maps names to processes."""
        if self._clock() - self._examined_at > EXAMINE_AGAIN_SECONDS:
            self._others.clear()
            self._examined_at = self._clock()
        pids = set(list_pids())
        self._others &= pids
        readings = []
        for pid in pids - self._others:
            reading = read_usage(pid)
            if reading is not None:
                readings.append(reading)
        # A parent is older than its children.
        readings.sort(key=lambda reading: (reading.birth, reading.pid))
        return self._assign(readings, leaders)

    def _assign(
        self, readings: list[Reading], leaders: Mapping[str, ProcessId]
    ) -> dict[str, list[Reading]]:
        names = {leader.pid: (leader.birth, name) for name, leader in leaders.items()}
        known, self._members = self._members, {}
        trees: dict[str, list[Reading]] = {name: [] for name in leaders}
        parents_of_leaders = set()
        undecided = []
        for reading in readings:
            owner = _owner_in(names, reading)
            if owner is not None:
                parents_of_leaders.add(reading.parent)
            else:
                owner = _owner_in(known, reading)
            if owner is None and reading.parent in self._members:
                _, owner = self._members[reading.parent]
            if owner is None:
                undecided.append(reading)
            else:
                self._add(reading, owner, trees)
        for reading in undecided:
            # A program that starts a leader, such as the shell of a tmux window, can have the same
            # variables.
            is_parent = reading.pid in parents_of_leaders
            owner = None if is_parent else self._owner_in_environment(reading.pid)
            if owner is None:
                self._others.add(reading.pid)
            else:
                self._add(reading, owner, trees)
        return trees

    def _add(self, reading: Reading, owner: str, trees: dict[str, list[Reading]]) -> None:
        """Add a process to the tree of its owner, unless the owner has exited."""
        self._members[reading.pid] = (reading.birth, owner)
        if owner in trees:
            trees[owner].append(reading)

    def _owner_in_environment(self, pid: int) -> str | None:
        """Return the name in the environment of a process of the run, or None."""
        environment = read_environment(pid)
        if environment is None or environment.get(RUN_ID_VARIABLE) != self._run_id:
            return None
        return environment.get("SYMPHONY_ROLE")


def _owner_in(owners: Mapping[int, tuple[float, str]], reading: Reading) -> str | None:
    """Return the owner of a process in a table of births and owners by pids, or None."""
    birth, owner = owners.get(reading.pid, (None, ""))
    return owner if birth == reading.birth else None
