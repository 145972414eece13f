"""Measure the CPU time of sampling and recording the resource use of many processes once a second.

The peer is psutil, which reads the CPU time, the memory and the number of open files of all
processes once, in the same way. It neither reads the PSS nor assigns child processes. The samples
of both sides alternate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import psutil
from _pairs import Figure, Options, at_most, main
from _sleepers import NAME, experiment, local, supervisor_pid, temporary_state_directory
from idle import cpu_seconds

CPU = 3.0  # The CPU limit as a percentage of a core.
UNIT = "% of a core"
# The delay before measuring, in seconds. The first sample reads the PSS of all processes.
SETTLE = 3.0
ATTRIBUTES = ["pid", "ppid", "cpu_times", "memory_info", "num_fds"]


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    count = options.pick(500, 50)
    limit = CPU if count == 500 else None
    yield from sampling(count, options.pick(30, 5), limit)
    with temporary_state_directory() as state:
        exp = experiment(count)
        exp.record_usage = True
        local(state).launch(exp)
        supervisor = psutil.Process(supervisor_pid(state))
        seconds = options.pick(60, 5)
        time.sleep(SETTLE)
        before = cpu_seconds(supervisor)
        time.sleep(seconds)
        used = 100 * (cpu_seconds(supervisor) - before) / seconds
    what = f"supervisor that records {count} processes"
    yield at_most(what, UNIT, [used], limit, note=f"over {seconds} s")


def sampling(count: int, rounds: int, limit: float | None) -> Iterator[Figure]:
    """Yield the figures about the program that shows the samples."""
    with temporary_state_directory() as state:
        cluster = local(state)
        cluster.launch(experiment(count))
        samples = cluster.iter_usage(NAME)
        ours, peer = [], []
        first = cpu_of(lambda: next(samples))
        cpu_of(sample_with_psutil)
        for _ in range(rounds):
            peer.append(cpu_of(sample_with_psutil))
            ours.append(cpu_of(lambda: next(samples)))
        samples.close()  # type: ignore[attr-defined]
    what = f"one sample a second of {count} processes"
    yield at_most(what, UNIT, ours, limit, peer=peer, peer_name="psutil")
    yield at_most("  mean of all samples", UNIT, [sum(ours) / len(ours)], limit)
    yield at_most("  the first sample, which reads every PSS", "ms", [first * 10], None)


def cpu_of(sample: Callable[[], object]) -> float:
    """Return the CPU time of a call, as a percentage of a second. Waiting does not count."""
    start = time.process_time()
    sample()
    return 100 * (time.process_time() - start)


def sample_with_psutil() -> None:
    """Read the use of all processes of the machine. psutil keeps the objects between the calls."""
    for _ in psutil.process_iter(ATTRIBUTES):
        pass


if __name__ == "__main__":
    main(__doc__, measure)
