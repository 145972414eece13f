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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.host.processes.identity import RUN_ID_VARIABLE, birth_time
from symphony.host.processes.mark import MarkedChildren
from symphony.host.processes.spec import ProcessSpec
from symphony.host.run.directory import RunDirectory
from symphony.host.supervisor.children import ExitCallback, StartRefused
from symphony.host.supervisor.event_loop import EventLoop
from symphony.open_files import raise_open_file_limit
from symphony_local.environment import InheritedEnvironment

if TYPE_CHECKING:
    from symphony.host.supervisor.terminal import Terminal

# The number of descriptors that are reserved for logs, probes and reading /proc, and are not used
# for pidfds.
SPARE_DESCRIPTORS = 64


@dataclass(slots=True)
class LocalChild:
    """A process that was started and has not been reaped. ``pidfd`` is None if no pidfd is open."""

    name: str
    popen: subprocess.Popen[bytes]
    birth: float
    pidfd: int | None
    terminal: Terminal | None = None

    @property
    def pid(self) -> int:
        """The pid of the process, which also identifies its process group and session."""
        return self.popen.pid


class LocalChildren:
    """The children of this process; see `symphony.host.supervisor.children.Children`."""

    def __init__(self, loop: EventLoop, run: RunDirectory, on_exit: ExitCallback) -> None:
        self._loop = loop
        self._logs = str(run.logs)
        self._on_exit = on_exit
        self._running: dict[str, LocalChild] = {}
        self._uses_pidfds = True
        self._devnull = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._environment = InheritedEnvironment()
        self._original_limits = raise_open_file_limit()

    def __len__(self) -> int:
        return len(self._running)

    def get(self, name: str) -> LocalChild | None:
        """Return the running child called ``name``, or None if there is none."""
        return self._running.get(name)

    def start(
        self, processes: Iterable[ProcessSpec], env: Mapping[str, str]
    ) -> Iterator[tuple[ProcessSpec, LocalChild | OSError]]:
        """Start processes; see `symphony.host.supervisor.children.Children`."""
        marked_children = MarkedChildren(env.get(RUN_ID_VARIABLE, ""))
        for spec in processes:
            try:
                self._environment.set(env, spec.env)
                with marked_children:
                    child = self._start(spec)
            except OSError as exc:
                yield spec, exc
            except Exception as exc:
                # For example, a variable has an invalid name. The other processes must still start.
                yield spec, StartRefused(errno.EINVAL, f"cannot start {spec.argv[0]!r}: {exc}")
            else:
                yield spec, child

    def terminal(self, name: str) -> Terminal | None:
        """Return the terminal of a running child, or None if it has none."""
        child = self._running.get(name)
        return None if child is None else child.terminal

    def _start(self, spec: ProcessSpec) -> LocalChild:
        terminal: Terminal | None = None
        if spec.tty:
            terminal, popen = self._start_on_terminal(spec)
        else:
            popen = self._start_with_log(spec)
        self._restore_limits(popen.pid)
        child = LocalChild(spec.name, popen, _birth_time(popen.pid), None, terminal)
        self._running[spec.name] = child
        if self._uses_pidfds:
            # Every new child starts with copies of all descriptors. To keep their number small,
            # pidfds are opened only after the whole batch has started.
            self._loop.post(lambda: self._watch(child))
        return child

    def _start_on_terminal(self, spec: ProcessSpec) -> tuple[Terminal, subprocess.Popen[bytes]]:
        from symphony.host.supervisor.terminal import Terminal

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
        output = os.open(
            f"{self._logs}/{spec.name}.log",
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
            0o600,
        )
        try:
            return subprocess.Popen(
                spec.argv,
                cwd=spec.cwd,
                stdin=self._devnull,
                stdout=output,
                stderr=output,
                start_new_session=True,
                # All of the supervisor's descriptors already have the close-on-exec flag. Closing
                # each descriptor explicitly would only cost time.
                close_fds=False,
            )
        finally:
            os.close(output)

    def _watch(self, child: LocalChild) -> None:
        """Begin to watch for a child's exit.

        The child may have exited already. Its pid is not reused before the child is reaped.
        """
        if not self._uses_pidfds:
            # An earlier child in the batch caused the switch to signals, and this child may have
            # been reaped already.
            return
        child.pidfd = _open_pidfd(child.pid)
        if child.pidfd is not None:
            self._loop.watch(child.pidfd, lambda: self._reap(child))
        else:
            self._use_signals()

    def _use_signals(self) -> None:
        self._uses_pidfds = False
        self._loop.on_signal(signal.SIGCHLD, self._reap_all)
        self._reap_all()

    def discard(self) -> None:
        """Do nothing: a local process leaves nothing behind."""

    def _restore_limits(self, pid: int) -> None:
        """Give a child the open-file limits that the supervisor had before it raised them."""
        if self._original_limits is not None:
            with contextlib.suppress(OSError):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, self._original_limits)

    def _reap_all(self) -> None:
        for child in list(self._running.values()):
            self._reap(child)

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

    def _remove(self, child: LocalChild) -> None:
        del self._running[child.name]
        if child.terminal is not None:
            child.terminal.drain()
        # Otherwise, `Popen` would wait for the process again when it is deleted.
        child.popen.returncode = 0
        if child.pidfd is not None:
            self._loop.unwatch(child.pidfd)
            os.close(child.pidfd)


def _birth_time(pid: int) -> float:
    """Return the creation time of a child, or 0.0 if it has exited or its time cannot be read."""
    try:
        return birth_time(pid) or 0.0
    except OSError:
        # No file descriptor is left. The child is running, so its start must not fail.
        return 0.0


def _open_pidfd(pid: int) -> int | None:
    """Return a descriptor that becomes readable when a process exits.

    Return None if no pidfd can be opened, or if only the spare descriptors are left.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if pidfd < limit - SPARE_DESCRIPTORS:
        return pidfd
    os.close(pidfd)
    return None
