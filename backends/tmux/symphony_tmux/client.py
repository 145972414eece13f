"""Asking a tmux server, through tmux's own command line, in batches."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from symphony.errors import BackendError

OLDEST = "3.3"
DEFAULT_SERVER = "symphony"

# What tmux says when its server goes away at the very moment of asking, as it does after its last session.
_PASSING = ("server exited", "lost server")
_NO_SERVER = ("no server running", "error connecting", "server exited", "lost server")
_PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What tmux answered: its lines, and the first line of what went wrong, or ``""``."""

    lines: list[str]
    error: str

    @property
    def no_server(self) -> bool:
        """Whether there was no server to answer."""
        return any(words in self.error for words in _NO_SERVER)


class Asked:
    """A batch that was sent. `answer` waits for it."""

    def __init__(self, process: subprocess.Popen[bytes], text: bytes) -> None:
        self._process = process
        with contextlib.suppress(BrokenPipeError), process.stdin or contextlib.nullcontext() as stdin:
            if stdin is not None:
                stdin.write(text)
        process.stdin = None

    def answer(self) -> Answer:
        """Wait until the batch is done."""
        output, error = self._process.communicate()
        said = error.decode(errors="replace").strip().splitlines()
        return Answer(output.decode(errors="replace").splitlines(), said[0] if said else "")


class Tmux:
    """A tmux server that need not run yet, by its name (``-L``) or by its socket (``-S``)."""

    def __init__(self, *, name: str | None = None, socket: str | None = None) -> None:
        self.program = program()
        self._server = ["-S", socket] if socket else ["-L", name or DEFAULT_SERVER]

    def send(self, commands: Sequence[str], *, start: bool = False) -> Asked:
        """Send commands in one batch, through standard input: neither ``ps`` nor a file shows them.

        ``start`` begins the server where there is none. It reads no configuration file.
        """
        begin = ["start-server", ";"] if start else []
        process = subprocess.Popen(
            [self.program, *self._server, "-f", os.devnull, *begin, "source-file", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment(),
            cwd="/",
            start_new_session=True,
        )
        return Asked(process, "\n".join([*commands, ""]).encode())

    def ask(self, commands: Sequence[str], *, start: bool = False) -> Answer:
        """Send commands and wait; with ``start`` a server that is just ending is given the time to go."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            answer = self.send(commands, start=start).answer()
            passing = start and not answer.lines and any(words in answer.error for words in _PASSING)
            if not passing or time.monotonic() >= deadline:
                return answer
            time.sleep(0.02)


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
