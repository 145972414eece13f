"""A full-screen program in a real terminal: a window of a tmux server of its own."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from tests.machine import socket_directory

TIMEOUT = 60  # seconds
_ENDED = "ended with code "


class TmuxScreen:
    """A running program, and what its terminal shows."""

    def __init__(self, socket: Path) -> None:
        self._tmux = ["tmux", "-f", "/dev/null", "-S", str(socket)]

    def start(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        width: int = 80,
        height: int = 24,
    ) -> None:
        """Start a program. When it has ended, its exit code is shown after `_ENDED`."""
        variables = {**env, "LC_ALL": "C.UTF-8"}
        command = f"{shlex.join(argv)}; echo '{_ENDED}'$?; exec sleep 1000"
        self._run(
            *("new-session", "-d", "-x", str(width), "-y", str(height), command),
            *(";", "set", "-g", "prefix", "None"),
            env={key: value for key, value in variables.items() if key != "TMUX"},
            cwd=cwd,
        )

    def press(self, *keys: str) -> None:
        """Press keys, which have the names of tmux, such as ``Enter`` and ``C-c``."""
        self._run("send-keys", *keys)

    def enter(self, text: str) -> None:
        """Type a text, and press Enter."""
        self._run("send-keys", "-l", text)
        self._run("send-keys", "Enter")

    def show(self, *, colours: bool = False) -> str:
        """Return what the terminal shows. With ``colours``, include escape sequences."""
        return self._run("capture-pane", "-p", *(["-e"] if colours else []))

    def expect(self, *texts: str) -> str:
        """Wait until all texts are shown, and return what the terminal shows."""
        deadline = time.monotonic() + TIMEOUT
        while not all(text in (shown := self.show()) for text in texts):
            assert time.monotonic() < deadline, f"{texts} are not shown, but:\n{shown}"
            time.sleep(0.05)
        return shown

    def program(self) -> psutil.Process:
        """Return the running program, which is the child of the shell of the window."""
        shell = psutil.Process(int(self._run("display-message", "-p", "#{pane_pid}")))
        return shell.children()[0]

    def close(self) -> None:
        """Close the terminal, as when its window is closed or the connection is lost."""
        self._run("kill-server")

    def finish(self) -> int:
        """Wait until the program has ended and restored the terminal. Return its exit code."""
        _, _, code = self.expect(_ENDED).partition(_ENDED)
        flags = "#{alternate_on}#{mouse_any_flag}#{cursor_flag}"
        assert self._run("display-message", "-p", flags).strip() == "001"
        return int(code.split()[0])

    def _run(
        self, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> str:
        given = dict(os.environ) if env is None else dict(env)
        # Without a locale, tmux replaces all characters beyond ASCII.
        given["LC_ALL"] = "C.UTF-8"
        done = subprocess.run(
            [*self._tmux, *arguments], capture_output=True, text=True, env=given, cwd=cwd
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextlib.contextmanager
def tmux_screen() -> Iterator[TmuxScreen]:
    """Yield a terminal without a program. Its programs are killed at the end."""
    with socket_directory() as directory:
        sockets = directory / "tmux-0"
        sockets.mkdir()
        yield TmuxScreen(sockets / "screen")
