"""Asking a tmux server, through tmux's own command line, in batches."""

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

OLDEST = "3.3"
DEFAULT_SERVER = "symphony"

# What tmux says when its server goes away at the very moment of asking, as it does after its last session.
_PASSING = ("server exited", "lost server")
_NO_SERVER = ("no server running", "error connecting", "server exited", "lost server")
_PATIENCE = 5.0
# How much a pipe holds unless told otherwise: pipe(7).
PIPE = 64 << 10
# How long a server may take to answer, in seconds, and one that last took longer.
ANSWER_WITHIN, AGAIN_WITHIN = 30.0, 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What tmux answered: its lines, and the first line of what went wrong, or ``""``.

    ``late`` is of a server that runs but did not answer in time; ``error`` then says what to do about it.
    """

    lines: list[str]
    error: str
    late: bool = False

    @property
    def no_server(self) -> bool:
        """Whether there was no server to answer."""
        return any(words in self.error for words in _NO_SERVER)


class Asked:
    """A batch that was sent. `answer` waits for it."""

    def __init__(self, process: subprocess.Popen[bytes], text: bytes) -> None:
        self._process = process
        self._rest = text
        self._make_room()
        self._write()

    def _make_room(self) -> None:
        """Let the pipe hold the whole batch, where it can: tmux begins only when it has all of it."""
        size = getattr(fcntl, "F_SETPIPE_SZ", None)
        if self._process.stdin is not None and size is not None and len(self._rest) > PIPE:
            with contextlib.suppress(OSError):  # above what this user may have
                fcntl.fcntl(self._process.stdin.fileno(), size, len(self._rest))

    def _write(self) -> None:
        """Write what tmux can take now: one that hangs must not hang us. The rest is written by `answer`."""
        if self._process.stdin is None:
            return
        pipe = self._process.stdin.fileno()
        os.set_blocking(pipe, False)
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            while self._rest:
                self._rest = self._rest[os.write(pipe, self._rest) :]
            self._process.stdin.close()
            self._process.stdin = None

    def answer(self, within: float) -> Answer | None:
        """Wait until the batch is done; None, and what was not yet begun will never be, after so many seconds."""
        try:
            output, error = self._process.communicate(self._rest or None, timeout=within)
        except subprocess.TimeoutExpired:
            self._give_up()
            return None
        said = error.decode(errors="replace").strip().splitlines()
        return Answer(output.decode(errors="replace").splitlines(), said[0] if said else "")

    def _give_up(self) -> None:
        """End the client. Its pipes are not read to their ends: the server that hangs has them too."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class Tmux:
    """A tmux server that need not run yet, by its name (``-L``) or by its socket (``-S``).

    It may take ``within`` seconds for an answer. Who had to wait so long in vain does not do so again and again.
    """

    def __init__(
        self, *, name: str | None = None, socket: str | None = None, within: float = ANSWER_WITHIN
    ) -> None:
        self.program = program()
        self._within = within
        self._late = False
        self._name = name or DEFAULT_SERVER
        self._socket = socket or _socket_of(self._name)
        self._server = ["-S", socket] if socket else ["-L", self._name]

    def send(self, commands: Sequence[str], *, start: bool = False) -> Callable[[], Answer]:
        """Send commands in one batch, through standard input: neither ``ps`` nor a file shows them.

        ``start`` begins the server where there is none. It reads no configuration file. Returns what waits for the
        answer.
        """
        asked = self._batch(commands, start=start)
        return lambda: self._answer(asked)

    def ask(
        self, commands: Sequence[str], *, start: bool = False, within: float | None = None
    ) -> Answer:
        """Send commands and wait; with ``start`` a server that is just ending is given the time to go."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            answer = self._answer(self._batch(commands, start=start), within)
            passing = (
                start and not answer.lines and any(words in answer.error for words in _PASSING)
            )
            if not passing or time.monotonic() >= deadline:
                return answer
            time.sleep(0.02)

    def tell(self, words: Sequence[str]) -> Answer:
        """Send one command, which ``ps`` may show, and wait. A server that hangs will obey when it is continued."""
        return self._answer(self._begin(words, b""))

    def _batch(self, commands: Sequence[str], *, start: bool) -> Asked:
        begin = ["start-server", ";"] if start else []
        return self._begin([*begin, "source-file", "-"], "\n".join([*commands, ""]).encode())

    def _begin(self, words: Sequence[str], text: bytes) -> Asked:
        process = subprocess.Popen(
            [self.program, *self._server, "-f", os.devnull, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment(),
            cwd="/",
            start_new_session=True,
        )
        return Asked(process, text)

    def _answer(self, asked: Asked, within: float | None = None) -> Answer:
        within = self._within if within is None else min(within, self._within)
        answer = asked.answer(min(within, AGAIN_WITHIN) if self._late else within)
        self._late = answer is None
        return Answer([], self._silence(), late=True) if answer is None else answer

    def _silence(self) -> str:
        """What to do about a server that does not answer."""
        pid = _listener(self._socket)
        name = Path(self._socket).name
        remedy = f"continue it (kill -CONT {pid}) or end it (kill -KILL {pid})" if pid else "end it"
        return f"the tmux server {name!r} does not answer; {remedy}, and try again"


def _socket_of(name: str) -> str:
    return f"{os.environ.get('TMUX_TMPDIR') or '/tmp'}/tmux-{os.getuid()}/{name}"


def _listener(path: str) -> int | None:
    """The process that listens on a socket; None where that cannot be learned."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
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


def program() -> str:
    """The tmux of this machine; raises `BackendError` where there is none."""
    found = shutil.which("tmux")
    if found is None:
        raise BackendError(f"tmux was not found on the PATH; install tmux {OLDEST} or newer")
    return found


def clean_environment() -> dict[str, str]:
    """What the server begins with, and hands on to its windows: nothing but where its socket is.

    A client's PATH in particular would take the place of the one that a window is given.
    """
    kept = {key: os.environ[key] for key in ("TMUX_TMPDIR", "HOME") if key in os.environ}
    return {"LANG": "C.UTF-8", **kept}
