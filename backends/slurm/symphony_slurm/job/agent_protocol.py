"""The connection between the supervisor and the agent of a node: JSON messages over TCP.

Both sides prove that they know the token of the run, which is in a private file of the run
directory. Neither side sends the token.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import select
import socket
import time
from collections import deque
from typing import Any

Message = dict[str, Any]

# The names of the two sides, which belong to the proofs.
SUPERVISOR, AGENT = "supervisor", "agent"

# A connection is closed if the other node does not answer for this time.
LOST_NODE_SECONDS = 30
# How often the kernel asks an idle connection for an answer.
KEEPALIVE_SECONDS = 5
_RECEIVE_BYTES = 1 << 16
_NONCE_BYTES = 32
_HANDSHAKE_TIMEOUT_SECONDS = 10.0
# The errors that the kernel reports if the machine of the other side has failed. If only a program
# has exited, its kernel closes the connection.
_UNREACHABLE = frozenset({errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH})


class ChannelClosed(Exception):
    """The other side has closed the connection, or has exited."""


class Channel:
    """A connection that carries JSON messages in both directions.

    ``pending`` contains messages that were received while another message was awaited.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_SECONDS)
        # Otherwise, the kernel sends a message again for about 15 minutes before it reports that
        # the other node has lost its network or its power.
        timeout = LOST_NODE_SECONDS * 1000
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout)
        self._received = b""
        self.pending: deque[Message] = deque()
        self.is_open = True
        # True if the machine of the other side does not answer, or cannot be reached.
        self.is_unreachable = False

    def fileno(self) -> int:
        """Return the descriptor of the connection."""
        return self._socket.fileno()

    @property
    def peer(self) -> tuple[str, int]:
        """The address of the other side, or ``("", 0)`` if the connection is lost."""
        try:
            host, port, *_ = self._socket.getpeername()
        except OSError:
            return "", 0
        return host, port

    def close(self) -> None:
        """Close the connection."""
        self.is_open = False
        self._socket.close()

    def send(self, message: Message) -> None:
        """Send a message. Do nothing if the connection is closed, because `receive` reports it."""
        if not self.is_open:
            return
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as exc:
            self.is_unreachable = exc.errno in _UNREACHABLE
            self.is_open = False

    def receive(self) -> list[Message]:
        """Return the messages that have arrived. Wait for data if there is none.

        Raises ChannelClosed if the connection is closed.
        """
        try:
            data = self._socket.recv(_RECEIVE_BYTES)
        except OSError as exc:
            self.is_unreachable = exc.errno in _UNREACHABLE
            data = b""
        if not data:
            self.is_open = False
            raise ChannelClosed
        *lines, self._received = (self._received + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def wait(self, timeout: float) -> bool:
        """Wait until data has arrived or the connection is closed. Return False on a timeout."""
        if not self.is_open:
            return True
        # `select.select` refuses descriptors above 1,023.
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(max(0.0, timeout) * 1000))

    # --- authentication ---

    def prove(self, token: bytes, own: str, other: str) -> bool:
        """Prove that this side knows the token, and return whether the other side knows it.

        ``own`` and ``other`` name the sides, so that a proof cannot be sent back.
        """
        self._socket.settimeout(_HANDSHAKE_TIMEOUT_SECONDS)
        nonce = os.urandom(_NONCE_BYTES)
        try:
            self._socket.sendall(nonce)
            other_nonce = self._receive_exactly(_NONCE_BYTES)
            self._socket.sendall(_proof(token, own, other_nonce))
            proof = self._receive_exactly(hashlib.sha256().digest_size)
        except OSError:
            return False
        self._socket.settimeout(None)
        return hmac.compare_digest(proof, _proof(token, other, nonce))

    def _receive_exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            received = self._socket.recv(count - len(data))
            if not received:
                raise ConnectionError("the connection was closed")
            data += received
        return data


def _proof(token: bytes, side: str, nonce: bytes) -> bytes:
    return hmac.new(token, side.encode() + nonce, "sha256").digest()


def receive_hello(channel: Channel, token: bytes) -> Message | None:
    """Return the first message of an agent, or None if it has exited or is another program."""
    if not channel.prove(token, SUPERVISOR, AGENT):
        return None
    hello: list[Message] = []
    try:
        while not hello:
            hello = channel.receive()
    except ChannelClosed:
        return None
    return hello[0]


def connect(addresses: list[tuple[str, int]], timeout: float) -> socket.socket:
    """Return a connection to the first address that accepts one.

    Raises OSError if none does within ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        for address in addresses:
            try:
                return socket.create_connection(address, timeout=_HANDSHAKE_TIMEOUT_SECONDS)
            except OSError as exc:
                error = exc
        if time.monotonic() > deadline:
            raise error
        time.sleep(0.1)
