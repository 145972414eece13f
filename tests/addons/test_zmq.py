"""The ZeroMQ classes: what is sent arrives, in order and as it was, and what goes wrong is said."""

from __future__ import annotations

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

# Long enough for any machine: a test that waits this long has failed.
LONG = 30.0


@pytest.fixture
def open_socket() -> Iterator[Callable[..., Any]]:
    """Opens objects that are closed when the test ends; bound to a free port unless told otherwise."""
    with ExitStack() as stack:

        def open_one(kind: Any, **options: Any) -> Any:
            place = {} if {"address", "service", "port"} & options.keys() else {"port": 0}
            return stack.enter_context(kind(**place, **{"timeout": LONG, **options}))

        yield open_one


@pytest.fixture
def bare() -> Iterator[Callable[..., zmq.Socket[bytes]]]:
    """Opens sockets of pyzmq itself."""
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


def where(socket: zmq.Socket[bytes]) -> str:
    return socket.last_endpoint.decode()


# --- requests and replies ---


def hear_first(server: Any, asking: Any, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """From now on the time of who asks is not over before the server has the question; what it has heard.

    Without this, a question whose connection takes longer than the time is never sent.
    """
    heard: list[bytes] = []
    wait = asking._wait

    def wait_then(event: int, deadline: float | None, what: str) -> bool:
        if event == READABLE:
            if server._due:
                server._send_reply([b"late answer"])
            heard.append(server._next_message(LONG))
        return bool(wait(event, deadline, what))

    monkeypatch.setattr(asking, "_wait", wait_then)
    return heard


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
        asked = pool.submit(client.request, b"one")
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
        assert asked.result(LONG) == b"1"
        with pytest.raises(ZmqOrderError):
            server.send(b"twice")


def test_a_timeout_is_told_and_the_next_request_gets_its_own_reply(
    open_socket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = open_socket(ZmqServer)
    client = open_socket(ZmqClient, address=server.address)
    with monkeypatch.context() as patch:
        heard = hear_first(server, client, patch)
        with pytest.raises(ZmqTimeoutError, match=r"no answer came in 0\.05 s") as late:
            client.request(b"first", timeout=0.05)
    assert isinstance(late.value, TimeoutError)
    assert isinstance(late.value, SymphonyError)
    assert heard == [b"first"]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.request, b"second")
        server.send(b"late answer to the first")
        assert server.recv() == b"second"
        server.send(b"answer to the second")
        assert asked.result(LONG) == b"answer to the second"


def test_what_was_not_sent_in_time_is_never_sent(open_socket: Any) -> None:
    with zmq.Context() as own, own.socket(zmq.REP) as holder:
        holder.bind("tcp://127.0.0.1:*")
        address = where(holder)
    client = open_socket(ZmqClient, address=address)
    with pytest.raises(ZmqTimeoutError):
        client.request(b"nobody listens", timeout=0.05)
    server = open_socket(ZmqServer, address=address)
    server.start_loop(bytes)
    assert client.request(b"now") == b"now"


def test_retries_send_the_request_again(open_socket: Any) -> None:
    server = open_socket(ZmqServer)
    client = open_socket(ZmqClient, address=server.address, timeout=0.3, retries=100)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.request, b"question")
        assert server.recv() == b"question"
        server.close()  # the first one is lost with its server
        again = open_socket(ZmqServer, address=server.address)
        again.start_loop(
            lambda question: question + b" answered"
        )  # every one: the first may be given up by then
        assert asked.result(LONG) == b"question answered"


def test_without_retries_left_it_is_a_timeout(
    open_socket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = open_socket(ZmqServer)
    client = open_socket(ZmqClient, address=server.address, timeout=0.1, retries=2)
    heard = hear_first(server, client, monkeypatch)
    with pytest.raises(ZmqTimeoutError):
        client.request(b"anybody?")
    assert heard == [b"anybody?"] * 3
    server.send(b"")
    with pytest.raises(ZmqTimeoutError):
        server.recv(timeout=0)


def test_what_a_handler_raises_is_answered_and_logged_and_the_loop_goes_on(
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


class Unspeakable(Exception):
    """Says nothing of itself."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("raised", "exception_text"),
    [
        (Unspeakable(), "^Unspeakable$"),
        (ValueError(), "^ValueError$"),
        (ValueError("\udc80 x"), r"^ValueError: \? x$"),
        (SystemExit(3), "^SystemExit: 3$"),
        (KeyboardInterrupt(), "^KeyboardInterrupt$"),
    ],
)
def test_whatever_a_handler_raises_the_loop_goes_on(
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


def test_a_blocking_loop_lets_the_end_of_the_program_through(open_socket: Any) -> None:
    server = open_socket(ZmqServer)
    client = open_socket(ZmqClient, address=server.address)

    def handler(_: bytes) -> bytes:
        raise SystemExit(3)

    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.request, b"end")
        with pytest.raises(SystemExit, match="3"):
            server.start_loop(handler, blocking=True)
        with pytest.raises(ZmqRemoteError, match="^SystemExit: 3$"):
            asked.result(LONG)


async def asynchronous(_: bytes) -> bytes:
    return b""


class Asynchronous:
    async def __call__(self, _: bytes) -> bytes:
        return b""


def test_a_handler_that_cannot_be_one_is_refused(open_socket: Any) -> None:
    server = open_socket(ZmqServer)
    handler: Any
    for handler in (None, b"reply"):
        with pytest.raises(
            ZmqOptionError,
            match=f"a handler must be a function that returns the reply .*, not {handler!r}",
        ):
            server.start_loop(handler)
    for handler in (asynchronous, Asynchronous(), functools.partial(asynchronous)):
        with pytest.raises(
            ZmqOptionError, match="an async handler needs an event loop: .* AsyncZmqServer"
        ):
            server.start_loop(handler)
    server.start_loop(bytes)
    assert open_socket(ZmqClient, address=server.address).request(b"x") == b"x"


def test_a_reply_that_cannot_be_written_is_answered_with_an_error(open_socket: Any) -> None:
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


def test_a_request_that_cannot_be_read_is_answered_with_an_error(open_socket: Any) -> None:
    server = open_socket(ZmqServer, serializer="json")
    client = open_socket(ZmqClient, address=server.address)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.request, b"{")
        with pytest.raises(
            ZmqMessageError, match="the json serializer cannot read a message of 1 bytes"
        ):
            server.recv()
        with pytest.raises(ZmqRemoteError, match="cannot read a message"):
            asked.result(LONG)
        again = pool.submit(client.request, b"[]")
        assert server.recv() == []
        server.send([1])
        assert again.result(LONG) == b"[1]"


def test_a_hundred_clients(open_socket: Any) -> None:
    server = open_socket(ZmqServer, serializer="json")
    clients = [
        open_socket(ZmqClient, address=server.address, serializer="json") for _ in range(100)
    ]
    server.start_loop(lambda pair: pair)

    def ask(number: int) -> list[object]:
        return [clients[number].request([number, turn]) for turn in range(3)]

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(ask, range(100), timeout=LONG))
    assert answers == [[[number, turn] for turn in range(3)] for number in range(100)]


def within(peer: Any) -> None:
    """Wait until a thread is in a call of ``peer``."""
    end = time.monotonic() + LONG
    while not peer._busy:
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_second_thread_in_a_client_is_refused_and_the_first_has_its_reply(
    open_socket: Any,
) -> None:
    server = open_socket(ZmqServer)
    client = open_socket(ZmqClient, address=server.address)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.request, b"first")
        assert server.recv() == b"first"
        with pytest.raises(
            ZmqOrderError, match="another thread is in a call of this ZmqClient; give each"
        ):
            client.request(b"second")
        server.send(b"reply")
        assert asked.result(LONG) == b"reply"


@pytest.mark.parametrize("kind", [ZmqServer, ZmqPull, ZmqSub, ZmqReceiver])
def test_a_second_thread_in_a_receiver_is_refused(open_socket: Any, kind: Any) -> None:
    receiver = open_socket(kind, bind=True)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(receiver.recv)
        within(receiver)
        with pytest.raises(
            ZmqOrderError, match=f"another thread is in a call of this {kind.__name__}"
        ):
            receiver.recv()
        if kind is ZmqSub:
            with pytest.raises(ZmqOrderError, match="another thread"):
                receiver.subscribe("a")
        receiver.close()
        with pytest.raises(ZmqClosedError):
            waiting.result(LONG)


@pytest.mark.parametrize("kind", [ZmqPush, ZmqSender])
def test_a_second_thread_in_a_sender_is_refused(open_socket: Any, kind: Any) -> None:
    sender = open_socket(kind, bind=True)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(sender.send, b"nobody is there")
        within(sender)
        with pytest.raises(
            ZmqOrderError, match=f"another thread is in a call of this {kind.__name__}"
        ):
            sender.send(b"")
        sender.close()
        with pytest.raises(ZmqClosedError):
            waiting.result(LONG)


def test_a_client_may_bind(open_socket: Any) -> None:
    client = open_socket(ZmqClient, bind=True, port=0)
    with pytest.raises(ZmqTimeoutError, match="no server was connected"):
        client.request(b"anybody?", timeout=0.05)
    address = client.address
    server = open_socket(ZmqServer, bind=False, address=address)
    server.start_loop(bytes)
    assert client.request(b"now") == b"now"
    assert client.address == address


# --- the loop ---


def test_stop_from_inside_the_handler_answers_first(open_socket: Any) -> None:
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


def test_stop_from_another_thread_and_a_loop_after_it(open_socket: Any) -> None:
    server = open_socket(ZmqServer)
    client = open_socket(ZmqClient, address=server.address)
    for turn in (b"1", b"2", b"3"):
        server.start_loop(lambda message, turn=turn: message + turn)
        assert client.request(b"turn ") == b"turn " + turn
        with pytest.raises(ZmqOrderError, match="a loop is running; stop and join it before recv"):
            server.recv()
        server.stop()
        assert server.join(LONG)
    with ThreadPoolExecutor(1) as pool:  # by hand again
        asked = pool.submit(client.request, b"by hand")
        server.send(server.recv())
        assert asked.result(LONG) == b"by hand"


def test_stop_without_a_loop_does_nothing(open_socket: Any) -> None:
    server = open_socket(ZmqServer)
    server.stop()
    assert server.join(0)
    server.start_loop(bytes)
    assert open_socket(ZmqClient, address=server.address).request(b"x") == b"x"


# --- pushing and pulling ---


def test_messages_come_in_order(open_socket: Any) -> None:
    pull = open_socket(ZmqPull, serializer="json")
    push = open_socket(ZmqPush, address=pull.address, serializer="json")
    for number in range(5000):  # more than what may wait: either side has to wait for the other
        push.send(number)
        if number % 2:
            assert pull.recv() == number // 2
    assert [pull.recv() for _ in range(2500)] == list(range(2500, 5000))


def test_pullers_take_turns(open_socket: Any) -> None:
    push = open_socket(ZmqPusher, bind=True, serializer="str")
    pulls = [
        open_socket(ZmqPuller, bind=False, address=push.address, serializer="str") for _ in range(3)
    ]
    seen: list[set[str]] = [set() for _ in pulls]
    with ThreadPoolExecutor(3) as pool:

        def take(number: int) -> None:
            for message in pulls[number]:
                seen[number].add(message)
                if len(seen[number]) == 1:
                    everybody.wait(LONG)

        everybody = threading.Barrier(4)
        running = [pool.submit(take, number) for number in range(3)]
        sent = 0
        while everybody.n_waiting < 3:
            push.send(str(sent))
            sent += 1
        everybody.wait(LONG)
        for _ in range(30):
            push.send(str(sent))
            sent += 1
        while len(set.union(*seen)) < sent:
            threading.Event().wait(0.001)
        for pull in pulls:
            pull.close()
        for item in running:
            item.result(LONG)
    assert sum(map(len, seen)) == sent  # to one each
    assert all(len(item) >= 10 for item in seen)


def test_a_full_queue_and_an_empty_one_are_timeouts(open_socket: Any) -> None:
    push = open_socket(ZmqPush, bind=True, timeout=0.05)
    with pytest.raises(ZmqTimeoutError, match=r"no message could be sent in 0\.05 s"):
        push.send(b"nobody is there")
    pull = open_socket(ZmqPull, bind=False, address=push.address, hwm=1)
    with pytest.raises(ZmqTimeoutError, match="no message came in 0 s"):
        pull.recv(timeout=0)
    push.send(b"x", timeout=LONG)
    assert pull.recv() == b"x"


def test_hwm_is_how_many_may_wait(open_socket: Any) -> None:
    push = open_socket(ZmqPush, address="tcp://127.0.0.1:1", hwm=3, timeout=0, linger=0)
    for _ in range(3):
        push.send(b"x")
    with pytest.raises(ZmqTimeoutError):
        push.send(b"x")


# --- topics ---


def publish_until(pub: ZmqPub, topic: str, arrived: Callable[[], bool]) -> None:
    """Publish under a topic until a subscriber is known to get it."""
    while not arrived():
        pub.send(topic, "hello")


def test_each_subscriber_gets_its_topics(open_socket: Any) -> None:
    pub = open_socket(ZmqPub, serializer="str")
    some = open_socket(ZmqSub, address=pub.address, serializer="str", topics=["loss", "weights/"])
    every = open_socket(ZmqSub, address=pub.address, serializer="str")
    for sub in (some, every):
        while True:
            pub.send("loss", "hello")
            try:
                sub.recv(timeout=0.01)
                break
            except ZmqTimeoutError:
                continue
    for topic in ("loss", "other", "weights/1", "end"):
        pub.send(topic, f"of {topic}")
    pub.send("loss", "end")

    def rest(sub: ZmqSub) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        while found[-1:] != [("loss", "end")]:
            found.append(sub.recv())
        return [item for item in found if item[1] != "hello"]

    assert rest(some) == [("loss", "of loss"), ("weights/1", "of weights/1"), ("loss", "end")]
    assert [topic for topic, _ in rest(every)] == ["loss", "other", "weights/1", "end", "loss"]


def test_subscribing_later_and_no_longer(open_socket: Any) -> None:
    pub = open_socket(ZmqPub)
    sub = open_socket(ZmqSub, address=pub.address, topics=[])

    def gets(topic: str) -> bool:
        pub.send(topic, b"")
        try:
            return bool(sub.recv(timeout=0.02)[0] == topic)
        except ZmqTimeoutError:
            return False

    assert not gets("a")
    sub.subscribe("a")
    while not gets("a"):
        pass
    sub.unsubscribe("a")
    sub.subscribe("b")
    while not gets("b"):
        pass
    assert not gets("a")


# --- acknowledged ---


def test_a_sender_knows_that_its_message_was_received(
    open_socket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = open_socket(ZmqReceiver, serializer="json")
    sender = open_socket(ZmqSender, address=receiver.address, serializer="json", timeout=0.05)
    with monkeypatch.context() as patch:
        heard = hear_first(receiver, sender, patch)
        with pytest.raises(ZmqTimeoutError):
            sender.send({"lost": True})
    assert heard == [{"lost": True}]
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
def test_what_arrives_is_what_was_sent(open_socket: Any, serializer: Any, message: Any) -> None:
    pull = open_socket(ZmqPull, serializer=serializer)
    open_socket(ZmqPush, address=pull.address, serializer=serializer).send(message)
    assert pull.recv() == message


def test_msgpack(open_socket: Any) -> None:
    pytest.importorskip("msgpack")
    pull = open_socket(ZmqPull, serializer="msgpack")
    push = open_socket(ZmqPush, address=pull.address, serializer="msgpack")
    for message in ({**AWKWARD, "bytes": b"\xff"}, {1: 2, None: 3, b"x": {4.5: []}}):
        push.send(message)
        assert pull.recv() == message


def test_msgpack_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "msgpack", None)
    with pytest.raises(PluginError, match="install it with: pip install msgpack"):
        ZmqPull(port=0, serializer="msgpack")


def test_buffers_are_bytes_too(open_socket: Any) -> None:
    pull = open_socket(ZmqPull)
    push = open_socket(ZmqPush, address=pull.address)
    for message in (bytearray(b"abc"), memoryview(b"abc")):
        push.send(message)
        assert pull.recv() == b"abc"


@pytest.mark.parametrize("kind", [ZmqPush, ZmqClient, ZmqSender])
def test_what_is_no_bytes_is_refused(open_socket: Any, kind: Any) -> None:
    end = open_socket(kind, address="tcp://127.0.0.1:1", linger=0)
    say = end.request if kind is ZmqClient else end.send
    with pytest.raises(
        ZmqMessageError, match=r"a message must be bytes, not str; give both sides serializer="
    ):
        say("text")
    with pytest.raises(ZmqMessageError, match="not str"):
        open_socket(ZmqPub).send("topic", "text")


@pytest.mark.parametrize("kind", [ZmqPush, ZmqClient, ZmqSender])
def test_bytes_in_pieces_are_refused(open_socket: Any, kind: Any) -> None:
    end = open_socket(kind, address="tcp://127.0.0.1:1", linger=0)
    with pytest.raises(
        ZmqMessageError,
        match=r"contiguous bytes, and this memoryview is not; send bytes\(\.\.\.\)",
    ):
        (end.request if kind is ZmqClient else end.send)(memoryview(b"abcdef")[::2])


def test_a_reply_in_pieces_is_refused(open_socket: Any) -> None:
    server = open_socket(ZmqServer)
    server.start_loop(lambda message: memoryview(message)[::2] if message == b"pieces" else message)
    client = open_socket(ZmqClient, address=server.address)
    with pytest.raises(ZmqRemoteError, match="^ZmqMessageError: a message must be contiguous bytes"):
        client.request(b"pieces")
    assert client.request(b"x") == b"x"


def test_a_publication_that_fails_does_not_spoil_the_next(open_socket: Any) -> None:
    pub = open_socket(ZmqPub)
    sub = open_socket(ZmqSub, address=pub.address)
    while True:
        pub.send("hello", b"")
        try:
            sub.recv(timeout=0.02)
            break
        except ZmqTimeoutError:
            continue
    with pytest.raises(ZmqMessageError, match="contiguous bytes"):
        pub.send("t", memoryview(b"abcdef")[::2])
    with pytest.raises(ZmqOptionError, match="cannot be encoded in UTF-8"):
        pub.send("\udc80", b"")
    pub.send("u", b"next")
    while (got := sub.recv())[0] == "hello":
        pass
    assert got == ("u", b"next")


@pytest.mark.parametrize("kind", [ZmqPush, ZmqPub, ZmqClient])
def test_a_serializer_that_makes_text_is_told_from_none(open_socket: Any, kind: Any) -> None:
    end = open_socket(kind, bind=True, serializer=(str, str))
    with pytest.raises(
        ZmqMessageError,
        match="the dumps function of the serializer returned str, not bytes",
    ):
        end.send("topic", 1) if kind is ZmqPub else end.request(
            1
        ) if kind is ZmqClient else end.send(1)


def test_a_serializer_whose_error_says_nothing(open_socket: Any) -> None:
    def fail(_: object) -> bytes:
        raise Unspeakable

    with pytest.raises(
        ZmqMessageError, match="the given serializer cannot write a message of type int"
    ):
        open_socket(ZmqPush, bind=True, serializer=(fail, fail)).send(1)


# --- beside bare pyzmq ---


def test_a_bare_client_and_a_bare_server(open_socket: Any, bare: Any) -> None:
    server = open_socket(ZmqServer)
    server.start_loop(lambda message: message[::-1] if message != b"bad" else {}[message])
    client = bare(zmq.REQ, connect=server.address)
    client.send(b"abc")
    assert client.recv_multipart() == [b"cba"]
    client.send(b"bad")
    assert client.recv_multipart() == [b"KeyError: b'bad'", b"symphony-error"]
    client.send_multipart([b"two", b"frames"])
    assert client.recv_multipart() == [
        b"ZmqMessageError: a request must have one frame, not 2",
        b"symphony-error",
    ]
    theirs = bare(zmq.REP)
    ours = open_socket(ZmqClient, address=where(theirs))
    with ThreadPoolExecutor(1) as pool:
        for reply, outcome in (
            ([b"yes"], None),
            ([b"a", b"b", b"c"], "a reply must have one frame, not 3"),
        ):
            asked = pool.submit(ours.request, b"question")
            assert theirs.recv() == b"question"
            theirs.send_multipart(reply)
            if outcome is None:
                assert asked.result(LONG) == b"yes"
            else:
                with pytest.raises(ZmqMessageError, match=outcome):
                    asked.result(LONG)


def test_bare_pushers_pullers_and_subscribers(open_socket: Any, bare: Any) -> None:
    pull, theirs = open_socket(ZmqPull), bare(zmq.PULL)
    bare(zmq.PUSH, connect=pull.address).send(b"to ours")
    open_socket(ZmqPush, address=where(theirs)).send(b"to theirs")
    assert (pull.recv(), theirs.recv()) == (b"to ours", b"to theirs")
    publisher = bare(zmq.PUB)
    sub = open_socket(ZmqSub, address=where(publisher), topics="a")
    while True:
        publisher.send_multipart([b"a", b"x"])
        try:
            assert sub.recv(timeout=0.02) == ("a", b"x")
            break
        except ZmqTimeoutError:
            continue
    publisher.send_multipart([b"a"])
    with pytest.raises(ZmqMessageError, match="two frames, topic and message, not 1"):
        list(sub)


# --- addresses ---

SERVICE = {
    "SYMPHONY_EXPERIMENT": "e",
    "SYMPH_REPLAY_SERVER_HOST": "127.0.0.1",
    "SYMPH_REPLAY_SERVER_BIND_HOST": "127.0.0.1",
    "SYMPH_OTHER_HOST": "10.0.0.7",
    "SYMPH_OTHER_PORT": "7001",
    "SYMPH_OTHER_BIND_HOST": "0.0.0.0",
}


def test_a_service_of_the_environment(open_socket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_side_that_binds_is_one_that_listens(
    monkeypatch: pytest.MonkeyPatch, open_socket: Any
) -> None:
    for key, value in SERVICE.items():
        monkeypatch.setenv(key, value)
    assert open_socket(ZmqPush, service="other", linger=0).address == "tcp://10.0.0.7:7001"
    assert open_socket(ZmqSub, service="other").address == "tcp://10.0.0.7:7001"


def test_host_and_port_ipc_and_inproc(open_socket: Any, tmp_path: Any) -> None:
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
        (
            {"address": "127.0.0.1"},
            "address '127.0.0.1' is malformed: it must be tcp://host:port, for example",
        ),
        ({"address": "tcp://:7000"}, "address 'tcp://:7000' is malformed"),
        ({"address": "tcp://a:b"}, "is malformed"),
        ({"address": "tcp://a:7000 "}, "is malformed"),
        (
            {"address": "http://a:7000"},
            "is malformed: it must be tcp://host:port, ipc:///path/of/a/socket, inproc://name",
        ),
        ({"address": "tcp://a:70000"}, "has port 70000; a port is a number from 1 to 65535"),
        ({"address": 7000}, "an address must be text such as 'tcp://127.0.0.1:7000', not 7000"),
        ({"port": "7000"}, "port must be a number from 1 to 65535, not '7000'"),
        ({"port": True}, "not True"),
        ({"host": "a"}, "port must be a number from 1 to 65535, not None"),
        (
            {"host": "replay", "port": 7000},
            "not an address of this machine, and the name of a Service cannot be bound",
        ),
        (
            {"host": "203.0.113.7", "port": 7000},
            "cannot listen on 203.0.113.7:7000 (tcp://203.0.113.7:7000)",
        ),
        (
            {"address": "ipc:///nowhere/at/all"},
            "cannot listen on ipc:///nowhere/at/all: No such file or directory",
        ),
        ({"port": 0, "adress": "x"}, "ZmqPull has no keyword 'adress'; did you mean 'address'?"),
        ({"port": 0, "serializer": "jsn"}, "unknown serializer 'jsn'; did you mean 'json'?"),
        (
            {"port": 0, "serializer": 1},
            "a serializer must be a name or a pair of functions (dumps, loads), not 1",
        ),
        ({"port": 0, "timeout": -1}, "timeout must be a number of seconds of at least 0, not -1"),
        ({"port": 0, "linger": "x"}, "linger must be a number of seconds"),
        ({"port": 0, "hwm": -1}, "hwm must be a whole number of at least 0, not -1"),
        ({"port": 0, "bind": 1}, "bind must be True or False, not 1"),
        ({"port": 0, "timeout": 10**400}, "timeout must be a number of seconds"),
        (
            {"port": 0, "linger": 3e6},
            "linger must be at most 2147483, not 3000000.0; None is for ever",
        ),
        ({"port": 0, "hwm": 2**40}, "hwm must be at most 2147483647, not 1099511627776"),
        ({"port": 0, "host": 5}, "host must be text such as '127.0.0.1', not 5"),
        ({"port": 0, "host": b"x"}, "host must be text such as '127.0.0.1', not b'x'"),
        ({"port": 0, "host": ""}, "host must be text such as '127.0.0.1', not ''"),
        ({"service": 5}, "service must be text such as 'replay', not 5"),
        ({"service": b"replay"}, "service must be text such as 'replay', not b'replay'"),
        ({"service": ""}, "service must be text such as 'replay', not ''"),
        (
            {"address": "ipc://a\udc80"},
            r"address 'ipc://a\udc80' is malformed: it has a character that is not allowed",
        ),
        (
            {"address": "ipc://a\0b"},
            r"address 'ipc://a\x00b' is malformed: it has a character that is not allowed",
        ),
        ({"host": "a\0b", "port": 7000}, "it has a character that is not allowed"),
        (
            {"host": "x" * 3000, "port": 7000},
            f"host '{'x' * 30}...' has 3000 letters; at most 253 are allowed",
        ),
        ({"address": f"tcp://a:{'9' * 5000}"}, "is malformed: it must be tcp://host:port"),
    ],
)
def test_a_wrong_keyword_is_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ZmqOptionError) as refusal:
        ZmqPull(**options)
    assert message in str(refusal.value)
    assert len(str(refusal.value).splitlines()) == 1


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:0", "tcp://127.0.0.1:*", "tcp://*:7000"])
def test_what_can_only_be_bound(address: str) -> None:
    with pytest.raises(
        ZmqAddressError, match="can only be bound; to connect, name a host and its port"
    ):
        ZmqPush(address=address)


def test_retries_and_topics_are_checked() -> None:
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


def test_a_keyword_is_known_by_the_class_that_has_it() -> None:
    with pytest.raises(
        ZmqOptionError, match="ZmqClient has no keyword 'retrys'; did you mean 'retries'"
    ):
        ZmqClient(port=1, retrys=1)  # type: ignore[call-arg]
    with pytest.raises(
        ZmqOptionError, match="ZmqSub has no keyword 'topic'; did you mean 'topics'"
    ):
        ZmqSub(port=1, topic="a")  # type: ignore[call-arg]
    with pytest.raises(
        ZmqOptionError,
        match="ZmqSender has no keyword 'zzz'; its keywords are service, .*, linger, retries$",
    ):
        ZmqSender(port=1, zzz=1)  # type: ignore[call-arg]
    with pytest.raises(
        ZmqOptionError,
        match="ZmqServer has no keyword 'retries'; its keywords are service, .*, linger$",
    ):
        ZmqServer(port=0, retries=1)  # type: ignore[call-arg]


def test_an_address_that_is_longer_than_pyzmq_tells(open_socket: Any) -> None:
    address = f"inproc://{'x' * 300}"
    pull = open_socket(ZmqPull, address=address)
    assert pull.address == address
    open_socket(ZmqPush, address=address).send(b"x")
    assert pull.recv() == b"x"


def test_two_of_one_address_in_one_process_share_a_context(open_socket: Any) -> None:
    open_socket(ZmqPull)
    assert context() is context()
