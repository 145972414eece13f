"""Test the ZeroMQ classes for asyncio."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import zmq

from symphony.addons.zmq import (
    AsyncZmqClient,
    AsyncZmqPub,
    AsyncZmqPull,
    AsyncZmqPush,
    AsyncZmqServer,
    AsyncZmqSub,
    ZmqClient,
    ZmqClosedError,
    ZmqMessageError,
    ZmqOptionError,
    ZmqOrderError,
    ZmqRemoteError,
    ZmqServer,
    ZmqTimeoutError,
    sockets,
)

LONG = 30.0


def run(program: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(program(), LONG))  # type: ignore[arg-type]


def test_concurrent_requests_get_their_own_replies() -> None:
    async def program() -> None:
        async with AsyncZmqServer(port=0, serializer="json") as server:
            serving = asyncio.create_task(server.serve(lambda number: number**2))
            async with AsyncZmqClient(
                address=server.address, serializer="json", timeout=LONG
            ) as client:
                replies = await asyncio.gather(*(client.request(number) for number in range(50)))
            assert replies == [number**2 for number in range(50)]
            server.close()
            await serving

    run(program)


def test_coroutine_handler_and_its_errors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(number: int) -> float:
        await asyncio.sleep(0)
        return 1 / number

    async def program() -> None:
        async with AsyncZmqServer(port=0, serializer="json") as server:
            serving = asyncio.create_task(server.serve(handler))
            with ZmqClient(address=server.address, serializer="json", timeout=LONG) as client:
                with pytest.raises(ZmqRemoteError, match="^ZeroDivisionError: division by zero$"):
                    await asyncio.to_thread(client.request, 0)
                assert await asyncio.to_thread(client.request, 2) == 0.5
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving

    with caplog.at_level(logging.ERROR):
        run(program)
    assert "1 / number" in caplog.text


def test_recv_and_send_alternate() -> None:
    async def program() -> None:
        async with (
            AsyncZmqServer(port=0) as server,
            AsyncZmqClient(address=server.address) as client,
        ):
            with pytest.raises(ZmqOrderError):
                await server.send(b"x")
            reply = asyncio.create_task(client.request(b"one"))
            assert await server.recv() == b"one"
            with pytest.raises(ValueError, match="recv and send alternate"):
                await server.recv()
            await server.send_error("no")
            with pytest.raises(ZmqRemoteError, match="^no$"):
                await reply

    run(program)


def test_late_reply_to_timed_out_request_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program() -> None:
        async with (
            AsyncZmqServer(port=0) as server,
            AsyncZmqClient(address=server.address, retries=1) as client,
        ):
            received: list[bytes] = []
            call_when_ready = client._call_when_ready

            async def receive_and_call(event: int, *arguments: Any) -> Any:
                """Let the server receive each request before the client waits for the reply."""
                if event == sockets.READABLE:
                    if received:
                        await server.send(b"too late")
                    received.append(await server.recv(timeout=LONG))
                return await call_when_ready(event, *arguments)

            with monkeypatch.context() as patch:
                patch.setattr(client, "_call_when_ready", receive_and_call)
                with pytest.raises(ZmqTimeoutError, match="no answer came"):
                    await client.request(b"first", timeout=0.05)
            assert received == [b"first"] * 2
            await server.send(b"too late")
            reply = asyncio.create_task(client.request(b"second", timeout=LONG))
            assert await server.recv() == b"second"
            await server.send(b"in time")
            assert await reply == b"in time"
            with pytest.raises(ZmqTimeoutError, match=r"no request came in 0\.01 s"):
                await server.recv(timeout=0.01)

    run(program)


def test_cancelled_request_does_not_affect_the_next() -> None:
    async def program() -> None:
        async with (
            AsyncZmqServer(port=0) as server,
            AsyncZmqClient(address=server.address) as client,
        ):
            reply = asyncio.create_task(client.request(b"first"))
            assert await server.recv() == b"first"
            reply.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reply
            await server.send(b"too late")
            second = asyncio.create_task(client.request(b"second"))
            assert await server.recv() == b"second"
            await server.send(b"2")
            assert await second == b"2"

    run(program)


def test_push_and_pull() -> None:
    async def program() -> None:
        async with AsyncZmqPull(port=0, serializer="json") as pull:
            async with AsyncZmqPush(address=pull.address, serializer="json", timeout=LONG) as push:
                for number in range(100):
                    await push.send(number)
                assert [await pull.recv(timeout=LONG) for _ in range(100)] == list(range(100))

            async def collect() -> list[Any]:
                return [message async for message in pull]

            collecting = asyncio.create_task(collect())
            await asyncio.sleep(0)
            pull.close()
            assert await collecting == []
            with pytest.raises(ZmqClosedError):
                await pull.recv()
        async with AsyncZmqPush(port=0, bind=True, timeout=0.02) as alone:
            with pytest.raises(ZmqTimeoutError, match=r"no message could be sent in 0\.02 s"):
                await alone.send(b"x")
            with pytest.raises(ZmqMessageError, match="bytes, not str"):
                await alone.send("x", timeout=None)

    run(program)


def test_topics() -> None:
    async def program() -> None:
        async with (
            AsyncZmqPub(port=0, serializer="str") as pub,
            AsyncZmqSub(address=pub.address, serializer="str", topics=["a", "b"]) as sub,
        ):

            async def publish() -> None:
                while True:
                    for topic in ("a", "c", "b"):
                        await pub.send(topic, f"of {topic}")
                    await asyncio.sleep(0.001)

            publishing = asyncio.create_task(publish())
            assert {await sub.recv() for _ in range(20)} == {("a", "of a"), ("b", "of b")}
            sub.unsubscribe("b")
            sub.subscribe("c")
            while (await sub.recv())[0] != "c":
                pass
            publishing.cancel()

    run(program)


def test_async_client_with_threaded_server() -> None:
    async def program() -> None:
        with ZmqServer(port=0) as server:
            server.start_loop(bytes)
            async with AsyncZmqClient(address=server.address, timeout=LONG) as client:
                assert await client.request(b"x") == b"x"
                with pytest.raises(ZmqMessageError):
                    await client.request("x")
                assert await client.request(b"y") == b"y"

    run(program)


def test_server_continues_after_handler_error() -> None:
    class UnprintableError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def handler(message: object) -> object:
        if message == "bad":
            raise UnprintableError
        return message

    async def program() -> None:
        async with (
            AsyncZmqServer(port=0, serializer="json") as server,
            AsyncZmqClient(address=server.address, serializer="json", timeout=LONG) as client,
        ):
            serving = asyncio.create_task(server.serve(handler))
            with pytest.raises(ZmqRemoteError, match="^UnprintableError$"):
                await client.request("bad")
            assert await client.request("next") == "next"
            server.close()
            await serving
            nothing: Any = None
            with pytest.raises(
                ZmqOptionError, match="a handler must be a function that returns the reply"
            ):
                await server.serve(nothing)

    run(program)


def test_cancelled_server_answers_the_current_request() -> None:
    async def program() -> None:
        received = asyncio.Event()

        async def handler(_: bytes) -> bytes:
            received.set()
            await asyncio.Event().wait()
            return b""

        async with (
            AsyncZmqServer(port=0) as server,
            AsyncZmqClient(address=server.address, timeout=LONG) as client,
        ):
            serving = asyncio.create_task(server.serve(handler))
            reply = asyncio.create_task(client.request(b"x"))
            await received.wait()
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            with pytest.raises(ZmqRemoteError, match="^CancelledError$"):
                await reply
            serving = asyncio.create_task(server.serve(bytes))
            assert await client.request(b"y") == b"y"
            serving.cancel()

    run(program)


def test_request_is_not_lost_if_recv_is_cancelled() -> None:
    async def program() -> None:
        async with AsyncZmqServer(port=0) as server:
            with (
                ThreadPoolExecutor(1) as pool,
                ZmqClient(address=server.address, timeout=LONG) as client,
            ):
                waiting = asyncio.create_task(server.recv())
                await asyncio.sleep(0)
                reply = pool.submit(client.request, b"x")
                while not server._socket.get(zmq.EVENTS) & zmq.POLLIN:
                    time.sleep(0.001)
                # Run the callback that the event loop would run next.
                server._socket._handle_events()  # type: ignore[no-untyped-call]
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                assert await server.recv(timeout=LONG) == b"x"
                await server.send(b"y")
                assert await asyncio.wrap_future(reply) == b"y"

    run(program)


def test_invalid_calls_are_rejected() -> None:
    async def program() -> None:
        pieces = memoryview(b"abcdef")[::2]
        async with (
            AsyncZmqPub(port=0) as pub,
            AsyncZmqSub(address=pub.address, timeout=LONG) as sub,
            AsyncZmqPush(port=0, bind=True) as push,
            AsyncZmqServer(port=0) as server,
            AsyncZmqClient(address=server.address) as client,
        ):

            async def publish() -> None:
                while True:
                    await pub.send("hello", b"")
                    await asyncio.sleep(0.001)

            publishing = asyncio.create_task(publish())
            await sub.recv()
            publishing.cancel()
            with pytest.raises(ZmqMessageError, match="contiguous bytes"):
                await pub.send("t", pieces)
            await pub.send("u", b"next")
            received = await sub.recv()
            while received[0] == "hello":
                received = await sub.recv()
            assert received == ("u", b"next")
            for call in (push.send, client.request):
                with pytest.raises(ZmqMessageError, match="contiguous bytes"):
                    await call(pieces)
            with pytest.raises(ZmqTimeoutError, match=r"no answer came in 0\.1 s"):
                await client.request(b"x", timeout=0.1)
        with pytest.raises(
            ZmqOptionError, match="AsyncZmqClient has no keyword 'retrys'; did you mean 'retries'"
        ):
            AsyncZmqClient(port=1, retrys=1)  # type: ignore[call-arg]

    run(program)


def test_wait_in_several_rounds_lasts_for_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "LONGEST_WAIT_MS", 20)

    async def program() -> None:
        async with AsyncZmqPull(port=0, timeout=0.15) as pull:
            began = time.monotonic()
            with pytest.raises(ZmqTimeoutError, match=r"no message came in 0\.15 s"):
                await pull.recv()
            assert time.monotonic() - began >= 0.15
            async with AsyncZmqPush(address=pull.address, timeout=1e308) as push:
                await push.send(b"x")
                assert await pull.recv(timeout=1e308) == b"x"

    run(program)


def test_deleted_object_is_closed_with_a_warning() -> None:
    async def program() -> None:
        AsyncZmqPull(port=0)

    with pytest.warns(ResourceWarning, match="AsyncZmqPull.* was not closed"):
        run(program)
