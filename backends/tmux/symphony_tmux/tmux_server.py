"""Requests to a tmux server from processes other than the supervisor.

Only this module imports libtmux.
"""

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
from symphony.support.inherited_signals import observable_exits
from symphony_tmux import render
from symphony_tmux.tmux_commands import ANSWER_TIMEOUT_SECONDS, OLDEST_VERSION, Tmux, find_tmux
from symphony_tmux.windows import remove


class Server:
    """The tmux server on which an experiment was launched, identified by its socket.

    ``answer_within`` is the ``timeout`` of `Tmux`.
    """

    def __init__(self, socket: Path | str, answer_within: float = ANSWER_TIMEOUT_SECONDS) -> None:
        self._socket = str(socket)
        self._tmux = Tmux(socket=self._socket, timeout=answer_within)
        self._server = libtmux.Server(socket_path=self._socket)

    def _query(self, *words: str) -> list[str] | None:
        """Return the lines of the response to a command.

        Return None if tmux reports an error, for example because the server or the requested object
        does not exist.
        """
        with _translate_errors():
            answer = self._server.cmd(words[0], *words[1:])
        return None if answer.stderr else answer.stdout

    def kill(self, session: str, run_id: str) -> None:
        """Remove a run's session.

        A missing session is not an error. Raises `BackendError` if the server does not respond in
        time.
        """
        answer = remove(self._tmux, session, run_id)
        if answer.timed_out:
            raise BackendError(answer.error)

    def window(self, session: str, run_id: str, process: str) -> str | None:
        """Return the index of a process's window in a run's session, or None if there is none."""
        form = f"#{{window_index}} #{{{render.RUN_OPTION}}} #{{{render.PROCESS_OPTION}}}"
        lines = self._query("list-windows", "-t", f"={session}:", "-F", form)
        found = (line.split(" ") for line in lines or [])
        return next((window for window, *of in found if of == [run_id, process]), None)

    def attach(self, session: str, run_id: str, window: str, env: Mapping[str, str]) -> None:
        """Show a window on this terminal until the user detaches. ``env`` is the environment of
        windows that the user opens.
        """
        if not (os.isatty(0) and os.isatty(1)):
            raise BackendError(
                "standard input and output must be a terminal; in a terminal, run: "
                f"tmux -S {self._socket} attach -t {session}:{window}"
            )
        # The name of an experiment cannot contain '@', so no experiment can have this session name.
        name = f"{session}@{secrets.token_hex(4)}"
        made = self._tmux.run(
            render.attach_command(session, run_id, name=name, window=window, env=env)
        )
        if made.timed_out:
            raise BackendError(made.error)
        # The user may run this command inside their own tmux, so the client must not see the
        # variables of that tmux.
        env = {key: value for key, value in os.environ.items() if key not in ("TMUX", "TMUX_PANE")}
        words = [find_tmux(), "-S", self._socket, "attach-session", "-E", "-t", f"={name}:"]
        with observable_exits():
            is_attached = made.lines and subprocess.run(words, env=env, check=False).returncode == 0
        if not is_attached:
            raise NotFound(f"the tmux session of {session!r} could not be attached")


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except TmuxCommandNotFound as exc:
        raise BackendError(
            f"tmux was not found on the PATH; install tmux {OLDEST_VERSION} or newer"
        ) from exc
    except LibTmuxException as exc:
        raise BackendError(f"tmux: {exc}") from exc
