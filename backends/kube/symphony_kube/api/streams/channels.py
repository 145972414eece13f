"""The channels of a connection to a container, as Kubernetes numbers them."""

from __future__ import annotations

from typing import NamedTuple

# The versions of the protocol for channels. Only the last one can close a channel of a WebSocket.
# API servers offer it since version 1.30, for exec and attach.
PROTOCOL_4, PROTOCOL_5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, RESIZE = range(5)


class Piece(NamedTuple):
    """A part of a message that has been received on a channel."""

    channel: int
    data: bytes
    is_last: bool


class Refused(Exception):
    """The server has answered with an error instead of opening a connection."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.body = body
