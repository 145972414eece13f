"""Measure the CPU time, wake-ups and memory of a supervisor of many idle processes.

Its guardian is included.

The peer is honcho, which is measured at the same time. It runs an additional Python process for
each of the user's processes. These additional processes are counted, but the user's processes are
not.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from _pairs import Figure, Options, at_most, main
from _sleepers import (
    Honcho,
    environments,
    experiment,
    local,
    supervisor_pid,
    temporary_directory,
    temporary_state_directory,
)

CPU = 0.1  # The CPU limit as a percentage of a core.
MEMORY = 40.0  # The memory limit in MB.
UNIQUE_MEMORY = 20.0  # The limit of the memory that no other process shares, in MB.
# The delay before measuring, in seconds. Work immediately after the start, such as the first record
# of log times, is not counted.
SETTLE = 3.0


@dataclass(frozen=True, slots=True)
class Cost:
    """The total cost of several processes: CPU time in seconds, number of wake-ups, and memory in
    bytes.
    """

    cpu: float
    wakeups: int
    resident: int
    unique: int


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    count, seconds = options.pick(500, 50), options.pick(30, 5)
    with contextlib.ExitStack() as stack:
        state = stack.enter_context(temporary_state_directory())
        exp = experiment(count)
        local(state).launch(exp)
        supervisor = psutil.Process(supervisor_pid(state))
        guardian = psutil.Process(supervisor.ppid())
        sides: list[Callable[[], Cost]] = [lambda: cost([guardian, supervisor])]
        if Honcho.is_installed():
            env = environments(exp)[0]
            honcho = stack.enter_context(
                Honcho(stack.enter_context(temporary_directory()), env, count)
            )
            honcho.start()
            root = psutil.Process(honcho.pid)
            helpers = [
                child
                for child in root.children(recursive=True)
                if child.pid not in set(honcho.pids)
            ]
            sides.append(lambda: cost([root, *helpers]))
        time.sleep(SETTLE)
        yield from compared(sides, count, seconds)


def compared(sides: Sequence[Callable[[], Cost]], count: int, seconds: int) -> Iterator[Figure]:
    """Yield the figures that compare both sides over the same period."""
    before = [look() for look in sides]
    time.sleep(seconds)
    after = [look() for look in sides]
    spent = [[100 * (new.cpu - old.cpu) / seconds] for old, new in zip(before, after, strict=True)]
    woken = [[float(new.wakeups - old.wakeups)] for old, new in zip(before, after, strict=True)]
    resident = [[new.resident / 1e6] for new in after]
    unique = [[new.unique / 1e6] for new in after]
    name = "honcho" if len(sides) > 1 else ""
    rows: list[tuple[str, str, list[list[float]], float | None]] = [
        (f"supervisor of {count} idle, CPU over {seconds} s", "% of a core", spent, CPU),
        ("  wake-ups in that time", "times", woken, None),
        ("  memory, resident (RSS)", "MB", resident, MEMORY),
        ("  memory, its own alone (USS)", "MB", unique, UNIQUE_MEMORY),
    ]
    for what, unit, (ours, *peer), limit in rows:
        yield at_most(what, unit, ours, limit, peer=peer[0] if peer else (), peer_name=name)


def cost(processes: Sequence[psutil.Process]) -> Cost:
    """Return the total cost of the processes so far."""
    memory = [process.memory_full_info() for process in processes]
    return Cost(
        cpu=sum(cpu_seconds(process) for process in processes),
        wakeups=sum(process.num_ctx_switches().voluntary for process in processes),
        resident=sum(part.rss for part in memory),
        unique=sum(part.uss for part in memory),
    )


def cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process in seconds.

    The time is read from schedstat if possible, because the kernel's clock ticks of 10 ms are too
    coarse for an idle process.
    """
    tasks = Path(f"/proc/{process.pid}/task")
    if tasks.is_dir():
        # The first number is the CPU time in nanoseconds.
        return (
            sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9
        )
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main(__doc__, measure)
