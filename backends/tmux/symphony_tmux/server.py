"""What is asked of a tmux server from outside a supervisor. Alone imports libtmux."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import libtmux
from libtmux.exc import LibTmuxException, TmuxCommandNotFound

from symphony.errors import BackendError, NotFound
from symphony_tmux import render
from symphony_tmux.client import ANSWER_WITHIN, OLDEST, Tmux, program
from symphony_tmux.windows import remove


class Server:
    """The server on which an experiment was launched, by its socket. See `Tmux` for ``answer_within``."""

    def __init__(self, socket: Path | str, answer_within: float = ANSWER_WITHIN) -> None:
        self._socket = str(socket)
        self._tmux = Tmux(socket=self._socket, within=answer_within)
        self._server = libtmux.Server(socket_path=self._socket)

    def _ask(self, *words: str) -> list[str] | None:
        """The lines of an answer; None where there is no server, or nothing of that name in it."""
        with _translated():
            answer = self._server.cmd(words[0], *words[1:])
        return None if answer.stderr else answer.stdout

    def kill(self, session: str, run_id: str) -> None:
        """Remove the session of a run. One that is not there is no error; `BackendError` where the server hangs."""
        answer = remove(self._tmux, session, run_id)
        if answer.late:
            raise BackendError(answer.error)

    def window(self, session: str, run_id: str, process: str) -> str | None:
        """The window of a process in the session of a run, by its place there, or None."""
        form = f"#{{window_index}} #{{{render.RUN_OPTION}}} #{{{render.PROCESS_OPTION}}}"
        lines = self._ask("list-windows", "-t", f"={session}:", "-F", form)
        found = (line.split(" ") for line in lines or [])
        return next((window for window, *of in found if of == [run_id, process]), None)

    def attach(self, session: str, run_id: str, window: str, env: Mapping[str, str]) -> None:
        """Show a window on this terminal until the user detaches. ``env`` is for those that they open by hand."""
        if not (os.isatty(0) and os.isatty(1)):
            raise BackendError(
                f"only a terminal can be attached; elsewhere: tmux -S {self._socket} attach -t {session}:{window}"
            )
        # No experiment has such a name.
        name = f"{session}@{secrets.token_hex(4)}"
        made = self._tmux.ask(render.attached(session, run_id, name=name, window=window, env=env))
        if made.late:
            raise BackendError(made.error)
        # A tmux inside a tmux of the user's is what was asked for.
        env = {key: value for key, value in os.environ.items() if key not in ("TMUX", "TMUX_PANE")}
        words = [program(), "-S", self._socket, "attach-session", "-E", "-t", f"={name}:"]
        if not made.lines or subprocess.run(words, env=env, check=False).returncode:
            raise NotFound(f"the tmux session of {session!r} could not be attached")


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except TmuxCommandNotFound as exc:
        raise BackendError(
            f"tmux was not found on the PATH; install tmux {OLDEST} or newer"
        ) from exc
    except LibTmuxException as exc:
        raise BackendError(f"tmux: {exc}") from exc
