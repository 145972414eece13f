"""What is asked of a tmux server from outside a supervisor. Alone imports libtmux."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import libtmux
from libtmux.exc import LibTmuxException, TmuxCommandNotFound

from symphony.errors import BackendError, NotFound
from symphony_tmux import render
from symphony_tmux.client import OLDEST, program


class Server:
    """The server on which an experiment was launched, by its socket."""

    def __init__(self, socket: Path | str) -> None:
        self._socket = str(socket)
        self._server = libtmux.Server(socket_path=self._socket)

    def _ask(self, *words: str) -> list[str] | None:
        """The lines of an answer; None where there is no server, or nothing of that name in it."""
        with _translated():
            answer = self._server.cmd(words[0], *words[1:])
        return None if answer.stderr else answer.stdout

    def kill(self, session: str, run_id: str) -> None:
        """Remove the session of a run. One that is not there is no error."""
        self._ask(*render.kill_words(session, run_id))

    def window(self, session: str, run_id: str, name: str) -> str | None:
        """The id of the window of that name in the session of a run, or None."""
        lines = self._ask("list-windows", "-t", f"={session}:", "-F", f"#{{window_id}} #{{{render.RUN_OPTION}}} #W")
        found = (line.split(" ", 2) for line in lines or [])
        return next((window for window, run, title in found if (run, title) == (run_id, name)), None)

    def attach(self, session: str, window: str) -> None:
        """Show a window on this terminal until the user detaches."""
        if not (os.isatty(0) and os.isatty(1)):
            raise BackendError(
                f"only a terminal can be attached; elsewhere: tmux -S {self._socket} attach -t {session}"
            )
        self._ask("select-window", "-t", window)
        # A tmux inside a tmux of the user's is what was asked for.
        env = {key: value for key, value in os.environ.items() if key not in ("TMUX", "TMUX_PANE")}
        done = subprocess.run(
            [program(), "-S", self._socket, "attach-session", "-E", "-t", f"={session}:"], env=env, check=False
        )
        if done.returncode:
            raise NotFound(f"the tmux session of {session!r} could not be attached")


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except TmuxCommandNotFound as exc:
        raise BackendError(f"tmux was not found on the PATH; install tmux {OLDEST} or newer") from exc
    except LibTmuxException as exc:
        raise BackendError(f"tmux: {exc}") from exc
