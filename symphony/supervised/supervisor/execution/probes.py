"""Tests that determine whether a process is ready, or healthy.

A probe blocks for at most the time that it is given. The result of a probe is a text that explains
why the process is not ready, such as ``connection refused at 127.0.0.1:7000``. The text is empty if
the process is ready. For a health test, this means that it is healthy.
"""

from __future__ import annotations

import functools
import io
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.events import exit_text
from symphony.supervised.processes.process_groups import signal_group
from symphony.supervised.processes.spec import ProcessSpec
from symphony.support.data_classes import dataclass

if TYPE_CHECKING:
    from symphony.line_search import LineSearch, SearchProcess
    from symphony.supervised.access import exec_command

NETWORK_TIMEOUT_SECONDS = 1.0
COMMAND_TIMEOUT_SECONDS = 10.0
LOG_TIMEOUT_SECONDS = 1.0
READY = ""
# The maximum length of the output line of a command in a result.
LONGEST_OUTPUT_CHARACTERS = 200
_LOG_BLOCK_BYTES = 16384
_OUTPUT_TAIL_BYTES = 4096
_OUTPUT_POLL_SECONDS = 0.05


def _do_nothing() -> None:
    pass


def _no_hint() -> str:
    return ""


class ProbeNotRun(Exception):
    """A process could not be tested, for example because its node does not answer."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe of one process.

    ``test`` returns why the process is not ready, or `READY`. Its argument is the time in seconds
    for which it may block. It raises `ProbeNotRun` if the process could not be tested.
    ``usual_timeout`` is this time if the user has not set one. ``hint`` returns a possible cause of
    the latest result, or ``""``. It takes more time than a test, so it is called only for results
    that are shown. Call ``close`` when the probe is no longer needed.
    """

    test: Callable[[float], str]
    hint: Callable[[], str] = _no_hint
    close: Callable[[], None] = _do_nothing
    usual_timeout: float = NETWORK_TIMEOUT_SECONDS


# A function that returns which program, other than the process itself, serves a port of a host, or
# "". Its arguments are the host and the port.
FindOtherServer = Callable[[str, int], str]


def make_probe(
    spec: ProcessSpec,
    log: Path,
    log_start: int,
    env: Mapping[str, str],
    search_process: SearchProcess | None,
    find_other_server: FindOtherServer = lambda _host, _port: "",
    *,
    setting: str = "ready",
) -> Probe:
    """Return the probe for a process's setting ``ready`` or ``healthy``.

    ``log_start`` is the byte offset in ``log`` at which the output of the process's latest
    execution begins. ``env`` is the process's initial environment. ``search_process`` searches the
    log. It is only needed if the probe searches the log. A process is not ready if
    ``find_other_server`` finds a program that answers in its place.
    """
    test = getattr(spec, setting) or {}
    if "tcp" in test:
        host, port = test["tcp"]
        connecting = functools.partial(connect, host, port)
        return _probe_of_server(connecting, host, port, find_other_server)
    if "http" in test:
        host, port, path = test["http"]
        getting = functools.partial(get, host, port, path)
        return _probe_of_server(getting, host, port, find_other_server)
    if search_process is not None and "log" in test:
        from symphony.line_search import LineSearch

        log_probe = LogProbe(log, log_start, LineSearch(search_process, test["log"]), test["log"])
        return Probe(log_probe.test, close=log_probe.close, usual_timeout=LOG_TIMEOUT_SECONDS)
    run = functools.partial(run_command, spec, test["command"], env)
    return Probe(run, usual_timeout=COMMAND_TIMEOUT_SECONDS)


def _probe_of_server(
    test: Callable[[float], str], host: str, port: int, find_other_server: FindOtherServer
) -> Probe:
    """Return a probe that also checks whether the process itself serves the port."""

    def test_own_server(timeout: float) -> str:
        return test(timeout) or served_by_other(find_other_server, host, port)

    return Probe(test_own_server, functools.partial(other_listeners, host, port))


def failing_probe(message: str) -> Probe:
    """Return a probe that cannot be run, because of ``message``."""

    def fail(_timeout: float) -> str:
        raise ProbeNotRun(message)

    return Probe(fail)


# --- connections ---


def connect(host: str, port: int, timeout: float) -> str:
    """Return why no server accepts a TCP connection to ``port`` on ``host``, or `READY`."""
    try:
        socket.create_connection((host, port), timeout=timeout).close()
    except OSError as exc:
        return _connection_error(exc, host, port, timeout)
    return READY


def get(host: str, port: int, path: str, timeout: float) -> str:
    """Return why no server responds to a GET request with a status from 200 to 399, or `READY`.

    The kubelet accepts the same statuses. A redirection is not followed. The kubelet follows up to
    ten redirections to the same host.
    """
    # At the top of the module, this import would delay every launch by 15 ms.
    import http.client

    url = f"http://{_address(host, port)}{path}"
    deadline = time.monotonic() + timeout
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        try:
            connection.connect()
        except OSError as exc:
            return _connection_error(exc, host, port, timeout)
        connection.request("GET", path)
        reader = _ResponseReader(connection.sock, deadline)
        response = http.client.HTTPResponse(reader)  # type: ignore[arg-type]
        response.begin()
    except TimeoutError:
        return f"no response within {timeout:.2g} s from {url}"
    except (OSError, http.client.HTTPException):
        return f"no valid HTTP response from {url}"
    finally:
        connection.close()
    return READY if 200 <= response.status < 400 else f"HTTP {response.status} from {url}"


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _connection_error(exc: OSError, host: str, port: int, timeout: float) -> str:
    address = _address(host, port)
    if isinstance(exc, ConnectionRefusedError):
        return f"connection refused at {address}"
    if isinstance(exc, TimeoutError):
        return f"no connection within {timeout:.2g} s to {address}"
    return f"no connection to {address}: {exc.strerror or exc}"


def other_listeners(host: str, port: int) -> str:
    """Return which other addresses of this machine accept connections to a port, or ``""``.

    For example, a server that listens on ``[::1]`` refuses connections to ``127.0.0.1``.
    """
    from symphony.supervised.processes.listening import is_of_this_machine, listening_sockets

    if not is_of_this_machine(host):
        return ""
    found = [found.text for found in listening_sockets(port) if str(found.address) != host]
    if not found:
        return ""
    return f"something listens on {' and '.join(dict.fromkeys(found))}"


def served_by_other(find_other_server: FindOtherServer, host: str, port: int) -> str:
    """Return that another program than the process serves a port, or `READY`."""
    server = find_other_server(host, port)
    return f"{_address(host, port)} is served by another program: {server}" if server else READY


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


# --- commands ---


def run_command(
    spec: ProcessSpec, argv: Sequence[str], env: Mapping[str, str], timeout: float
) -> str:
    """Return why the command ``argv``, run in a process's environment, does not exit with code 0.

    The result is `READY` if it does. If the command takes longer than ``timeout``, it is killed.
    """
    from symphony.supervised.access import exec_command

    try:
        completed = exec_command.run(spec, argv, env, start=_run_briefly, timeout=timeout)
    except exec_command.CommandNotRunError as exc:
        return f"cannot run {argv[0]!r}: {exc}"
    except subprocess.TimeoutExpired as exc:
        program = "the command" if is_shell_line(argv) else repr(argv[0])
        return _with_output(f"{program} takes longer than {timeout:.2g} s", exc.output)
    code = completed.returncode
    if code == 0:
        return READY
    if code < 0:
        return _with_output(exit_text(128 - code), completed.stderr)
    return _with_output(f"exit code {code}", completed.stderr)


def is_shell_line(argv: Sequence[str]) -> bool:
    """Return whether a shell runs the command as a line, so that its name explains nothing."""
    return len(argv) == 3 and argv[1] == "-c"


def _with_output(text: str, output: str | None) -> str:
    """Return a text with the last line of a command's output."""
    from symphony.support.escapes import last_line

    line = last_line(output or "", LONGEST_OUTPUT_CHARACTERS)
    return f"{text}: {line}" if line else text


def _run_briefly(
    argv: Sequence[str], *, timeout: float, **options: Any
) -> exec_command.CompletedProcess:
    """Run a command with empty standard input, and return the end of its output as its errors.

    If the command takes longer than ``timeout`` seconds, kill its process group and raise
    `subprocess.TimeoutExpired`. A child process that the command leaves running can keep the output
    open, so its end is not awaited.
    """
    output = _OutputTail()
    try:
        with subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output.write_end,
            stderr=output.write_end,
            start_new_session=True,
            **options,
        ) as process:
            output.close_write_end()
            try:
                code = _wait(process, output, timeout)
            except BaseException:
                signal_group(process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(argv, code, stderr=output.text())
    finally:
        output.close()


def _wait(process: subprocess.Popen[bytes], output: _OutputTail, timeout: float) -> int:
    """Return the exit code of a process whose output is read in the meantime."""
    deadline = time.monotonic() + timeout
    while True:
        remaining = deadline - time.monotonic()
        if output.is_closed:
            try:
                return process.wait(max(0.0, remaining))
            except subprocess.TimeoutExpired as exc:
                raise subprocess.TimeoutExpired(process.args, timeout, output.text()) from exc
        code = process.poll()
        if code is not None:
            output.read_available()
            return code
        if remaining <= 0:
            raise subprocess.TimeoutExpired(process.args, timeout, output.text())
        output.wait(min(remaining, _OUTPUT_POLL_SECONDS))


class _OutputTail:
    """A pipe for the output of a command, of which only the end is kept."""

    def __init__(self) -> None:
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._is_write_end_open = True
        self._tail = b""
        self.is_closed = False
        """True if no process can write any more output."""

    def wait(self, seconds: float) -> None:
        """Wait for output for at most a number of seconds, and read it."""
        poll = select.poll()
        poll.register(self._read_end, select.POLLIN)
        if poll.poll(seconds * 1000):
            self.read_available()

    def read_available(self) -> None:
        """Read the output that has been written, but no more than the pipe can hold."""
        try:
            data = os.read(self._read_end, 1 << 20)
        except BlockingIOError:
            return
        self.is_closed = not data
        self._tail = (self._tail + data)[-_OUTPUT_TAIL_BYTES:]

    def text(self) -> str:
        """Return the end of the output."""
        return self._tail.decode(errors="replace")

    def close_write_end(self) -> None:
        """Close the end of the pipe that the command has inherited."""
        if self._is_write_end_open:
            self._is_write_end_open = False
            os.close(self.write_end)

    def close(self) -> None:
        """Close the pipe."""
        self.close_write_end()
        os.close(self._read_end)


# --- logs ---


class LogProbe:
    """A probe that checks whether a log contains a line with a match for a pattern.

    Each call continues where the previous call has stopped. The log is read in small blocks, so
    that a log that grows quickly does not fill the memory.
    """

    def __init__(self, log: Path, start: int, search: LineSearch, pattern: str) -> None:
        self._log = log
        self._offset = start
        self._search = search
        self._pattern = pattern

    def close(self) -> None:
        """Close the search."""
        self._search.close()

    def test(self, timeout: float) -> str:
        """Return why no new line contains a match for the pattern, or `READY` if one does.

        A prompt has no newline. Therefore, an incomplete last line is searched too if the program
        has written nothing since the previous call.
        """
        from symphony.line_search import SearchError

        deadline = time.monotonic() + timeout
        try:
            self._search.prepare()
            if self._search_until(deadline):
                return READY
        except SearchError as exc:
            return str(exc)
        return self._search.problem or f"no output line matches {self._pattern!r}"

    def _search_until(self, deadline: float) -> bool:
        try:
            file = self._log.open("rb")
        except FileNotFoundError:
            return False
        previous_offset = self._offset
        with file:
            file.seek(self._offset)
            while time.monotonic() < deadline:
                if not self._search.is_behind:
                    data = file.read(_LOG_BLOCK_BYTES)
                    if not data:
                        is_unchanged = self._offset == previous_offset
                        return is_unchanged and self._search.search_incomplete_line()
                    self._offset += len(data)
                    self._search.add(data)
                if self._search.search_next():
                    return True
        return False
