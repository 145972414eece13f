"""The classes for asyncio. They are used with ``await``, ``async with`` and ``async for``. Their
keyword arguments, messages and errors are the same as those of the synchronous classes.

Each object belongs to one event loop, in which several tasks can use it at the same time. A client
sends each request only after the previous one has been completed.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import inspect
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from symphony.addons.zmq import context, protocol, sockets
from symphony.addons.zmq.base import SocketOwner
from symphony.addons.zmq.errors import (
    ZmqClosedError,
    ZmqError,
    ZmqMessageError,
    ZmqOptionError,
    ZmqOrderError,
    ZmqTimeoutError,
)
from symphony.addons.zmq.options import (
    OWN_TIMEOUT,
    OwnTimeout,
    Timeout,
    seconds,
    setup,
    whole_number,
)
from symphony.addons.zmq.sockets import NOW, READABLE, WRITABLE, Fault
from symphony.errors import shown

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from symphony.addons.zmq.options import Options
    from symphony.addons.zmq.sockets import AsyncSocket

_log = logging.getLogger("symphony.zmq")


class AsyncSocketOwner(SocketOwner):
    """One end of a connection in an event loop. It raises the same errors as the synchronous
    classes.
    """

    _topics: Sequence[bytes] = ()

    def __init__(self, **options: Unpack[Options]) -> None:
        self._setup = setup(
            type(self).__name__, self._binds, options, self._own, all_replicas=self._all_replicas
        )
        self._dumps, self._loads = self._setup.dumps, self._setup.loads
        self._closed_event = threading.Event()
        self._socket = self._open()
        self._closing = False
        self._address = sockets.endpoint(self._socket, self._socket_address.address)
        context.close_at_exit(self)

    def _open(self, *, again: str | None = None) -> AsyncSocket:
        return sockets.open_async_socket(self._kind, self._setup, topics=self._topics, again=again)

    def close(self) -> None:
        """Close the socket immediately. `ZmqClosedError` is raised in each task that is waiting in
        one of this object's methods. Call `close` in the event loop's thread.
        """
        if not self._closing:
            self._closing = True
            self._socket.close()
            self._closed_event.set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate ZeroMQ errors, and raise an error if this object is closed."""
        if self._closing:
            raise self._closed_error()
        try:
            yield
        except Fault as exc:
            if self._closing:
                raise self._closed_error() from exc
            raise sockets.socket_error(self._setup.place, exc) from exc
        except asyncio.CancelledError:
            if self._closing:
                raise self._closed_error() from None
            raise

    def _time_limit(self, timeout: Timeout) -> float | None:
        if isinstance(timeout, OwnTimeout):
            return self._setup.timeout
        return seconds(timeout, "timeout")

    async def _call_when_ready(
        self,
        event: int,
        call: Callable[[int], Awaitable[Any]],
        timeout: float | None,
        what: str,
        deadline: float | None = None,
    ) -> Any:
        """Wait until ``call`` can run without blocking, call it, and return its result.

        ``deadline`` is the time at which a ``timeout`` that started earlier expires. ``call``
        is called only when it cannot block, because a message could be lost if the task were
        cancelled during a blocking call. Raises `ZmqTimeoutError` if the timeout expires.

        A socket can be readable although there is no message to receive, because another task was
        faster, or because ZeroMQ discards a malformed message only when it is received.
        """
        if deadline is None and timeout is not None:
            deadline = time.monotonic() + timeout
        at_once = timeout is None
        while True:
            if at_once or await sockets.pending(self._socket, event, deadline):
                try:
                    return await call(NOW)
                except Fault as exc:
                    if not sockets.would_block(exc):
                        raise
            if sockets.is_past(deadline):
                raise ZmqTimeoutError(f"{self._setup.place.what}: {what} in {timeout:g} s")
            at_once = False


class AsyncReceiver(AsyncSocketOwner):
    """One end of a connection that receives messages."""

    async def recv(self, *, timeout: Timeout = OWN_TIMEOUT) -> Any:
        """Return the next message."""
        with self._translate_errors():
            frames = await self._call_when_ready(
                READABLE, self._socket.recv_multipart, self._time_limit(timeout), "no message came"
            )
        return self._message(frames)

    @abc.abstractmethod
    def _message(self, frames: list[bytes]) -> Any:
        """Return the message that the frames contain."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        """Return the next message, or end the iteration if this object has been closed. Messages
        that cannot be read are logged and dropped.
        """
        while True:
            try:
                return await self.recv()
            except ZmqMessageError as exc:
                self._log_dropped(exc)
            except ZmqClosedError:
                raise StopAsyncIteration from None


class AsyncZmqPush(AsyncSocketOwner):
    """The asyncio version of `ZmqPush`."""

    _kind: ClassVar[int] = sockets.PUSH
    _binds: ClassVar[bool] = False
    _all_replicas: ClassVar[bool] = True

    async def send(self, message: Any, *, timeout: Timeout = OWN_TIMEOUT) -> None:
        """Send a message as soon as the queue has room; see `ZmqPush.send`."""
        data = message if self._dumps is None else self._dumps(message)
        with self._translate_errors():
            try:
                await self._call_when_ready(
                    WRITABLE,
                    lambda flags: self._socket.send(data, flags),
                    self._time_limit(timeout),
                    "no message could be sent",
                )
            except (TypeError, BufferError) as exc:
                raise protocol.not_bytes_error(data, self._dumps) from exc


class AsyncZmqPull(AsyncReceiver):
    """The asyncio version of `ZmqPull`."""

    _kind: ClassVar[int] = sockets.PULL
    _binds: ClassVar[bool] = True
    _all_replicas: ClassVar[bool] = True

    def _message(self, frames: list[bytes]) -> Any:
        return protocol.parse_request(frames, self._loads)


class AsyncZmqPub(AsyncSocketOwner):
    """The asyncio version of `ZmqPub`."""

    _kind: ClassVar[int] = sockets.PUB
    _binds: ClassVar[bool] = True
    _all_replicas: ClassVar[bool] = True

    async def send(self, topic: str, message: Any) -> None:
        """Publish a message; see `ZmqPub.send`."""
        frames = protocol.publication_frames(topic, message, self._dumps)
        with self._translate_errors():
            await self._socket.send_multipart(frames)


class AsyncZmqSub(AsyncReceiver):
    """The asyncio version of `ZmqSub`."""

    _kind: ClassVar[int] = sockets.SUB
    _binds: ClassVar[bool] = False
    _all_replicas: ClassVar[bool] = True
    _own: ClassVar[tuple[str, ...]] = ("topics",)

    def __init__(self, *, topics: str | Iterable[str] = "", **options: Unpack[Options]) -> None:
        self._topics = protocol.encode_topics(topics)
        super().__init__(**options)

    def subscribe(self, topic: str) -> None:
        """Subscribe to a topic prefix; see `ZmqSub.subscribe`."""
        with self._translate_errors():
            sockets.subscribe(self._socket, protocol.encode_topic(topic), on=True)

    def unsubscribe(self, topic: str) -> None:
        """Cancel a subscription to ``topic`` that was made with `subscribe` or ``topics``."""
        with self._translate_errors():
            sockets.subscribe(self._socket, protocol.encode_topic(topic), on=False)

    def _message(self, frames: list[bytes]) -> Any:
        return protocol.parse_publication(frames, self._loads)


class AsyncZmqClient(AsyncSocketOwner):
    """The asyncio version of `ZmqClient`."""

    _kind: ClassVar[int] = sockets.REQ
    _binds: ClassVar[bool] = False
    _own: ClassVar[tuple[str, ...]] = ("retries",)

    def __init__(self, *, retries: int = 0, **options: Unpack[Options]) -> None:
        self._retries = whole_number(retries, "retries")
        self._turn = asyncio.Lock()
        super().__init__(**options)

    async def request(self, message: Any, *, timeout: Timeout = OWN_TIMEOUT) -> Any:
        """Send a request and return the reply; see `ZmqClient.request`. The timeout starts when all
        of this client's earlier requests have been completed.
        """
        data = message if self._dumps is None else self._dumps(message)
        allowed = self._time_limit(timeout)
        async with self._turn:
            for _ in range(self._retries):
                with contextlib.suppress(ZmqTimeoutError):
                    return protocol.parse_reply(await self._round_trip(data, allowed), self._loads)
            return protocol.parse_reply(await self._round_trip(data, allowed), self._loads)

    async def _round_trip(self, data: Any, allowed: float | None) -> list[bytes]:
        deadline = None if allowed is None else time.monotonic() + allowed
        with self._translate_errors():
            try:
                await self._call_when_ready(
                    WRITABLE,
                    lambda flags: self._socket.send(data, flags),
                    allowed,
                    "no server was connected",
                    deadline,
                )
                frames: list[bytes] = await self._call_when_ready(
                    READABLE, self._socket.recv_multipart, allowed, "no answer came", deadline
                )
                return frames
            except (TypeError, BufferError) as exc:
                raise protocol.not_bytes_error(data, self._dumps) from exc
            except BaseException:
                self._renew()
                raise

    def _renew(self) -> None:
        if not self._closing:
            self._socket.close(linger=0)
            self._socket = self._open(again=self._address if self._setup.place.bind else None)


class AsyncZmqServer(AsyncSocketOwner):
    """The asyncio version of `ZmqServer`. Either call `recv` and `send` alternately, or call
    `serve`.
    """

    _kind: ClassVar[int] = sockets.REP
    _binds: ClassVar[bool] = True

    def __init__(self, **options: Unpack[Options]) -> None:
        self._due = False
        super().__init__(**options)

    async def recv(self, *, timeout: Timeout = OWN_TIMEOUT) -> Any:
        """Return the next request. Call `send` before the next call to `recv`; see
        `ZmqServer.recv`.
        """
        if self._due:
            raise ZmqOrderError(
                f"{self._setup.place.what}: recv and send alternate, and a request waits for its "
                "reply"
            )
        with self._translate_errors():
            frames = await self._call_when_ready(
                READABLE, self._socket.recv_multipart, self._time_limit(timeout), "no request came"
            )
        self._due = True
        try:
            return protocol.parse_request(frames, self._loads)
        except ZmqMessageError as exc:
            await self._send_reply(protocol.error_reply(exc))
            raise

    async def send(self, reply: Any) -> None:
        """Reply to the most recently received request. Raises `ZmqOrderError` if there is no
        unanswered request.
        """
        await self._send_reply([reply if self._dumps is None else self._dumps(reply)])

    async def send_error(self, text: str) -> None:
        """Reply with an error, which the client raises as `ZmqRemoteError`."""
        await self._send_reply(protocol.error_reply(protocol.error_text(text)))

    async def serve(self, handler: Callable[[Any], Any]) -> None:
        """Reply to every request with the result of ``handler``, which is a function or a coroutine
        function.

        The method runs until its task is cancelled or this object is closed. An exception in the
        handler is logged and sent to the client as an error. The same applies to a request that
        cannot be read. The client also receives an error if
        the task is cancelled while the client's request is being handled.
        """
        if not callable(handler):
            raise ZmqOptionError(
                "a handler must be a function that returns the reply to a request, "
                f"not {shown(handler)}"
            )
        while not self._closing:
            try:
                reply = handler(await self.recv(timeout=None))
                await self.send(await reply if inspect.isawaitable(reply) else reply)
            except Exception as exc:
                if self.closed:
                    return
                _log.exception("%s: the reply to a request was an error", self._setup.place.what)
                if self._due:
                    await self._send_reply(protocol.error_reply(exc))
            except BaseException as exc:
                with contextlib.suppress(ZmqError):
                    await self._send_reply(protocol.error_reply(exc))
                raise

    def disown(self) -> None:
        """In a forked child, leave the socket and any unanswered request to the parent process."""
        super().disown()
        self._due = False

    async def _send_reply(self, frames: Sequence[Any]) -> None:
        if not self._due:
            raise self._no_request_error()
        with self._translate_errors():
            try:
                await self._socket.send_multipart(frames)
            except (TypeError, BufferError) as exc:
                raise protocol.not_bytes_error(frames[0], self._dumps) from exc
        self._due = False
