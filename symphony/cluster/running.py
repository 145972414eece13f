"""Experiments that run as long as a block of a Python program.

A *watcher*, a process of its own, deletes the experiment if the program ends without having left
the block, also if it was killed with SIGKILL. The watcher works on every backend, because it uses
the same commands as a user would.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from symphony.errors import BackendError, LaunchFailed, NotFound

if TYPE_CHECKING:
    from symphony.cluster.cluster import Cluster, ExecResult
    from symphony.model import Experiment
    from symphony.status import ExperimentStatus

WaitFor = Literal["started", "ready"]
# The lines of the log of a failed process in the message of an error.
_LOG_LINES = 10


@dataclass(slots=True)
class Running:
    """An experiment that runs as long as the block of `Cluster.running`.

    ``cluster`` is the cluster on which it runs, and ``name`` is its name.
    """

    cluster: Cluster
    name: str
    _tunnels: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _addresses: dict[str, str] = field(default_factory=dict)

    def address(self, service: str) -> str:
        """Return the address of a service as ``host:port``, for connections from this program.

        If the service has no address on this machine, a local port is forwarded to it until the
        block ends. Raises `NotFound` if the experiment has no such service.
        """
        if service not in self._addresses:
            tunnel = self._tunnels.enter_context(self.cluster.port_forward(self.name, service))
            self._addresses[service] = tunnel.address
        return self._addresses[service]

    def url(self, service: str, path: str = "/") -> str:
        """Return the URL of a path of a service that speaks HTTP."""
        return f"http://{self.address(service)}/{path.removeprefix('/')}"

    @property
    def status(self) -> ExperimentStatus:
        """The present status of the experiment."""
        return self.cluster.describe_experiment(self.name)

    def log(self, process: str) -> str:
        """Return the output of a process so far."""
        return self.cluster.get_log(self.name, process)

    def exec(self, process: str, command: str | list[str]) -> ExecResult:
        """Run a command in the environment of a process; see `Cluster.exec_command`."""
        return self.cluster.exec_command(self.name, process, command)

    def wait(self, *, timeout: float | None = None) -> ExperimentStatus:
        """Block until all processes have finished, and return the status of the experiment.

        Raises `TimeoutError` after ``timeout`` seconds.
        """
        return self.cluster.wait(self.name, timeout=timeout)


@contextlib.contextmanager
def running(
    cluster: Cluster,
    experiment: Experiment,
    *,
    wait: WaitFor | None,
    timeout: float | str | None,
    force: bool,
) -> Iterator[Running]:
    """Run an experiment during a block; see `Cluster.running`."""
    with _Watcher(cluster, experiment.name) as watcher:
        cluster.launch(experiment, force=force)
        watcher.launched(cluster.describe_experiment(experiment.name))
        started = Running(cluster, experiment.name)
        try:
            if wait is not None:
                _wait(started, wait, timeout)
            yield started
        finally:
            started._tunnels.close()
            # Another program can have deleted the experiment.
            with contextlib.suppress(NotFound):
                cluster.delete(experiment.name)


def _wait(started: Running, until: WaitFor, timeout: float | str | None) -> None:
    """Wait until all processes have started or are ready.

    Raises `LaunchFailed` if a process has failed or was not ready in time.
    """
    status = started.cluster.wait(started.name, until=until, timeout=timeout)
    hidden = started.cluster.hidden_values(started.name)
    failed = [process for process in status if process.failed or process.not_ready_in_time]
    if not failed:
        return
    process = failed[0]
    reason = process.reason or f"exit code {process.exit_code}"
    message = f"process {process.path!r} of experiment {started.name!r} has failed: {reason}"
    with contextlib.suppress(BackendError, NotFound):
        log = started.cluster.get_log(started.name, process.name, tail=_LOG_LINES)
        if log.strip():
            message += f"; its last lines:\n{log.rstrip()}"
    raise LaunchFailed(hidden.in_text(message))


class _Watcher:
    """The process that deletes an experiment if this program ends without having done so."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        program = Path(__file__).with_name("owner_watch.py")
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )
        try:
            exists = name in cluster.list_experiments()
            self._send(
                {
                    "pid": os.getpid(),
                    "path": [str(Path(directory).absolute()) for directory in sys.path],
                    "backend": cluster.backend,
                    "options": pickle.dumps(dict(cluster.given_options)).hex(),
                    "experiment": name,
                    # An experiment that existed before is deleted only after it was replaced.
                    "is_new": not exists,
                }
            )
            self._expect("watching")
        except BaseException:
            self._end()
            raise

    def launched(self, status: ExperimentStatus) -> None:
        """Tell the watcher which run of the experiment belongs to this program."""
        self._send({"created": status.created})

    def __enter__(self) -> _Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()

    def _expect(self, word: str) -> None:
        answer = "" if self._process.stdout is None else self._process.stdout.readline()
        if answer.strip() != word:
            raise BackendError(
                "the process that deletes the experiment if this program is killed did not start"
            )

    def _end(self) -> None:
        """End the watcher. The experiment does not exist any more, or was never launched."""
        with contextlib.suppress(OSError):
            self._send({"done": True})
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
