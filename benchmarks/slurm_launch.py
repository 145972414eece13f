"""Measure how fast 100 processes start in a Slurm job, compared with the local backend.

    scripts/devslurm up
    scripts/devslurm run python benchmarks/slurm_launch.py [--quick] [--json]

Both sides launch the same processes, which have 32 address variables and log files in the same
shared directory. On Slurm, the duration is the time from the start of the batch step to the start
of the last process, so the time in the queue is not included. The batch step starts Python, the
supervisor and, with one step of Slurm, an agent on each node. On local, it is the time from the
call of `Cluster.launch`, or from the start of the program `symphony launch`, to the start of the
last process.

On the Slurm for tests, all nodes share the processors of this machine. Five interpreters then start
at the same time, so there is no target for four nodes.

The last figure is the number of requests to slurmctld of ten reads of the status while the
processes run.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from _pairs import Figure, Options, at_most, at_most_times, in_turns, main
from _sleepers import NAME, environ, experiment, local, symphony
from _slurm import Requests, settle, shared_directory

from symphony import Cluster, Experiment

PROCESSES = 100
NODES = 4
MOST_TIMES_OF_LOCAL = 2.0
_STATUS_READS = 10


class Bench:
    """Launches of the same processes on Slurm and on this machine."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._begin = directory / "begin"
        experiment(PROCESSES).dump_file(directory / "many.yml")

    def on_slurm(self, nodes: int) -> float:
        """Return the time from the start of the batch step to the last start of a process."""
        cluster = self._cluster(nodes)
        cluster.launch(self._experiment())
        try:
            cluster.wait(NAME, until="started", timeout=120)
            return _last_start(cluster) - float(self._begin.read_text())
        finally:
            cluster.delete(NAME, purge=True)
            settle()

    def with_library(self) -> float:
        """Return the time from the call to the last start of a process on this machine."""
        cluster = local(self._directory)
        begin = time.time()
        cluster.launch(experiment(PROCESSES))
        try:
            return _last_start(cluster) - begin
        finally:
            cluster.delete(NAME, purge=True)

    def with_program(self) -> float:
        """Return the time from the start of the program to the last start of a process."""
        cluster = local(self._directory)
        begin = time.time()
        argv = symphony("launch", "-b", "local", str(self._directory / "many.yml"))
        subprocess.run(argv, check=True, capture_output=True, env=environ(self._directory))
        try:
            return _last_start(cluster) - begin
        finally:
            cluster.delete(NAME, purge=True)

    def requests_of_status(self) -> Requests:
        """Return the requests that reading the status of a running experiment causes."""
        cluster = self._cluster(NODES)
        cluster.launch(self._experiment())
        try:
            cluster.wait(NAME, until="started", timeout=120)
            with Requests() as requests:
                for _ in range(_STATUS_READS):
                    cluster.describe_experiment(NAME)
            return requests
        finally:
            cluster.delete(NAME, purge=True)

    def _cluster(self, nodes: int) -> Cluster:
        prologue = [f"echo $EPOCHREALTIME > {self._begin}"]
        state = str(self._directory / "slurm")
        return Cluster.new("slurm", state_dir=state, nodes=nodes, prologue=prologue)

    def _experiment(self) -> Experiment:
        many = experiment(PROCESSES)
        for process in many.list_all_processes():
            process.resource_request(cpu="50m")
        return many


def _last_start(cluster: Cluster) -> float:
    """Return the time at which the last process has started."""
    started = [process.started for process in cluster.describe_experiment(NAME)]
    found = [at for at in started if at is not None]
    if len(found) != PROCESSES:
        raise RuntimeError(f"only {len(found)} of {PROCESSES} processes have started")
    return max(found)


def measure(options: Options) -> Iterator[Figure]:
    """Yield the durations of the launches, and the requests of reading the status."""
    with shared_directory() as directory:
        bench = Bench(directory)
        sides = [
            lambda: bench.on_slurm(1),
            lambda: bench.on_slurm(NODES),
            bench.with_library,
            bench.with_program,
        ]
        # The first runs are slower, because they read modules from the disk and compile them.
        in_turns(1, *sides)
        one, several, library, program = in_turns(options.pick(8, 3), *sides)
        yield at_most_times(
            f"{PROCESSES} processes on 1 node",
            one,
            library,
            MOST_TIMES_OF_LOCAL,
            peer_name="Cluster.launch on local",
        )
        yield _shown("1 node", one, program, "symphony launch -b local")
        yield _shown(f"{NODES} nodes", several, library, "Cluster.launch on local")
        yield _shown(f"{NODES} nodes", several, program, "symphony launch -b local")
        requests = bench.requests_of_status()
        yield at_most(
            f"{_STATUS_READS} reads of the status",
            "requests",
            [requests.sent],
            0,
            note=requests.note,
        )


def _shown(where: str, samples: Sequence[float], peer: Sequence[float], peer_name: str) -> Figure:
    """Return a figure without a target."""
    what = f"{PROCESSES} processes on {where}"
    return at_most(what, "s", samples, None, peer=peer, peer_name=peer_name)


if __name__ == "__main__":
    main(__doc__, measure)
