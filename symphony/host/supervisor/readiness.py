"""Tests that determine whether a process is ready.

A probe is a function that returns whether a process is ready. A probe normally blocks for at most
about one second, or for up to `COMMAND_TIMEOUT_SECONDS` if it runs a command.
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.host.processes.control import signal_group
from symphony.host.processes.spec import ProcessSpec
from symphony.host.supervisor.event_loop import EventLoop

if TYPE_CHECKING:
    from symphony.host import exec

NETWORK_TIMEOUT_SECONDS = 1.0
COMMAND_TIMEOUT_SECONDS = 10.0
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.05, 1.0
DELAY_FACTOR = 1.5

Probe = Callable[[], bool]


class ProbeError(Exception):
    """A probe could not be completed, so it is unknown whether the process is ready.

    The message names the probe and the reason.
    """


def make_probe(spec: ProcessSpec, log: Path, log_start: int, env: Mapping[str, str]) -> Probe:
    """Return the probe for a process's ``ready`` setting. The probe may raise ProbeError.

    ``log_start`` is the byte offset in ``log`` at which the output of the process's latest
    execution begins. ``env`` is the process's initial environment.
    """
    test = spec.ready or {}
    if "tcp" in test:
        host, port = test["tcp"]
        return lambda: accepts_connection(host, port)
    if "http" in test:
        host, port, path = test["http"]
        return lambda: responds_with_200(host, port, path)
    if "log" in test:
        return LogProbe(log, test["log"], log_start)
    argv = test["command"]
    return lambda: command_succeeds(spec, argv, env)


def accepts_connection(host: str, port: int) -> bool:
    """Return whether a server accepts a TCP connection to ``port`` on ``host``."""
    try:
        socket.create_connection((host, port), timeout=NETWORK_TIMEOUT_SECONDS).close()
    except OSError:
        return False
    return True


def responds_with_200(host: str, port: int, path: str) -> bool:
    """Return whether a server responds to a GET request for ``path`` with status 200."""
    # At the top of the module, this import would delay every launch by 15 ms.
    import http.client

    connection = http.client.HTTPConnection(host, port, timeout=NETWORK_TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def command_succeeds(spec: ProcessSpec, argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Return whether the command ``argv``, run in a process's environment, exits with code 0.

    Raises ProbeError if the command cannot be run or takes longer than `COMMAND_TIMEOUT_SECONDS`.
    """
    from symphony.host import exec

    try:
        return exec.run(spec, argv, env, start=_run_silently).returncode == 0
    except exec.CommandNotRunError as exc:
        raise ProbeError(f"cannot run {argv[0]!r}: {exc}") from exc
    except subprocess.TimeoutExpired as exc:
        message = f"{argv[0]!r} takes longer than {COMMAND_TIMEOUT_SECONDS:g} s"
        raise ProbeError(message) from exc


def _run_silently(argv: Sequence[str], **options: Any) -> exec.CompletedProcess:
    """Run a command with empty standard input, and discard its output.

    If the command takes longer than `COMMAND_TIMEOUT_SECONDS`, kill its process group and raise
    `subprocess.TimeoutExpired`.
    """
    devnull = subprocess.DEVNULL
    with subprocess.Popen(
        argv,
        stdin=devnull,
        stdout=devnull,
        stderr=devnull,
        start_new_session=True,
        text=True,
        **options,
    ) as process:
        try:
            code = process.wait(COMMAND_TIMEOUT_SECONDS)
        except BaseException:
            signal_group(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(argv, code)


class LogProbe:
    """A probe that checks whether a log contains a line with a match for a pattern.

    Each call reads only the new lines.
    """

    def __init__(self, log: Path, pattern: str, start: int) -> None:
        from symphony.host.logs import LogTail

        self._tail = LogTail(log, start)
        self._pattern = re.compile(pattern)

    def __call__(self) -> bool:
        """Return whether a line added since the previous call contains a match for the pattern."""
        # A terminal inserts a carriage return, which is not part of the text, before each newline.
        lines = (line.removesuffix("\r") for line in self._tail.read_new())
        return any(self._pattern.search(line) for line in lines)


class ReadinessMonitor:
    """A monitor that probes one process until it is ready or the timeout has passed.

    A probe blocks, so it runs in a separate thread. All other work happens in the event loop. As
    soon as ``is_active`` returns False, the monitor stops without calling ``on_ready`` or
    ``on_timeout``. ``on_timeout`` is called with the last probe's error message, or with ``""`` if
    that probe could be completed. ``timeout`` is in seconds.
    """

    def __init__(
        self,
        loop: EventLoop,
        probe: Probe,
        timeout: float,
        *,
        is_active: Callable[[], bool],
        on_ready: Callable[[], None],
        on_timeout: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._probe = probe
        self._is_active = is_active
        self._on_ready = on_ready
        self._on_timeout = on_timeout
        self._deadline = time.monotonic() + timeout
        self._delay = FIRST_DELAY_SECONDS

    def start(self) -> None:
        """Run the next probe in a new thread, unless ``is_active`` returns False."""
        if self._is_active():
            threading.Thread(target=self._run_probe, daemon=True).start()

    def _run_probe(self) -> None:
        is_ready, error = False, ""
        try:
            is_ready = self._probe()
        except ProbeError as exc:
            error = str(exc)
        self._loop.post(lambda: self._handle_result(is_ready, error))

    def _handle_result(self, is_ready: bool, error: str) -> None:
        if not self._is_active():
            return
        remaining = self._deadline - time.monotonic()
        if is_ready:
            self._on_ready()
        elif remaining <= 0:
            self._on_timeout(error)
        else:
            self._loop.after(min(self._delay, remaining), self.start)
            self._delay = min(self._delay * DELAY_FACTOR, LONGEST_DELAY_SECONDS)
