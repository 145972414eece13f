"""Send commands to a tmux server in batches through tmux's own command line."""

from __future__ import annotations

import contextlib
import fcntl
import os
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
# The time limits, in seconds, for the response of a server, and for the response of a server that
# did not respond to the previous request.
ANSWER_TIMEOUT_SECONDS, RETRY_TIMEOUT_SECONDS = 30.0, 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The response of tmux: its lines, and the first line of an error, or ``""``.

    ``timed_out`` means that the server is running but did not respond in time. In this case,
    ``error`` explains how to fix the problem.
    """

    lines: list[str]
    error: str
    timed_out: bool = False

    @property
    def no_server(self) -> bool:
        """Whether no server was running that could respond."""
        return any(words in self.error for words in _NO_SERVER_ERRORS)


class PendingAnswer:
    """A batch that was sent. `wait` waits for the response."""

    def __init__(self, process: subprocess.Popen[bytes], text: bytes) -> None:
        self._process = process
        self._rest = text
        self._enlarge_pipe()
        self._write()

    def _enlarge_pipe(self) -> None:
        """Enlarge the pipe to hold the whole batch, if possible, because tmux executes the commands
        only after it has received all of them.
        """
        if self._process.stdin is not None and len(self._rest) > PIPE_BYTES:
            with contextlib.suppress(OSError):  # The size can exceed the limit for this user.
                fcntl.fcntl(self._process.stdin.fileno(), fcntl.F_SETPIPE_SZ, len(self._rest))

    def _write(self) -> None:
        """Write as much as tmux accepts without blocking, because the server may hang. `wait`
        writes the remaining text.
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
        """Wait until the batch is done. Return None after ``timeout`` seconds; commands that have
        not started by then will never start.
        """
        try:
            output, error = self._process.communicate(self._rest or None, timeout=timeout)
        except subprocess.TimeoutExpired:
            self._kill_client()
            return None
        errors = error.decode(errors="replace").strip().splitlines()
        return Answer(output.decode(errors="replace").splitlines(), errors[0] if errors else "")

    def _kill_client(self) -> None:
        """Kill the client. Its pipes are not read to the end, because the server that hangs keeps
        them open.
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

    The server has ``timeout`` seconds to respond. After one timeout, the next requests wait for a
    shorter time.
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
        self._socket = socket or _socket_path(self._name)
        self._server = ["-S", socket] if socket else ["-L", self._name]

    def send(self, commands: Sequence[str], *, start: bool = False) -> Callable[[], Answer]:
        """Send commands in one batch through standard input, so that neither ``ps`` nor a file
        shows them.

        ``start`` starts the server if it is not running. The server reads no configuration file.
        Return a function that waits for the response.
        """
        pending = self._send_batch(commands, start=start)
        return lambda: self._answer(pending)

    def run(
        self, commands: Sequence[str], *, start: bool = False, timeout: float | None = None
    ) -> Answer:
        """Send commands and wait for the response. If ``start`` is set, wait until an exiting
        server has exited, and then start a new one.
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
        """Send one command, which ``ps`` can show, and wait for the response. A server that hangs
        executes the command when the server is continued.
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
        """Return a message that explains how to fix a server that does not respond."""
        pid = _listener_pid(self._socket)
        name = Path(self._socket).name
        remedy = f"continue it (kill -CONT {pid}) or end it (kill -KILL {pid})" if pid else "end it"
        return f"the tmux server {name!r} does not respond; {remedy}, and try again"


def _socket_path(name: str) -> str:
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


def clean_environment() -> dict[str, str]:
    """Return the environment of the server, which its windows inherit. It contains only
    LANG and the variables that determine the socket.

    Other variables must not be inherited. In particular, the PATH of a client would override the
    PATH of a window.
    """
    kept = {key: os.environ[key] for key in ("TMUX_TMPDIR", "HOME") if key in os.environ}
    return {"LANG": "C.UTF-8", **kept}
