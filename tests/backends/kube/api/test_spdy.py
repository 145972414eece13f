"""The connections of commands: SPDY, and the choice between it and WebSocket."""

import contextlib
import socket
import struct
import threading

import pytest
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, Request

from symphony.errors import Unreachable
from symphony_kube.access.exec_stream import ExecStream, open_stream
from symphony_kube.api.errors import ApiError, api_error
from symphony_kube.api.streams.channels import PROTOCOL_5, STATUS, STDERR, STDIN, STDOUT, Refused
from symphony_kube.api.streams.spdy import Spdy, open_spdy
from symphony_kube.api.streams.websocket import open_websocket

SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
RESET_STREAM, PING, GO_AWAY = 3, 6, 7


def control(kind, *numbers):
    return struct.pack(f"!HHI{len(numbers)}I", 0x8003, kind, 4 * len(numbers), *numbers)


def data(stream, content, *, last=False):
    return struct.pack("!II", stream, last << 24 | len(content)) + content


@contextlib.contextmanager
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def received(stream):
    messages = []
    while not stream.closed:
        messages += stream.exchange(None)[0]
    return messages


def open_on(connected, channels=(STDIN,)):
    return open_spdy(connected, host="h", target="/exec?command=x", headers={}, channels=channels)


def test_refusal_is_reported():
    with pair() as (ours, theirs):
        theirs.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 4\r\n\r\nnope")
        with pytest.raises(Refused) as caught:
            open_on(ours)
        assert (caught.value.status, caught.value.body) == (400, b"nope")
        request = theirs.recv(1 << 16)
        assert request.startswith(b"POST /exec?command=x HTTP/1.1\r\n")
        assert b"Upgrade: SPDY/3.1\r\n" in request


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 101", b"SSH-2.0-server\r\n\r\n"])
def test_answer_of_another_server_is_a_lost_connection(answer):
    with pair() as (ours, theirs):
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError, match="the server"):
            open_on(ours)


@pytest.mark.parametrize("size", [1, 7, 1 << 16])
def test_messages_of_any_size_are_decoded(size):
    sent = (
        control(2, 1)
        + data(3, b"out")
        + control(PING, 2)
        + control(PING, 1)
        + data(5, b"e" * 70_000)
        + data(3, b"", last=True)
        + data(7, b'{"status":')
        + data(7, b'"Success"}')
        + control(RESET_STREAM, 7, 5)
        + control(GO_AWAY, 0, 0)
    )
    with pair() as (ours, _):
        connection = Spdy(ours)
        pieces, answers = [], b""
        for start in range(0, len(sent), size):
            more, answer = connection.decode(sent[start : start + size])
            pieces += more
            answers += answer
    assert answers == control(PING, 2)
    assert connection.is_closed
    assert [(piece.channel, piece.is_last) for piece in pieces] == [
        (STDOUT, False),
        (STDERR, False),
        (STDOUT, True),
        (STATUS, False),
        (STATUS, False),
        (STATUS, True),
        (STATUS, True),
    ]
    assert b"".join(piece.data for piece in pieces if piece.channel == STDERR) == b"e" * 70_000


@pytest.mark.parametrize("end", [data(7, b"", last=True), control(RESET_STREAM, 7, 5), b""])
def test_status_is_complete_when_its_stream_or_the_connection_is_closed(end):
    with pair() as (ours, theirs):
        stream = ExecStream(Spdy(ours))
        theirs.sendall(data(3, b"out") + data(7, b"{") + data(7, b"}") + end)
        theirs.sendall(control(GO_AWAY, 0, 0))
        assert received(stream) == [(STDOUT, b"out"), (STATUS, b"{}")]


def test_cut_connection_is_reported():
    with pair() as (ours, theirs):
        stream = ExecStream(Spdy(ours))
        theirs.sendall(data(3, b"out"))
        assert stream.exchange(None)[0] == [(STDOUT, b"out")]
        theirs.sendall(data(3, b"a message that is cut")[:-1])
        theirs.close()
        with pytest.raises(Unreachable, match="the connection to the container was lost"):
            received(stream)


class Server:
    """An API server as `open_stream` sees it, with a limited number of protocols."""

    def __init__(self, *protocols):
        self.requires_spdy = False
        self.requests = []
        self._protocols = protocols

    def websocket(self, path, *, query, protocol):
        return self._open("websocket")

    def spdy(self, path, *, query, channels):
        return self._open("spdy")

    def _open(self, protocol):
        self.requests.append(protocol)
        if protocol not in self._protocols:
            raise api_error(400, {"message": f"{protocol} is refused"}, "", None)
        return Spdy(socket.socket())


@pytest.mark.parametrize(
    ("offered", "requests"),
    [
        (["websocket", "spdy"], ["websocket", "websocket"]),
        (["websocket"], ["websocket", "websocket"]),
        (["spdy"], ["websocket", "spdy", "spdy"]),
    ],
)
def test_spdy_is_used_if_the_server_refuses_websockets(offered, requests):
    server = Server(*offered)
    for _ in range(2):
        open_stream(server, "/exec", query=[], channels=[STDIN]).close()
    assert server.requests == requests


def test_reason_of_a_refusal_is_that_of_spdy():
    server = Server()
    with pytest.raises(ApiError, match="spdy is refused"):
        open_stream(server, "/exec", query=[], channels=[STDIN])
    assert not server.requires_spdy


def test_channel_of_a_websocket_can_be_closed():
    with pair() as (ours, theirs):
        peer = WSConnection(ConnectionType.SERVER)

        def accept():
            peer.receive_data(theirs.recv(1 << 16))
            (request,) = peer.events()
            assert isinstance(request, Request)
            theirs.sendall(peer.send(AcceptConnection(subprotocol=request.subprotocols[0])))

        thread = threading.Thread(target=accept)
        thread.start()
        connection = open_websocket(ours, host="h", target="/exec", headers={}, protocol=PROTOCOL_5)
        thread.join()
        stream = ExecStream(connection)
        stream.send(STDIN, b"in")
        stream.close_channel(STDIN)
        stream.exchange(0.0)
        peer.receive_data(theirs.recv(1 << 16))
        assert [bytes(event.data) for event in peer.events()] == [b"\x00in", b"\xff\x00"]
        theirs.sendall(peer.send(BytesMessage(data=b"\x01out")))
        assert stream.exchange(None)[0] == [(STDOUT, b"out")]
