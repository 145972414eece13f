"""Measure how long ``up`` takes if nothing has changed, in comparison with ``ps``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from _pairs import Figure, Options, at_most_times, in_turns, main, timed
from _sleepers import NAME, environ, memory, symphony, temporary_state_directory

MAX_TIMES = 1.5
FILE = """
name: {name}
processes:
  server: {{command: [sleep, "1000"], binds: service}}
  sleeper: {{command: [sleep, "1000"], replicas: {count}, connects: service}}
"""


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    for count in (500,) if options.quick else (1, 500):
        with temporary_state_directory(memory()) as state:
            file = state / "many.yml"
            file.write_text(FILE.format(name=NAME, count=count - 1))
            env = environ(state)
            _run(env, "launch", file)
            _run(env, "up", file)
            ours, peer = in_turns(
                options.pick(15, 5),
                lambda: timed(lambda: _run(env, "up", file)),  # noqa: B023
                lambda: timed(lambda: _run(env, "ps", NAME)),  # noqa: B023
            )
        yield at_most_times(
            f"up of {count} unchanged processes", ours, peer, MAX_TIMES, peer_name="symphony ps"
        )


def _run(env: Mapping[str, str], command: str, argument: str | Path) -> None:
    words = symphony(command, "-b", "local", os.fspath(argument))
    completed = subprocess.run(
        words, env=dict(env), capture_output=True, stdin=subprocess.DEVNULL, check=False
    )
    if completed.returncode:
        sys.exit(completed.stderr.decode())


if __name__ == "__main__":
    main(__doc__, measure)
