"""Start processes as children of the supervisor, and observe their exits.

Each child leads its own session and process group. Its exit is observed through a pidfd, or through
SIGCHLD if pidfds are not available or too few descriptors are left. In both cases, no polling is
needed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import resource
import signal
import subprocess
import termios
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.supervised.processes.identity import RUN_ID_VARIABLE, birth_time
from symphony.supervised.processes.inherited_environment import InheritedEnvironment
from symphony.supervised.processes.mark import MarkedChildren
from symphony.supervised.processes.program_paths import ProgramPaths
from symphony.supervised.processes.scratch import create_scratch_directory
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.supervisor.capture.output_pipes import OutputPipes
from symphony.supervised.supervisor.children import ExitCallback, StartRefused
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.process_handles import AdoptedChild, open_pidfd
from symphony.support.data_classes import dataclass
from symphony.support.open_file_limit import raise_open_file_limit

if TYPE_CHECKING:
    from symphony.plan.state import Track
    from symphony.supervised.supervisor.terminal_server import Terminal


@dataclass(slots=True)
class LocalChild:
    """A process that was started and has not been reaped.

    ``pid`` also identifies its process group and session. ``pidfd`` is None if no pidfd is open.
    """

    name: str
    pid: int
    popen: subprocess.Popen[bytes]
    birth: float
    pidfd: int | None
    terminal: Terminal | None = None
    is_draining: bool = False


class LocalChildren:
    """The children of this process; see `symphony.supervised.supervisor.children.Children`."""

    def __init__(self, loop: EventLoop, run: RunDirectory, on_exit: ExitCallback) -> None:
        self._loop = loop
        self._run = run
        self._logs = str(run.logs)
        self._on_exit = on_exit
        self._running: dict[str, LocalChild | AdoptedChild] = {}
        self._uses_pidfds = True
        self._devnull = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._output = OutputPipes(loop, run)
        self._environment = InheritedEnvironment()
        self._programs = ProgramPaths()
        self._original_limits = raise_open_file_limit()

    def __len__(self) -> int:
        return len(self._running)

    def get(self, name: str) -> LocalChild | AdoptedChild | None:
        """Return the running child called ``name``, or None if there is none."""
        return self._running.get(name)

    def start(
        self, processes: Iterable[ProcessSpec], env: Mapping[str, str]
    ) -> Iterator[tuple[ProcessSpec, LocalChild | OSError]]:
        """Start processes; see `symphony.supervised.supervisor.children.Children`."""
        marked_children = MarkedChildren(env.get(RUN_ID_VARIABLE, ""))
        specs = list(processes)
        self._programs = ProgramPaths()
        if any(not spec.tty for spec in specs):
            self._output.prepare()
        for spec in specs:
            try:
                create_scratch_directory(spec.env)
                self._environment.set(env, spec.env)
                with marked_children.of(spec.name):
                    child = self._start(spec)
            except OSError as exc:
                yield spec, exc
            except Exception as exc:
                # For example, a variable has an invalid name. The other processes must still start.
                yield spec, StartRefused(errno.EINVAL, f"cannot start {spec.argv[0]!r}: {exc}")
            else:
                yield spec, child

    def keep_terminals(self, is_needed: Callable[[str], bool]) -> None:
        """Do nothing: the kernel takes the terminal from the other programs of the process."""

    def terminal(self, name: str) -> Terminal | None:
        """Return the terminal of a running child, or None if it has none."""
        child = self._running.get(name)
        # The terminal of an adopted child was closed with the supervisor that was killed.
        return child.terminal if isinstance(child, LocalChild) else None

    def _start(self, spec: ProcessSpec) -> LocalChild:
        terminal: Terminal | None = None
        if spec.tty:
            terminal, popen = self._start_on_terminal(spec)
        else:
            popen = self._start_with_log(spec)
        self._restore_limits(popen.pid)
        child = LocalChild(spec.name, popen.pid, popen, _birth_time(popen.pid), None, terminal)
        self._running[spec.name] = child
        if self._uses_pidfds:
            # Every new child starts with copies of all descriptors. To keep their number small,
            # pidfds are opened only after the whole batch has started.
            self._loop.post(lambda: self._watch(child))
        return child

    def _start_on_terminal(self, spec: ProcessSpec) -> tuple[Terminal, subprocess.Popen[bytes]]:
        from symphony.supervised.supervisor.terminal_server import Terminal

        terminal = Terminal(self._loop, Path(f"{self._logs}/{spec.name}.log"))
        try:
            popen = subprocess.Popen(  # the function runs no Python code
                spec.argv,
                cwd=spec.cwd,
                stdin=terminal.slave,
                stdout=terminal.slave,
                stderr=terminal.slave,
                start_new_session=True,
                # The terminal becomes the controlling terminal of the new session.
                preexec_fn=functools.partial(fcntl.ioctl, 0, termios.TIOCSCTTY, 0),
                close_fds=False,
            )
        except BaseException:
            terminal.discard()
            raise
        terminal.start()
        return terminal, popen

    def _start_with_log(self, spec: ProcessSpec) -> subprocess.Popen[bytes]:
        output = self._output.open(spec.name)
        path = self._programs.find(spec.argv[0], os.environ.get("PATH", os.defpath))
        try:
            if path is not None:
                # If this fails, the error names the program as the user has written it.
                with contextlib.suppress(OSError):
                    return self._start_program(spec, output, path)
            return self._start_program(spec, output, None)
        finally:
            os.close(output)

    def _start_program(
        self, spec: ProcessSpec, output: int, path: str | None
    ) -> subprocess.Popen[bytes]:
        """Start a program at a path or, if it is None, at the path where `subprocess` finds it."""
        return subprocess.Popen(
            spec.argv,
            executable=path,
            cwd=spec.cwd,
            stdin=self._devnull,
            stdout=output,
            stderr=output,
            start_new_session=True,
            # All of the supervisor's descriptors already have the close-on-exec flag. Closing each
            # descriptor explicitly would only cost time.
            close_fds=False,
        )

    def _watch(self, child: LocalChild) -> None:
        """Begin to watch for a child's exit.

        The child may have exited already. Its pid is not reused before the child is reaped.
        """
        if not self._uses_pidfds:
            # An earlier child in the batch caused the switch to signals, and this child may have
            # been reaped already.
            return
        child.pidfd = open_pidfd(child.pid)
        if child.pidfd is not None:
            self._loop.watch(child.pidfd, lambda: self._drain(child))
        else:
            self._use_signals()

    def _use_signals(self) -> None:
        self._uses_pidfds = False
        self._loop.on_signal(signal.SIGCHLD, self._reap_all)
        self._reap_all()

    # --- the processes of a killed supervisor ---

    def adopt(
        self, processes: Iterable[ProcessSpec], tracks: Mapping[str, Track]
    ) -> list[AdoptedChild]:
        """Take over processes; see `symphony.supervised.supervisor.children.Children`."""
        from symphony.supervised.supervisor.adopted_children import AdoptedChildren, find_processes

        found = find_processes(self._run, processes, tracks)
        self._output.adopt(found)
        adopted = AdoptedChildren(self._loop, self._run, self._output, self._report_adopted)
        children = {name: AdoptedChild(name, *process) for name, process in found.items()}
        self._running.update(children)
        for child in children.values():
            adopted.watch(child)
        return list(children.values())

    def _report_adopted(self, child: AdoptedChild, code: int | None) -> None:
        self._remove(child)
        reason = "the supervisor that started it was killed" if code is None else ""
        self._on_exit(child, code, reason)

    def change(self, names: Sequence[str], env: Mapping[str, str]) -> None:
        """Do nothing: any process can be started."""

    def remove(self, name: str) -> None:
        """Do nothing: a local process leaves nothing behind."""

    def discard(self) -> None:
        """Do nothing: a local process leaves nothing behind."""

    def _restore_limits(self, pid: int) -> None:
        """Give a child the open-file limits that the supervisor had before it raised them."""
        if self._original_limits is not None:
            with contextlib.suppress(OSError):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, self._original_limits)

    def _reap_all(self) -> None:
        for child in list(self._running.values()):
            if isinstance(child, LocalChild) and _has_exited(child.pid):
                self._drain(child)

    def _drain(self, child: LocalChild) -> None:
        """Report an exit when the log is complete. The child is a zombie until then."""
        if child.is_draining:
            return
        child.is_draining = True
        if child.pidfd is not None:
            self._loop.unwatch(child.pidfd)
            os.close(child.pidfd)
            child.pidfd = None
        self._output.drain(child.name, lambda: self._reap(child))

    def _reap(self, child: LocalChild) -> None:
        try:
            pid, status = os.waitpid(child.pid, os.WNOHANG)
        except ChildProcessError:
            # Other code in this process has collected the exit status. `Popen.poll` would return 0.
            self._remove(child)
            self._on_exit(child, None, "its exit status was not available")
            return
        if not pid:
            return
        self._remove(child)
        code = os.waitstatus_to_exitcode(status)
        # Python reports signal n as -n, but symphony reports it as 128 + n.
        self._on_exit(child, 128 - code if code < 0 else code)

    def _remove(self, child: LocalChild | AdoptedChild) -> None:
        del self._running[child.name]
        if isinstance(child, LocalChild):
            if child.terminal is not None:
                child.terminal.drain()
            # Otherwise, `Popen` would wait for the process again when it is deleted.
            child.popen.returncode = 0
        if child.pidfd is not None:
            self._loop.unwatch(child.pidfd)
            os.close(child.pidfd)


def _has_exited(pid: int) -> bool:
    """Return whether a child has exited. It is not reaped."""
    try:
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, pid, options) is not None
    except ChildProcessError:
        # Other code in this process has collected the exit status.
        return True


def _birth_time(pid: int) -> float:
    """Return the creation time of a child, or 0.0 if it has exited or its time cannot be read."""
    try:
        return birth_time(pid) or 0.0
    except OSError:
        # No file descriptor is left. The child is running, so its start must not fail.
        return 0.0
