"""The program of the batch step: ``python -I -S batch.py RUN-DIRECTORY NODES``.

It starts the agents and becomes the guardian of the supervisor, which it forks. When the guardian
exits, Slurm ends the job. The guardian keeps the socket open to which the agents connect, so that
they find each new supervisor there.

It is started by path and without ``site``, so that it uses exactly the launcher's import path. The
agents are started first, so that they import their modules at the same time as the supervisor.
Therefore, this module imports only what is necessary to start them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import sys
import time

# A command that replaces itself by the following command line: the path of Python, two options and
# the path of a program. If one of them does not exist on the node, the error message contains the
# name of the node.
START_PYTHON = (
    "/bin/sh",
    "-c",
    "node=${SLURMD_NODENAME:-$(uname -n)}; "
    'missing() { echo "node $node: $1 does not exist; $2" >&2; exit 127; }; '
    '[ -x "$0" ] || missing "$0" "run symphony with a Python that all nodes share"; '
    '[ -e "$3" ] || missing "$3" "install symphony in a directory that all nodes share"; '
    'exec "$0" "$@"',
)
_POLL_SECONDS = 0.01
# How long srun may take to withdraw its request for a step.
_WITHDRAW_SECONDS = 5.0


class AgentStep:
    """The step of the agents, which connect to ``server``.

    ``argv`` is the command line of srun. ``log`` contains the messages of srun and of the agents,
    from the offset ``log_start`` on. Those before it are from earlier attempts to start the step.
    """

    def __init__(self, argv: list[str], server: socket.socket, log: str) -> None:
        self.server = server
        self.log = log
        self.log_start = 0
        self._argv = argv
        self._pid = 0
        self._has_ended = True

    def start(self) -> None:
        """Start srun, which sends one request to slurmctld. It must not be running."""
        descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.log_start = os.fstat(descriptor).st_size
        self._has_ended = False
        self._pid = os.fork()
        if self._pid == 0:
            _execute(self._argv, descriptor)
        os.close(descriptor)

    def has_ended(self) -> bool:
        """Return whether srun has exited."""
        if not self._has_ended:
            try:
                pid, _ = os.waitpid(self._pid, os.WNOHANG)
                self._has_ended = pid != 0
            except ChildProcessError:
                # It is a child of the guardian, which collects its exit.
                self._has_ended = not os.path.exists(f"/proc/{self._pid}")  # noqa: PTH110
        return self._has_ended

    def start_again(self) -> None:
        """Start srun again. If it is running, it is stopped first."""
        if not self.has_ended():
            # srun then withdraws its request for the step.
            os.kill(self._pid, signal.SIGTERM)
            self._wait_for_exit(_WITHDRAW_SECONDS)
        self.start()

    def stop(self, seconds: float) -> None:
        """Close the server, and wait until srun has exited. Kill it after a number of seconds."""
        self.server.close()
        self._wait_for_exit(seconds)

    def _wait_for_exit(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self.has_ended():
            if time.monotonic() >= deadline:
                with contextlib.suppress(ChildProcessError, ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
                    os.waitpid(self._pid, 0)
                self._has_ended = True
                return
            time.sleep(_POLL_SECONDS)


def main() -> int | str:
    """Start the agents, adopt the import path of the launcher, and supervise the experiment in a
    child.

    Return the exit code, or an error message, in each supervisor.
    """
    directory, count = sys.argv[1:]
    node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename
    try:
        step = start_step(directory, int(count))
        import json

        with open(f"{directory}/job.json", "rb") as file:  # noqa: PTH123
            job = json.load(file)
    except OSError as exc:
        return f"node {node}: {unusable_message(directory, exc)}"
    sys.path[:] = job["path"]
    try:
        from symphony.supervised.supervisor.guardian import guard_job
        from symphony.support.inherited_signals import reset_signals

        reset_signals()
        link = guard_job(directory)

        from symphony_slurm.job.supervise import run_job
    except ImportError as exc:
        step.stop(0.0)
        return (
            f"node {node}: {sys.executable} cannot import symphony: {exc}; install symphony in a "
            "directory that all nodes share"
        )
    return run_job(directory, job, step, link)


def unusable_message(directory: str, exc: OSError) -> str:
    """Return the error message for a run directory that a node cannot use."""
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"cannot write to {directory}: {exc.strerror}; free space, or set state_dir"
    return (
        f"cannot read {directory}: {exc.strerror}; set state_dir to a directory that all nodes "
        "share"
    )


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
        # The agents use no MPI, and some plugins for it wait for all tasks.
        "--mpi=none",
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
    step = AgentStep(argv, server, f"{directory}/agents.log")
    step.start()
    return step


def _execute(argv: list[str], output: int) -> None:
    """Replace this child process by a program."""
    # srun forwards signals. The processes of the agents must only receive those of the supervisor.
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        os.execvp(argv[0], argv)
    except OSError as exc:
        os.write(2, f"error: cannot run {argv[0]}: {exc.strerror}\n".encode())
    finally:
        os._exit(127)


if __name__ == "__main__":
    sys.exit(main())
