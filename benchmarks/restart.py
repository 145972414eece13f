"""Measure how long it takes to restart one of many processes.

symphony is compared with a bare loop that sends TERM to the process group, reaps the process and
starts it again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from _pairs import Figure, Options, at_most_seconds_more, in_turns, main, timed
from _sleepers import (
    COMMAND,
    NAME,
    Environment,
    environments,
    experiment,
    local,
    temporary_directory,
    temporary_state_directory,
)

MAX_SECONDS_MORE = 0.05


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    for count in (500,) if options.quick else (1, 500):
        env = environments(experiment(count))[0]
        with temporary_state_directory() as state, temporary_directory() as directory:
            cluster = local(state)
            cluster.launch(experiment(count))
            ours, peer = in_turns(
                options.pick(21, 7),
                lambda: timed(lambda: cluster.restart_processes(NAME, ["sleeper-0"])),  # noqa: B023
                lambda: restarted(directory, env),  # noqa: B023
            )
        yield at_most_seconds_more(
            f"restart of 1 of {count}", ours, peer, MAX_SECONDS_MORE, peer_name="killpg and Popen"
        )


def restarted(directory: Path, env: Environment) -> float:
    """Return the time that a bare loop takes to stop a process and to start it again."""
    with _started(directory, env) as process:

        def restart() -> None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            again.enter_context(_started(directory, env))

        with contextlib.ExitStack() as again:
            return timed(restart)


@contextlib.contextmanager
def _started(directory: Path, env: Environment) -> Iterator[subprocess.Popen[bytes]]:
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            COMMAND,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main(__doc__, measure)
