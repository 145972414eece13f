"""Computing how much CPU time a process tree has used between two samples."""

from __future__ import annotations

import os
from collections.abc import Mapping

from symphony.supervised.processes.identity import Reading

SECONDS_PER_TICK = 1 / os.sysconf("SC_CLK_TCK")

# The readings of a process tree by the pids.
Readings = Mapping[int, Reading]


def used_cores(before: Readings, now: Readings) -> float:
    """Return how many cores a process tree has used, on average between two samples.

    The time between the samples is that between the readings of this tree. Other parts of a sample
    take longer the first time, when all processes of the machine are examined.
    """
    begin = min(reading.at for reading in before.values())
    end = min(reading.at for reading in now.values())
    return used_seconds(before, now) / (end - begin)


def used_seconds(before: Readings, now: Readings) -> float:
    """Return the CPU time in seconds that a process tree has used between two samples.

    When a parent collects the exit of a child, the kernel adds the CPU time of the child and of its
    descendants to the ``reaped_ticks`` of the parent. The part that an earlier sample has already
    counted is subtracted.
    """
    counted = _counted_in_parents(before, now)
    ticks = 0
    for pid, reading in now.items():
        previous = before.get(pid)
        if previous is None or previous.birth != reading.birth:
            ticks += reading.own_ticks + reading.reaped_ticks
            continue
        reaped = reading.reaped_ticks - previous.reaped_ticks - counted.get(pid, 0)
        # A parent that ignores SIGCHLD does not receive the CPU time of its children.
        ticks += reading.own_ticks - previous.own_ticks + max(0, reaped)
    return ticks * SECONDS_PER_TICK


def _counted_in_parents(before: Readings, now: Readings) -> dict[int, int]:
    """Return the ticks of exited processes by the pids of the closest ancestors that still run.

    These ticks were counted in ``before``.
    """
    counted: dict[int, int] = {}
    for reading in before.values():
        if _is_in(now, reading):
            continue
        ancestor = before.get(reading.parent)
        while ancestor is not None and not _is_in(now, ancestor):
            ancestor = before.get(ancestor.parent)
        if ancestor is not None:
            ticks = reading.own_ticks + reading.reaped_ticks
            counted[ancestor.pid] = counted.get(ancestor.pid, 0) + ticks
    return counted


def _is_in(readings: Readings, reading: Reading) -> bool:
    found = readings.get(reading.pid)
    return found is not None and found.birth == reading.birth
