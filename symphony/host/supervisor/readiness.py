"""Readiness: one look at whether a process does what its ``ready()`` asks for.

Each probe is a function that blocks for at most about a second, one that runs a command for `COMMAND_TIMEOUT`, and
answers yes or no.
"""

from __future__ import annotations

import http.client
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from symphony.host import exec
from symphony.host.processes.children import signal_group
from symphony.host.processes.spec import CannotLook, Command

TIMEOUT = 1.0
COMMAND_TIMEOUT = 10.0

Probe = Callable[[], bool]


def probe(test: Mapping[str, Any], log: Path, start: int) -> Probe | None:
    """The probe for a rendered ``ready`` setting, or None for a command, see `succeeds`.

    ``start`` is where in ``log`` the latest run of the process began, in bytes.
    """
    if "tcp" in test:
        host, port = test["tcp"]
        return lambda: accepts(host, port)
    if "http" in test:
        host, port, path = test["http"]
        return lambda: answers(host, port, path)
    if "log" in test:
        return LogProbe(log, test["log"], start)
    return None


def accepts(host: str, port: int) -> bool:
    """Whether a TCP connection is accepted."""
    try:
        socket.create_connection((host, port), timeout=TIMEOUT).close()
    except OSError:
        return False
    return True


def answers(host: str, port: int, path: str) -> bool:
    """Whether GET of a path is answered with 200."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def succeeds(command: Command, argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether ``argv`` ends with exit code 0 beside a process that began with ``env``. Raises `CannotLook`."""
    try:
        return exec.run(command, argv, env, start=_start).returncode == 0
    except exec.CannotRun as exc:
        raise CannotLook(f"cannot run {argv[0]!r}: {exc}") from exc
    except subprocess.TimeoutExpired as exc:
        raise CannotLook(f"{argv[0]!r} takes longer than {COMMAND_TIMEOUT:g} s") from exc


def _start(argv: Sequence[str], **options: Any) -> exec.Done:
    """Run in silence, in a session of its own, of which nothing stays when the time is up."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        argv, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, text=True, **options
    ) as started:
        try:
            return subprocess.CompletedProcess(argv, started.wait(COMMAND_TIMEOUT))
        except BaseException:
            signal_group(started.pid, signal.SIGKILL)
            raise


class LogProbe:
    """Whether a line of a log matches, reading only what is new at each look."""

    def __init__(self, log: Path, pattern: str, start: int) -> None:
        from symphony.host.logs import Tail

        self._tail = Tail(log, start)
        self._pattern = re.compile(pattern)

    def __call__(self) -> bool:
        """Look at what is new."""
        return any(
            self._pattern.search(line.removesuffix("\r")) for line in self._tail.more()
        )  # a terminal ends lines so
