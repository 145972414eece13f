"""Count the requests that each command sends to Slurm's controller (slurmctld).

    scripts/devslurm up
    scripts/devslurm run python benchmarks/slurm_requests.py [--quick] [--json]

The counts are those of sdiag. A program of Slurm sends several requests: sinfo and squeue send
three each. Requests that the daemons of the nodes send when a step or a job ends are not counted.
The experiment has four processes on two nodes, and 100 processes on four nodes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from _pairs import Figure, Options, at_most, main
from _slurm import Requests, settle, shared_directory

from symphony import Cluster, Experiment

# The process prints a line when it is running, and then waits for a signal.
_WAIT = "import signal, time; print('up', flush=True); signal.pause()"


def _experiment(name: str, processes: int) -> Experiment:
    experiment = Experiment(name)
    for number in range(processes):
        process = experiment.new_process(f"p-{number}", command=[sys.executable, "-S", "-c", _WAIT])
        process.resource_request(cpu="100m").ready(log="^up", timeout=120)
    return experiment


def _figure(what: str, limit: int, action: Callable[[], object]) -> Figure:
    with Requests() as requests:
        action()
    return at_most(what, "requests", [requests.sent], limit, note=requests.note)


def measure(options: Options) -> Iterator[Figure]:
    """Yield the number of requests of each command."""
    with shared_directory() as directory:
        # What the first launch finds out about the nodes is recorded there.
        os.environ["SYMPHONY_STATE_DIR"] = str(directory / "records")
        yield _first_launch(directory)
        yield from _life(directory, processes=4, nodes=2)
        if not options.quick:
            yield from _life(directory, processes=100, nodes=4)
        yield from _queue(directory)


def _first_launch(directory: Path) -> Figure:
    """Return the figure for a launch that also checks the nodes."""
    cluster = Cluster.new("slurm", state_dir=str(directory / "state"), nodes=2)

    def launch() -> None:
        cluster.launch(_experiment("first", 4))
        cluster.wait("first", until="ready", timeout=120)

    settle()
    try:
        return _figure("first launch of 4 processes, until ready", 14, launch)
    finally:
        cluster.delete("first")


def _life(directory: Path, *, processes: int, nodes: int) -> Iterator[Figure]:
    """Yield the figures for an experiment from its launch to its deletion."""
    cluster = Cluster.new("slurm", state_dir=str(directory / "state"), nodes=nodes)
    name = f"bench-{processes}"
    size = f"{processes} processes"
    settle()

    def launch() -> None:
        cluster.launch(_experiment(name, processes))
        cluster.wait(name, until="ready", timeout=120)

    try:
        yield _figure(f"check the job of {size}", 4, lambda: _check(cluster, name, processes))
        # One sinfo, one sbatch, one step, and at most two squeue while the job starts.
        yield _figure(f"launch {size}, until ready", 11, launch)
        yield _figure("status", 0, lambda: cluster.describe_experiment(name))
        yield _figure("list", 0, cluster.list_experiments)
        yield _figure("logs", 0, lambda: cluster.get_log(name, "p-0"))
        yield _figure("events", 0, lambda: list(cluster.iter_events(name)))
        yield _figure("wait until ready", 0, lambda: cluster.wait(name, until="ready"))
        yield _figure("exec", 2, lambda: cluster.exec_command(name, "p-0", ["true"]))
        yield _figure("restart of one process", 2, lambda: cluster.restart_processes(name, ["p-0"]))
        more = _experiment(name, processes)
        more.get_process("p-0").set_env("CHANGED", "1")
        yield _figure("diff", 0, lambda: cluster.diff(more))
        yield _figure("up that restarts one process", 2, lambda: cluster.up(more))
        yield _figure(
            "cp", 4, lambda: cluster.transfer_file(name, f"p-0:{__file__}", str(directory))
        )
        yield _figure("stop of the experiment", 6, lambda: cluster.stop(name))
        yield _figure("delete", 0, lambda: cluster.delete(name))
    finally:
        cluster.delete(name)


def _check(cluster: Cluster, name: str, processes: int) -> None:
    cluster.check(cluster.manifest(_experiment(name, processes)))


def _queue(directory: Path) -> Iterator[Figure]:
    """Yield the figures for an experiment that waits in the queue."""
    cluster = Cluster.new("slurm", state_dir=str(directory / "state"), sbatch=["--begin=now+1hour"])
    cluster.launch(_experiment("queued", 1))
    try:
        yield _figure("status in the queue", 3, lambda: cluster.describe_experiment("queued"))
        yield _figure("delete in the queue", 4, lambda: cluster.delete("queued"))
    finally:
        cluster.delete("queued")


if __name__ == "__main__":
    main(__doc__, measure)
