"""Helpers for the benchmarks that use a Slurm.

They run on the login machine of the Slurm for tests, on which no other jobs run:

    scripts/devslurm up
    scripts/devslurm run python benchmarks/slurm_requests.py

The directory for runs is shared by the machines. SYMPHONY_TEST_SLURM_DIRECTORY names another one.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

# Requests of the daemons and of the benchmark itself.
_OTHERS = re.compile(
    r"MESSAGE_NODE_REGISTRATION_STATUS|MESSAGE_COMPOSITE|REQUEST_(STATS_INFO|PING|UPDATE_NODE)"
)
_COUNT = re.compile(r"\s*(\w+)\s*\(\s*\d+\)\s*count:(\d+)")
# Requests that the daemons of the nodes send when a step or a job ends.
_OF_NODES = re.compile(r"REQUEST_(COMPLETE_\w+|STEP_COMPLETE\w*)|MESSAGE_EPILOG_COMPLETE")


@contextlib.contextmanager
def shared_directory() -> Iterator[Path]:
    """Yield a new directory that all nodes share."""
    if shutil.which("sbatch") is None:
        raise SystemExit(
            "sbatch is not on the PATH: run 'scripts/devslurm up', and then "
            "'scripts/devslurm run python benchmarks/...'"
        )
    base = os.environ.get("SYMPHONY_TEST_SLURM_DIRECTORY", Path.home())
    with tempfile.TemporaryDirectory(prefix="symphony-bench-", dir=base) as directory:
        yield Path(directory)


def counts() -> collections.Counter[str]:
    """Return how many requests of each type slurmctld has received since its start."""
    output = subprocess.run(["sdiag"], check=True, capture_output=True, text=True).stdout
    _, _, table = output.partition("by message type")
    table, _, _ = table.partition("Remote Procedure Call statistics by user")
    found: collections.Counter[str] = collections.Counter()
    for line in table.splitlines():
        matched = _COUNT.match(line)
        if matched and not _OTHERS.fullmatch(matched[1]):
            found[matched[1]] += int(matched[2])
    return found


class Requests:
    """The requests that slurmctld receives in a block. ``of_nodes`` are those of slurmd."""

    def __init__(self) -> None:
        self._before = counts()
        self._difference: collections.Counter[str] = collections.Counter()

    def __enter__(self) -> Requests:
        self._before = counts()
        return self

    def __exit__(self, *_: object) -> None:
        self._difference = counts() - self._before

    @property
    def sent(self) -> int:
        """The number of requests that commands, and programs in the job, have sent."""
        return sum(self._of_commands().values())

    @property
    def note(self) -> str:
        """The types of these requests, with their numbers."""
        return ", ".join(f"{name} {count}" for name, count in self._of_commands().items())

    def _of_commands(self) -> dict[str, int]:
        return {
            name: count
            for name, count in sorted(self._difference.items())
            if not _OF_NODES.fullmatch(name)
        }


def settle() -> None:
    """Wait until no job is left, and all nodes are idle."""
    while _output("squeue", "-h", "-t", "PENDING,RUNNING,COMPLETING"):
        time.sleep(0.2)
    while set(_output("sinfo", "-h", "-o", "%T").split()) != {"idle"}:
        time.sleep(0.2)


def _output(*command: str) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip()
