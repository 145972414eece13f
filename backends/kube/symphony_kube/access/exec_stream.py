"""A connection to a process's container, with numbered channels.

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
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from symphony.errors import Unreachable
from symphony_kube.api.errors import ApiError, one_line
from symphony_kube.api.streams.channels import PROTOCOL_5, STATUS, Piece

if TYPE_CHECKING:
    from symphony_kube.api.client import Api, RepeatedQuery
    from symphony_kube.api.streams.spdy import Spdy
    from symphony_kube.api.streams.websocket import WebSocket

# The maximum size of one message, and the amount of unsent data at which a sender must wait. A
# message with its header fits into two TLS records, each of which the servers pass on separately.
MESSAGE_BYTES = (1 << 15) - 16
SEND_BUFFER_BYTES = 1 << 20
# Pings keep an idle connection open.
PING_INTERVAL_SECONDS = 20.0
_CHUNK_BYTES = 1 << 17
# After this many reads, `exchange` returns, so that its caller can check other sources of events.
_MAX_READS = 32

Message = tuple[int, bytes]


def open_stream(
    api: Api, path: str, *, query: RepeatedQuery, channels: Iterable[int]
) -> ExecStream:
    """Open a connection for exec or attach, on which `ExecStream.close_channel` works.

    The server decides the protocol, as it does for kubectl: WebSocket if it is at least version
    1.30, and else SPDY. Raises `ApiError` if the server answers with an error, and `Unreachable` if
    it does not answer.
    """
    if not api.requires_spdy:
        # A server that does not know the protocol refuses it in several ways. If it has another
        # reason to refuse the connection, it repeats this reason below.
        with contextlib.suppress(ApiError):
            return ExecStream(api.websocket(path, query=query, protocol=PROTOCOL_5))
    connection = api.spdy(path, query=query, channels=channels)
    api.requires_spdy = True
    return ExecStream(connection)


class ExecStream:
    """The channels of one connection. Only one thread may use them.

    ``connection`` is the result of `Api.websocket` or `Api.spdy`.
    """

    def __init__(self, connection: WebSocket | Spdy) -> None:
        self._socket: Any = connection.socket
        self._socket.setblocking(False)
        self._connection = connection
        self.closed = False
        self._send_error = ""
        self._unsent: deque[memoryview] = deque()
        self.unsent_bytes = 0
        self._must_write = False
        self._last_sent = time.monotonic()
        # The part of a status message that has been received so far.
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
    def full(self) -> bool:
        """True if a sender must wait before it sends more data."""
        return self.unsent_bytes >= SEND_BUFFER_BYTES

    def send(self, channel: int, data: bytes | memoryview) -> None:
        """Queue data for a channel. The next calls to `exchange` send the data."""
        view = memoryview(data)
        for start in range(0, len(view), MESSAGE_BYTES):
            piece = bytes(view[start : start + MESSAGE_BYTES])
            self._queue(self._connection.encode(channel, piece))

    def close_channel(self, channel: int) -> None:
        """Report the end of the data on a channel."""
        self._queue(self._connection.encode_end(channel))

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
                self._queue(self._connection.encode_close())
                self._flush()
        self.closed = True
        with contextlib.suppress(OSError):
            self._socket.close()

    # --- sending ---

    def _queue(self, encoded: bytes) -> None:
        if encoded:
            self._unsent.append(memoryview(encoded))
            self.unsent_bytes += len(encoded)

    def _flush(self) -> None:
        if time.monotonic() > self._last_sent + PING_INTERVAL_SECONDS:
            self._last_sent = time.monotonic()
            self._queue(self._connection.encode_ping())
        self._must_write = False
        while self._unsent and not self.closed:
            try:
                # If sending on a TLS socket would block, the next call must send the same bytes.
                # The bytes are therefore removed from the queue only after they have been sent.
                sent = self._socket.send(self._unsent[0])
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
                self.unsent_bytes = 0
                return
            self._last_sent = time.monotonic()
            self.unsent_bytes -= sent
            if sent < len(self._unsent[0]):
                self._unsent[0] = self._unsent[0][sent:]
            else:
                self._unsent.popleft()

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
        pieces, answer = self._connection.decode(received)
        self._queue(answer)
        messages: list[Message] = []
        for piece in pieces:
            self._take(piece, messages)
        if self._connection.is_closed:
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
        """Process a piece of a message."""
        if piece.channel == STATUS:
            self._status += piece.data
            if piece.is_last and self._status:
                messages.append((STATUS, bytes(self._status)))
                self._status.clear()
        elif piece.data:
            messages.append((piece.channel, piece.data))


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
