"""How long it takes to stop many processes that obey TERM, beside a bare loop that kills groups and reaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from _pairs import Figure, Options, at_most_times, in_turns, main, timed
from _sleepers import NAME, Bare, Environment, environments, experiment, local, scratch, state_dir

TIMES = 1.5
PLUS = 0.5  # seconds: for what is done once, such as the last look for what left its group


def measure(options: Options) -> Iterator[Figure]:
    """The figures of this benchmark."""
    for count in (500,) if options.quick else (100, 500, 1000):
        envs = environments(experiment(count))
        with state_dir() as state:
            ours, peer = in_turns(
                options.pick(7, 3), lambda: deleted(state, len(envs)), lambda: bare(envs)
            )
        yield at_most_times(
            f"delete of {count}", ours, peer, TIMES, plus=PLUS, peer_name="killpg and wait"
        )


def deleted(state: Path, count: int) -> float:
    """How long `Cluster.delete` takes, until nothing runs and nothing is left on the disk."""
    cluster = local(state)
    cluster.launch(experiment(count))
    return timed(lambda: cluster.delete(NAME))


def bare(envs: Sequence[Environment]) -> float:
    """How long a bare loop takes."""
    with scratch() as folder, Bare(folder) as loop:
        loop.start(envs)
        return timed(loop.end)


if __name__ == "__main__":
    main(__doc__, measure)
