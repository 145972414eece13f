"""Test that the ZeroMQ classes deliver messages unchanged and in order, and report errors."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
import zmq

from symphony import NotFound, PluginError, SymphonyError
from symphony.addons.zmq import (
    ZmqAddressError,
    ZmqClient,
    ZmqClosedError,
    ZmqMessageError,
    ZmqOptionError,
    ZmqOrderError,
    ZmqPub,
    ZmqPull,
    ZmqPuller,
    ZmqPush,
    ZmqPusher,
    ZmqReceiver,
    ZmqRemoteError,
    ZmqSender,
    ZmqServer,
    ZmqSub,
    ZmqTimeoutError,
)
from symphony.addons.zmq.context import context
from symphony.addons.zmq.sockets import READABLE

# A call that does not return within this many seconds has failed, even on a slow machine.
LONG = 30.0


@pytest.fixture
def open_socket() -> Iterator[Callable[..., Any]]:
    """Open objects and close them after the test. By default an object binds to a free port."""
    with ExitStack() as stack:

        def open_one(kind: Any, **options: Any) -> Any:
            options.setdefault("timeout", LONG)
            if not {"address", "service", "port"} & options.keys():
                options["port"] = 0
            return stack.enter_context(kind(**options))

        yield open_one


@pytest.fixture
def plain_socket() -> Iterator[Callable[..., zmq.Socket[bytes]]]:
    """Open plain sockets of pyzmq."""
    with zmq.Context() as own, ExitStack() as stack:

        def open_one(
            kind: int, *, connect: str = "", topic: bytes | None = None
        ) -> zmq.Socket[bytes]:
            socket = stack.enter_context(own.socket(kind))
            socket.linger, socket.rcvtimeo = 0, int(LONG * 1000)
            if topic is not None:
                socket.subscribe(topic)
            if connect:
                socket.connect(connect)
            else:
                socket.bind("tcp://127.0.0.1:*")
            return socket

        yield open_one


def address_of(socket: zmq.Socket[bytes]) -> str:
    return socket.last_endpoint.decode()


# --- requests and replies ---


def receive_before_timeout(
    server: Any, client: Any, monkeypatch: pytest.MonkeyPatch
) -> list[bytes]:
    """Let ``server`` receive each request before ``client`` starts to wait for the reply.

    Return the list of received requests. Without this function, a request is never sent if
    connecting takes longer than the timeout of the test.
    """
    received: list[bytes] = []
    wait = client._wait

    def receive_and_wait(event: int, deadline: float | None, what: str) -> bool:
        if event == READABLE:
            if server._due:
                server._send_reply([b"late answer"])
            received.append(server._next_message(LONG))
        return bool(wait(event, deadline, what))

    monkeypatch.setattr(client, "_wait", receive_and_wait)
    return received


def test_each_request_gets_its_reply_in_order(open_socket: Any) -> None:
    server = open_socket(ZmqServer, serializer="json")
    client = open_socket(ZmqClient, address=server.address, serializer="json")
    server.start_loop(lambda number: {"squared": number**2})
    assert [client.request(number) for number in range(100)] == [
        {"squared": number**2} for number in range(100)
    ]


def test_recv_and_send_alternate(open_socket: Any) -> None:
    server, pool = open_socket(ZmqServer), ThreadPoolExecutor(1)
    client = open_socket(ZmqClient, address=server.address)
    with pool:
        reply = pool.submit(client.request, b"one")
        with pytest.raises(
            ValueError, match="recv and send alternate, and no request waits for a reply"
        ):
            server.send(b"too early")
        assert server.recv() == b"one"
        with pytest.raises(
            ZmqOrderError, match="recv and send alternate, and a request waits for its reply"
        ):
            server.recv()
        with pytest.raises(ZmqOrderError, match="call send before start_loop"):
            server.start_loop(bytes)
        server.send(b"1")
        assert reply.result(LONG) == b"1"
        with pytest.raises(ZmqOrderError):
            server.send(b"twice")


def test_late_reply_to_timed_out_request_is_dropped(
    open_socket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = open_socket(ZmqServer)
    client = open_socket(ZmqClient, address=server.address)
    with monkeypatch.context() as patch:
        received = receive_before_timeout(server, client, patch)
        with pytest.raises(ZmqTimeoutError, match=r"no answer came in 0\.05 s") as late:
            client.request(b"first", timeout=0.05)
    assert isinstance(late.value, TimeoutError)
    assert isinstance(late.value, SymphonyError)
    assert received == [b"first"]
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(client.request, b"second")
        server.send(b"late answer to the first")
        assert server.recv() == b"second"
        server.send(b"answer to the second")
        assert reply.result(LONG) == b"answer to the second"


def test_request_not_sent_before_timeout_is_discarded(open_socket: Any) -> None:
    with zmq.Context() as own, own.socket(zmq.REP) as holder:
        holder.bind("tcp://127.0.0.1:*")
        address = address_of(holder)
    client = open_socket(ZmqClient, address=address)
    with pytest.raises(ZmqTimeoutError):
        client.request(b"no server", timeout=0.05)
    server = open_socket(ZmqServer, address=address)
    server.start_loop(bytes)
    assert client.request(b"now") == b"now"


def test_retries_send_the_request_again(open_socket: Any) -> None:
    server = open_socket(ZmqServer)
    client = open_socket(ZmqClient, address=server.address, timeout=0.3, retries=100)
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(client.request, b"question")
        assert server.recv() == b"question"
        server.close()  # The first request is lost with its server.
        replacement = open_socket(ZmqServer, address=server.address)
        # The loop answers all requests, because the client may already have sent further ones.
        replacement.start_loop(lambda question: question + b" answered")
        assert reply.result(LONG) == b"question answered"


def test_timeout_after_last_retry(open_socket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = open_socket(ZmqServer)
    client = open_socket(ZmqClient, address=server.address, timeout=0.1, retries=2)
    received = receive_before_timeout(server, client, monkeypatch)
    with pytest.raises(ZmqTimeoutError):
        client.request(b"hello")
    assert received == [b"hello"] * 3
    server.send(b"")
    with pytest.raises(ZmqTimeoutError):
        server.recv(timeout=0)


def test_handler_error_is_sent_and_logged(
    open_socket: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = open_socket(ZmqServer, serializer="json")
    client = open_socket(ZmqClient, address=server.address, serializer="json")
    server.start_loop(lambda number: 1 / number)
    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(ZmqRemoteError, match="^ZeroDivisionError: division by zero$"),
    ):
        client.request(0)
    assert client.request(2) == 0.5
    assert "the reply to a request was an error" in caplog.text
    assert "1 / number" in caplog.text  # the traceback


class UnprintableError(Exception):
    """An exception whose ``str`` fails."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("raised", "exception_text"),
    [
        (UnprintableError(), "^UnprintableError$"),
        (ValueError(), "^ValueError$"),
        (ValueError("\udc80 x"), r"^ValueError: \? x$"),
        (SystemExit(3), "^SystemExit: 3$"),
        (KeyboardInterrupt(), "^KeyboardInterrupt$"),
    ],
)
def test_loop_continues_after_handler_error(
    open_socket: Any, caplog: pytest.LogCaptureFixture, raised: BaseException, exception_text: str
) -> None:
    server = open_socket(ZmqServer, serializer="json")
    client = open_socket(ZmqClient, address=server.address, serializer="json")

    def handler(message: object) -> object:
        if message == "bad":
            raise raised
        return message

    server.start_loop(handler)
    with caplog.at_level(logging.ERROR), pytest.raises(ZmqRemoteError, match=exception_text):
        client.request("bad")
    assert client.request("next") == "next"
    assert "the reply to a request was an error" in caplog.text


def test_blocking_loop_propagates_system_exit(open_socket: Any) -> None:
    server = open_socket(ZmqServer)
    client = open_socket(ZmqClient, address=server.address)

    def handler(_: bytes) -> bytes:
        raise SystemExit(3)

    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(client.request, b"end")
        with pytest.raises(SystemExit, match="3"):
            server.start_loop(handler, blocking=True)
        with pytest.raises(ZmqRemoteError, match="^SystemExit: 3$"):
            reply.result(LONG)


async def async_handler(_: bytes) -> bytes:
    return b""


class AsyncHandler:
    async def __call__(self, _: bytes) -> bytes:
        return b""


def test_invalid_handler_is_rejected(open_socket: Any) -> None:
    server = open_socket(ZmqServer)
    handler: Any
    for handler in (None, b"reply"):
        with pytest.raises(
            ZmqOptionError,
            match=f"a handler must be a function that returns the reply .*, not {handler!r}",
        ):
            server.start_loop(handler)
    for handler in (async_handler, AsyncHandler(), functools.partial(async_handler)):
        with pytest.raises(
            ZmqOptionError, match="an async handler needs an event loop: .* AsyncZmqServer"
        ):
            server.start_loop(handler)
    server.start_loop(bytes)
    assert open_socket(ZmqClient, address=server.address).request(b"x") == b"x"


def test_unserializable_reply_becomes_an_error(open_socket: Any) -> None:
    server = open_socket(ZmqServer)
    client = open_socket(ZmqClient, address=server.address)
    server.start_loop(lambda _: "text")
    with pytest.raises(
        ZmqRemoteError, match="without a serializer, a message must be bytes, not str"
    ):
        client.request(b"")
    plain = open_socket(ZmqServer, serializer="json")
    plain.start_loop(lambda _: {1j})
    with pytest.raises(
        ZmqRemoteError, match="the json serializer cannot write a message of type set"
    ):
        open_socket(ZmqClient, address=plain.address, serializer="json").request(1)


def test_undecodable_request_is_answered_with_an_error(open_socket: Any) -> None:
    server = open_socket(ZmqServer, serializer="json")
    client = open_socket(ZmqClient, address=server.address)
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(client.request, b"{")
        with pytest.raises(
            ZmqMessageError, match="the json serializer cannot read a message of 1 bytes"
        ):
            server.recv()
        with pytest.raises(ZmqRemoteError, match="cannot read a message"):
            reply.result(LONG)
        second = pool.submit(client.request, b"[]")
        assert server.recv() == []
        server.send([1])
        assert second.result(LONG) == b"[1]"


def test_server_serves_a_hundred_clients(open_socket: Any) -> None:
    server = open_socket(ZmqServer, serializer="json")
    clients = [
        open_socket(ZmqClient, address=server.address, serializer="json") for _ in range(100)
    ]
    server.start_loop(lambda pair: pair)

    def request_thrice(number: int) -> list[object]:
        return [clients[number].request([number, turn]) for turn in range(3)]

    with ThreadPoolExecutor(10) as pool:
        replies = list(pool.map(request_thrice, range(100), timeout=LONG))
    assert replies == [[[number, turn] for turn in range(3)] for number in range(100)]


def wait_until_busy(peer: Any) -> None:
    """Wait until a thread is in a call of ``peer``."""
    deadline = time.monotonic() + LONG
    while not peer._busy:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_concurrent_request_is_rejected(
    open_socket: Any,
) -> None:
    server = open_socket(ZmqServer)
    client = open_socket(ZmqClient, address=server.address)
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(client.request, b"first")
        assert server.recv() == b"first"
        with pytest.raises(
            ZmqOrderError, match="another thread is in a call of this ZmqClient; give each"
        ):
            client.request(b"second")
        server.send(b"reply")
        assert reply.result(LONG) == b"reply"


@pytest.mark.parametrize(
    ("kind", "method", "arguments"),
    [
        (ZmqServer, "recv", []),
        (ZmqPull, "recv", []),
        (ZmqSub, "recv", []),
        (ZmqReceiver, "recv", []),
        (ZmqPush, "send", [b"no receiver"]),
        (ZmqSender, "send", [b"no receiver"]),
    ],
)
def test_call_from_second_thread_is_rejected(
    open_socket: Any, kind: Any, method: str, arguments: list[bytes]
) -> None:
    peer = open_socket(kind, bind=True)
    call = getattr(peer, method)
    message = f"another thread is in a call of this {kind.__name__}"
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(call, *arguments)
        wait_until_busy(peer)
        with pytest.raises(ZmqOrderError, match=message):
            call(*arguments)
        if kind is ZmqSub:
            with pytest.raises(ZmqOrderError, match=message):
                peer.subscribe("a")
        peer.close()
        with pytest.raises(ZmqClosedError):
            waiting.result(LONG)


def test_client_can_bind(open_socket: Any) -> None:
    client = open_socket(ZmqClient, bind=True, port=0)
    with pytest.raises(ZmqTimeoutError, match="no server was connected"):
        client.request(b"hello", timeout=0.05)
    address = client.address
    server = open_socket(ZmqServer, bind=False, address=address)
    server.start_loop(bytes)
    assert client.request(b"now") == b"now"
    assert client.address == address


# --- the loop ---


def test_stop_in_handler_sends_the_reply_first(open_socket: Any) -> None:
    server = open_socket(ZmqServer)
    client = open_socket(ZmqClient, address=server.address)

    def handler(message: bytes) -> bytes:
        if message == b"last":
            server.stop()
            assert not server.join(0)
        return message

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(server.start_loop, handler, blocking=True)
        assert client.request(b"first") == b"first"
        assert client.request(b"last") == b"last"
        running.result(LONG)
    with pytest.raises(ZmqTimeoutError):
        client.request(b"after", timeout=0.05)


def test_loop_can_be_stopped_and_started_again(open_socket: Any) -> None:
    server = open_socket(ZmqServer)
    client = open_socket(ZmqClient, address=server.address)
    for turn in (b"1", b"2", b"3"):
        server.start_loop(lambda message, turn=turn: message + turn)
        assert client.request(b"turn ") == b"turn " + turn
        with pytest.raises(ZmqOrderError, match="a loop is running; stop and join it before recv"):
            server.recv()
        server.stop()
        assert server.join(LONG)
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(client.request, b"without a loop")
        server.send(server.recv())
        assert reply.result(LONG) == b"without a loop"


def test_stop_without_loop_has_no_effect(open_socket: Any) -> None:
    server = open_socket(ZmqServer)
    server.stop()
    assert server.join(0)
    server.start_loop(bytes)
    assert open_socket(ZmqClient, address=server.address).request(b"x") == b"x"


# --- push and pull ---


def test_messages_arrive_in_order(open_socket: Any) -> None:
    pull = open_socket(ZmqPull, serializer="json")
    push = open_socket(ZmqPush, address=pull.address, serializer="json")
    # More messages than the queues hold, so each side has to wait for the other.
    for number in range(5000):
        push.send(number)
        if number % 2:
            assert pull.recv() == number // 2
    assert [pull.recv() for _ in range(2500)] == list(range(2500, 5000))


def test_messages_are_distributed_to_pullers(open_socket: Any) -> None:
    push = open_socket(ZmqPusher, bind=True, serializer="str")
    pulls = [
        open_socket(ZmqPuller, bind=False, address=push.address, serializer="str") for _ in range(3)
    ]
    seen: list[set[str]] = [set() for _ in pulls]
    with ThreadPoolExecutor(3) as pool:

        def collect(number: int) -> None:
            for message in pulls[number]:
                seen[number].add(message)
                if len(seen[number]) == 1:
                    all_connected.wait(LONG)

        all_connected = threading.Barrier(4)
        running = [pool.submit(collect, number) for number in range(3)]
        sent = 0
        while all_connected.n_waiting < 3:
            push.send(str(sent))
            sent += 1
        all_connected.wait(LONG)
        for _ in range(30):
            push.send(str(sent))
            sent += 1
        while len(set.union(*seen)) < sent:
            threading.Event().wait(0.001)
        for pull in pulls:
            pull.close()
        for future in running:
            future.result(LONG)
    assert sum(map(len, seen)) == sent  # Each message reached one puller.
    assert all(len(item) >= 10 for item in seen)


def test_send_and_recv_time_out(open_socket: Any) -> None:
    push = open_socket(ZmqPush, bind=True, timeout=0.05)
    with pytest.raises(ZmqTimeoutError, match=r"no message could be sent in 0\.05 s"):
        push.send(b"no receiver")
    pull = open_socket(ZmqPull, bind=False, address=push.address, hwm=1)
    with pytest.raises(ZmqTimeoutError, match="no message came in 0 s"):
        pull.recv(timeout=0)
    push.send(b"x", timeout=LONG)
    assert pull.recv() == b"x"


def test_hwm_limits_queued_messages(open_socket: Any) -> None:
    push = open_socket(ZmqPush, address="tcp://127.0.0.1:1", hwm=3, timeout=0, linger=0)
    for _ in range(3):
        push.send(b"x")
    with pytest.raises(ZmqTimeoutError):
        push.send(b"x")


# --- topics ---


def publish_until_received(publish: Callable[[], None], sub: ZmqSub) -> tuple[str, Any]:
    """Publish until the subscription has reached the publisher. Return the first message."""
    while True:
        publish()
        try:
            return sub.recv(timeout=0.02)
        except ZmqTimeoutError:
            continue


def test_subscribers_receive_their_topics(open_socket: Any) -> None:
    pub = open_socket(ZmqPub, serializer="str")
    some = open_socket(ZmqSub, address=pub.address, serializer="str", topics=["loss", "weights/"])
    every = open_socket(ZmqSub, address=pub.address, serializer="str")
    for sub in (some, every):
        publish_until_received(lambda: pub.send("loss", "hello"), sub)
    for topic in ("loss", "other", "weights/1", "end"):
        pub.send(topic, f"of {topic}")
    pub.send("loss", "end")

    def remaining(sub: ZmqSub) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        while found[-1:] != [("loss", "end")]:
            found.append(sub.recv())
        return [item for item in found if item[1] != "hello"]

    assert remaining(some) == [("loss", "of loss"), ("weights/1", "of weights/1"), ("loss", "end")]
    assert [topic for topic, _ in remaining(every)] == ["loss", "other", "weights/1", "end", "loss"]


def test_subscriptions_can_change(open_socket: Any) -> None:
    pub = open_socket(ZmqPub)
    sub = open_socket(ZmqSub, address=pub.address, topics=[])

    def receives(topic: str) -> bool:
        pub.send(topic, b"")
        try:
            return bool(sub.recv(timeout=0.02)[0] == topic)
        except ZmqTimeoutError:
            return False

    assert not receives("a")
    sub.subscribe("a")
    while not receives("a"):
        pass
    sub.unsubscribe("a")
    sub.subscribe("b")
    while not receives("b"):
        pass
    assert not receives("a")


# --- acknowledged messages ---


def test_sender_waits_for_acknowledgement(
    open_socket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = open_socket(ZmqReceiver, serializer="json")
    sender = open_socket(ZmqSender, address=receiver.address, serializer="json", timeout=0.05)
    with monkeypatch.context() as patch:
        received = receive_before_timeout(receiver, sender, patch)
        with pytest.raises(ZmqTimeoutError):
            sender.send({"lost": True})
    assert received == [{"lost": True}]
    receiver._send_reply([b""])
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(sender.send, {"n": 1}, timeout=LONG)
        assert receiver.recv() == {"n": 1}
        assert sent.result(LONG) is None


# --- serializers ---

AWKWARD = {"text": "日本\n'\"", "list": [1, 2.5, None, True], "empty": {}}


@pytest.mark.parametrize(
    ("serializer", "message"),
    [
        (None, bytes(range(256))),
        ("str", "日本\n\0"),
        ("json", AWKWARD),
        ("pickle", {**AWKWARD, "set": {1, 2}, "bytes": b"\xff"}),
        ((lambda number: str(number).encode(), int), 10**30),
    ],
)
def test_serializers_round_trip(open_socket: Any, serializer: Any, message: Any) -> None:
    pull = open_socket(ZmqPull, serializer=serializer)
    open_socket(ZmqPush, address=pull.address, serializer=serializer).send(message)
    assert pull.recv() == message


def test_msgpack_round_trip(open_socket: Any) -> None:
    pytest.importorskip("msgpack")
    pull = open_socket(ZmqPull, serializer="msgpack")
    push = open_socket(ZmqPush, address=pull.address, serializer="msgpack")
    for message in ({**AWKWARD, "bytes": b"\xff"}, {1: 2, None: 3, b"x": {4.5: []}}):
        push.send(message)
        assert pull.recv() == message


def test_missing_msgpack_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "msgpack", None)
    with pytest.raises(PluginError, match="install it with: pip install msgpack"):
        ZmqPull(port=0, serializer="msgpack")


def test_buffers_are_accepted(open_socket: Any) -> None:
    pull = open_socket(ZmqPull)
    push = open_socket(ZmqPush, address=pull.address)
    for message in (bytearray(b"abc"), memoryview(b"abc")):
        push.send(message)
        assert pull.recv() == b"abc"


@pytest.mark.parametrize("kind", [ZmqPush, ZmqClient, ZmqSender, ZmqPub])
@pytest.mark.parametrize(
    ("message", "error"),
    [
        ("text", r"a message must be bytes, not str; give both sides serializer="),
        (
            memoryview(b"abcdef")[::2],
            r"contiguous bytes, and this memoryview is not; send bytes\(\.\.\.\)",
        ),
    ],
    ids=["text", "not contiguous"],
)
def test_invalid_message_is_rejected(open_socket: Any, kind: Any, message: Any, error: str) -> None:
    peer = open_socket(kind, bind=True, linger=0)
    with pytest.raises(ZmqMessageError, match=error):
        send_with(peer, message)


def send_with(peer: Any, message: object) -> None:
    """Send ``message`` with the sending method of the class of ``peer``."""
    if isinstance(peer, ZmqPub):
        peer.send("topic", message)
    elif isinstance(peer, ZmqClient):
        peer.request(message)
    else:
        peer.send(message)


def test_noncontiguous_reply_becomes_an_error(open_socket: Any) -> None:
    server = open_socket(ZmqServer)
    server.start_loop(lambda message: memoryview(message)[::2] if message == b"pieces" else message)
    client = open_socket(ZmqClient, address=server.address)
    with pytest.raises(
        ZmqRemoteError, match="^ZmqMessageError: a message must be contiguous bytes"
    ):
        client.request(b"pieces")
    assert client.request(b"x") == b"x"


def test_failed_publication_does_not_affect_the_next(open_socket: Any) -> None:
    pub = open_socket(ZmqPub)
    sub = open_socket(ZmqSub, address=pub.address)
    publish_until_received(lambda: pub.send("hello", b""), sub)
    with pytest.raises(ZmqMessageError, match="contiguous bytes"):
        pub.send("t", memoryview(b"abcdef")[::2])
    with pytest.raises(ZmqOptionError, match="cannot be encoded in UTF-8"):
        pub.send("\udc80", b"")
    pub.send("u", b"next")
    received = sub.recv()
    while received[0] == "hello":
        received = sub.recv()
    assert received == ("u", b"next")


@pytest.mark.parametrize("kind", [ZmqPush, ZmqPub, ZmqClient])
def test_serializer_that_returns_text_is_rejected(open_socket: Any, kind: Any) -> None:
    peer = open_socket(kind, bind=True, serializer=(str, str))
    with pytest.raises(
        ZmqMessageError, match="the dumps function of the serializer returned str, not bytes"
    ):
        send_with(peer, 1)


def test_serializer_that_raises_an_unprintable_error(open_socket: Any) -> None:
    def fail(_: object) -> bytes:
        raise UnprintableError

    with pytest.raises(
        ZmqMessageError, match="the given serializer cannot write a message of type int"
    ):
        open_socket(ZmqPush, bind=True, serializer=(fail, fail)).send(1)


# --- interoperation with plain pyzmq ---


def test_plain_request_and_reply_sockets(open_socket: Any, plain_socket: Any) -> None:
    server = open_socket(ZmqServer)
    server.start_loop(lambda message: message[::-1] if message != b"bad" else {}[message])
    client = plain_socket(zmq.REQ, connect=server.address)
    client.send(b"abc")
    assert client.recv_multipart() == [b"cba"]
    client.send(b"bad")
    assert client.recv_multipart() == [b"KeyError: b'bad'", b"symphony-error"]
    client.send_multipart([b"two", b"frames"])
    assert client.recv_multipart() == [
        b"ZmqMessageError: a request must have one frame, not 2",
        b"symphony-error",
    ]
    theirs = plain_socket(zmq.REP)
    ours = open_socket(ZmqClient, address=address_of(theirs))
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(ours.request, b"question")
        assert theirs.recv() == b"question"
        theirs.send(b"yes")
        assert reply.result(LONG) == b"yes"
        reply = pool.submit(ours.request, b"question")
        assert theirs.recv() == b"question"
        theirs.send_multipart([b"a", b"b", b"c"])
        with pytest.raises(ZmqMessageError, match="a reply must have one frame, not 3"):
            reply.result(LONG)


def test_plain_push_pull_and_publisher_sockets(open_socket: Any, plain_socket: Any) -> None:
    pull, theirs = open_socket(ZmqPull), plain_socket(zmq.PULL)
    plain_socket(zmq.PUSH, connect=pull.address).send(b"to ours")
    open_socket(ZmqPush, address=address_of(theirs)).send(b"to theirs")
    assert (pull.recv(), theirs.recv()) == (b"to ours", b"to theirs")
    publisher = plain_socket(zmq.PUB)
    sub = open_socket(ZmqSub, address=address_of(publisher), topics="a")
    first = publish_until_received(lambda: publisher.send_multipart([b"a", b"x"]), sub)
    assert first == ("a", b"x")
    publisher.send_multipart([b"a"])
    # The first message may have been published more than once.
    with pytest.raises(ZmqMessageError, match="two frames, topic and message, not 1"):
        list(iter(sub.recv, None))


# --- addresses ---

SERVICE = {
    "SYMPHONY_EXPERIMENT": "e",
    "SYMPH_REPLAY_SERVER_HOST": "127.0.0.1",
    "SYMPH_REPLAY_SERVER_BIND_HOST": "127.0.0.1",
    "SYMPH_OTHER_HOST": "10.0.0.7",
    "SYMPH_OTHER_PORT": "7001",
    "SYMPH_OTHER_BIND_HOST": "0.0.0.0",
}


def test_service_from_environment(open_socket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with zmq.Context() as own, own.socket(zmq.REP) as holder:
        port = holder.bind_to_random_port("tcp://127.0.0.1")
    for key, value in {**SERVICE, "SYMPH_REPLAY_SERVER_PORT": str(port)}.items():
        monkeypatch.setenv(key, value)
    server, client = (
        open_socket(ZmqServer, service="replay-server"),
        open_socket(ZmqClient, service="replay-server"),
    )
    server.start_loop(bytes)
    assert client.request(b"x") == b"x"
    assert "service 'replay-server'" in repr(client)
    with pytest.raises(
        NotFound, match=r"no service 'replay-sever' .* did you mean 'replay-server'\?"
    ):
        ZmqClient(service="replay-sever")
    with pytest.raises(NotFound, match="the services are: other, replay-server"):
        ZmqClient(service="zzz")
    with pytest.raises(
        ZmqAddressError, match=r"cannot listen on service 'replay-server' .* the address is in use"
    ):
        ZmqServer(service="replay-server")


def test_push_and_sub_connect_by_default(monkeypatch: pytest.MonkeyPatch, open_socket: Any) -> None:
    for key, value in SERVICE.items():
        monkeypatch.setenv(key, value)
    assert open_socket(ZmqPush, service="other", linger=0).address == "tcp://10.0.0.7:7001"
    assert open_socket(ZmqSub, service="other").address == "tcp://10.0.0.7:7001"


@pytest.fixture
def replicas(open_socket: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[Any]]:
    """Return a function that opens sockets of a class, which bind a replicated service."""

    def open_replicas(kind: Any) -> list[Any]:
        servers = [open_socket(kind) for _ in range(3)]
        addresses = [server.address.removeprefix("tcp://") for server in servers]
        monkeypatch.setenv("SYMPH_POOL_HOST", "127.0.0.1")
        monkeypatch.setenv("SYMPH_POOL_PORT", addresses[0].rpartition(":")[2])
        monkeypatch.setenv("SYMPH_POOL_ADDRS", ",".join(addresses))
        return servers

    return open_replicas


def test_a_pusher_sends_to_all_replicas_in_turn(open_socket: Any, replicas: Any) -> None:
    pullers = replicas(ZmqPull)
    with ZmqPush(service="pool", timeout=LONG) as push:
        assert push.address == pullers[0].address
        for number in range(6):
            push.send(b"%d" % number)
        received = [{puller.recv(), puller.recv()} for puller in pullers]
    assert set.union(*received) == {b"%d" % number for number in range(6)}


def test_a_subscriber_receives_from_all_replicas(open_socket: Any, replicas: Any) -> None:
    publishers = replicas(ZmqPub)
    subscriber = open_socket(ZmqSub, service="pool", timeout=0.05)
    received: set[bytes] = set()
    while len(received) < len(publishers):
        for number, publisher in enumerate(publishers):
            publisher.send("topic", b"%d" % number)
        with contextlib.suppress(ZmqTimeoutError):
            while True:
                received.add(subscriber.recv()[1])


def test_a_client_connects_to_the_first_replica(open_socket: Any, replicas: Any) -> None:
    first, *_ = replicas(ZmqServer)
    assert open_socket(ZmqClient, service="pool").address == first.address


def test_address_forms(open_socket: Any, tmp_path: Any) -> None:
    pull = open_socket(ZmqPull)
    port = int(pull.address.rpartition(":")[2])
    open_socket(ZmqPush, host="127.0.0.1", port=port).send(b"1")
    open_socket(ZmqPush, port=port).send(b"2")
    open_socket(ZmqPush, address=f"127.0.0.1:{port}").send(b"3")
    open_socket(ZmqPush, address=f"tcp://localhost:{port}").send(b"4")
    assert {pull.recv() for _ in range(4)} == {b"1", b"2", b"3", b"4"}
    for address in (f"ipc://{os.path.relpath(tmp_path)}/s", "inproc://here"):
        listening = open_socket(ZmqPull, address=address)
        open_socket(ZmqPush, address=listening.address).send(b"x")
        assert listening.recv() == b"x"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give exactly one of service=, address= and port= (with host=), not none of them"),
        ({"service": "a", "address": "b"}, "not service and address"),
        ({"address": "127.0.0.1"}, "address '127.0.0.1' is malformed: it must be tcp://host:port"),
        ({"address": "tcp://:7000"}, "address 'tcp://:7000' is malformed"),
        ({"address": "tcp://a:b"}, "is malformed"),
        ({"address": "tcp://a:7000 "}, "is malformed"),
        ({"address": "http://a:7000"}, "must be tcp://host:port, ipc:///path/of/a/socket, inproc"),
        ({"address": "tcp://a:70000"}, "has port 70000; a port is a number from 1 to 65535"),
        ({"address": 7000}, "an address must be text such as 'tcp://127.0.0.1:7000', not 7000"),
        ({"port": "7000"}, "port must be a number from 1 to 65535, not '7000'"),
        ({"port": True}, "not True"),
        ({"host": "a"}, "port must be a number from 1 to 65535, not None"),
        (
            {"host": "replay", "port": 7000},
            "not an address of this machine, and the name of a Service cannot be bound",
        ),
        ({"host": "203.0.113.7", "port": 7000}, "cannot listen on 203.0.113.7:7000 (tcp://203."),
        ({"address": "ipc:///no/x"}, "cannot listen on ipc:///no/x: No such file or directory"),
        ({"port": 0, "adress": "x"}, "ZmqPull has no keyword 'adress'; did you mean 'address'?"),
        ({"port": 0, "serializer": "jsn"}, "unknown serializer 'jsn'; did you mean 'json'?"),
        ({"port": 0, "serializer": 1}, "a serializer must be a name or a pair of functions"),
        ({"port": 0, "timeout": -1}, "timeout must be a number of seconds of at least 0, not -1"),
        ({"port": 0, "linger": "x"}, "linger must be a number of seconds"),
        ({"port": 0, "hwm": -1}, "hwm must be a whole number of at least 0, not -1"),
        ({"port": 0, "bind": 1}, "bind must be True or False, not 1"),
        ({"port": 0, "timeout": 10**400}, "timeout must be a number of seconds"),
        ({"port": 0, "linger": 3e6}, "linger must be at most 2147483, not 3000000.0; None means"),
        ({"port": 0, "hwm": 2**40}, "hwm must be at most 2147483647, not 1099511627776"),
        ({"port": 0, "host": 5}, "host must be text such as '127.0.0.1', not 5"),
        ({"port": 0, "host": ""}, "host must be text such as '127.0.0.1', not ''"),
        ({"service": b"replay"}, "service must be text such as 'replay', not b'replay'"),
        ({"service": ""}, "service must be text such as 'replay', not ''"),
        ({"address": "ipc://a\udc80"}, r"address 'ipc://a\udc80' is malformed: it has a character"),
        ({"address": "ipc://a\0b"}, r"'ipc://a\x00b' is malformed: it has a character that is not"),
        ({"host": "a\0b", "port": 7000}, "it has a character that is not allowed"),
        ({"host": "x" * 3000, "port": 7000}, f"host '{'x' * 30}...' has 3000 letters; at most 253"),
        ({"address": f"tcp://a:{'9' * 5000}"}, "is malformed: it must be tcp://host:port"),
    ],
)
def test_invalid_option_is_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ZmqOptionError) as error:
        ZmqPull(**options)
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:0", "tcp://127.0.0.1:*", "tcp://*:7000"])
def test_address_that_can_only_be_bound(address: str) -> None:
    with pytest.raises(
        ZmqAddressError, match="can only be bound; to connect, name a host and its port"
    ):
        ZmqPush(address=address)


def test_invalid_retries_and_topics_are_rejected() -> None:
    with pytest.raises(
        ZmqOptionError, match="retries must be a whole number of at least 0, not -1"
    ):
        ZmqClient(port=1, retries=-1)
    with pytest.raises(ZmqOptionError, match="a topic must be text, not b'a'"):
        ZmqSub(port=1, topics=[b"a"])  # type: ignore[list-item]
    topics: Any
    for topics in (None, 5, b"a"):
        with pytest.raises(
            ZmqOptionError, match=f"topics must be text or several texts, not {topics!r}"
        ):
            ZmqSub(port=1, topics=topics)
    with pytest.raises(ZmqOptionError, match=r"topic 'a\\udc80' cannot be encoded in UTF-8"):
        ZmqSub(port=1, topics="a\udc80")


@pytest.mark.parametrize(
    ("kind", "keyword", "hint"),
    [
        (ZmqClient, "retrys", "did you mean 'retries'"),
        (ZmqSub, "topic", "did you mean 'topics'"),
        (ZmqSender, "zzz", "its keywords are service, .*, linger, retries$"),
        (ZmqServer, "retries", "its keywords are service, .*, linger$"),
    ],
)
def test_unknown_keyword_is_rejected(kind: Any, keyword: str, hint: str) -> None:
    message = f"{kind.__name__} has no keyword '{keyword}'; {hint}"
    with pytest.raises(ZmqOptionError, match=message):
        kind(port=1, **{keyword: 1})


def test_address_longer_than_the_limit_of_pyzmq(open_socket: Any) -> None:
    address = f"inproc://{'x' * 300}"
    pull = open_socket(ZmqPull, address=address)
    assert pull.address == address
    open_socket(ZmqPush, address=address).send(b"x")
    assert pull.recv() == b"x"


def test_all_sockets_share_one_context(open_socket: Any) -> None:
    open_socket(ZmqPull)
    assert context() is context()
