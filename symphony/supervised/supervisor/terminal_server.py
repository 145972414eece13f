"""The terminals of processes with the setting ``tty``.

The supervisor holds the master side of each pseudo-terminal. It writes the output to the log, and
relays it to the clients that have joined the terminal. The supervisor uses no CPU time while
neither the process nor a client writes.

A client sends messages, each of which begins with the header `HEADER`: the kind, and the length of
the content that follows. It receives the output unchanged.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
import termios
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.supervised.record.terminal_messages import (
    HEADER,
    INPUT,
    MAX_MESSAGE_BYTES,
    SIZE,
    SIZE_FORMAT,
)
from symphony.supervised.supervisor.event_loop import receive
from symphony.support.data_classes import dataclass, field

if TYPE_CHECKING:
    from symphony.supervised.supervisor.event_loop import EventLoop

MAX_CLIENTS = 16
# A client that does not read its output is disconnected when this many bytes wait for it.
MAX_WAITING_BYTES = 4 << 20
# Input that the process does not read is discarded beyond this many bytes.
MAX_INPUT_BYTES = 1 << 16
# The pause before data is sent again that could not be sent.
_RETRY_SECONDS = 0.02
_READ_BYTES = 1 << 16
# The rows and columns until a client joins.
_DEFAULT_SIZE = (24, 80)


@dataclass(slots=True, eq=False)
class _Client:
    socket: socket.socket
    received: bytearray = field(default_factory=bytearray)
    waiting: bytearray = field(default_factory=bytearray)


class Terminal:
    """A pseudo-terminal. Its output is added to the file ``log``."""

    def __init__(self, loop: EventLoop, log: Path) -> None:
        self._loop = loop
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._clients: list[_Client] = []
        self._input = bytearray()
        self._is_retrying = False
        self._is_closed = False
        # The last character of a piece of output, if it can be the beginning of a line end.
        self._held = b""
        try:
            # Python sets the close-on-exec flag of both.
            self._master, self.slave = os.openpty()
        except BaseException:
            os.close(self._log)
            raise
        os.set_blocking(self._master, False)
        self._resize(*_DEFAULT_SIZE)

    def start(self) -> None:
        """Begin to relay output. The process has opened the slave side."""
        self.close_slave()
        self._loop.watch(self._master, self._relay_output)

    def close_slave(self) -> None:
        """Close the descriptor of the slave side."""
        os.close(self.slave)

    def discard(self) -> None:
        """Close a terminal that was not started."""
        self.close_slave()
        os.close(self._master)
        os.close(self._log)

    def drain(self) -> None:
        """Read the output that is already there, because the process has exited."""
        while not self._is_closed and self._read():
            continue

    # --- output ---

    def _relay_output(self) -> None:
        self._read()

    def _read(self) -> bool:
        """Relay the next output. Return False if there is none."""
        try:
            data = os.read(self._master, _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError as exc:
            if exc.errno != errno.EIO:
                raise
            data = b""
        if not data:
            # No process has the terminal open.
            self._close()
            return False
        self._write_log(data)
        for client in list(self._clients):
            client.waiting += data
            self._send(client)
        return True

    def _write_log(self, data: bytes) -> None:
        """Add output to the log. The terminal ends lines with CR LF, and the log with LF."""
        data = self._held + data
        self._held = b"\r" if data.endswith(b"\r") else b""
        data = data.removesuffix(self._held).replace(b"\r\n", b"\n")
        # Without space on the disk, a process without a terminal loses its output too.
        with contextlib.suppress(OSError):
            os.write(self._log, data)

    def _close(self) -> None:
        self._is_closed = True
        self._loop.unwatch(self._master)
        os.close(self._master)
        os.close(self._log)
        for client in list(self._clients):
            self._disconnect(client)

    # --- clients ---

    def join(self, client: socket.socket, received: bytes) -> str:
        """Relay a client. ``received`` is what it has already sent.

        Return an empty string, or the reason why the client cannot join.
        """
        if self._is_closed:
            return "its terminal is closed"
        if len(self._clients) >= MAX_CLIENTS:
            return "too many clients have joined its terminal"
        joined = _Client(client, bytearray(received))
        self._clients.append(joined)
        self._loop.watch(client.fileno(), lambda: self._receive(joined))
        self._handle_messages(joined)
        return ""

    def _receive(self, client: _Client) -> None:
        data = receive(client.socket, _READ_BYTES)
        if data is None:
            return
        if not data:
            self._disconnect(client)
            return
        client.received += data
        self._handle_messages(client)

    def _handle_messages(self, client: _Client) -> None:
        while len(client.received) >= HEADER.size:
            kind, length = HEADER.unpack_from(client.received)
            if length > MAX_MESSAGE_BYTES:
                self._disconnect(client)
                return
            if len(client.received) < HEADER.size + length:
                return
            content = bytes(client.received[HEADER.size : HEADER.size + length])
            del client.received[: HEADER.size + length]
            if kind == INPUT:
                self._type(content)
            elif kind == SIZE and length == SIZE_FORMAT.size:
                self._resize(*SIZE_FORMAT.unpack(content))

    def _type(self, data: bytes) -> None:
        if len(self._input) + len(data) <= MAX_INPUT_BYTES:
            self._input += data
        self._send_input()

    def _send_input(self) -> None:
        with contextlib.suppress(OSError):
            while self._input and not self._is_closed:
                del self._input[: os.write(self._master, self._input)]
        if self._input:
            self._retry_soon()

    def _resize(self, rows: int, columns: int) -> None:
        if rows and columns and not self._is_closed:
            size = struct.pack("HHHH", rows, columns, 0, 0)
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def _send(self, client: _Client) -> None:
        try:
            while client.waiting:
                del client.waiting[: client.socket.send(client.waiting, socket.MSG_NOSIGNAL)]
        except BlockingIOError:
            if len(client.waiting) > MAX_WAITING_BYTES:
                self._disconnect(client)
            else:
                self._retry_soon()
        except OSError:
            self._disconnect(client)

    def _retry_soon(self) -> None:
        if not self._is_retrying and not self._is_closed:
            self._is_retrying = True
            self._loop.after(_RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        self._is_retrying = False
        if not self._is_closed:
            self._send_input()
            for client in list(self._clients):
                self._send(client)

    def _disconnect(self, client: _Client) -> None:
        if client in self._clients:
            self._clients.remove(client)
            self._loop.unwatch(client.socket.fileno())
            client.socket.close()
