"""WebSockets for exec, attach and port-forward: opening them, and the encoding of their messages.

wsproto encodes and decodes. It does not use the socket.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping

from symphony.errors import PluginError
from symphony_kube.api.streams.channels import Piece, Refused

try:
    from wsproto import ConnectionType, WSConnection
    from wsproto.connection import Connection, ConnectionState
    from wsproto.events import (
        AcceptConnection,
        BytesMessage,
        CloseConnection,
        Event,
        Ping,
        RejectConnection,
        RejectData,
        Request,
        TextMessage,
    )
    from wsproto.utilities import RemoteProtocolError
except ModuleNotFoundError as absent:
    from symphony.support.install_hints import install_command

    raise PluginError(
        f"backend 'kube' needs the package {absent.name!r}; "
        f"install it with: {install_command('kube')}"
    ) from absent

# A message on this channel closes the channel whose number the message contains.
_CLOSE_CHANNEL = 255
_CHUNK_BYTES = 1 << 16


class WebSocket:
    """An open WebSocket. Its user sends and receives the encoded data on ``socket``.

    The first byte of a message is the number of its channel. ``is_closed`` is True after the server
    has closed the WebSocket.
    """

    def __init__(self, socket: socket.socket, frames: Connection) -> None:
        self.socket = socket
        self.is_closed = False
        self._frames = frames
        # The channel of the message that is being received.
        self._channel: int | None = None

    def encode(self, channel: int, data: bytes) -> bytes:
        """Encode a message."""
        return self._encode(BytesMessage(data=bytes((channel,)) + data))

    def encode_end(self, channel: int) -> bytes:
        """Encode the end of the data on a channel. This requires version 5 of the protocol."""
        return self.encode(_CLOSE_CHANNEL, bytes((channel,)))

    def encode_ping(self) -> bytes:
        """Encode a ping."""
        return self._encode(Ping())

    def encode_close(self) -> bytes:
        """Encode the last message."""
        return self._encode(CloseConnection(code=1000))

    def decode(self, received: bytes) -> tuple[list[Piece], bytes]:
        """Decode received data. Return the pieces of messages, and the answer to send."""
        pieces: list[Piece] = []
        answer = b""
        self._frames.receive_data(received)
        for event in self._frames.events():
            if isinstance(event, BytesMessage):
                self._take(bytes(event.data), event.message_finished, pieces)
            elif isinstance(event, TextMessage):
                self._take(event.data.encode(), event.message_finished, pieces)
            elif isinstance(event, Ping):
                answer += self._encode(event.response())
            elif isinstance(event, CloseConnection):
                self.is_closed = True
        return pieces, answer

    def _take(self, data: bytes, is_last: bool, pieces: list[Piece]) -> None:
        """Append a part of a message to ``pieces``."""
        if self._channel is None and data:
            self._channel, data = data[0], data[1:]
        if self._channel is not None:
            pieces.append(Piece(self._channel, data, is_last))
        if is_last:
            self._channel = None

    def _encode(self, event: Event) -> bytes:
        """Encode an event. If the connection is closing, the result is empty."""
        is_open = self._frames.state is ConnectionState.OPEN
        return self._frames.send(event) if is_open else b""


def open_websocket(
    connected: socket.socket, *, host: str, target: str, headers: Mapping[str, str], protocol: str
) -> WebSocket:
    """Open a WebSocket on a connection to the server, within the timeout of the connection.

    ``target`` is the path and the query. ``protocol`` is the version of the protocol for channels.
    Raises `Refused` if the server answers with an error, and `OSError` if the connection is lost.
    """
    handshake = WSConnection(ConnectionType.CLIENT)
    extra = [(key.encode(), value.encode()) for key, value in headers.items()]
    request = Request(host=host, target=target, subprotocols=[protocol], extra_headers=extra)
    connected.sendall(handshake.send(request))
    status, body = 0, b""
    for event in _answer(handshake, connected):
        if isinstance(event, AcceptConnection) and handshake.connection is not None:
            return WebSocket(connected, handshake.connection)
        if isinstance(event, RejectConnection):
            status = event.status_code
        elif isinstance(event, RejectData):
            body += event.data
    raise Refused(status, body)


def _answer(handshake: WSConnection, connected: socket.socket) -> Iterator[Event]:
    """Yield the parts of the answer to a handshake.

    The first frames can follow the head of the answer immediately. They remain in the socket,
    because the head is read byte by byte.
    """
    is_head = True
    while True:
        data = connected.recv(1 if is_head else _CHUNK_BYTES)
        try:
            handshake.receive_data(data)
        except RemoteProtocolError as exc:
            raise ConnectionError(f"the server does not open a WebSocket: {exc}") from exc
        for event in handshake.events():
            is_head = False
            yield event
            if isinstance(event, RejectConnection) and not event.has_body:
                return
            if isinstance(event, RejectData) and event.body_finished:
                return
        if not data:
            raise ConnectionError("the server closed the connection")
