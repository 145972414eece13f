"""Starting processes as windows of tmux, and learning their ends.

A window's command first waits at a gate, a FIFO, which opens when tmux has begun to write what the window shows
to the process's log: so no byte is lost, and no command runs before all windows of its batch are there. Then it
becomes the command: the window's process is the process, and it leads its group and session.

It is no child of ours: its pidfd tells that it has ended, and tmux is asked how.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from symphony.host.children import Ended, StartRefused
from symphony.host.commands import Command
from symphony.host.identity import ProcessId, birth, identify, is_alive
from symphony.host.limits import raise_open_files
from symphony.host.loop import Loop
from symphony.host.rundir import RunDirectory
from symphony_tmux import render
from symphony_tmux.client import DEFAULT_SERVER, OLDEST, Answer, Tmux
from symphony_tmux.render import Limits, Pane, Session, Window

# The first batch makes the session, and all others wait for it.
FIRST_BATCH, BATCH = 8, 50
SOON, LATER = 0.002, 0.05
PATIENCE = 5.0
LOOK_EVERY = 0.2
# So many looks in a row at a log's writer asleep are enough where the kernel does not say more.
QUIET = 10

CLOSED = "its window was closed by hand"
SESSION_CLOSED = "its tmux session was closed by hand"
SERVER_DIED = "the tmux server died"
MISSED = "tmux missed its end"
RESPAWNED = "its window was respawned by hand"


@dataclass(slots=True)
class TmuxChild:
    """A process in a window, whose end has not been told."""

    name: str
    pid: int
    birth: float
    pane: str
    handle: int | None = None


class TmuxChildren:
    """The windows of one session; see `symphony.host.children.Children`."""

    def __init__(self, loop: Loop, run: RunDirectory, ended: Ended, *, server_name: str = DEFAULT_SERVER) -> None:
        self._loop = loop
        self._ended = ended
        self._name = server_name
        self._tmux = Tmux(name=server_name)
        self._server: ProcessId | None = None
        manifest = run.load_manifest()
        self._session = Session(
            run,
            manifest["run_id"],
            {process["name"]: index for index, process in enumerate(manifest["processes"])},
            manifest["env"],
            Limits(umask=_umask(), files=resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        )
        raise_open_files()
        self._made = False
        self._alive: dict[str, TmuxChild] = {}
        self._panes: dict[str, str] = {}
        self._gates: set[str] = set()
        self._unlogged: list[tuple[Command, TmuxChild]] = []
        self._dying: dict[str, _End] = {}
        self._pause = SOON
        self._looking = False
        (run.path / "gates").mkdir(mode=0o700, exist_ok=True)

    def __len__(self) -> int:
        return len(self._alive)

    def get(self, name: str) -> TmuxChild | None:
        """The living child of that name."""
        return self._alive.get(name)

    # --- starting ---

    def start(
        self, commands: Iterable[Command], env: Mapping[str, str]
    ) -> Iterator[tuple[Command, TmuxChild | OSError]]:
        """Start processes; see `symphony.host.children.Children`.

        While tmux makes the windows of one batch, those of the batch before are looked at.
        """
        waiting = list(commands)
        sent: list[tuple[list[Command], Callable[[], Answer]]] = []
        try:
            while waiting:
                size = BATCH if self._made else FIRST_BATCH
                batch, waiting = waiting[:size], waiting[size:]
                able: list[Command] = []
                for command in batch:
                    try:
                        self._prepare(command, {**env, **command.env})
                    except OSError as exc:
                        yield command, exc
                    else:
                        able.append(command)
                if able:
                    sent.append((able, self._send(able, env)))
                if len(sent) > 1:
                    yield from self._take(*sent.pop(0), env)
            while sent:
                yield from self._take(*sent.pop(0), env)
        finally:
            for able, answer in sent:  # a launch that fails half-way has to know what it takes back
                for _ in self._take(able, answer, env):
                    pass
        self._loop.post(self._log_all)

    def _prepare(self, command: Command, env: Mapping[str, str]) -> None:
        """Make the log and the gate; raises OSError for a folder or a command that is not there."""
        _check(command, env)
        session, name = self._session, command.name
        os.close(os.open(session.run.log(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
        if name not in self._gates:
            os.mkfifo(session.gate(name), 0o600)
            self._gates.add(name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(session.sink(name))  # noqa: PTH108  (a hot path: no Path)

    def _send(self, batch: list[Command], env: Mapping[str, str]) -> Callable[[], Answer]:
        if not self._made:
            answer = self._tmux.ask(self._session.create(batch, env), start=True)
            self._note_server(answer)
            return lambda: answer
        return self._tmux.send([self._window(command, env) for command in batch]).answer

    def _window(self, command: Command, env: Mapping[str, str]) -> str:
        pane = self._panes.get(command.name)
        return self._session.add(command, env) if pane is None else self._session.respawn(command, env, pane)

    def _note_server(self, answer: Answer) -> None:
        found = render.server(answer.lines)
        if found is not None:
            self._made = True
            pid, socket = found
            self._server = identify(pid)
            self._tmux = Tmux(socket=socket)
            (self._session.run.path / "socket").write_text(socket)

    def _take(
        self, batch: Sequence[Command], answer: Callable[[], Answer], env: Mapping[str, str]
    ) -> Iterator[tuple[Command, TmuxChild | OSError]]:
        got = answer()
        made = render.windows(got.lines)
        for command in batch:
            window = made.get(self._session.windows[command.name])
            if window is None and self._made:
                window, got = self._elsewhere(command, env, got)
            if window is None:
                yield command, StartRefused(errno.EIO, self._refusal(got))
            else:
                yield command, self._adopt(command, window)

    def _elsewhere(self, command: Command, env: Mapping[str, str], failed: Answer) -> tuple[Window | None, Answer]:
        """Somebody closed the window of a process that restarts, or opened one at its place: it goes to the end."""
        if failed.no_server:
            return None, failed
        answer = self._tmux.ask([self._session.add(command, env, anywhere=True)])
        window = render.windows(answer.lines).get(self._session.windows[command.name])
        if window is not None:
            self._tmux.ask([f"set-option -w -t {window.id} remain-on-exit on"])
        return window, answer

    def _refusal(self, answer: Answer) -> str:
        """Why there is no window, and what to do about it."""
        name, session = self._name, self._session.run.name
        if "duplicate session" in answer.error:
            return (
                f"got no window: the tmux server {name!r} has a session {session!r} that is not of these experiments; "
                f"choose another name, or remove it: tmux -L {name} kill-session -t {session}"
            )
        if any(
            words in answer.error for words in ("invalid option", "unknown option", "unknown command", "unknown flag")
        ):
            return f"got no window: this tmux ({self._tmux.program}) is older than {OLDEST}; install a newer one"
        if self._made and answer.no_server:
            return f"got no window: {SERVER_DIED}"
        if "can't find session" in answer.error or "can't find window" in answer.error:
            return f"got no window: {SESSION_CLOSED}"
        where = "" if self._made else f"; its socket is below {os.environ.get('TMUX_TMPDIR') or '/tmp'} (TMUX_TMPDIR)"
        return f"got no window from the tmux server {name!r}: {answer.error or 'it gave no reason'}{where}"

    def _adopt(self, command: Command, window: Window) -> TmuxChild:
        child = TmuxChild(command.name, window.pid, birth(window.pid) or 0.0, window.pane)
        self._alive[child.name] = child
        self._panes[child.name] = child.pane
        self._unlogged.append((command, child))
        try:
            child.handle = os.pidfd_open(child.pid)
        except ProcessLookupError:
            self._loop.post(lambda: self._dies(child))
        except (AttributeError, OSError):
            self._look_at(child)
        else:
            self._loop.watch(child.handle, lambda: self._dies(child))
        return child

    def _look_at(self, child: TmuxChild) -> None:
        """Where there are no pidfds: look now and then."""
        if birth(child.pid) == child.birth:
            self._loop.after(LOOK_EVERY, lambda: self._look_at(child))
        else:
            self._dies(child)

    def _log_all(self) -> None:
        """Begin the logs of a batch of windows, which opens their gates; then of the next."""
        batch, self._unlogged = self._unlogged[:BATCH], self._unlogged[BATCH:]
        living = [(command, child) for command, child in batch if self._alive.get(child.name) is child]
        if living:
            self._tmux.ask([self._session.log(command, child.pane) for command, child in living])
        if self._unlogged:
            self._loop.post(self._log_all)

    # --- ending ---

    def _dies(self, child: TmuxChild) -> None:
        """A process has ended; its exit code, and the rest of its log, are on their way."""
        if child.handle is not None:
            self._loop.unwatch(child.handle)
            os.close(child.handle)
            child.handle = None
        self._dying[child.name] = _End(child)
        self._pause = SOON
        self._look_soon()

    def _look_soon(self) -> None:
        if not self._looking:
            self._looking = True
            self._loop.after(self._pause, self._look)

    def _look(self) -> None:
        """Ask tmux once for all that have ended, and tell of those of which all is known."""
        self._looking = False
        unknown = [end for end in self._dying.values() if not end.known]
        if unknown:
            self._wake_server()
            answer = self._tmux.ask([self._session.look()])
            here = render.panes(answer.lines) if not answer.error else {}
            for end in unknown:
                end.learn(here.get(end.child.pane), answer)
        for end in list(self._dying.values()):
            if end.known and (self._drained(end) or end.late):
                self._tell(end)
        if self._dying:
            for end in self._dying.values():
                end.waited += self._pause
            self._pause = min(self._pause * 1.5, LATER)
            self._look_soon()

    def _wake_server(self) -> None:
        """Have tmux look for ended children: while it tears a window down, it can miss that its process ended.

        (libutempter, which it calls then, takes SIGCHLD for itself. One that comes too often does no harm.)
        """
        if self._server is not None and is_alive(self._server):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._server.pid, signal.SIGCHLD)

    def _tell(self, end: _End) -> None:
        child = end.child
        del self._dying[child.name]
        del self._alive[child.name]
        self._stop_sink(child)
        if end.reason == CLOSED:
            self._panes.pop(child.name, None)
        self._ended(child, end.code, end.reason)

    def _drained(self, end: _End) -> bool:
        """Whether all that a process wrote is in its log.

        tmux has handed it on when it calls the pane dead. What writes the log sleeps again once it has read it.
        """
        sink = self._sink(end.child)
        if sink is None:
            return True
        asleep = _asleep(sink)
        end.quiet = end.quiet + 1 if asleep else 0
        return asleep and (_waits(sink) or end.quiet >= QUIET)

    def _stop_sink(self, child: TmuxChild) -> None:
        """End what writes the log of a window that is kept: tmux would keep it too."""
        sink = self._sink(child)
        if sink is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(sink, signal.SIGTERM)

    def _sink(self, child: TmuxChild) -> int | None:
        """What writes the log of a process: a child of the tmux server."""
        try:
            pid = int(Path(self._session.sink(child.name)).read_text())
        except (OSError, ValueError):
            return None
        return pid if self._server is not None and _parent(pid) == self._server.pid else None

    def discard(self) -> None:
        """Remove the session of a launch that was taken back."""
        if self._made:
            self._tmux.ask([self._session.kill()])


class _End:
    """The end of a process, of which not all is known yet."""

    def __init__(self, child: TmuxChild) -> None:
        self.child = child
        self.known = False
        self.code: int | None = None
        self.reason = ""
        self.waited = 0.0
        self.quiet = 0

    @property
    def late(self) -> bool:
        """Whether this was waited for long enough."""
        return self.waited >= PATIENCE

    def learn(self, pane: Pane | None, answer: Answer) -> None:
        """Take in what tmux says of the pane."""
        if pane is None:
            self.known, self.reason = True, _why_gone(answer)
        elif pane.pid != self.child.pid:
            self.known, self.reason = True, RESPAWNED
        elif pane.dead and pane.code is not None:
            self.known, self.code = True, pane.code
        elif self.late:
            self.known, self.code = True, pane.code
            self.reason = MISSED if pane.code is None else ""


def _why_gone(answer: Answer) -> str:
    if answer.no_server:
        return SERVER_DIED
    return SESSION_CLOSED if answer.error else CLOSED


def _check(command: Command, env: Mapping[str, str]) -> None:
    """Raise what starting would: a window's command could only say it on its screen."""
    if not os.path.isdir(command.cwd):  # noqa: PTH112  (a hot path: no Path)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command.cwd)
    program = command.argv[0]
    folders = [""] if "/" in program else (env.get("PATH") or os.defpath).split(os.pathsep)
    found = False
    for folder in folders:
        path = os.path.join(command.cwd, folder, program)  # noqa: PTH118
        if os.access(path, os.X_OK):
            return
        found = found or os.path.exists(path)  # noqa: PTH110
    number = errno.EACCES if found else errno.ENOENT
    raise OSError(number, os.strerror(number), program)


def _umask() -> int:
    value = os.umask(0o077)
    os.umask(value)
    return value


def _stat(pid: int) -> list[str] | None:
    """The name of a process and the fields that follow in proc(5)'s stat, or None where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    before, _, after = text.rpartition(") ")
    return [before.partition("(")[2], *after.split()]


def _asleep(pid: int) -> bool:
    """Whether what writes a log waits for more, or has ended; it is a shell before it is cat."""
    fields = _stat(pid)
    return fields is None or fields[1] in ("Z", "X") or fields[:2] == ["cat", "S"]


def _waits(pid: int) -> bool:
    """Whether the kernel says where a process sleeps: one that was interrupted on its way to sleep is nowhere.

    Not all kernels say it.
    """
    try:
        return Path(f"/proc/{pid}/wchan").read_text() not in ("", "0")
    except OSError:
        return False


def _parent(pid: int) -> int | None:
    fields = _stat(pid)
    return None if fields is None else int(fields[2])
