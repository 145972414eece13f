"""The processes of an experiment in windows of tmux: starting them, and hearing of their ends.

The keeper of a window (`symphony_tmux.keeper`) reports its process, which waits at a gate, a FIFO. That opens when
tmux has begun to write what the window shows to the process's log: so no byte is lost, and no command runs before
all windows of its batch are there. Then the process becomes the command.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from symphony.host.processes.identity import birth_time
from symphony.host.processes.spec import ProcessSpec
from symphony.host.run.directory import RunDirectory
from symphony.host.supervisor.children import ExitCallback, StartRefused
from symphony.host.supervisor.event_loop import EventLoop
from symphony.open_files import raise_open_file_limit
from symphony_tmux.client import ANSWER_WITHIN, DEFAULT_SERVER, Answer
from symphony_tmux.ending import CLOSED, End, Ends, TmuxChild
from symphony_tmux.gates import Gates
from symphony_tmux.keeper import BEGAN, ENDED, Report
from symphony_tmux.render import Window
from symphony_tmux.windows import Windows

# The first batch makes the session, and all others wait for it.
FIRST_BATCH, BATCH = 8, 50
LOOK_EVERY = 0.2
# What a word of a command costs beside its bytes, and room for the variables that tmux adds.
_POINTER, _OF_TMUX = 8, 4096


class TmuxChildren:
    """The windows of one session; see `symphony.host.supervisor.children.Children`."""

    def __init__(
        self,
        loop: EventLoop,
        run: RunDirectory,
        ended: ExitCallback,
        *,
        server_name: str = DEFAULT_SERVER,
        answer_within: float = ANSWER_WITHIN,
    ) -> None:
        self._loop = loop
        self._run = run
        self._ended = ended
        self._windows = Windows(run, server_name, answer_within)
        raise_open_file_limit()
        self._gates = Gates(run.path / "gates")
        self._ends = Ends(loop, self._windows, self._gates, self._tell)
        self._alive: dict[str, TmuxChild] = {}
        self._keepers: dict[int, TmuxChild] = {}
        self._heard: dict[int, int] = {}
        self._unlogged: dict[str, ProcessSpec] = {}
        loop.watch(self._gates.fileno(), self._hear)

    def __len__(self) -> int:
        return len(self._alive)

    def get(self, name: str) -> TmuxChild | None:
        """The living child of that name."""
        return self._alive.get(name)

    # --- starting ---

    def start(
        self, commands: Iterable[ProcessSpec], env: Mapping[str, str]
    ) -> Iterator[tuple[ProcessSpec, TmuxChild | OSError]]:
        """Start processes; see `symphony.host.supervisor.children.Children`.

        While tmux makes the windows of one batch, those of the batch before are looked at, and those are told
        whose keepers have reported: tmux is never kept waiting.
        """
        waiting = list(commands)
        sent: deque[tuple[list[ProcessSpec], Callable[[], Answer]]] = deque()
        made: deque[tuple[ProcessSpec, Window | str]] = deque()
        try:
            while waiting:
                size = BATCH if self._windows.made else FIRST_BATCH
                batch, waiting = waiting[:size], waiting[size:]
                able: list[ProcessSpec] = []
                for command in batch:
                    try:
                        self._prepare(command, {**env, **command.env})
                    except OSError as exc:
                        yield command, exc
                    else:
                        able.append(command)
                if able:
                    sent.append((able, self._windows.send(able, env)))
                if len(sent) > 1:
                    made += self._take(*sent.popleft(), env)
                    yield from self._reported(made)
            while sent:
                made += self._take(*sent.popleft(), env)
            yield from self._reported(made, wait=True)
        finally:
            for able, answer in sent:  # a launch that fails half-way has to know what it takes back
                made += self._take(able, answer, env)
            for _ in self._reported(made, wait=True):
                pass
        self._loop.post(self._log_all)

    def _prepare(self, command: ProcessSpec, env: Mapping[str, str]) -> None:
        """Make the log and the gate; raises OSError for a folder a command that is not there or too long."""
        _check(command, env)
        _check_size(self._windows.session.argv(command, env), env)
        log = self._run.log(command.name)
        os.close(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
        self._gates.prepare(command.name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._windows.session.sink(command.name))

    def _take(
        self, batch: Sequence[ProcessSpec], answer: Callable[[], Answer], env: Mapping[str, str]
    ) -> list[tuple[ProcessSpec, Window | str]]:
        taken = self._windows.take(batch, answer(), env)
        return [(command, taken[command.name]) for command in batch]

    def _reported(
        self, made: deque[tuple[ProcessSpec, Window | str]], *, wait: bool = False
    ) -> Iterator[tuple[ProcessSpec, TmuxChild | OSError]]:
        """Take from ``made``, in order, what has a process, or never will; ``wait`` for all of it."""
        self._take_in(self._gates.hear())
        while made and (wait or isinstance(made[0][1], str) or made[0][1].pid in self._heard):
            command, window = made.popleft()
            if isinstance(window, str):
                yield command, StartRefused(errno.EIO, window)
            else:
                yield command, self._adopt(command, window)

    def _adopt(self, command: ProcessSpec, window: Window) -> TmuxChild:
        handle = _pidfd(window.pid)
        pid = self._process_of(window.pid)
        child = TmuxChild(
            command.name, pid, birth_time(pid) or 0.0, window.pane, window.pid, handle
        )
        self._alive[child.name] = child
        self._keepers[child.keeper] = child
        self._unlogged[child.name] = command
        self._watch(child, self._keeper_ends)
        return child

    def _process_of(self, keeper: int) -> int:
        """The process of a keeper, which is about to report it; the keeper itself where it ended before."""
        while keeper not in self._heard:
            gone = birth_time(keeper) is None
            self._take_in(self._gates.hear(0.0 if gone else LOOK_EVERY))
            if gone:
                return self._heard.pop(keeper, keeper)
        return self._heard.pop(keeper)

    def _log_all(self) -> None:
        """Begin the logs of a batch of windows, which opens their gates; then of the next."""
        batch = [self._unlogged.pop(name) for name in list(self._unlogged)[:BATCH]]
        if batch:
            self._windows.log(batch)
            self._loop.post(self._log_all)

    # --- ending ---

    def _hear(self) -> None:
        self._take_in(self._gates.hear())

    def _take_in(self, reports: Iterable[Report]) -> None:
        for report in reports:
            if report.what == BEGAN:
                self._heard[report.keeper] = report.value
            elif report.what == ENDED:
                self._loop.post(lambda report=report: self._process_ends(report))  # type: ignore[misc]

    def _process_ends(self, report: Report) -> None:
        child = self._keepers.get(report.keeper)
        if child is not None:
            logged = self._unlogged.pop(child.name, None) is None
            self._ends.begin(child, report.value, logged=logged)

    def _keeper_ends(self, child: TmuxChild) -> None:
        """Its window was closed, or all is over. A process may outlive the first."""
        self._hear()
        self._loop.post(lambda: self._alone(child))  # after what was just heard

    def _alone(self, child: TmuxChild) -> None:
        if self._alive.get(child.name) is not child:
            return
        self._unlogged.pop(child.name, None)
        if birth_time(child.pid) == child.birth:
            child.handle = _pidfd(child.pid)
            self._watch(child, lambda child: self._ends.begin(child, None, logged=True))
        else:
            self._ends.begin(child, None, logged=True)

    def _watch(self, child: TmuxChild, gone: Callable[[TmuxChild], None]) -> None:
        """Call ``gone`` once what the child's handle is of has ended; where there are no pidfds look now and then."""
        handle = child.handle
        if handle is None:
            watched = child.keeper if gone == self._keeper_ends else child.pid
            self._look_at(child, watched, gone)
            return

        def ended() -> None:
            self._unwatch(child)
            gone(child)

        self._loop.watch(handle, ended)

    def _look_at(self, child: TmuxChild, pid: int, gone: Callable[[TmuxChild], None]) -> None:
        if self._alive.get(child.name) is not child:
            return
        if birth_time(pid) is not None:
            self._loop.after(LOOK_EVERY, lambda: self._look_at(child, pid, gone))
        else:
            gone(child)

    def _unwatch(self, child: TmuxChild) -> None:
        if child.handle is not None:
            self._loop.unwatch(child.handle)
            os.close(child.handle)
            child.handle = None

    def _tell(self, end: End) -> None:
        child = end.child
        self._unwatch(child)
        del self._alive[child.name]
        del self._keepers[child.keeper]
        self._windows.stop_sink(child.name)
        if end.reason == CLOSED:
            self._windows.forget(child.name)
        self._ended(child, end.code, end.reason)

    def discard(self) -> None:
        """Remove the session of a launch that was taken back."""
        self._windows.remove()


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _check(command: ProcessSpec, env: Mapping[str, str]) -> None:
    """Raise what starting would: a window's command could only say it on its screen."""
    if not os.path.isdir(command.cwd):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command.cwd)
    program = command.argv[0]
    folders = [""] if "/" in program else (env.get("PATH") or os.defpath).split(os.pathsep)
    found = False
    for folder in folders:
        path = os.path.join(command.cwd, folder, program)
        if os.access(path, os.X_OK):
            return
        found = found or os.path.exists(path)
    number = errno.EACCES if found else errno.ENOENT
    raise OSError(number, os.strerror(number), program)


def _check_size(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Raise what execve(2) would: one word of a command and its environment is too long, or all together are.

    ``argv`` is that of the keeper, the longest command of a window. Each word ends with a NUL and has a pointer.
    """
    words, variables = (_bytes(part) for part in (argv, [*env, *env.values()]))
    word_limit = 32 * os.sysconf("SC_PAGE_SIZE")
    too_long = words + variables + _POINTER * (len(argv) + len(env)) + _OF_TMUX > _together()
    if sys.platform == "linux" and max(words, variables) > word_limit:
        pairs = (f"{key}={value}" for key, value in env.items())
        too_long = too_long or any(_bytes([word]) > word_limit for word in chain(argv, pairs))
    if too_long:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))


def _bytes(words: Sequence[str]) -> int:
    return len(os.fsencode("\0".join(words))) + 1


def _together() -> int:
    """How many bytes a command and its environment may have; Linux has a bound that sysconf does not tell."""
    return (
        min(os.sysconf("SC_ARG_MAX"), 6 << 20)
        if sys.platform == "linux"
        else os.sysconf("SC_ARG_MAX")
    )
