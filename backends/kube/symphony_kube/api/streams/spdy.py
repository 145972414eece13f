"""SPDY/3.1 for exec and attach, as API servers before version 1.30 require it to close a channel.

Every channel is a stream of its own. This module implements only what a client of Kubernetes needs:

* Kubernetes does not limit the data in flight, so there are no window updates.
* The client opens all streams. The headers of the answers are empty, so they are not decompressed.
* The sent headers are compressed without the dictionary of SPDY. A receiver uses the dictionary
  only if the compressed data refers to it.

h11 encodes and decodes the request that opens the connection.
"""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Iterable, Mapping

import h11

from symphony_kube.api.streams.channels import PROTOCOL_4, STATUS, Piece, Refused

_PROTOCOL = "SPDY/3.1"
# The names of the streams, in the order of the numbers of the channels.
_STREAM_NAMES = ("stdin", "stdout", "stderr", "error", "resize")

_HEADER = struct.Struct("!II")
# The highest bit of a frame marks a control frame, which contains the version and the type.
_CONTROL = 0x80030000
_SYN_STREAM, _RST_STREAM, _PING, _GOAWAY = 1, 3, 6, 7
_LENGTH_BITS = 24
_MAX_LENGTH = (1 << _LENGTH_BITS) - 1
_END_OF_STREAM = 1 << _LENGTH_BITS
_CHUNK_BYTES = 1 << 16


class Spdy:
    """An open connection. Its user sends and receives the encoded data on ``socket``.

    ``is_closed`` is True after the server has closed the connection.
    """

    def __init__(self, socket: socket.socket) -> None:
        self.socket = socket
        self.is_closed = False
        self._received = bytearray()
        self._last_ping = -1

    def encode(self, channel: int, data: bytes) -> bytes:
        """Encode a message."""
        return _HEADER.pack(_stream(channel), len(data)) + data

    def encode_end(self, channel: int) -> bytes:
        """Encode the end of the data on a channel."""
        return _HEADER.pack(_stream(channel), _END_OF_STREAM)

    def encode_ping(self) -> bytes:
        """Encode a ping. A client's pings have odd numbers."""
        self._last_ping += 2
        return _control(_PING, struct.pack("!I", self._last_ping))

    def encode_close(self) -> bytes:
        """Encode the last message."""
        return _control(_GOAWAY, bytes(8))

    def decode(self, received: bytes) -> tuple[list[Piece], bytes]:
        """Decode received data. Return the pieces of messages, and the answer to send."""
        pieces: list[Piece] = []
        answer = b""
        self._received += received
        start = 0
        while len(self._received) - start >= _HEADER.size:
            first, second = _HEADER.unpack_from(self._received, start)
            end = start + _HEADER.size + (second & _MAX_LENGTH)
            if end > len(self._received):
                break
            content = bytes(memoryview(self._received)[start + _HEADER.size : end])
            start = end
            if first < _CONTROL:
                pieces.append(Piece(_channel(first), content, bool(second & _END_OF_STREAM)))
            elif first == _CONTROL | _RST_STREAM:
                pieces.append(Piece(_channel(int.from_bytes(content[:4], "big")), b"", True))
            elif first == _CONTROL | _PING and int.from_bytes(content, "big") % 2 == 0:
                answer += _control(_PING, content)
            elif first == _CONTROL | _GOAWAY:
                pieces.append(Piece(STATUS, b"", True))
                self.is_closed = True
        del self._received[:start]
        return pieces, answer


def open_spdy(
    connected: socket.socket,
    *,
    host: str,
    target: str,
    headers: Mapping[str, str],
    channels: Iterable[int],
) -> Spdy:
    """Open a connection with the given channels, within the timeout of ``connected``.

    ``target`` is the path and the query. Raises `Refused` if the server answers with an error, and
    `OSError` if the connection is lost.
    """
    request_headers = {
        "Host": host,
        "Connection": "Upgrade",
        "Upgrade": _PROTOCOL,
        "X-Stream-Protocol-Version": PROTOCOL_4,
        "Content-Length": "0",
        **headers,
    }
    handshake = h11.Connection(h11.CLIENT)
    request = h11.Request(method="POST", target=target, headers=list(request_headers.items()))
    connected.sendall(handshake.send(request) or b"")
    handshake.send(h11.EndOfMessage())
    _read_answer(handshake, connected)
    # The server sends nothing before it has received all streams.
    compressor = zlib.compressobj()
    connected.sendall(b"".join(_open_stream(channel, compressor) for channel in channels))
    return Spdy(connected)


def _read_answer(handshake: h11.Connection, connected: socket.socket) -> None:
    """Wait until the server has accepted the request. Raises `Refused` if it does not."""
    status, body = 0, b""
    while True:
        try:
            event = handshake.next_event()
            if event is h11.NEED_DATA:
                handshake.receive_data(connected.recv(_CHUNK_BYTES))
        except h11.RemoteProtocolError as exc:
            raise ConnectionError(f"the server does not open a connection: {exc}") from exc
        if isinstance(event, h11.InformationalResponse) and event.status_code == 101:
            return
        if isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            raise Refused(status, body)
        elif isinstance(event, h11.ConnectionClosed):
            raise ConnectionError("the server closed the connection")


def _open_stream(channel: int, compressor: zlib._Compress) -> bytes:
    name, value = b"streamtype", _STREAM_NAMES[channel].encode()
    headers = struct.pack("!I", 1)
    for text in (name, value):
        headers += struct.pack("!I", len(text)) + text
    compressed = compressor.compress(headers) + compressor.flush(zlib.Z_SYNC_FLUSH)
    # No associated stream, and the highest priority.
    return _control(_SYN_STREAM, struct.pack("!IIH", _stream(channel), 0, 0) + compressed)


def _control(kind: int, content: bytes) -> bytes:
    return _HEADER.pack(_CONTROL | kind, len(content)) + content


def _stream(channel: int) -> int:
    """Return the number of a channel's stream. A client's streams have odd numbers."""
    return 2 * channel + 1


def _channel(stream: int) -> int:
    return stream // 2
