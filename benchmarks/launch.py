"""Measure how fast symphony, a bare Popen loop and honcho start processes.

Each process has 32 address variables and a log file. The four sides of the comparison launch the
same processes. For each side, the benchmark measures the time until all processes have started:

    symphony        `Cluster.launch`, which returns when all have started
    symphony        the program `symphony launch` on a YAML file, likewise
    bare loop       `subprocess.Popen(start_new_session=True)`: the least that any launcher must do
    honcho start    on a Procfile, until it has reported the start of each process

After a warm-up round that is not counted, the sides take turns. The order changes from round to
round, so that each side follows every other side equally often. The medians of the sides are
compared. Every measurement starts from the same state: the processes of the previous measurement
have exited, and unless the benchmark runs with --real-time, the machine is about as idle as before
the first measurement (the benchmark waits at most two seconds for this state). All files are in
memory if /dev/shm exists, unless TMPDIR is set. The reason is that an ext4 file system without a
journal searches the recently deleted inodes for each new file. On such a file system, the files
that were deleted before a side's turn would slow down that side (for 500 files, by 8 ms at first
and 300 ms after some rounds).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from _pairs import Figure, Options, Side, in_turns, main, timed, times_faster
from _sleepers import (
    NAME,
    Environment,
    Honcho,
    PopenLoop,
    environ,
    environments,
    experiment,
    idle_waiter,
    local,
    memory,
    symphony,
    temporary_directory,
    temporary_state_directory,
)

TARGET = 500
MINIMUM_RATE_OF_POPEN_LOOP = 0.75
MINIMUM_RATE_OF_HONCHO = 3.0


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    for count in (TARGET,) if options.quick else (100, TARGET, 1000):
        yield from launching(count, options.pick(8, 4))


def launching(count: int, runs: int) -> Iterator[Figure]:
    """Measure the sides in turns, and yield the figures for launches of ``count`` processes."""
    exp = experiment(count)
    envs = environments(exp)
    with temporary_state_directory(memory()) as state:
        exp.dump_file(state / "many.yml")
        sides: list[Side] = [
            lambda: launched(state, count),
            lambda: program(state),
            lambda: popen_loop(envs),
        ]
        if Honcho.is_installed():
            sides.append(lambda: honcho(envs[0], count))
        settled = idle_waiter()
        # The first runs are slower, because they read modules from the disk and compile them.
        in_turns(1, *sides)
        library, command, loop, *peer = in_turns(runs, *sides, settled=settled)
    yield compare_with_popen_loop(count, library, loop)
    for samples in peer:
        yield compare_with_honcho(f"launch of {count}", count, library, samples)
        yield compare_with_honcho(
            f"symphony launch, {count} in a YAML file", count, command, samples
        )


def compare_with_popen_loop(count: int, ours: Sequence[float], peer: Sequence[float]) -> Figure:
    """Return the figure for a launch with the library, compared with the bare loop."""
    target = MINIMUM_RATE_OF_POPEN_LOOP if count == TARGET else None
    note = f"processes a second: {_rates(count, ours)}; bare {_rates(count, peer)}"
    return times_faster(
        f"launch of {count}", ours, peer, target, peer_name="bare Popen loop", note=note
    )


def compare_with_honcho(
    what: str, count: int, ours: Sequence[float], peer: Sequence[float]
) -> Figure:
    """Return the figure for a launch, compared with honcho."""
    target = MINIMUM_RATE_OF_HONCHO if count == TARGET else None
    note = f"processes a second: {_rates(count, ours)}; honcho {_rates(count, peer)}"
    return times_faster(what, ours, peer, target, peer_name="honcho start", note=note)


def launched(state: Path, count: int) -> float:
    """Return the time until all processes of a launch with the library are running."""
    cluster = local(state)
    exp = experiment(count)
    try:
        seconds = timed(lambda: cluster.launch(exp))
        running = sum(process.pid is not None for process in cluster.describe_experiment(NAME))
        if running != count:
            raise RuntimeError(f"only {running} of {count} processes run")
    finally:
        cluster.delete(NAME)
    return seconds


def program(state: Path) -> float:
    """Return the time until all processes of `symphony launch` are running."""
    try:
        return timed(lambda: symphony_launch(state))
    finally:
        local(state).delete(NAME)


def symphony_launch(state: Path) -> None:
    """Run `symphony launch`."""
    command = symphony("launch", str(state / "many.yml"), "-b", "local")
    subprocess.run(command, env=environ(state), stdout=subprocess.DEVNULL, check=True)


def popen_loop(envs: Sequence[Environment]) -> float:
    """Return the time until all processes of a bare loop are running."""
    with temporary_directory(memory()) as directory, PopenLoop(directory) as loop:
        return timed(lambda: loop.start(envs))


def honcho(env: Environment, count: int) -> float:
    """Return the time until honcho reports that all processes are running."""
    with temporary_directory(memory()) as directory, Honcho(directory, env, count) as peer:
        return timed(peer.start)


def _rates(count: int, samples: Sequence[float]) -> str:
    rates = sorted(count / seconds for seconds in samples)
    return f"{rates[0]:,.0f} to {rates[-1]:,.0f}"


if __name__ == "__main__":
    main(__doc__, measure)
