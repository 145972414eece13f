"""The pipes between processes and their logs.

A process that writes directly to a file can truncate the file: a program that opens /dev/stdout or
/dev/stderr opens its own log, and shells do this with O_TRUNC. The output of a process is therefore
a named pipe, which `symphony.supervised.supervisor.capture.copy_output` copies to the log. This
program outlives a killed supervisor. If it is killed itself, the processes are not: they have their
pipes open for reading too, so a write waits until another program reads the pipe.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from symphony.supervised.processes.identity import identify
from symphony.supervised.processes.process_groups import wait_for_exit
from symphony.supervised.supervisor.capture import copy_output
from symphony.supervised.supervisor.event_loop import receive

if TYPE_CHECKING:
    from symphony.supervised.record.directory import RunDirectory
    from symphony.supervised.supervisor.event_loop import EventLoop

_PIPE_MODE, _DIRECTORY_MODE = 0o600, 0o700
# How long an exit is not reported because output may be missing. A program that was suspended, for
# example, does not answer.
DRAIN_SECONDS = 2.0
_POLL_SECONDS = 0.01
# The time after which a program that leaves is killed, and the time after which the supervisor no
# longer waits for its exit.
_LEAVE_SECONDS, _GIVE_UP_SECONDS = 2.0, 4.0
_RETRY_SECONDS = 0.05
_RESTART_SECONDS = 1.0
# How long the supervisor waits for the program at its own exit.
_EXIT_SECONDS = 1.0
# The contents of the lock file before the pid is written, which then needs no space on the disk.
_NO_PID = b" " * 10 + b"\n"
# The number of descriptors that are reserved for other purposes.
_SPARE_DESCRIPTORS = 64


class OutputPipes:
    """The pipes of the processes of a run, and the program that copies their output."""

    def __init__(self, loop: EventLoop, run: RunDirectory) -> None:
        self._loop = loop
        self._run = run
        # Thousands of processes can start at the same time, and pathlib is slow.
        self._logs, self._pipes = str(run.logs), str(run.pipes)
        self._channel: socket.socket | None = None
        self._program: subprocess.Popen[bytes] | None = None
        # The pipes and the logs that the program has not received yet.
        self._new: dict[str, tuple[int, int]] = {}
        self._open: set[str] = set()
        # The exited processes whose output may not be in the logs yet, by the numbers of the
        # questions to the program, and by their names. One question serves all processes that have
        # exited before it is sent.
        self._drained: dict[int, dict[str, Callable[[], None]]] = {}
        self._question = 0
        self._must_ask = False
        self._is_posted = False
        self._is_ready = False
        self._buffer = bytearray(copy_output.PIPE_BYTES)
        self._started = 0.0
        # Since when the exit of a program is awaited that a killed supervisor has started.
        self._waits_since: float | None = None
        atexit.register(self._finish)
        # Starting processes changes the environment of this process.
        self._env = dict(os.environ)

    # --- starting processes ---

    def prepare(self) -> None:
        """Start the program, if it is not running.

        The program must not have the mark of the run, which processes receive while they start.
        """
        if self._channel is None and not self._is_posted:
            self._start_program()

    def open(self, name: str) -> int:
        """Return a descriptor for the output of the process ``name``, which the caller closes.

        It is the log itself if the program cannot be started, if the directory of the run supports
        no pipes, or if too few descriptors are left. Raises OSError if the log cannot be opened.
        """
        log = os.open(self._log(name), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        has_descriptors = 2 * len(self._open) + _SPARE_DESCRIPTORS <= _descriptor_limit()
        if self._channel is None or not has_descriptors:
            return log
        try:
            output = self._open_pipe(name)
            pipe = os.open(self._path(name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return log
        self._forget_new(name)
        self._new[name] = (pipe, log)
        self._open.add(name)
        if len(self._new) >= copy_output.NAMES_PER_MESSAGE:
            # The event loop may not run yet.
            self._receive()
            self._send()
        self._send_soon()
        return output

    def _open_pipe(self, name: str) -> int:
        """Create the pipe of a process if it does not exist, and open it for both directions."""
        path = self._path(name)
        try:
            os.mkfifo(path, _PIPE_MODE)
        except FileExistsError:
            pass
        except FileNotFoundError:
            self._run.pipes.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
            os.mkfifo(path, _PIPE_MODE)
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def _path(self, name: str) -> str:
        return f"{self._pipes}/{name}"

    def _log(self, name: str) -> str:
        return f"{self._logs}/{name}.log"

    def _forget_new(self, name: str) -> None:
        for descriptor in self._new.pop(name, ()):
            os.close(descriptor)

    # --- exits ---

    def drain(self, name: str, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the log contains everything that an exited process has written.

        The call takes place in the event loop, at the latest after `DRAIN_SECONDS`.
        """
        new = self._new.get(name)
        if new is not None:
            # The program does not have the pipe yet, for example because it is being started.
            copy_output.copy_output(*new, self._buffer)
            self._open.discard(name)
        if name not in self._open:
            self._loop.post(callback)
            return
        if not self._must_ask or self._question not in self._drained:
            self._must_ask = True
            self._question += 1
            self._drained[self._question] = {}
            number = self._question
            self._loop.after(DRAIN_SECONDS, lambda: self._report(number))
        self._drained[self._question][name] = callback
        self._send_soon()

    def _report(self, number: int) -> None:
        """Report that the output of the processes is in the logs that a question concerns."""
        for name, callback in self._drained.pop(number, {}).items():
            self._open.discard(name)
            self._loop.post(callback)

    # --- the program ---

    def adopt(self, names: Iterable[str]) -> None:
        """Take over the pipes of the running processes of a killed supervisor."""
        found = [name for name in names if os.path.exists(self._path(name))]  # noqa: PTH110
        if found:
            self._open.update(found)
            self._reopen(found)
            self._send()

    def _reopen(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(OSError):
                pipe = os.open(self._path(name), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._new[name] = (pipe, os.open(self._log(name), flags, 0o600))

    def _send_soon(self) -> None:
        # The messages of a batch of starts or exits are sent together.
        if not self._is_posted:
            self._is_posted = True
            self._loop.post(self._send)

    def _send(self) -> None:
        self._is_posted = False
        if not self._new and not self._must_ask:
            return
        if self._channel is None and not self._start_program():
            self._retry_later()
            return
        if not self._is_ready:
            # The message that the program is ready continues.
            return
        channel = self._channel
        while self._new:
            names = list(self._new)[: copy_output.NAMES_PER_MESSAGE]
            descriptors = [item for name in names for item in self._new[name]]
            if not self._send_message(channel, copy_output.ADD, names, descriptors):
                return
            for name in names:
                self._forget_new(name)
        if self._must_ask:
            question = str(self._question)
            self._must_ask = not self._send_message(channel, copy_output.DRAIN, [question], [])

    def _send_message(
        self,
        channel: socket.socket | None,
        kind: bytes,
        names: list[str],
        descriptors: list[int],
    ) -> bool:
        """Send a message without waiting. Return False if that is not possible at present."""
        if channel is None:
            return False
        try:
            socket.send_fds(channel, [kind + "\n".join(names).encode()], descriptors)
        except OSError:
            # The program does not read at present, or its end is reported by the event loop.
            self._retry_later()
            return False
        return True

    def _retry_later(self) -> None:
        self._is_posted = True
        self._loop.after(_RETRY_SECONDS, self._send)

    def _start_program(self) -> bool:
        """Start the program, and return whether that was possible."""
        try:
            lock = self._take_lock()
            channel, program_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError:
            return False
        try:
            directories = self._open_directories()
        except OSError:
            directories = []
        try:
            arguments = map(str, (lock, *directories))
            self._program = subprocess.Popen(
                [sys.executable, "-I", "-S", copy_output.__file__, *arguments],
                stdin=program_end.fileno(),
                stdout=subprocess.DEVNULL,
                pass_fds=[lock, *directories],
                start_new_session=True,
                cwd="/",
                # The program does not belong to the run, so it is not stopped with the processes.
                env=self._env,
            )
            # The program also does this, but only when it runs. A program that is suspended before
            # could not be found.
            copy_output.write_pid(lock, self._program.pid)
        except OSError:
            channel.close()
            return False
        finally:
            program_end.close()
            for descriptor in (lock, *directories):
                os.close(descriptor)
        channel.setblocking(False)
        self._started = time.monotonic()
        self._is_ready = False
        self._channel = channel
        self._loop.watch(channel.fileno(), self._receive)
        return True

    def _open_directories(self) -> list[int]:
        """Return descriptors of the directories of the pipes and of the logs.

        The list is empty without a lock, because another program can read the same pipes.
        """
        if not self._run.locks_pipes():
            return []
        self._run.pipes.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        pipes = os.open(self._run.pipes, flags)
        try:
            return [pipes, os.open(self._run.logs, flags)]
        except OSError:
            os.close(pipes)
            raise

    def _take_lock(self) -> int:
        """Return a locked descriptor of the directory's lock file.

        A program of a killed supervisor leaves, and this one takes over its pipes. Raises OSError
        if it does not exit in time. From then on, each call tries once, without waiting.
        """
        if not self._run.locks_pipes():
            return os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        lock = os.open(self._run.pipes_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PIPE_MODE)
        try:
            while not _try_lock(lock):
                self._wait_for_exit(lock)
            self._waits_since = None
            # Without this, it would contain the number of a program that has exited.
            os.pwrite(lock, _NO_PID, 0)
        except OSError:
            os.close(lock)
            raise
        return lock

    def _wait_for_exit(self, lock: int) -> None:
        """Make the program exit that holds the lock, and wait for a short time."""
        now = time.monotonic()
        if self._waits_since is None:
            self._waits_since = now
        waited = now - self._waits_since
        number = copy_output.LEAVE_SIGNAL if waited < _LEAVE_SECONDS else signal.SIGKILL
        with contextlib.suppress(ValueError, ProcessLookupError):
            os.kill(int(os.pread(lock, len(_NO_PID), 0)), number)
        if waited >= _GIVE_UP_SECONDS:
            # For example, its supervisor was killed before it could write the pid.
            raise TimeoutError
        time.sleep(_POLL_SECONDS)

    def _receive(self) -> None:
        channel = self._channel
        if channel is None:
            return
        message = receive(channel, copy_output.MAX_MESSAGE_BYTES)
        if message is None:
            return
        if not message:
            self._replace_program(channel)
            return
        if message == copy_output.READY:
            self._is_ready = True
            self._send_soon()
            return
        question = int(message[1:])
        # The program answers in the order of the questions, and not again after it was replaced.
        for number in [number for number in self._drained if number <= question]:
            self._report(number)

    def _replace_program(self, channel: socket.socket) -> None:
        """Start the program again, because it was killed."""
        self._loop.unwatch(channel.fileno())
        channel.close()
        self._channel = None
        if self._program is not None:
            self._program.wait()
        self._reopen(self._open - self._new.keys())
        self._must_ask = bool(self._drained)
        if time.monotonic() - self._started < _RESTART_SECONDS:
            # The program cannot work. It is not started again without a pause.
            self._is_posted = True
            self._loop.after(_RESTART_SECONDS, self._send)
        else:
            self._send_soon()

    def _finish(self) -> None:
        """Let the program exit when no process has a pipe open, and wait for a short time."""
        if self._channel is not None and self._program is not None:
            if not self._new:
                with contextlib.suppress(OSError):
                    self._channel.send(copy_output.END)
            self._channel.close()
            program = identify(self._program.pid)
            if program is not None:
                # `Popen.wait` with a timeout sleeps for up to 50 ms at a time.
                wait_for_exit(program, _EXIT_SECONDS)
            self._program.poll()


def _try_lock(descriptor: int) -> bool:
    """Lock a file, and return whether that was possible."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _descriptor_limit() -> int:
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
