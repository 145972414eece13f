"""Starting processes as one's own children, each leader of a session and group of its own, and their ends.

An end is learned from the process's pidfd, or from SIGCHLD where there are none, or too many; nothing polls.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from symphony.host.processes.children import Ended
from symphony.host.processes.identity import birth
from symphony.host.processes.spec import Command
from symphony.host.run.directory import RunDirectory
from symphony.host.supervisor.event_loop import Loop
from symphony.open_files import raise_open_file_limit
from symphony_local.environment import Environment

# Descriptors that pidfds leave for all else: logs, looks at /proc, probes.
SPARE = 64


@dataclass(slots=True)
class LocalChild:
    """A process that was started and has not been reaped."""

    name: str
    popen: subprocess.Popen[bytes]
    birth: float
    handle: int | None

    @property
    def pid(self) -> int:
        """The id of the process, of its group and of its session."""
        return self.popen.pid


class LocalChildren:
    """The children of this process; see `symphony.host.processes.children.Children`."""

    def __init__(self, loop: Loop, run: RunDirectory, ended: Ended, *, pidfds: bool = True) -> None:
        self._loop = loop
        self._logs = str(run.logs)
        self._ended = ended
        self._alive: dict[str, LocalChild] = {}
        self._pidfds = pidfds
        self._nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._env = Environment()
        self._limits = raise_open_file_limit()
        if not pidfds:
            self._go_by_signals()

    def __len__(self) -> int:
        return len(self._alive)

    def get(self, name: str) -> LocalChild | None:
        """The living child of that name."""
        return self._alive.get(name)

    def start(
        self, commands: Iterable[Command], env: Mapping[str, str]
    ) -> Iterator[tuple[Command, LocalChild | OSError]]:
        """Start processes; see `symphony.host.processes.children.Children`."""
        for command in commands:
            try:
                self._env.become(env, command.env)
                child = self._start(command)
            except OSError as exc:
                yield command, exc
            else:
                yield command, child

    def _start(self, command: Command) -> LocalChild:
        output = os.open(
            f"{self._logs}/{command.name}.log",
            os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC,
            0o600,
        )
        try:
            popen = subprocess.Popen(
                command.argv,
                cwd=command.cwd,
                stdin=self._nothing,
                stdout=output,
                stderr=output,
                start_new_session=True,
                close_fds=False,  # every descriptor here closes on exec; to close them one by one takes time
            )
        finally:
            os.close(output)
        self._restore_limits(popen.pid)
        child = LocalChild(command.name, popen, birth(popen.pid) or 0.0, None)
        self._alive[command.name] = child
        if (
            self._pidfds
        ):  # after the batch: each child begins with a copy of all descriptors, and closes them
            self._loop.post(lambda: self._watch(child))
        return child

    def _watch(self, child: LocalChild) -> None:
        """Learn of its end, which may have come before: until it is reaped, it keeps its id."""
        if not self._pidfds:  # one before it went by signals, and it may be reaped
            return
        child.handle = _pidfd(child.pid)
        if child.handle is not None:
            self._loop.watch(child.handle, lambda: self._reap(child))
        else:
            self._go_by_signals()

    def _go_by_signals(self) -> None:
        self._pidfds = False
        self._loop.on_signal(signal.SIGCHLD, self._look)
        self._look()

    def discard(self) -> None:
        """Nothing is left of an ended child."""

    def _restore_limits(self, pid: int) -> None:
        """A child gets the limits that this process began with, not those that it raised for itself."""
        if self._limits is not None and sys.platform == "linux":
            with contextlib.suppress(OSError):
                resource.prlimit(pid, resource.RLIMIT_NOFILE, self._limits)

    def _look(self) -> None:
        for child in list(self._alive.values()):
            self._reap(child)

    def _reap(self, child: LocalChild) -> None:
        code = child.popen.poll()
        if code is None:
            return
        del self._alive[child.name]
        if child.handle is not None:
            self._loop.unwatch(child.handle)
            os.close(child.handle)
        self._ended(child, 128 - code if code < 0 else code)


def _pidfd(pid: int) -> int | None:
    """A descriptor that tells the end of a process; None where there is none, or only one that all else needs."""
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
    if handle < resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE:
        return handle
    os.close(handle)
    return None
