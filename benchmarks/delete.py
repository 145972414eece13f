"""Measure how long it takes to stop many processes that exit when they receive TERM.

symphony is compared with a plain loop that signals the process groups and reaps the processes. A
measurement begins when the supervisor has completed the work that follows a launch. All files are
in memory if /dev/shm exists, unless TMPDIR is set, because the removal of a file on a disk takes
longer than the exit of a process.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

from _pairs import (
    Figure,
    Options,
    at_most,
    at_most_seconds_more,
    at_most_times,
    in_turns,
    main,
    timed,
)
from _sleepers import (
    NAME,
    Environment,
    PopenLoop,
    environments,
    experiment,
    local,
    memory,
    supervisor_pid,
    temporary_directory,
    temporary_state_directory,
    wait_until_asleep,
)

from symphony import Cluster

TIMES, STOP_TIMES = 1.5, 1.2
# The statuses are read before and after the request.
STOP_SECONDS_MORE = 0.25
# A large experiment is deleted within this time, in seconds.
LARGE_COUNT, LARGE_SECONDS = 5000, 5.0


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    for count in (500,) if options.quick else (100, 500, 1000):
        envs = environments(experiment(count))
        with temporary_state_directory(memory()) as state:
            ours, peer = in_turns(
                options.pick(15, 9),
                functools.partial(deleted, state, len(envs)),
                functools.partial(popen_loop, envs),
            )
        yield at_most_times(f"delete of {count}", ours, peer, TIMES, peer_name="killpg and wait")
        with temporary_state_directory(memory()) as state:
            ours, peer = in_turns(
                options.pick(15, 9),
                functools.partial(stopped, state, len(envs)),
                functools.partial(popen_loop, envs),
            )
        yield at_most_times(f"stop of {count}", ours, peer, STOP_TIMES, peer_name="killpg and wait")
        with temporary_state_directory(memory()) as state:
            ours, peer = in_turns(
                options.pick(15, 9),
                functools.partial(stopped_on_request, state, len(envs)),
                functools.partial(popen_loop, envs),
            )
        yield at_most_seconds_more(
            f"stop of the {count} processes",
            ours,
            peer,
            STOP_SECONDS_MORE,
            peer_name="killpg and wait",
        )
    if not options.quick:
        envs = environments(experiment(LARGE_COUNT))
        with temporary_state_directory(memory()) as state:
            ours, peer = in_turns(
                3,
                functools.partial(deleted, state, len(envs)),
                functools.partial(popen_loop, envs),
            )
        yield at_most(
            f"delete of {LARGE_COUNT}",
            "s",
            ours,
            LARGE_SECONDS,
            peer=peer,
            peer_name="killpg and wait",
        )


def deleted(state: Path, count: int) -> float:
    """Return how long `Cluster.delete` takes to stop the processes and remove all files."""
    return timed(functools.partial(launched(state, count).delete, NAME))


def stopped(state: Path, count: int) -> float:
    """Return how long `Cluster.stop` takes to stop the processes."""
    cluster = launched(state, count)
    seconds = timed(functools.partial(cluster.stop, NAME))
    cluster.delete(NAME)
    return seconds


def stopped_on_request(state: Path, count: int) -> float:
    """Return how long `Cluster.stop_processes` takes, after which the processes can be started
    again.
    """
    cluster = launched(state, count)
    seconds = timed(functools.partial(cluster.stop_processes, NAME))
    cluster.delete(NAME)
    return seconds


def launched(state: Path, count: int) -> Cluster:
    """Launch the experiment, and return its cluster when the supervisor has nothing to do."""
    cluster = local(state)
    cluster.launch(experiment(count))
    wait_until_asleep(supervisor_pid(state))
    return cluster


def popen_loop(envs: Sequence[Environment]) -> float:
    """Return the time that a bare loop takes to stop the processes."""
    with temporary_directory(memory()) as directory, PopenLoop(directory) as loop:
        loop.start(envs)
        return timed(loop.stop)


if __name__ == "__main__":
    main(__doc__, measure)
