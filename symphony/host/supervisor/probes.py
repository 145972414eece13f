"""Tests that determine whether a process is ready.

A probe blocks for at most the time that it is given, and usually for at most about one second, or
for up to `COMMAND_TIMEOUT_SECONDS` if it runs a command.
"""

from __future__ import annotations

import functools
import io
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.host.processes.control import signal_group
from symphony.host.processes.spec import ProcessSpec

if TYPE_CHECKING:
    from symphony.host import exec
    from symphony.line_search import LineSearch, SearchProcess

NETWORK_TIMEOUT_SECONDS = 1.0
COMMAND_TIMEOUT_SECONDS = 10.0
LOG_TIMEOUT_SECONDS = 1.0
_LOG_BLOCK_BYTES = 16384


def _do_nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe of one process.

    ``is_ready`` returns whether the process is ready. Its argument is the time in seconds for which
    it may block. It raises `ProbeError` if the probe cannot be completed. Call ``close`` when the
    probe is no longer needed.
    """

    is_ready: Callable[[float], bool]
    close: Callable[[], None] = _do_nothing


class ProbeError(Exception):
    """A probe could not be completed, so it is unknown whether the process is ready.

    The message names the probe and the reason.
    """


def make_probe(
    spec: ProcessSpec,
    log: Path,
    log_start: int,
    env: Mapping[str, str],
    search_process: SearchProcess | None,
) -> Probe:
    """Return the probe for a process's ``ready`` setting.

    ``log_start`` is the byte offset in ``log`` at which the output of the process's latest
    execution begins. ``env`` is the process's initial environment. ``search_process`` searches the
    log. It is only needed if the probe searches the log.
    """
    test = spec.ready or {}
    if "tcp" in test:
        host, port = test["tcp"]
        return Probe(functools.partial(accepts_connection, host, port))
    if "http" in test:
        host, port, path = test["http"]
        return Probe(functools.partial(responds_with_200, host, port, path))
    if search_process is not None and "log" in test:
        from symphony.line_search import LineSearch

        log_probe = LogProbe(log, log_start, LineSearch(search_process, test["log"]))
        return Probe(log_probe.is_ready, log_probe.close)
    return Probe(functools.partial(command_succeeds, spec, test["command"], env))


def failing_probe(message: str) -> Probe:
    """Return a probe that always raises ProbeError with ``message``."""

    def is_ready(_: float) -> bool:
        raise ProbeError(message)

    return Probe(is_ready)


def accepts_connection(host: str, port: int, timeout: float) -> bool:
    """Return whether a server accepts a TCP connection to ``port`` on ``host``."""
    timeout = min(timeout, NETWORK_TIMEOUT_SECONDS)
    try:
        socket.create_connection((host, port), timeout=timeout).close()
    except OSError:
        return False
    return True


def responds_with_200(host: str, port: int, path: str, timeout: float) -> bool:
    """Return whether a server responds to a GET request for ``path`` with status 200."""
    # At the top of the module, this import would delay every launch by 15 ms.
    import http.client

    timeout = min(timeout, NETWORK_TIMEOUT_SECONDS)
    deadline = time.monotonic() + timeout
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path)
        reader = _ResponseReader(connection.sock, deadline)
        response = http.client.HTTPResponse(reader)  # type: ignore[arg-type]
        response.begin()
        return response.status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


class _ResponseReader(io.RawIOBase):
    """A reader for a socket with one deadline for the whole response.

    The timeout of a socket applies to each ``recv`` call, so a server that sends one byte per call
    would never exceed it.
    """

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a file for the response, as `http.client` requires."""
        del mode
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        self._connection.settimeout(remaining)
        return self._connection.recv_into(buffer)


def command_succeeds(
    spec: ProcessSpec, argv: Sequence[str], env: Mapping[str, str], timeout: float
) -> bool:
    """Return whether the command ``argv``, run in a process's environment, exits with code 0.

    Raises ProbeError if the command cannot be run, or if it takes longer than ``timeout`` or
    `COMMAND_TIMEOUT_SECONDS`.
    """
    from symphony.host import exec

    timeout = min(timeout, COMMAND_TIMEOUT_SECONDS)
    try:
        completed = exec.run(spec, argv, env, start=_run_silently, timeout=timeout)
    except exec.CommandNotRunError as exc:
        raise ProbeError(f"cannot run {argv[0]!r}: {exc}") from exc
    except subprocess.TimeoutExpired as exc:
        raise ProbeError(f"{argv[0]!r} takes longer than {timeout:.2g} s") from exc
    return completed.returncode == 0


def _run_silently(argv: Sequence[str], *, timeout: float, **options: Any) -> exec.CompletedProcess:
    """Run a command with empty standard input, and discard its output.

    If the command takes longer than ``timeout`` seconds, kill its process group and raise
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
            code = process.wait(timeout)
        except BaseException:
            signal_group(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(argv, code)


class LogProbe:
    """A probe that checks whether a log contains a line with a match for a pattern.

    Each call continues where the previous call has stopped. The log is read in small blocks, so
    that a log that grows quickly does not fill the memory.
    """

    def __init__(self, log: Path, start: int, search: LineSearch) -> None:
        self._log = log
        self._offset = start
        self._search = search

    def close(self) -> None:
        """Close the search."""
        self._search.close()

    def is_ready(self, timeout: float) -> bool:
        """Return whether a line that has not been searched yet contains a match for the pattern.

        Raises ProbeError if no line contains a match, but a line could not be searched completely.
        """
        from symphony.line_search import SearchError

        deadline = time.monotonic() + min(timeout, LOG_TIMEOUT_SECONDS)
        try:
            self._search.prepare()
            if self._search_until(deadline):
                return True
        except SearchError as exc:
            raise ProbeError(str(exc)) from exc
        if self._search.problem:
            raise ProbeError(self._search.problem)
        return False

    def _search_until(self, deadline: float) -> bool:
        try:
            file = self._log.open("rb")
        except FileNotFoundError:
            return False
        with file:
            file.seek(self._offset)
            while time.monotonic() < deadline:
                if not self._search.is_behind:
                    data = file.read(_LOG_BLOCK_BYTES)
                    if not data:
                        return False
                    self._offset += len(data)
                    self._search.add(data)
                if self._search.search_next():
                    return True
        return False
