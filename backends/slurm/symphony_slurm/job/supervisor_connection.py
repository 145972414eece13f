"""Connections to nodes of a job through steps of it, for machines that cannot connect directly."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from symphony.errors import BackendError
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import is_finished
from symphony_slurm import slurm
from symphony_slurm.status import job_number

# The program that runs on a node; see `symphony_slurm.relay`.
RELAY = Path(__file__).parents[1] / "relay.py"
# How long srun may take to exit after it has closed the connection.
EXIT_SECONDS = 5.0


def relay_command(
    run: RunDirectory, node: str, *arguments: str, terminal: bool = False
) -> list[str]:
    """Return the command that runs the relay on a node; see `symphony_slurm.relay`."""
    number = job_number(run)
    if number is None:
        raise BackendError(f"the job of experiment {run.name!r} is unknown")
    argv = [sys.executable, "-I", "-S", str(RELAY), str(run.path.resolve()), *arguments]
    return slurm.step_command(number, node, argv, terminal=terminal)


class StepConnection:
    """A connection to the relay, which runs as a step on a node.

    ``socket`` is this program's side of it.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self.socket, other = socket.socketpair()
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115
        with other:
            self._process = subprocess.Popen(
                argv,
                stdin=other.fileno(),
                stdout=other.fileno(),
                stderr=self._messages,
                env=slurm.submission_environment(),
            )
        self._error = ""
        # The step ends with the connection, and its exit status must be collected.
        self._thread = threading.Thread(target=self._collect, daemon=True, name="relay")
        self._thread.start()

    def _collect(self) -> None:
        with self._messages as messages:
            self._process.wait()
            messages.seek(0)
            self._error = messages.read().decode(errors="replace").strip()

    def error(self) -> str:
        """Return the messages of a step that has ended, or ``""``."""
        self._thread.join(EXIT_SECONDS)
        return self._error


class StepLink:
    """The link to the supervisor of a job.

    See `symphony.supervised.user_requests.requests.SupervisorLink`.
    """

    def __init__(self, run: RunDirectory, batch_node: str) -> None:
        self._run = run
        self._batch_node = batch_node
        self._connection: StepConnection | None = None

    def check(self) -> None:
        """Raise BackendError if the experiment has finished; see `SupervisorLink`."""
        if is_finished(self._run.events):
            raise BackendError(self._finished())

    def check_responsive(self) -> None:
        """Do nothing: the connection shows whether the supervisor is running."""

    def connect(self) -> socket.socket:
        """Return a connection to the supervisor; see `SupervisorLink`."""
        argv = relay_command(self._run, self._batch_node, "control")
        self._connection = StepConnection(argv)
        return self._connection.socket

    def explain_end(self, consequence: str) -> str:
        """Return why the connection was closed; see `SupervisorLink`."""
        if is_finished(self._run.events):
            return self._finished()
        error = "" if self._connection is None else self._connection.error()
        return nodes_unreachable(self._run, error or f"it has ended{consequence}")

    def _finished(self) -> str:
        return f"experiment {self._run.name!r} has finished; launch it again to run its processes"


def nodes_unreachable(run: RunDirectory, cause: str) -> str:
    """Return the error message for a job in which no step can be run.

    ``cause`` is the reason, or the messages of srun.
    """
    text = f"the nodes of experiment {run.name!r} cannot be reached through its job: "
    return text + slurm.explanation(cause)
