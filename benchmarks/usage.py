"""Measure the CPU time of sampling the resource use of many processes once a second.

The peer is psutil, which reads the CPU time, the memory and the number of open files of all
processes once, in the same way. It neither reads the PSS nor assigns child processes. The samples
of both sides alternate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import psutil
from _pairs import Figure, Options, at_most, main
from _sleepers import NAME, experiment, local, temporary_state_directory

CPU = 3.0  # The CPU limit as a percentage of a core.
ATTRIBUTES = ["pid", "ppid", "cpu_times", "memory_info", "num_fds"]


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    count, rounds = options.pick(500, 50), options.pick(30, 5)
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
        samples.close()
    what = f"one sample a second of {count} processes"
    yield at_most(
        what, "% of a core", ours, CPU if count == 500 else None, peer=peer, peer_name="psutil"
    )
    mean = [sum(ours) / len(ours)]
    yield at_most("  mean of all samples", "% of a core", mean, CPU if count == 500 else None)
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
