"""A connection of numbered channels with a container: what exec, copying and port-forwarding stand on.

The API hands over a WebSocket that is connected; from there on its frames (RFC 6455) are read and written here, by
one thread, without ever blocking in a write: a library that sends from one thread and receives in another would use
one TLS connection in two threads at once, which OpenSSL does not allow.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import ssl
import struct
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from symphony.errors import Unreachable
from symphony_kube.api.errors import one_line

STDIN, STDOUT, STDERR, STATUS, RESIZE = range(5)
# A message of the fifth protocol: the channel that it names has come to its end.
END = 255

# What is sent at once, and how much may wait to be sent before a sender has to wait, in bytes.
PIECE = 1 << 15
FULL = 1 << 20
# An idle connection is kept open by a word now and then, in seconds.
PING_EVERY = 20.0
_READ = 1 << 17

_CONTINUED, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA

Message = tuple[int, bytes]


class Channels:
    """The channels of one WebSocket, for one thread. ``websocket`` is what `Api.websocket` returned."""

    def __init__(self, websocket: Any) -> None:
        self._websocket = websocket  # kept: its socket is closed with it
        self._socket: Any = websocket.sock
        self._socket.setblocking(False)
        self.can_end = websocket.getsubprotocol() == "v5.channel.k8s.io"
        self.closed = False
        self._broken = ""
        self._out = bytearray()
        self._in = bytearray()
        self._channel: int | None = None  # of the message that is being continued
        self._spoke = time.monotonic()
        self._must_write = False

    def __enter__(self) -> Channels:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """The descriptor to select on."""
        number: int = self._socket.fileno()
        return number

    @property
    def backlog(self) -> int:
        """How many bytes wait to be sent."""
        return len(self._out)

    @property
    def full(self) -> bool:
        """Whether a sender should wait."""
        return len(self._out) >= FULL

    def send(self, channel: int, data: bytes | memoryview) -> None:
        """Have data sent on a channel; it goes out with the next `wait`."""
        view = memoryview(data)
        for start in range(0, max(1, len(view)), PIECE):
            self._queue(_BINARY, bytes((channel,)) + bytes(view[start : start + PIECE]))

    def end(self, channel: int) -> None:
        """Say that no more will come on a channel; only where `can_end`."""
        self._queue(_BINARY, bytes((END, channel)))

    def wait(
        self, timeout: float | None, also: Iterable[int] = ()
    ) -> tuple[list[Message], set[int]]:
        """Send what waits and receive what came, within ``timeout`` seconds; which of ``also`` can be read.

        Raises `Unreachable` where the connection broke off. After its end `closed` is true.
        """
        if self.closed:
            return [], set()
        self._flush()
        readable = self._select(timeout, also)
        self._flush()
        messages = self._receive() if self.fileno() in readable or self._buffered() else []
        return messages, readable - {self.fileno()}

    def close(self) -> None:
        """Say goodbye and close the socket, whether or not the other end answers."""
        if self._socket.fileno() >= 0:
            with contextlib.suppress(OSError, Unreachable):
                self._queue(_CLOSE, struct.pack("!H", 1000))
                self._flush()
        self.closed = True
        with contextlib.suppress(Exception):
            self._websocket.shutdown()
        with contextlib.suppress(OSError):
            self._socket.close()

    # --- sending ---

    def _queue(self, opcode: int, payload: bytes) -> None:
        """Put a frame behind what is to be sent, masked as clients must."""
        size, mask = len(payload), os.urandom(4)
        if size < 126:
            head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
        pad = (mask * (size // 4 + 1))[:size]
        masked = int.from_bytes(payload, "little") ^ int.from_bytes(pad, "little")
        self._out += head + mask + masked.to_bytes(size, "little")

    def _flush(self) -> None:
        if time.monotonic() > self._spoke + PING_EVERY:
            self._spoke = time.monotonic()
            self._queue(_PING, b"")
        self._must_write = False
        while self._out and not self.closed:
            try:
                # A TLS socket wants the same bytes again where it could not take them: they stay at the head.
                sent = self._socket.send(bytes(self._out[:_READ]))
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._must_write = True
                return
            except ssl.SSLWantReadError:
                return
            except OSError as exc:
                # What the server said last may still be there to be read.
                self._broken = self._broken or one_line(str(exc))
                self._out.clear()
                return
            self._spoke = time.monotonic()
            del self._out[:sent]

    def _select(self, timeout: float | None, also: Iterable[int]) -> set[int]:
        if self._buffered():
            timeout = 0.0
        idle = max(0.0, self._spoke + PING_EVERY - time.monotonic()) + 0.01
        left = idle if timeout is None else min(timeout, idle)
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | (select.POLLOUT if self._must_write else 0))
        for number in also:
            poll.register(number, select.POLLIN)
        return {number for number, event in poll.poll(left * 1000) if event != select.POLLOUT}

    # --- receiving ---

    def _buffered(self) -> bool:
        return bool(getattr(self._socket, "pending", lambda: 0)())

    def _receive(self) -> list[Message]:
        messages: list[Message] = []
        for _ in range(32):  # and then let the others have their turn
            try:
                data = self._socket.recv(_READ)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError as exc:
                return self._over(messages, one_line(str(exc)))
            if not data:
                return self._over(messages, "the server closed it")
            self._in += data
            self._parse(messages)
            if self.closed:
                break
        return messages

    def _over(self, messages: list[Message], why: str) -> list[Message]:
        """The end of the connection: what came before it is handed out first."""
        self.closed = True
        if not messages:
            raise Unreachable(f"the connection to the container broke off: {self._broken or why}")
        return messages

    def _parse(self, messages: list[Message]) -> None:
        """Take the whole frames out of what was received."""
        data, place = self._in, 0
        while (frame := _frame(data, place)) is not None:
            start, place = frame.start, frame.end
            self._take(frame, bytes(data[start:place]), messages)
        del data[:place]

    def _take(self, frame: _Frame, payload: bytes, messages: list[Message]) -> None:
        if frame.opcode in (_BINARY, _TEXT):
            if payload:
                self._channel = payload[0]
                messages.append((payload[0], payload[1:]))
        elif frame.opcode == _CONTINUED:
            if self._channel is not None:
                messages.append((self._channel, payload))
        elif frame.opcode == _PING:
            self._queue(_PONG, payload)
        elif frame.opcode == _CLOSE:
            self.closed = True


@dataclass(frozen=True, slots=True)
class _Frame:
    opcode: int
    start: int
    end: int


def _frame(data: bytearray, place: int) -> _Frame | None:
    """The frame that begins at ``place``, or None where it is not whole yet. Servers do not mask."""
    have = len(data) - place
    if have < 2:
        return None
    opcode, size, start = data[place] & 0x0F, data[place + 1] & 0x7F, place + 2
    if size == 126:
        if have < 4:
            return None
        size, start = int.from_bytes(data[start : start + 2], "big"), start + 2
    elif size == 127:
        if have < 10:
            return None
        size, start = int.from_bytes(data[start : start + 8], "big"), start + 8
    return _Frame(opcode, start, start + size) if len(data) >= start + size else None


# --- the ends of commands ---


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a command ended: its ``exit_code``, or None and the ``reason`` for which it did not run."""

    exit_code: int | None
    reason: str = ""


def end_of(status: bytes) -> End:
    """What the channel of the status said.

    >>> end_of(b'{"status": "Success"}').exit_code
    0
    """
    try:
        said = json.loads(status)
    except ValueError:  # the oldest protocol: plain words, and only for errors
        return End(exit_code=None, reason=one_line(status.decode(errors="replace")))
    if said.get("status") == "Success":
        return End(exit_code=0)
    causes: Sequence[dict[str, str]] = (said.get("details") or {}).get("causes") or []
    for cause in causes:
        if cause.get("reason") == "ExitCode" and str(cause.get("message", "")).isdigit():
            return End(exit_code=int(cause["message"]))
    return End(exit_code=None, reason=one_line(str(said.get("message") or "no reason given")))
