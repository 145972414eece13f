"""A connection to a process's container, with numbered channels over one WebSocket.

Commands, file copies and forwarded ports use such connections. A single thread uses the socket,
because OpenSSL does not allow one thread to send on a TLS connection while another thread receives
on it. A write never blocks, so that this thread can always receive.
"""

from __future__ import annotations

import contextlib
import json
import select
import ssl
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from symphony.errors import Unreachable
from symphony_kube.api.errors import one_line
from symphony_kube.api.websocket import CLOSE_CHANNEL_PROTOCOL, Piece, WebSocket

STDIN, STDOUT, STDERR, STATUS, RESIZE = range(5)
# In version 5 of the protocol, a message on this channel closes the channel whose number the
# message contains.
CLOSE_CHANNEL = 255

# The maximum size of one message, and the amount of unsent data at which a sender must wait.
MESSAGE_BYTES = 1 << 15
SEND_BUFFER_BYTES = 1 << 20
# Pings keep an idle connection open.
PING_INTERVAL_SECONDS = 20.0
_CHUNK_BYTES = 1 << 17
# After this many reads, `exchange` returns, so that its caller can check other sources of events.
_MAX_READS = 32

Message = tuple[int, bytes]


class ExecStream:
    """The channels of one WebSocket. Only one thread may use them.

    ``websocket`` is the result of `Api.websocket`.
    """

    def __init__(self, websocket: WebSocket) -> None:
        self._socket: Any = websocket.socket
        self._socket.setblocking(False)
        self._websocket = websocket
        self.can_close_channels = websocket.protocol == CLOSE_CHANNEL_PROTOCOL
        self.closed = False
        self._send_error = ""
        self._unsent = bytearray()
        self._must_write = False
        self._last_sent = time.monotonic()
        # The channel of the message that is being received, and the part of a status message that
        # has been received so far.
        self._channel: int | None = None
        self._status = bytearray()

    def __enter__(self) -> ExecStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the socket's file descriptor."""
        number: int = self._socket.fileno()
        return number

    @property
    def unsent_bytes(self) -> int:
        """The number of bytes that are waiting to be sent."""
        return len(self._unsent)

    @property
    def full(self) -> bool:
        """True if a sender must wait before it sends more data."""
        return len(self._unsent) >= SEND_BUFFER_BYTES

    def send(self, channel: int, data: bytes | memoryview) -> None:
        """Queue data for a channel. The next calls to `exchange` send the data."""
        view = memoryview(data)
        prefix = bytes((channel,))
        for start in range(0, max(1, len(view)), MESSAGE_BYTES):
            piece = bytes(view[start : start + MESSAGE_BYTES])
            self._unsent += self._websocket.encode(prefix + piece)

    def close_channel(self, channel: int) -> None:
        """Report the end of the data on a channel. This requires that `can_close_channels` is
        True.
        """
        self._unsent += self._websocket.encode(bytes((CLOSE_CHANNEL, channel)))

    def exchange(
        self, timeout: float | None, readable: Iterable[int] = ()
    ) -> tuple[list[Message], set[int]]:
        """Send queued data and receive messages. Wait for at most ``timeout`` seconds.

        The wait also ends when the next ping is due, or when the stream is no longer `full`. Return
        the messages, and those file descriptors in ``readable`` that are ready to be read. A long
        message is returned in pieces, unless it is on the status channel. `closed` is set when the
        connection has ended. Raises `Unreachable` if the connection was lost and there are no more
        messages.
        """
        if self.closed:
            return [], set()
        was_full = self.full
        self._flush()
        if was_full and not self.full:
            timeout = 0.0  # The sender waits for this, and not for messages.
        ready = self._poll(timeout, readable)
        self._flush()
        messages = []
        if self.fileno() in ready or self._has_buffered_input():
            messages = self._receive()
        return messages, ready - {self.fileno()}

    def close(self) -> None:
        """Close the connection without waiting for the other side."""
        if self._socket.fileno() >= 0:
            with contextlib.suppress(OSError, Unreachable):
                self._unsent += self._websocket.encode_close()
                self._flush()
        self.closed = True
        with contextlib.suppress(OSError):
            self._socket.close()

    # --- sending ---

    def _flush(self) -> None:
        if time.monotonic() > self._last_sent + PING_INTERVAL_SECONDS:
            self._last_sent = time.monotonic()
            self._unsent += self._websocket.encode_ping()
        self._must_write = False
        while self._unsent and not self.closed:
            try:
                # If sending on a TLS socket would block, the next call must send the same bytes.
                # The bytes are therefore removed from the buffer only after they have been sent.
                sent = self._socket.send(bytes(self._unsent[:_CHUNK_BYTES]))
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._must_write = True
                return
            except ssl.SSLWantReadError:
                return
            except OSError as exc:
                # The last messages from the server may still be readable, so this error is reported
                # later.
                self._send_error = self._send_error or one_line(str(exc))
                self._unsent.clear()
                return
            self._last_sent = time.monotonic()
            del self._unsent[:sent]

    def _poll(self, timeout: float | None, readable: Iterable[int]) -> set[int]:
        if self._has_buffered_input():
            timeout = 0.0
        next_ping = max(0.0, self._last_sent + PING_INTERVAL_SECONDS - time.monotonic()) + 0.01
        seconds = next_ping if timeout is None else min(timeout, next_ping)
        events = select.POLLIN
        if self._must_write:
            events |= select.POLLOUT
        poll = select.poll()
        poll.register(self._socket, events)
        for descriptor in readable:
            poll.register(descriptor, select.POLLIN)
        result = poll.poll(seconds * 1000)
        return {descriptor for descriptor, event in result if event != select.POLLOUT}

    # --- receiving ---

    def _has_buffered_input(self) -> bool:
        """Return whether a TLS socket holds decrypted data, which `select.poll` does not report."""
        pending = getattr(self._socket, "pending", None)
        return pending is not None and pending() > 0

    def _receive(self) -> list[Message]:
        received, problem = self._read()
        pieces, answer = self._websocket.decode(received)
        self._unsent += answer
        messages: list[Message] = []
        for piece in pieces:
            self._take(piece, messages)
        if self._websocket.is_closed:
            self.closed = True
        elif problem:
            return self._connection_lost(messages, problem)
        return messages

    def _read(self) -> tuple[bytes, str]:
        """Return the data that is available, and why the connection was lost, if it was."""
        chunks: list[bytes] = []
        for _ in range(_MAX_READS):
            try:
                data = self._socket.recv(_CHUNK_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError as exc:
                return b"".join(chunks), one_line(str(exc))
            if not data:
                return b"".join(chunks), "the server closed it"
            chunks.append(data)
        return b"".join(chunks), ""

    def _connection_lost(self, messages: list[Message], why: str) -> list[Message]:
        """Return the messages that arrived before the connection was lost. Raises `Unreachable` if
        there are none.
        """
        self.closed = True
        if not messages:
            cause = self._send_error or why
            raise Unreachable(f"the connection to the container was lost: {cause}")
        return messages

    def _take(self, piece: Piece, messages: list[Message]) -> None:
        """Process a piece of a message. The first byte of a message is its channel number."""
        data = piece.data
        if self._channel is None and data:
            self._channel, data = data[0], data[1:]
        if self._channel == STATUS:
            self._status += data
            if piece.is_last:
                messages.append((STATUS, bytes(self._status)))
                self._status.clear()
        elif self._channel is not None:
            messages.append((self._channel, data))
        if piece.is_last:
            self._channel = None


# --- the result of a command ---


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandExit:
    """The result of a command. If the command did not run, ``exit_code`` is None and ``reason``
    explains why.
    """

    exit_code: int | None
    reason: str = ""


def parse_status(status: bytes) -> CommandExit:
    """Parse a message from the status channel.

    >>> parse_status(b'{"status": "Success"}').exit_code
    0
    """
    try:
        answer = json.loads(status)
    except ValueError:  # The oldest protocol sends plain text, and only if an error occurs.
        return CommandExit(exit_code=None, reason=one_line(status.decode(errors="replace")))
    if answer.get("status") == "Success":
        return CommandExit(exit_code=0)
    causes: Sequence[dict[str, str]] = (answer.get("details") or {}).get("causes") or []
    for cause in causes:
        message = str(cause.get("message", ""))
        if cause.get("reason") == "ExitCode" and message.isdigit():
            return CommandExit(exit_code=int(message))
    reason = one_line(str(answer.get("message") or "no reason given"))
    return CommandExit(exit_code=None, reason=reason)
