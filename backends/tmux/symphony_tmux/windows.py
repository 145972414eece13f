"""Making the windows of one session, in batches, and what tmux says of them."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence

from symphony.host.processes.identity import ProcessId, identify, is_alive
from symphony.host.processes.spec import ProcessSpec
from symphony.host.run.directory import RunDirectory
from symphony_tmux import render
from symphony_tmux.client import OLDEST, Answer, Tmux
from symphony_tmux.render import Limits, Pane, Session, Window

# A server whose last session is closed ends: from outside that looks as if it had been killed.
SERVER_GONE = "the tmux server has gone (it died, or its last session was closed by hand)"
SERVER_SILENT = "the tmux server does not answer"
SESSION_CLOSED = "its tmux session was closed by hand"
# Of what is only looked at, nobody waits as long for an answer as a launch does: in seconds.
LOOK_WITHIN = 5.0


class Windows:
    """The session of an experiment on the server of that name. Must be made before limits are raised."""

    def __init__(self, run: RunDirectory, server_name: str, answer_within: float) -> None:
        self._name = server_name
        self._within = answer_within
        self._tmux = Tmux(name=server_name, within=answer_within)
        self._server: ProcessId | None = None
        manifest = run.load_manifest()
        self.session = Session(
            run,
            manifest["run_id"],
            {process["name"]: index for index, process in enumerate(manifest["processes"])},
            manifest["env"],
            Limits(umask=_umask(), files=resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        )
        self.made = False
        self._panes: dict[str, str] = {}

    # --- making ---

    def send(self, batch: Sequence[ProcessSpec], env: Mapping[str, str]) -> Callable[[], Answer]:
        """Have tmux make the windows of a batch, or begin again in those that are there; returns what waits for it."""
        if not self.made:
            answer = self._tmux.ask(self.session.create(batch, env), start=True)
            self._note_server(answer)
            return lambda: answer
        return self._tmux.send([self._window(command, env) for command in batch])

    def _window(self, command: ProcessSpec, env: Mapping[str, str]) -> str:
        pane = self._panes.get(command.name)
        return (
            self.session.add(command, env)
            if pane is None
            else self.session.respawn(command, env, pane)
        )

    def _note_server(self, answer: Answer) -> None:
        found = render.server(answer.lines)
        if found is not None:
            self.made = True
            pid, socket = found
            self._server = identify(pid)
            self._tmux = Tmux(socket=socket, within=self._within)
            (self.session.run.path / "socket").write_text(socket)

    def take(
        self, batch: Sequence[ProcessSpec], answer: Answer, env: Mapping[str, str]
    ) -> dict[str, Window | str]:
        """The window of each process of a batch, or why it has none."""
        made = render.windows(answer.lines)
        taken: dict[str, Window | str] = {}
        for command in batch:
            window, got = made.get(self.session.windows[command.name]), answer
            if window is None and self.made:
                window, got = self._elsewhere(command, env, answer)
            taken[command.name] = self._refusal(got) if window is None else window
            if window is not None:
                self._panes[command.name] = window.pane
        return taken

    def _elsewhere(
        self, command: ProcessSpec, env: Mapping[str, str], failed: Answer
    ) -> tuple[Window | None, Answer]:
        """Somebody closed the window of a process that restarts, or opened one at its place: it goes to the end."""
        if failed.no_server or failed.late:
            return None, failed
        answer = self._tmux.ask([self.session.add(command, env, anywhere=True)])
        window = render.windows(answer.lines).get(self.session.windows[command.name])
        if window is not None:
            self._tmux.ask([self.session.keep(command, window)])
        return window, answer

    def _refusal(self, answer: Answer) -> str:
        """Why there is no window, and what to do about it."""
        name, session = self._name, self.session.run.name
        if answer.late:
            return f"got no window: {answer.error}"
        if "duplicate session" in answer.error:
            return (
                f"got no window: the tmux server {name!r} has a session {session!r} that is not of these experiments; "
                f"choose another name, or remove it: tmux -L {name} kill-session -t {session}"
            )
        if any(
            words in answer.error
            for words in ("invalid option", "unknown option", "unknown command", "unknown flag")
        ):
            return f"got no window: this tmux ({self._tmux.program}) is older than {OLDEST}; install a newer one"
        if self.made and answer.no_server:
            return f"got no window: {SERVER_GONE}"
        if "can't find session" in answer.error or "can't find window" in answer.error:
            return f"got no window: {SESSION_CLOSED}"
        where = (
            ""
            if self.made
            else f"; its socket is below {os.environ.get('TMUX_TMPDIR') or '/tmp'} (TMUX_TMPDIR)"
        )
        return f"got no window from the tmux server {name!r}: {answer.error or 'it gave no reason'}{where}"

    def log(self, commands: Sequence[ProcessSpec]) -> None:
        """Begin the logs of processes, which opens their gates."""
        self._tmux.ask(
            [self.session.log(command, self._panes[command.name]) for command in commands]
        )

    # --- looking ---

    def look(self) -> tuple[dict[str, Pane], Answer]:
        """How the panes of the session are, by id."""
        self._wake_server()
        answer = self._tmux.ask([self.session.look()], within=LOOK_WITHIN)
        return {} if answer.error else render.panes(answer.lines), answer

    def _wake_server(self) -> None:
        """Have tmux look for ended children: while it tears a window down, it can miss that its process ended.

        (libutempter, which it calls then, takes SIGCHLD for itself. One that comes too often does no harm.)
        """
        if self._server is not None and is_alive(self._server):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._server.pid, signal.SIGCHLD)

    def unfreeze(self, pane: str) -> bool:
        """Type Ctrl-Q: after a Ctrl-S a keeper could not write its mark. False where tmux hangs."""
        return not self._tmux.ask([f"send-keys -t {pane} C-q"], within=LOOK_WITHIN).late

    def sink(self, process: str) -> int | None:
        """What writes the log of a process: a child of the tmux server."""
        try:
            with open(self.session.sink(process)) as file:
                pid = int(file.read())
        except (OSError, ValueError):
            return None
        return pid if self._server is not None and _parent(pid) == self._server.pid else None

    def stop_sink(self, process: str) -> None:
        """End what writes the log of a window that is kept: tmux would keep it too."""
        sink = self.sink(process)
        if sink is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(sink, signal.SIGTERM)

    # --- removing ---

    def forget(self, process: str) -> None:
        """The window of a process is no more."""
        self._panes.pop(process, None)

    def remove(self) -> None:
        """Remove the session, if it was made."""
        remove(self._tmux, self.session.run.name, self.session.run_id)


def remove(tmux: Tmux, session: str, run_id: str) -> Answer:
    """Remove the session of a run, and those of terminals that are attached to it. None there is no error."""
    answer = tmux.tell(render.kill_words(session, run_id))
    for left in render.of_run(answer.lines, run_id):
        tmux.tell(["kill-session", "-t", left])
    return answer


def process_of(keeper: int) -> int:
    """The process of a keeper; the keeper itself where that cannot be learned."""
    try:
        with open(f"/proc/{keeper}/task/{keeper}/children") as file:
            return int(file.read().split()[0])
    except (OSError, IndexError):
        return keeper


def _umask() -> int:
    value = os.umask(0o077)
    os.umask(value)
    return value


def _parent(pid: int) -> int | None:
    """The parent of a process, by proc(5)'s stat; None where there is no such process, or only its corpse."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            state, parent = file.read().rpartition(") ")[2].split()[:2]
    except (OSError, ValueError):
        return None
    return None if state in ("Z", "X") else int(parent)
