"""How fast processes start, with 32 address variables and a log file each: symphony, a bare Popen loop, honcho.

The bare loop is the least that any launcher must do, and is compared with `Cluster.launch`, which returns when
all have started. honcho is compared twice: with `Cluster.launch` again, and with the program `symphony launch`,
which like honcho begins with a Python that starts and a file that is read.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from _pairs import Figure, Options, in_turns, main, timed, times_faster
from _sleepers import (
    NAME,
    Bare,
    Environment,
    Honcho,
    environ,
    environments,
    experiment,
    local,
    scratch,
    state_dir,
    symphony,
)

TARGET = 500
AS_FAST_AS_BARE = 0.7
FASTER_THAN_HONCHO = 3.0


def measure(options: Options) -> Iterator[Figure]:
    """The figures of this benchmark."""
    for count in (TARGET,) if options.quick else (100, TARGET, 1000):
        yield beside_bare(count, options.pick(9 if count <= TARGET else 5, 5))
    if Honcho.is_there():
        for count in (TARGET,) if options.quick else (100, TARGET, 1000):
            yield from beside_honcho(count, options.pick(5 if count <= TARGET else 3, 2))


def beside_bare(count: int, runs: int) -> Figure:
    """Launch in this process, in turns with a bare loop."""
    exp = experiment(count)
    envs = environments(exp)
    with state_dir() as state:
        ours, peer = in_turns(runs, lambda: launched(state, count), lambda: bare(envs))
    rates = f"processes a second: {_rates(count, ours)}; bare {_rates(count, peer)}"
    target = AS_FAST_AS_BARE if count == TARGET else None
    return times_faster(f"launch of {count}", ours, peer, target, peer_name="bare Popen loop", note=rates)


def launched(state: Path, count: int) -> float:
    """How long symphony takes until all run."""
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


def bare(envs: Sequence[Environment]) -> float:
    """How long a bare loop takes until all run."""
    with scratch() as folder, Bare(folder) as loop:
        return timed(lambda: loop.start(envs))


def beside_honcho(count: int, runs: int) -> Iterator[Figure]:
    """Launch here and with the command line, in turns with honcho on the same processes."""
    exp = experiment(count)
    env = environments(exp)[0]
    with state_dir() as state:
        exp.dump_file(state / "many.yml")
        symphony_launch(state, "--dry-run")  # the first one reads from the disk, and compiles
        library, command, peer = in_turns(
            runs, lambda: launched(state, count), lambda: program(state), lambda: honcho(env, count)
        )
    target = FASTER_THAN_HONCHO if count == TARGET else None
    for what, ours in ((f"launch of {count}", library), (f"symphony launch, {count} in a YAML file", command)):
        rates = f"processes a second: {_rates(count, ours)}; honcho {_rates(count, peer)}"
        yield times_faster(what, ours, peer, target, peer_name="honcho start", note=rates)


def program(state: Path) -> float:
    """How long `symphony launch` takes until all run."""
    try:
        return timed(lambda: symphony_launch(state))
    finally:
        local(state).delete(NAME)


def symphony_launch(state: Path, *options: str) -> None:
    """Run `symphony launch`."""
    command = symphony("launch", str(state / "many.yml"), "-b", "local", *options)
    subprocess.run(command, env=environ(state), stdout=subprocess.DEVNULL, check=True)


def honcho(env: Environment, count: int) -> float:
    """How long honcho takes until it says that all run."""
    with scratch() as folder, Honcho(folder, env, count) as peer:
        return timed(peer.start)


def _rates(count: int, samples: Sequence[float]) -> str:
    rates = sorted(count / seconds for seconds in samples)
    return f"{rates[0]:,.0f} to {rates[-1]:,.0f}"


if __name__ == "__main__":
    main(__doc__, measure)
