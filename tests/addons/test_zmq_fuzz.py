"""Test that messages from arbitrary programs do not stop a loop or an iteration.

Plain sockets of every type send seeded random messages. `sockets.FIRST_WAIT_SECONDS` is 0, so that
a receiver polls its socket for every message, as it otherwise does only when it has been idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
import zmq

from symphony.addons.zmq import (
    AsyncZmqClient,
    AsyncZmqPull,
    AsyncZmqServer,
    AsyncZmqSub,
    ZmqClient,
    ZmqPub,
    ZmqPull,
    ZmqPush,
    ZmqReceiver,
    ZmqSender,
    ZmqServer,
    ZmqSub,
    ZmqTimeoutError,
    sockets,
)

LONG = 30.0
ROUNDS = 10
TYPES = (zmq.REQ, zmq.DEALER, zmq.PUSH, zmq.PUB, zmq.XPUB, zmq.XSUB, zmq.PAIR, zmq.STREAM)
FRAMES = (b"", b"", b"x", b"null", b"\xff\xfe", b"[" * 5000, b"symphony-error", b"\x01topic")


@pytest.fixture(autouse=True)
def always_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "FIRST_WAIT_SECONDS", 0)


# --- receivers, which pass each message to a queue ---


def receive(receiver: Any, messages: queue.Queue[Any]) -> None:
    if isinstance(receiver, ZmqServer):
        receiver.start_loop(messages.put, blocking=True)
    else:
        for message in receiver:
            messages.put(message)


async def receive_async(receiver: Any, messages: queue.Queue[Any]) -> None:
    if isinstance(receiver, AsyncZmqServer):
        await receiver.serve(messages.put)
    else:
        async for message in receiver:
            messages.put(message)


@contextlib.contextmanager
def running(kind: Any) -> Iterator[tuple[str, queue.Queue[Any]]]:
    """Run a receiver in a thread. Yield its address and the queue of the received messages."""
    options = {"port": 0, "bind": True, "serializer": "json"}
    messages: queue.Queue[Any] = queue.Queue()
    started: queue.Queue[tuple[str, Callable[[], None]]] = queue.Queue()

    def run() -> None:
        with kind(**options) as receiver:
            started.put((receiver.address, receiver.close))
            receive(receiver, messages)

    async def run_async() -> None:
        loop = asyncio.get_running_loop()
        async with kind(**options) as receiver:
            started.put(
                (receiver.address, lambda: loop.call_soon_threadsafe(receiver.close) and None)
            )
            await receive_async(receiver, messages)

    is_async = kind.__name__.startswith("Async")
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(lambda: asyncio.run(run_async()) if is_async else run())
        address, close = started.get(timeout=LONG)
        try:
            yield address, messages
        finally:
            if not done.done():
                close()
        done.result(LONG)


# --- senders ---


@contextlib.contextmanager
def random_senders(address: str) -> Iterator[Callable[[], None]]:
    """Connect a plain socket of each type. Yield a function that sends a message with each."""
    random = Random(1)
    with zmq.Context() as own, contextlib.ExitStack() as stack:
        peers = [stack.enter_context(own.socket(kind)) for kind in TYPES]
        for peer in peers:
            peer.linger = 0
            if peer.type == zmq.REQ:
                peer.req_relaxed = True
            peer.connect(address)

        def send_all() -> None:
            for peer in peers:
                message = random.choices(FRAMES, k=random.randint(1, 4))
                if peer.type == zmq.STREAM:
                    message = [peer.routing_id, b"".join(message)]
                # A socket of an unsuitable type has no connection.
                with contextlib.suppress(zmq.ZMQError):
                    peer.send_multipart(message, zmq.NOBLOCK)
                time.sleep(0.001)  # Usually, the receiver handles this message before the next.

        yield send_all


def send_until_received(sender: Any, message: str, messages: queue.Queue[Any]) -> None:
    """Send a message in the way of the sender's class, and wait until it is received."""
    if isinstance(sender, ZmqPub):
        publish_until_received(sender, message, messages)
        return
    send = sender.request if isinstance(sender, ZmqClient) else sender.send
    send(message)
    while messages.get(timeout=LONG) != message:
        pass


def publish_until_received(sender: ZmqPub, message: str, messages: queue.Queue[Any]) -> None:
    """Publish a message repeatedly, because it is lost while the subscriber is unknown."""
    deadline = time.monotonic() + LONG
    received = None
    while received != ("topic", message):
        assert time.monotonic() < deadline, "the message was not received"
        sender.send("topic", message)
        with contextlib.suppress(queue.Empty):
            received = messages.get(timeout=0.02)


@pytest.mark.parametrize(
    ("kind", "sender"),
    [
        (ZmqServer, ZmqClient),
        (AsyncZmqServer, ZmqClient),
        (ZmqReceiver, ZmqSender),
        (ZmqPull, ZmqPush),
        (AsyncZmqPull, ZmqPush),
        (ZmqSub, ZmqPub),
        (AsyncZmqSub, ZmqPub),
    ],
)
def test_receivers_survive_messages_from_other_programs(
    kind: Any, sender: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.ERROR, "symphony.zmq"),
        running(kind) as (address, messages),
        random_senders(address) as send_all,
        sender(address=address, bind=False, serializer="json", timeout=LONG) as good,
    ):
        for number in range(ROUNDS):
            send_all()
            send_until_received(good, f"good {number}", messages)
    assert "ZmqMessageError" in caplog.text or "a message was dropped" in caplog.text


# --- replies ---


def request(kind: Any, address: str, message: str, timeout: float) -> Any:
    """Send a request in the way of the class ``kind``, and return the reply."""
    options = {"address": address, "serializer": "json", "timeout": timeout}

    async def request_async() -> Any:
        async with kind(**options) as client:
            return await client.request(message)

    if kind is AsyncZmqClient:
        return asyncio.run(request_async())
    with kind(**options) as client:
        return client.send(message) if kind is ZmqSender else client.request(message)


@pytest.mark.parametrize("kind", [ZmqClient, AsyncZmqClient, ZmqSender])
def test_clients_wait_for_a_reply_that_they_can_recognize(kind: Any) -> None:
    with zmq.Context() as own, own.socket(zmq.ROUTER) as server, ThreadPoolExecutor(1) as pool:
        server.linger, server.rcvtimeo = 0, int(LONG * 1000)
        server.bind("tcp://127.0.0.1:*")
        address = server.last_endpoint.decode()

        def send_malformed_replies(client: bytes) -> None:
            # For most other malformed replies, ZeroMQ closes the connection.
            for _ in range(20):
                server.send_multipart([client, b"4 by", b"", b"null"])
                time.sleep(0.001)  # Usually, the client handles this message before the next.

        answered = pool.submit(request, kind, address, "hello", LONG)
        client, *envelope = server.recv_multipart()
        assert envelope == [b"", b'"hello"']
        send_malformed_replies(client)
        server.send_multipart([client, b"", b"1"])
        assert answered.result(LONG) == (None if kind is ZmqSender else 1)

        unanswered = pool.submit(request, kind, address, "hello", 0.2)
        send_malformed_replies(server.recv_multipart()[0])
        with pytest.raises(ZmqTimeoutError, match="no answer came in 0.2 s"):
            unanswered.result(LONG)
