"""The ZeroMQ classes for asyncio."""

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


def test_requests_of_many_tasks_get_their_own_replies() -> None:
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


def test_a_coroutine_function_handles_and_its_errors_are_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(number: int) -> float:
        await asyncio.sleep(0)
        return 1 / number

    async def program() -> None:
        async with AsyncZmqServer(port=0, serializer="json") as server:
            serving = asyncio.create_task(server.serve(handler))
            with ZmqClient(address=server.address, serializer="json", timeout=LONG) as client:
                ask = asyncio.get_running_loop().run_in_executor
                with pytest.raises(ZmqRemoteError, match="^ZeroDivisionError: division by zero$"):
                    await ask(None, client.request, 0)
                assert await ask(None, client.request, 2) == 0.5
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
            asked = asyncio.create_task(client.request(b"one"))
            assert await server.recv() == b"one"
            with pytest.raises(ValueError, match="recv and send alternate"):
                await server.recv()
            await server.send_error("no")
            with pytest.raises(ZmqRemoteError, match="^no$"):
                await asked

    run(program)


def test_a_timeout_and_then_a_reply_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def program() -> None:
        async with (
            AsyncZmqServer(port=0) as server,
            AsyncZmqClient(address=server.address, retries=1) as client,
        ):
            heard, when = [], client._call_when_ready

            async def when_heard(event: int, *given: Any) -> Any:
                """The time is not over before the server has the question, however late the connection is."""
                if event == sockets.READABLE:
                    if heard:
                        await server.send(b"too late")
                    heard.append(await server.recv(timeout=LONG))
                return await when(event, *given)

            with monkeypatch.context() as patch:
                patch.setattr(client, "_call_when_ready", when_heard)
                with pytest.raises(ZmqTimeoutError, match="no answer came"):
                    await client.request(b"first", timeout=0.05)
            assert heard == [b"first"] * 2
            await server.send(b"too late")
            asked = asyncio.create_task(client.request(b"second", timeout=LONG))
            assert await server.recv() == b"second"
            await server.send(b"in time")
            assert await asked == b"in time"
            with pytest.raises(ZmqTimeoutError, match=r"no request came in 0\.01 s"):
                await server.recv(timeout=0.01)

    run(program)


def test_a_cancelled_request_does_not_spoil_the_next() -> None:
    async def program() -> None:
        async with (
            AsyncZmqServer(port=0) as server,
            AsyncZmqClient(address=server.address) as client,
        ):
            asked = asyncio.create_task(client.request(b"first"))
            assert await server.recv() == b"first"
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            await server.send(b"too late")
            again = asyncio.create_task(client.request(b"second"))
            assert await server.recv() == b"second"
            await server.send(b"2")
            assert await again == b"2"

    run(program)


def test_pushing_and_pulling() -> None:
    async def program() -> None:
        async with AsyncZmqPull(port=0, serializer="json") as pull:
            async with AsyncZmqPush(address=pull.address, serializer="json", timeout=LONG) as push:
                for number in range(100):
                    await push.send(number)
                assert [await pull.recv(timeout=LONG) for _ in range(100)] == list(range(100))
            seen: list[Any] = []

            async def take() -> None:
                async for message in pull:
                    seen.append(message)

            taking = asyncio.create_task(take())
            await asyncio.sleep(0)
            pull.close()
            await taking
            assert seen == []
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


def test_the_others_and_these_understand_one_another() -> None:
    async def program() -> None:
        with ZmqServer(port=0) as server:
            server.start_loop(bytes)
            async with AsyncZmqClient(address=server.address, timeout=LONG) as client:
                assert await client.request(b"x") == b"x"
                with pytest.raises(ZmqMessageError):
                    await client.request("x")
                assert await client.request(b"y") == b"y"

    run(program)


def test_whatever_a_handler_raises_serving_goes_on() -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def handler(message: object) -> object:
        if message == "bad":
            raise Unspeakable
        return message

    async def program() -> None:
        async with (
            AsyncZmqServer(port=0, serializer="json") as server,
            AsyncZmqClient(address=server.address, serializer="json", timeout=LONG) as client,
        ):
            serving = asyncio.create_task(server.serve(handler))
            with pytest.raises(ZmqRemoteError, match="^Unspeakable$"):
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


def test_serving_that_is_cancelled_answers_what_it_was_asked() -> None:
    async def program() -> None:
        asked = asyncio.Event()

        async def handler(_: bytes) -> bytes:
            asked.set()
            return await asyncio.Event().wait() and b""

        async with (
            AsyncZmqServer(port=0) as server,
            AsyncZmqClient(address=server.address, timeout=LONG) as client,
        ):
            serving = asyncio.create_task(server.serve(handler))
            asking = asyncio.create_task(client.request(b"x"))
            await asked.wait()
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serving
            with pytest.raises(ZmqRemoteError, match="^CancelledError$"):
                await asking
            again = asyncio.create_task(server.serve(bytes))
            assert await client.request(b"y") == b"y"
            again.cancel()

    run(program)


def test_a_request_that_comes_while_its_receiver_is_cancelled_is_not_lost() -> None:
    async def program() -> None:
        async with AsyncZmqServer(port=0) as server:
            with (
                ThreadPoolExecutor(1) as pool,
                ZmqClient(address=server.address, timeout=LONG) as client,
            ):
                waiting = asyncio.create_task(server.recv())
                await asyncio.sleep(0)
                asked = pool.submit(client.request, b"x")
                while not server._socket.get(zmq.EVENTS) & zmq.POLLIN:
                    time.sleep(0.001)
                server._socket._handle_events()  # type: ignore[no-untyped-call]  # what the event loop does next
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                assert await server.recv(timeout=LONG) == b"x"
                await server.send(b"y")
                assert await asyncio.wrap_future(asked) == b"y"

    run(program)


def test_what_is_refused() -> None:
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
            while (got := await sub.recv())[0] == "hello":
                pass
            assert got == ("u", b"next")
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


def test_a_wait_of_several_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "LONGEST", 20)

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


def test_what_is_forgotten_is_closed_and_told() -> None:
    async def program() -> None:
        AsyncZmqPull(port=0)

    with pytest.warns(ResourceWarning, match="AsyncZmqPull.* was not closed"):
        run(program)
