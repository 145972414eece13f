"""Measure a launch on Slurm until all processes run, and its requests to Slurm's controller.

The peer is the Slurm scheduler of torchx with the same numbers of roles and replicas.

    python3 -m venv /tmp/torchx && /tmp/torchx/bin/pip install torchx==0.7.0
    scripts/devslurm up
    scripts/devslurm run env TORCHX_PYTHON=/tmp/torchx/bin/python \\
        python benchmarks/slurm_torchx.py [--quick] [--json]

The experiment has one learner and several actors, one CPU each. Each process writes the time of its
start to a file. The duration is the time from the call that submits the job to the last start. The
interpreters of both launchers are already running then.

torchx requests one component of a heterogeneous job for each replica, and starts the programs
directly. The components of a job never share a node, so only as many replicas as nodes can run, and
the last figure has no peer. Heterogeneous jobs are only started by the backfill scheduler, which
runs every second on the Slurm for tests, and every 30 seconds by default (``bf_interval``). For
the default, start the Slurm with ``--set SchedulerParameters=bf_interval=30``.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from _pairs import Figure, Options, at_most, in_turns, main
from _slurm import Requests, settle, shared_directory

from symphony import Cluster, Experiment

NODES = 4
_PEER = "torchx"
# The program writes the time of its start to a file, and waits.
_START = 'date +%s.%N > "$1.part"; mv "$1.part" "$1"; exec sleep 600'
# The program in torchx's interpreter. It prints the time of the call and the number of the job.
_TORCHX = """
import json, sys, time
from torchx.schedulers.slurm_scheduler import create_scheduler
from torchx.specs import AppDef, Resource, Role
directory, actors, script = sys.argv[1:]
resource = Resource(cpu=1, gpu=0, memMB=100)
def role(name, number):
    args = ["-c", script, "sh", f"{directory}/{name}-" + "${replica_id}"]
    return Role(name=name, image="", entrypoint="sh", args=args, num_replicas=number,
                resource=resource)
app = AppDef(name="bench", roles=[role("learner", 1), role("actor", int(actors))])
scheduler = create_scheduler("bench")
begin = time.time()
job = scheduler.submit(app, {"job_dir": f"{directory}/job"})
print(json.dumps({"begin": begin, "job": job}))
"""


class Bench:
    """Launches of one learner and some actors."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.requests: dict[str, Requests] = {}

    def symphony(self, actors: int, *, nodes: int = NODES) -> float:
        """Return the duration of a launch with symphony in seconds."""
        directory = self._new_directory()
        state = str(self._directory / "state")
        cluster = Cluster.new("slurm", state_dir=state, nodes=nodes)
        experiment = Experiment("bench")
        for name in ("learner-0", *(f"actor-{number}" for number in range(actors))):
            command = ["sh", "-c", _START, "sh", str(directory / name)]
            experiment.new_process(name, command=command)
        settle()
        with Requests() as requests:
            begin = time.time()
            cluster.launch(experiment)
            end = _last_start(directory, actors + 1)
        self.requests["symphony"] = requests
        cluster.delete("bench", purge=True)
        return end - begin

    def torchx(self, actors: int) -> float:
        """Return the duration of a launch with torchx in seconds."""
        directory = self._new_directory()
        (directory / "job").mkdir()
        settle()
        argv = [os.environ["TORCHX_PYTHON"], "-c", _TORCHX, str(directory), str(actors), _START]
        with Requests() as requests:
            done = subprocess.run(
                argv, check=True, stdout=subprocess.PIPE, text=True, cwd=directory
            )
            launched = json.loads(done.stdout)
            end = _last_start(directory, actors + 1)
        self.requests[_PEER] = requests
        subprocess.run(["scancel", launched["job"]], check=True)
        return float(end - launched["begin"])

    def _new_directory(self) -> Path:
        directory = self._directory / secrets.token_hex(4)
        directory.mkdir()
        return directory


def _last_start(directory: Path, processes: int) -> float:
    """Wait until all processes have started, and return the time of the last start."""
    while True:
        files = [path for path in directory.glob("*-*") if path.suffix != ".part"]
        if len(files) == processes:
            return max(float(path.read_text()) for path in files)
        time.sleep(0.02)


def measure(options: Options) -> Iterator[Figure]:
    """Yield the durations of the launches and the numbers of their requests."""
    if "TORCHX_PYTHON" not in os.environ:
        raise SystemExit("set TORCHX_PYTHON to the interpreter of an environment with torchx")
    runs = options.pick(8, 2)
    with shared_directory() as directory:
        bench = Bench(directory)
        for actors in (1, NODES - 1):
            nodes = actors + 1

            def ours(actors: int = actors, nodes: int = nodes) -> float:
                return bench.symphony(actors, nodes=nodes)

            def theirs(actors: int = actors) -> float:
                return bench.torchx(actors)

            in_turns(1, ours, theirs)
            samples, peer = in_turns(runs, ours, theirs)
            what = f"1 learner and {actors} others on {nodes} nodes"
            yield at_most(what, "s", samples, None, peer=peer, peer_name=_PEER)
            sent = {side: float(requests.sent) for side, requests in bench.requests.items()}
            notes = [f"{side}: {requests.note}" for side, requests in bench.requests.items()]
            yield at_most(
                "requests until all run",
                "requests",
                [sent["symphony"]],
                None,
                peer=[sent[_PEER]],
                peer_name=_PEER,
                note="; ".join(notes),
            )
        (samples,) = in_turns(runs, lambda: bench.symphony(31))
        yield at_most(
            f"1 learner and 31 others on {NODES} nodes",
            "s",
            samples,
            None,
            note="with torchx, this job stays in the queue",
        )


if __name__ == "__main__":
    main(__doc__, measure)
