"""Send batches of commands to a tmux server with tmux's command-line client."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from symphony.errors import BackendError

OLDEST_VERSION = "3.3"
DEFAULT_SERVER = "symphony"

# The errors that tmux reports if its server exits during the request. A server exits after its last
# session is closed.
_EXITING_ERRORS = ("server exited", "lost server")
_NO_SERVER_ERRORS = ("no server running", "error connecting", "server exited", "lost server")
_EXIT_TIMEOUT_SECONDS = 5.0
# The default capacity of a pipe in bytes; see pipe(7).
PIPE_BYTES = 64 << 10
# The time limits, in seconds, for a server's response. The second limit applies if the server did
# not respond to the previous request.
ANSWER_TIMEOUT_SECONDS, RETRY_TIMEOUT_SECONDS = 30.0, 1.0

# The numbers of descriptors that a server needs for a window (its terminal, and the pipe to its
# log), and for clients.
WINDOW_DESCRIPTORS, SERVER_DESCRIPTORS = 2, 16


@dataclass(frozen=True, slots=True)
class Answer:
    """A response from tmux: the output lines, and the first line of the error message, if any.

    ``timed_out`` is true if the server is running but did not respond in time. In this case,
    ``error`` explains how to fix the problem.
    """

    lines: list[str]
    error: str
    timed_out: bool = False

    @property
    def no_server(self) -> bool:
        """True if the request failed because no server was running or the server exited."""
        return any(words in self.error for words in _NO_SERVER_ERRORS)


class PendingAnswer:
    """A batch of commands that was sent to tmux. `wait` waits for the response."""

    def __init__(self, process: subprocess.Popen[bytes], text: bytes) -> None:
        self._process = process
        self._rest = text
        self._enlarge_pipe()
        self._write()

    def _enlarge_pipe(self) -> None:
        """Enlarge the pipe, if possible, so that it can hold the whole batch.

        tmux executes the commands only after it has received all of them.
        """
        if self._process.stdin is not None and len(self._rest) > PIPE_BYTES:
            with contextlib.suppress(OSError):  # The size can exceed the limit for this user.
                fcntl.fcntl(self._process.stdin.fileno(), fcntl.F_SETPIPE_SZ, len(self._rest))

    def _write(self) -> None:
        """Write as much of the batch as the pipe accepts without blocking.

        `wait` writes the rest with a timeout, because the server may not respond.
        """
        if self._process.stdin is None:
            return
        pipe = self._process.stdin.fileno()
        os.set_blocking(pipe, False)
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            while self._rest:
                self._rest = self._rest[os.write(pipe, self._rest) :]
            self._process.stdin.close()
            self._process.stdin = None

    def wait(self, timeout: float) -> Answer | None:
        """Wait for the response to the batch, and return it.

        Return None if there is no response within ``timeout`` seconds. Commands that have not
        started by then will never start.
        """
        try:
            output, error = self._process.communicate(self._rest or None, timeout=timeout)
        except subprocess.TimeoutExpired:
            self._kill_client()
            return None
        errors = error.decode(errors="replace").strip().splitlines()
        return Answer(output.decode(errors="replace").splitlines(), errors[0] if errors else "")

    def _kill_client(self) -> None:
        """Kill the client.

        The client's pipes are not read to the end, because the unresponsive server keeps them open.
        """
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class Tmux:
    """A tmux server, identified by its name (``-L``) or its socket (``-S``). The server need not be
    running yet.

    ``socket`` is the path of the socket, which is an expected path until the server has responded.
    The server has ``timeout`` seconds to respond. After a timeout, a shorter time limit
    applies until the server responds again.
    """

    def __init__(
        self,
        *,
        name: str | None = None,
        socket: str | None = None,
        timeout: float = ANSWER_TIMEOUT_SECONDS,
    ) -> None:
        self.program = find_tmux()
        self._timeout = timeout
        self._timed_out = False
        self._name = name or DEFAULT_SERVER
        self.socket = socket or socket_path(self._name)
        self._server = ["-S", socket] if socket else ["-L", self._name]

    def send(self, commands: Sequence[str], *, start: bool = False) -> Callable[[], Answer]:
        """Send commands in one batch through standard input, so that they appear neither in the
        output of ``ps`` nor in a file.

        If ``start`` is true and the server is not running, the server is started. The server reads
        no configuration file. Return a function that waits for the response and returns it.
        """
        pending = self._send_batch(commands, start=start)
        return lambda: self._answer(pending)

    def run(
        self, commands: Sequence[str], *, start: bool = False, timeout: float | None = None
    ) -> Answer:
        """Send commands, and return the response.

        If ``start`` is true, a server is started unless one is running. If a server is exiting at
        that moment, this method tries again for up to five seconds.
        """
        deadline = time.monotonic() + _EXIT_TIMEOUT_SECONDS
        while True:
            answer = self._answer(self._send_batch(commands, start=start), timeout)
            is_exiting = (
                start
                and not answer.lines
                and any(words in answer.error for words in _EXITING_ERRORS)
            )
            if not is_exiting or time.monotonic() >= deadline:
                return answer
            time.sleep(0.02)

    def run_one(self, words: Sequence[str]) -> Answer:
        """Send one command, which is visible to ``ps``, and return the response.

        If the server is suspended, it executes the command when it resumes.
        """
        return self._answer(self._start_client(words, b""))

    def _send_batch(self, commands: Sequence[str], *, start: bool) -> PendingAnswer:
        prefix = ["start-server", ";"] if start else []
        return self._start_client(
            [*prefix, "source-file", "-"], "\n".join([*commands, ""]).encode()
        )

    def _start_client(self, words: Sequence[str], text: bytes) -> PendingAnswer:
        process = subprocess.Popen(
            [self.program, *self._server, "-f", os.devnull, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment(),
            cwd="/",
            start_new_session=True,
        )
        return PendingAnswer(process, text)

    def _answer(self, pending: PendingAnswer, timeout: float | None = None) -> Answer:
        timeout = self._timeout if timeout is None else min(timeout, self._timeout)
        answer = pending.wait(min(timeout, RETRY_TIMEOUT_SECONDS) if self._timed_out else timeout)
        self._timed_out = answer is None
        return Answer([], self._timeout_error(), timed_out=True) if answer is None else answer

    def _timeout_error(self) -> str:
        """Return an error message for a server that does not respond, with advice on a fix."""
        pid = _listener_pid(self.socket)
        name = Path(self.socket).name
        remedy = f"continue it (kill -CONT {pid}) or end it (kill -KILL {pid})" if pid else "end it"
        return f"the tmux server {name!r} does not respond; {remedy}, and try again"


def socket_path(name: str) -> str:
    """Return the path of the socket of the tmux server ``name``."""
    return f"{os.environ.get('TMUX_TMPDIR') or '/tmp'}/tmux-{os.getuid()}/{name}"


def _listener_pid(path: str) -> int | None:
    """Return the pid of the process that listens on a socket, or None if it cannot be
    determined.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.setblocking(False)
        try:
            connection.connect(path)
            credentials = connection.getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
            )
        except OSError:
            return None
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


def find_tmux() -> str:
    """Return the path of the tmux program. Raises `BackendError` if tmux is not installed."""
    found = shutil.which("tmux")
    if found is None:
        raise BackendError(
            f"tmux was not found on the PATH; install tmux {OLDEST_VERSION} or newer"
        )
    return found


def check_open_files(name: str, windows: int) -> None:
    """Check that a running tmux server can open the files for ``windows`` more windows.

    A server that is not running yet inherits the limit of the supervisor that starts it. Raises
    `BackendError` if the limit of the server is too low, because the server would not respond.
    """
    pid = _listener_pid(socket_path(name))
    if pid is None:
        return
    try:
        limit, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        already_open = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:  # The server has just exited.
        return
    needed = already_open + WINDOW_DESCRIPTORS * windows + SERVER_DESCRIPTORS
    if limit < needed:
        raise BackendError(
            f"the tmux server {name!r} (pid {pid}) needs up to {needed} open files, but its limit "
            f"is {limit}; raise it with: prlimit --pid {pid} --nofile={needed}, or choose another "
            "server_name"
        )


def clean_environment() -> dict[str, str]:
    """Return the environment in which tmux runs.

    The environment contains only LANG, and HOME and TMUX_TMPDIR if they are set.

    Other variables must not be inherited. In particular, a client's PATH would override a window's
    PATH.
    """
    kept = {key: os.environ[key] for key in ("TMUX_TMPDIR", "HOME") if key in os.environ}
    return {"LANG": "C.UTF-8", **kept}
