"""Start the processes of an experiment in tmux windows, and report when they exit.

A window's keeper (`symphony_tmux.keeper`) reports the pid of its process. The process waits at a
gate, which is a FIFO. The gate opens when tmux has started to write the window's output to the
process's log. Therefore, no output is lost, and no command runs before all windows of its batch
exist. When the gate opens, the process executes the command.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from symphony.plan.state import Track
from symphony.status import State
from symphony.supervised.processes.identity import ProcessId, birth_time, is_alive
from symphony.supervised.processes.scratch import create_scratch_directory
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.supervisor.children import ExitCallback, StartRefused
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.support.open_file_limit import raise_open_file_limit
from symphony_tmux.exits import CLOSED, PendingExits, ProcessExit, TmuxChild
from symphony_tmux.gates import Gates
from symphony_tmux.keeper import EXITED, STARTED, Report
from symphony_tmux.render import Pane, Window
from symphony_tmux.tmux_commands import ANSWER_TIMEOUT_SECONDS, DEFAULT_SERVER, Answer
from symphony_tmux.watched_processes import WatchedProcesses, open_pidfd
from symphony_tmux.windows import Windows

# The sizes of the first batch and of all other batches. The first batch creates the session, and
# the others wait for it.
FIRST_BATCH, BATCH = 8, 50
POLL_SECONDS = 0.2
RETRY_SECONDS = 1.0
# The size of the pointer that each word of a command needs in addition to its characters, and the
# space for the variables that tmux adds. Both are in bytes.
_POINTER_BYTES, _TMUX_VARIABLES_BYTES = 8, 4096


class TmuxChildren:
    """The windows of one session; see `symphony.supervised.supervisor.children.Children`."""

    def __init__(
        self,
        loop: EventLoop,
        run: RunDirectory,
        on_exit: ExitCallback,
        *,
        server_name: str = DEFAULT_SERVER,
        answer_within: float = ANSWER_TIMEOUT_SECONDS,
    ) -> None:
        self._loop = loop
        self._run = run
        self._on_exit = on_exit
        self._windows = Windows(run, server_name, answer_within)
        raise_open_file_limit()
        self._gates = Gates(run.path / "gates")
        self._exits = PendingExits(loop, self._windows, self._gates, self._report_exit)
        self._alive: dict[str, TmuxChild] = {}
        self._keepers: dict[int, TmuxChild] = {}
        self._watched = WatchedProcesses(loop, self._alive)
        self._reported_pids: dict[int, int] = {}
        self._unlogged: dict[str, ProcessSpec] = {}
        loop.watch(self._gates.fileno(), self._receive_reports)

    def keep_terminals(self, is_needed: Callable[[str], bool]) -> None:
        """Keep the windows of exited processes; see `Children`."""
        self._exits.is_needed = is_needed

    def terminal(self, name: str) -> None:
        """Return None, because tmux relays the terminals of its windows."""

    def __len__(self) -> int:
        return len(self._alive)

    def get(self, name: str) -> TmuxChild | None:
        """Return the running child called ``name``, or None if there is none."""
        return self._alive.get(name)

    # --- starting ---

    def start(
        self, commands: Iterable[ProcessSpec], env: Mapping[str, str]
    ) -> Iterator[tuple[ProcessSpec, TmuxChild | OSError]]:
        """Start processes; see `symphony.supervised.supervisor.children.Children`.

        While tmux creates the windows of one batch, this method examines the windows of the
        previous batch and yields the processes that their keepers have reported. Therefore, tmux
        never has to wait.
        """
        waiting = deque(commands)
        sent: deque[tuple[list[ProcessSpec], Callable[[], Answer]]] = deque()
        created: deque[tuple[ProcessSpec, Window | str]] = deque()
        try:
            while waiting:
                startable: list[ProcessSpec] = []
                for spec in self._next_batch(waiting):
                    try:
                        self._prepare(spec, {**env, **spec.env})
                    except OSError as exc:
                        yield spec, exc
                    else:
                        startable.append(spec)
                if startable:
                    sent.append((startable, self._windows.send(startable, env)))
                # One batch stays in progress, so that tmux never has to wait.
                if len(sent) > 1:
                    created += self._receive_windows(*sent.popleft(), env)
                    yield from self._adopt_reported(created)
            while sent:
                created += self._receive_windows(*sent.popleft(), env)
            yield from self._adopt_reported(created, wait=True)
        finally:
            # If a launch fails halfway, all windows that were created must be known, so that they
            # can be removed.
            while sent:
                created += self._receive_windows(*sent.popleft(), env)
            for _ in self._adopt_reported(created, wait=True):
                pass
            self._loop.post(self._log_all)

    def _next_batch(self, waiting: deque[ProcessSpec]) -> list[ProcessSpec]:
        """Remove and return the processes of the next batch."""
        size = BATCH if self._windows.made else FIRST_BATCH
        return [waiting.popleft() for _ in range(min(size, len(waiting)))]

    def _prepare(self, command: ProcessSpec, env: Mapping[str, str]) -> None:
        """Create a process's scratch directory, log and gate.

        Raises OSError if the working directory does not exist, if the command does not exist or is
        not executable, or if the command is too long.
        """
        _check(command, env)
        _check_size(self._windows.session.argv(command, env), env)
        create_scratch_directory(env)
        log = self._run.log(command.name)
        os.close(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
        self._gates.prepare(command.name)
        with contextlib.suppress(FileNotFoundError):
            Path(self._windows.session.sink(command.name)).unlink()

    def _receive_windows(
        self, batch: Sequence[ProcessSpec], answer: Callable[[], Answer], env: Mapping[str, str]
    ) -> list[tuple[ProcessSpec, Window | str]]:
        windows = self._windows.take(batch, answer(), env)
        return [(command, windows[command.name]) for command in batch]

    def _adopt_reported(
        self, made: deque[tuple[ProcessSpec, Window | str]], *, wait: bool = False
    ) -> Iterator[tuple[ProcessSpec, TmuxChild | OSError]]:
        """Remove the first entries of ``made``, and yield their children or errors.

        Stop at the first entry whose keeper has not reported its process yet. If ``wait`` is true,
        wait for the reports of all entries instead.
        """
        self._handle_reports(self._gates.read_reports())
        while made:
            command, window = made[0]
            is_known = isinstance(window, str) or window.pid in self._reported_pids
            if not wait and not is_known:
                return
            made.popleft()
            if isinstance(window, str):
                yield command, StartRefused(errno.EIO, window)
            else:
                yield command, self._adopt(command, window)

    def _adopt(self, command: ProcessSpec, window: Window) -> TmuxChild:
        handle = open_pidfd(window.pid)
        pid = self._process_of(window.pid)
        child = TmuxChild(
            command.name, pid, birth_time(pid) or 0.0, window.pane, window.pid, handle
        )
        self._alive[child.name] = child
        self._keepers[child.keeper] = child
        self._unlogged[child.name] = command
        self._watched.watch(child, window.pid, self._on_keeper_exit)
        return child

    def _process_of(self, keeper: int) -> int:
        """Return the pid of a keeper's process.

        If the keeper exited before it reported the process, return the keeper's own pid.
        """
        while keeper not in self._reported_pids:
            gone = birth_time(keeper) is None
            self._handle_reports(self._gates.read_reports(0.0 if gone else POLL_SECONDS))
            if gone:
                return self._reported_pids.pop(keeper, keeper)
        return self._reported_pids.pop(keeper)

    # --- the processes of a killed supervisor ---

    def adopt(
        self, processes: Iterable[ProcessSpec], tracks: Mapping[str, Track]
    ) -> list[TmuxChild]:
        """Take over processes; see `symphony.supervised.supervisor.children.Children`.

        A process whose start was not recorded still waits at its gate. It is killed, and when it is
        started, it is started again in its window.
        """
        panes = self._windows.find()
        if not panes and any(track.first_started is not None for track in tracks.values()):
            # A session that the user has closed is not created again.
            self._windows.made = True
        adopted = []
        waiting = []
        for spec in processes:
            state, pane = tracks[spec.name].state, panes.get(spec.name)
            if state is State.RUNNING:
                adopted.append(self._adopt_running(spec, tracks[spec.name], pane))
            elif state is State.PENDING and pane is not None and not pane.dead:
                waiting.append(spec.name)
        self._windows.end_keepers({name: panes[name] for name in waiting})
        return adopted

    def _adopt_running(self, command: ProcessSpec, track: Track, pane: Pane | None) -> TmuxChild:
        """Take over a process that is recorded as running."""
        process = ProcessId(track.pid or 0, track.birth or 0.0)
        keeper = process.pid if pane is None else pane.pid
        # The gate is opened before the process is examined. If the process exits later, its keeper
        # reports this.
        self._gates.adopt(command.name)
        child = TmuxChild(
            command.name,
            process.pid,
            process.birth,
            self._windows.pane_of(command.name),
            keeper,
            open_pidfd(keeper),
        )
        self._alive[child.name] = child
        self._keepers[child.keeper] = child
        is_running = is_alive(process)
        if pane is None or not is_running:
            self._watched.close(child)
            if is_running:
                # The window was closed.
                child.handle = open_pidfd(child.pid)
                self._watched.watch(child, child.pid, self._on_unreported_exit)
            else:
                # Its keeper may not have reported the exit, or may wait for the supervisor.
                self._gates.release(command.name)
                self._on_unreported_exit(child)
            return child
        self._watched.watch(child, keeper, self._on_keeper_exit)
        if not self._windows.has_log(command.name):
            self._unlogged[command.name] = command
            self._loop.post(self._log_all)
        return child

    def _log_all(self) -> None:
        """Start logging for a batch of windows, and schedule the next batch.

        The gate of each window opens when logging starts.
        """
        batch = list(self._unlogged.values())[:BATCH]
        if not batch:
            return
        try:
            self._windows.log(batch)
        except OSError:
            # tmux cannot be started, for example because the user's limit on processes has been
            # reached. The processes wait at their gates, so try again.
            self._loop.after(RETRY_SECONDS, self._log_all)
            raise
        for command in batch:
            self._unlogged.pop(command.name, None)
        self._loop.post(self._log_all)

    # --- exiting ---

    def _receive_reports(self) -> None:
        self._handle_reports(self._gates.read_reports())

    def _handle_reports(self, reports: Iterable[Report]) -> None:
        for report in reports:
            if report.event == STARTED:
                self._reported_pids[report.keeper] = report.value
            elif report.event == EXITED:
                self._loop.post(lambda report=report: self._on_process_exit(report))  # type: ignore[misc]

    def _on_process_exit(self, report: Report) -> None:
        child = self._keepers.get(report.keeper)
        if child is not None:
            logged = self._unlogged.pop(child.name, None) is None
            self._exits.add(child, report.value, logged=logged)

    def _on_keeper_exit(self, child: TmuxChild) -> None:
        """Handle a keeper's exit.

        Either its process has exited too, or its window was closed. In the second case, the process
        may still be running.
        """
        self._receive_reports()
        # The check runs after the reports that were just received have been handled.
        self._loop.post(lambda: self._check_keeper(child))

    def _check_keeper(self, child: TmuxChild) -> None:
        if self._alive.get(child.name) is not child:
            return
        self._unlogged.pop(child.name, None)
        if birth_time(child.pid) == child.birth:
            child.handle = open_pidfd(child.pid)
            self._watched.watch(child, child.pid, self._on_unreported_exit)
        else:
            self._on_unreported_exit(child)

    def _on_unreported_exit(self, child: TmuxChild) -> None:
        """Handle the exit of a process whose keeper cannot report it."""
        self._exits.add(child, None, logged=True)

    def _report_exit(self, pending: ProcessExit) -> None:
        child = pending.child
        self._watched.unwatch(child)
        del self._alive[child.name]
        del self._keepers[child.keeper]
        self._windows.stop_sink(child.name)
        if pending.reason == CLOSED:
            self._windows.forget(child.name)
        self._on_exit(child, pending.code, pending.reason)

    def change(self, names: Sequence[str], env: Mapping[str, str]) -> None:
        """Prepare to create windows for new processes, which get the next indexes."""
        self._windows.change(names, env)

    def remove(self, name: str) -> None:
        """Close the window of a process that has exited."""
        self._windows.close(name)
        self._gates.close(name)

    def discard(self) -> None:
        """Remove the session of a launch that was rolled back."""
        self._windows.remove()


def _check(command: ProcessSpec, env: Mapping[str, str]) -> None:
    """Raise the error that starting the command directly would raise, if any.

    In a window, the error could only be printed on the screen.
    """
    directory = Path(command.cwd)
    if not directory.is_dir():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command.cwd)
    program = command.argv[0]
    search_path = [""]
    if "/" not in program:
        search_path = (env.get("PATH") or os.defpath).split(os.pathsep)
    found = False
    for entry in search_path:
        path = directory / entry / program
        if os.access(path, os.X_OK):
            return
        found = found or path.exists()
    number = errno.EACCES if found else errno.ENOENT
    raise OSError(number, os.strerror(number), program)


def _check_size(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Raise OSError if execve(2) would refuse the command because it is too long.

    A command is too long if one of its words or environment variables is too long, or if all of
    them together are too long.

    ``argv`` is the keeper's command, which is the longest command in a window. Each word needs
    a terminating NUL and a pointer.
    """
    words, variables = _bytes(argv), _bytes([*env, *env.values()])
    pointers = _POINTER_BYTES * (len(argv) + len(env))
    total = words + variables + pointers + _TMUX_VARIABLES_BYTES
    word_limit = 32 * os.sysconf("SC_PAGE_SIZE")
    too_long = total > _argument_limit_bytes()
    if max(words, variables) > word_limit:
        pairs = (f"{key}={value}" for key, value in env.items())
        too_long = too_long or any(_bytes([word]) > word_limit for word in chain(argv, pairs))
    if too_long:
        raise OSError(errno.E2BIG, os.strerror(errno.E2BIG))


def _bytes(words: Sequence[str]) -> int:
    return len(os.fsencode("\0".join(words))) + 1


def _argument_limit_bytes() -> int:
    """Return the maximum total size of a command and its environment, in bytes.

    The actual limit on Linux can be lower than the value that sysconf reports.
    """
    return min(os.sysconf("SC_ARG_MAX"), 6 << 20)
