"""The program of the batch step: ``python -I -S batch.py RUN-DIRECTORY``.

It is started by path and without ``site``, so that it uses exactly the launcher's import path. The
agents are started first, so that they import their modules at the same time as the supervisor.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import IO, NamedTuple

# A command that replaces itself by the following command line, which starts with a path of Python.
# If Python does not exist on the node, the error message contains the name of the node.
START_PYTHON = (
    "/bin/sh",
    "-c",
    'if [ -x "$0" ]; then exec "$0" "$@"; fi; '
    'echo "node ${SLURMD_NODENAME:-$(uname -n)}: $0 does not exist; run symphony with a Python '
    'that all nodes share" >&2; exit 127',
)


class AgentStep(NamedTuple):
    """The step of the agents.

    The agents connect to ``server``. ``log`` contains the messages of srun and of the agents, from
    the offset ``log_start`` on. Those before it are from the time before the job was requeued.
    """

    process: subprocess.Popen[bytes]
    server: socket.socket
    log: IO[bytes]
    log_start: int


def main() -> None:
    """Start the agents, adopt the import path of the launcher, and supervise the experiment."""
    directory = sys.argv[1]
    node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    try:
        with open(f"{directory}/job.json", "rb") as file:  # noqa: PTH123
            job = json.load(file)
    except OSError as exc:
        sys.exit(
            f"node {node}: cannot read {directory}: {exc.strerror}; set state_dir to a directory "
            "that all nodes share"
        )
    step = start_step(directory, job["nodes"])
    sys.path[:] = job["path"]
    try:
        from symphony_slurm.supervise import run_job
    except ImportError as exc:
        step.process.kill()
        sys.exit(
            f"node {node}: {sys.executable} cannot import symphony: {exc}; install symphony in a "
            "directory that all nodes share"
        )
    sys.exit(run_job(directory, job, step))


def start_step(directory: str, count: int) -> AgentStep:
    """Start one agent on each node, with one request to slurmctld."""
    argv = [
        "srun",
        "--quiet",
        f"--nodes={count}",
        f"--ntasks={count}",
        "--ntasks-per-node=1",
        # Commands in the environment of a process run in other steps at the same time.
        "--overlap",
        "--mem=0",
        "--cpu-bind=none",
        "--kill-on-bad-exit=0",
        "--input=none",
    ]
    cpus = os.environ.get("SLURM_CPUS_PER_TASK")
    if cpus:
        # Since version 22.05, srun does not inherit this option.
        argv.append(f"--cpus-per-task={cpus}")
    server = socket.create_server(("", 0), backlog=4096)
    program = os.path.join(os.path.dirname(__file__), "agent.py")  # noqa: PTH118, PTH120
    argv += [*START_PYTHON, sys.executable, "-I", "-S", program, directory, socket.gethostname()]
    argv.append(str(server.getsockname()[1]))
    log = open(f"{directory}/agents.log", "a+b")  # noqa: PTH123, SIM115
    log_start = log.seek(0, os.SEEK_END)
    # srun forwards signals. The processes of the agents must only receive those of the supervisor.
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )
    return AgentStep(process, server, log, log_start)


if __name__ == "__main__":
    main()
