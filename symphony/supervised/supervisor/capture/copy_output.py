"""The program that copies the output of processes from pipes to their logs.

It is started by path and without ``site``, so it imports only the standard library. Its standard
input is a socket that is connected to the supervisor. The first argument is a descriptor that locks
the directory of the pipes. The others are descriptors of the directories that contain the pipes and
the logs; without them, the program cannot find pipes by itself.

A message of the supervisor consists of a kind and the names of processes, separated by newlines.
With `ADD`, it contains two descriptors for each name: the pipe and the log. With `DRAIN`, it
contains a number instead of names. The program copies the output that is in the pipes, and then
answers with the same message. Its first message is `READY`. Until then, the supervisor keeps the
pipes. The supervisor sends `END` before it exits. If it was killed, the program opens the pipes
that it has not received, and continues until no process has a pipe open, or until a new supervisor
sends `LEAVE_SIGNAL`.
"""

from __future__ import annotations

# The modules `signal`, `socket` and `contextlib` would double the time of the start.
import _signal  # type: ignore[import-not-found]
import _socket
import os
import select
import sys

ADD, DRAIN, READY, END = b"+", b"-", b"!", b"."
LEAVE_SIGNAL: int = _signal.SIGUSR1

MAX_MESSAGE_BYTES = 1 << 16
# The number of names in one message. Linux accepts at most 253 descriptors.
NAMES_PER_MESSAGE = 100

_DESCRIPTOR_BYTES = 4

# The capacity of a pipe, unless it was changed.
PIPE_BYTES = 1 << 16
# A pipe is read at most this many times before the others are.
_READS_PER_ROUND = 16
# The pause after a round with little output. A process that writes many short lines would otherwise
# cause one round for each line, and processes that exit together one round for each. The pipe has
# space for the output of this time.
_PAUSE_SECONDS = 0.002


class Copier:
    """The pipes and the logs of processes, by the names of the processes.

    ``directories`` contains descriptors of the directories of the pipes and of the logs, or is
    empty.
    """

    def __init__(self, channel: _socket.socket, directories: list[int]) -> None:
        self._channel: _socket.socket | None = channel
        self._directories = directories
        self._has_ended = False
        self._poll = select.epoll()
        self._poll.register(channel.fileno(), select.EPOLLIN)
        self._pipes: dict[str, int] = {}
        self._logs: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._buffer = bytearray(PIPE_BYTES)
        self._is_leaving = False
        # A signal interrupts the sleep by writing to this pipe.
        self._wake, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        _signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._poll.register(self._wake, select.EPOLLIN)

    def leave(self, *_: object) -> None:
        """Finish after the present round. The pipes remain open in the processes."""
        self._is_leaving = True

    def announce(self) -> None:
        """Send the supervisor the message that the program works."""
        if self._channel is not None:
            _send(self._channel, READY)

    def run(self) -> None:
        """Copy output until there is no supervisor and no pipe."""
        while (self._channel is not None or self._pipes) and not self._is_leaving:
            descriptors = [descriptor for descriptor, _ in self._poll.poll()]
            if self._channel is not None and self._channel.fileno() in descriptors:
                # The supervisor waits for the answer.
                self._receive(self._channel)
            names = [self._names[item] for item in descriptors if item in self._names]
            copied_bytes = sum(self._copy(name) for name in names)
            if names and copied_bytes < PIPE_BYTES // 2:
                self._pause()

    def _pause(self) -> None:
        """Wait until more output can have arrived. Return at once if there is a message."""
        descriptors = [self._wake]
        if self._channel is not None:
            descriptors.append(self._channel.fileno())
        # The descriptors have low numbers, because they are opened first.
        select.select(descriptors, [], [], _PAUSE_SECONDS)

    def _receive(self, channel: _socket.socket) -> None:
        try:
            message, descriptors = _receive_descriptors(channel)
        except ConnectionResetError:
            # The supervisor has exited without reading an answer. The kernel reports this once.
            # Messages that the supervisor has sent, and the end of the channel, are received next.
            return
        if not message:
            self._poll.unregister(channel.fileno())
            channel.close()
            self._channel = None
            if self._directories and not self._has_ended:
                self._find_pipes(*self._directories)
            return
        kind = message[:1]
        if kind == ADD:
            names = message[1:].decode().split("\n")
            pairs = zip(descriptors[::2], descriptors[1::2], strict=True)
            for name, (pipe, log) in zip(names, pairs, strict=False):
                self._add(name, pipe, log)
                # A new supervisor can have opened the pipe of a process that had exited.
                self._copy(name)
            return
        if kind == END:
            self._has_ended = True
            return
        self._drain()
        _send(channel, message)

    def _drain(self) -> None:
        """Copy the output that is in the pipes now.

        A pipe that no process has open any more is closed later, so that the answer is not late.
        """
        for descriptor, event in self._poll.poll(0, len(self._pipes) + 2):
            name = self._names.get(descriptor)
            if name is not None and event & select.EPOLLIN:
                self._copy(name)

    def _find_pipes(self, pipes: int, logs: int) -> None:
        """Open the pipes that the supervisor, which was killed, has not sent.

        The supervisor creates the pipe of a process before it starts the process. A pipe that no
        process has open is closed again.
        """
        for name in os.listdir(pipes):
            if name in self._pipes:
                continue
            try:
                pipe = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=pipes)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._add(name, pipe, os.open(f"{name}.log", flags, 0o600, dir_fd=logs))
                # Only reading shows that no process has had the pipe open since it was opened here.
                self._copy(name)
            except OSError:
                continue

    def _add(self, name: str, pipe: int, log: int) -> None:
        if name in self._pipes:
            # A descendant of the previous execution still has the same pipe open.
            os.close(pipe)
            os.close(log)
            return
        self._pipes[name], self._logs[name], self._names[pipe] = pipe, log, name
        self._poll.register(pipe, select.EPOLLIN)

    def _copy(self, name: str) -> int:
        """Copy the output that is in a pipe, and return the number of bytes."""
        total, is_closed = copy_output(self._pipes[name], self._logs[name], self._buffer)
        if is_closed:
            self._remove(name)
        return total

    def _remove(self, name: str) -> None:
        """Close a pipe that no process has open."""
        pipe, log = self._pipes.pop(name), self._logs.pop(name)
        del self._names[pipe]
        self._poll.unregister(pipe)
        os.close(pipe)
        os.close(log)


def _receive_descriptors(channel: _socket.socket) -> tuple[bytes, list[int]]:
    """Return the next message, and the descriptors that it contains."""
    space = _socket.CMSG_SPACE(2 * NAMES_PER_MESSAGE * _DESCRIPTOR_BYTES)
    message, parts, _, _ = channel.recvmsg(MAX_MESSAGE_BYTES, space)
    descriptors: list[int] = []
    for _level, _kind, data in parts:
        complete = len(data) - len(data) % _DESCRIPTOR_BYTES
        descriptors += memoryview(data)[:complete].cast("i")
    return message, descriptors


def _send(channel: _socket.socket, message: bytes) -> None:
    """Send a message, unless the supervisor was killed. The end of the channel follows then."""
    try:
        channel.send(message)
    except OSError:
        return


def copy_output(pipe: int, log: int, buffer: bytearray) -> tuple[int, bool]:
    """Copy the output that is in a pipe to a log.

    Return the number of bytes, and whether no process has the pipe open.
    """
    total = 0
    for _ in range(_READS_PER_ROUND):
        try:
            size = os.readv(pipe, [buffer])
        except BlockingIOError:
            break
        if not size:
            return total, True
        total += size
        _write(log, memoryview(buffer)[:size])
        if size < len(buffer):
            # The pipe is empty.
            break
    return total, False


def _write(log: int, data: memoryview) -> None:
    """Append data to a log. If that is impossible, for example without space, it is lost."""
    while data:
        try:
            data = data[os.write(log, data) :]
        except OSError:
            return


def write_pid(lock: int, pid: int) -> None:
    """Write the pid of the program to the lock file, unless the file system is full."""
    try:
        os.pwrite(lock, b"%d\n" % pid, 0)
    except OSError:
        return


def main() -> None:
    """Copy output; see the description of the module."""
    lock = int(sys.argv[1])
    for number in (_signal.SIGINT, _signal.SIGHUP, _signal.SIGTERM, _signal.SIGPIPE):
        _signal.signal(number, _signal.SIG_IGN)
    directories = [int(argument) for argument in sys.argv[2:]]
    copier = Copier(_socket.socket(fileno=os.dup(0)), directories)
    _signal.signal(LEAVE_SIGNAL, copier.leave)
    write_pid(lock, os.getpid())
    copier.announce()
    copier.run()
    # The supervisor waits for the exit, and nothing is left to clean up.
    os._exit(0)


if __name__ == "__main__":
    main()
