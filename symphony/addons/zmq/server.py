"""The classes that receive messages and reply to each of them: servers, and receivers, which
acknowledge messages.
"""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from symphony.addons.zmq import sockets
from symphony.addons.zmq.errors import (
    ZmqClosedError,
    ZmqMessageError,
    ZmqOptionError,
    ZmqOrderError,
)
from symphony.addons.zmq.options import OWN_TIMEOUT, Timeout, seconds
from symphony.addons.zmq.protocol import (
    error_reply,
    error_text,
    not_bytes_error,
    parse_request,
)
from symphony.addons.zmq.sockets import NOW, READABLE, WAITING, Fault
from symphony.addons.zmq.sync import SyncReceiver, SyncSocket
from symphony.errors import shown

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from symphony.addons.zmq.options import Options

Handler = Callable[[Any], Any]

_log = logging.getLogger("symphony.zmq")


class RequestReceiver(SyncSocket):
    """The receiving end of a connection. It replies to each message that it receives."""

    _kind: ClassVar[int] = sockets.REP
    _binds: ClassVar[bool] = True

    def __init__(self, **options: Unpack[Options]) -> None:
        self._due = False
        super().__init__(**options)

    def _next(self, flags: int, deadline: float | None) -> list[bytes] | None:
        """Return the frames of the next message, or None if another thread interrupted the wait."""
        if self._busy:
            raise self._busy_error()
        self._busy = True
        try:
            if self._closing:
                raise self._closed_error()
            frames = self._receive_frames(flags, deadline)
            self._due = frames is not None
            return frames
        except Fault as exc:
            raise sockets.socket_error(self._socket_address, exc) from exc
        finally:
            self._busy = False
            if self._closing:
                self._finish()

    def _receive_frames(self, flags: int, deadline: float | None) -> list[bytes] | None:
        try:
            return sockets.frames(self._take, flags)
        except Fault as exc:
            if not sockets.would_block(exc):
                raise
        frames: list[bytes] | None = self._call_when_ready(
            lambda flags: sockets.frames(self._take, flags), READABLE, deadline, "no request came"
        )
        if frames is None:
            self._waker.clear()
        return frames

    def _read(self, frames: Sequence[bytes]) -> Any:
        """Return the message that ``frames`` contain. If the message cannot be read, reply with an
        error and raise `ZmqMessageError`.
        """
        try:
            return parse_request(frames, self._loads)
        except ZmqMessageError as exc:
            self._send_reply(error_reply(exc))
            raise

    def _send_reply(self, frames: Sequence[Any]) -> None:
        if not self._due:
            raise self._no_request_error()
        if self._busy:
            raise self._busy_error()
        self._busy = True
        try:
            if self._closing:
                raise self._closed_error()
            if len(frames) == 1:
                self._put(frames[0], NOW)
            else:
                self._socket.send_multipart(frames, NOW)
            self._due = False
        except (TypeError, BufferError) as exc:
            raise not_bytes_error(frames[0], self._dumps) from exc
        except Fault as exc:
            raise sockets.socket_error(self._socket_address, exc) from exc
        finally:
            self._busy = False
            if self._closing:
                self._finish()

    def disown(self) -> None:
        """In a forked child, leave the socket and any unanswered request to the parent process."""
        super().disown()
        self._due = False

    def _next_message(self, timeout: Timeout) -> Any:
        flags = self._flags if timeout is OWN_TIMEOUT else NOW
        deadline = self._deadline(timeout)
        frames = self._next(flags, deadline)
        while frames is None:  # `stop` interrupted this thread's wait, but no loop is running.
            frames = self._next(flags, deadline)
        return self._read(frames)


class ZmqServer(RequestReceiver):
    """A server that receives requests from clients and replies to them. The socket binds, unless
    ``bind=False`` is set. Either call `recv` and `send` alternately, or start a loop with a
    handler.
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        self._loop: threading.Thread | None = None
        self._idle = threading.Event()
        self._idle.set()
        self._stopping = False
        super().__init__(**options)

    def recv(self, *, timeout: Timeout = OWN_TIMEOUT) -> Any:
        """Return the next request. Call `send` before the next call to `recv`.

        Raises `ZmqOrderError` if the previous request has not been answered or a loop is running,
        `ZmqTimeoutError` if no request arrives in time, `ZmqClosedError` if the server is closed,
        and `ZmqMessageError` if the serializer cannot read the request. In the last case, the
        server also replies to the client with an error.
        """
        self._refuse_during_loop("recv")
        if self._due:
            raise ZmqOrderError(
                f"{self._socket_address.what}: recv and send alternate, "
                "and a request waits for its reply"
            )
        return self._next_message(timeout)

    def send(self, reply: Any) -> None:
        """Reply to the most recently received request. Raises `ZmqOrderError` if there is no
        unanswered request.
        """
        self._refuse_during_loop("send")
        self._send_reply([reply if self._dumps is None else self._dumps(reply)])

    def send_error(self, text: str) -> None:
        """Reply with an error, which the client raises as `ZmqRemoteError`."""
        self._refuse_during_loop("send_error")
        self._send_reply(error_reply(error_text(text)))

    # --- the loop ---

    def start_loop(self, handler: Handler, *, blocking: bool = False) -> None:
        """Reply to every request with the result of ``handler``, until `stop` or `close` is called.

        With ``blocking``, the loop runs in the calling thread; otherwise, it runs in a daemon
        thread. An exception in the handler is logged and sent to the client as an error, and the
        loop continues. The same applies to a request that cannot be read. With ``blocking``,
        however, a `SystemExit` or `KeyboardInterrupt` is sent to the client as an error, ends the
        loop and propagates to the caller.
        """
        _check(handler)
        if not isinstance(blocking, bool):
            raise ZmqOptionError(f"blocking must be True or False, not {shown(blocking)}")
        self._refuse_during_loop("start_loop")
        if self._due:
            raise ZmqOrderError(
                f"{self._socket_address.what}: a request waits for its reply: "
                "call send before start_loop"
            )
        if self._closing:
            raise self._closed_error()
        self._stopping = False
        self._idle.clear()
        if blocking:
            self._loop = threading.current_thread()
            self._run(handler, blocking=True)
        else:
            name = f"{type(self).__name__} {self._socket_address.what}"
            self._loop = threading.Thread(target=self._run, args=(handler,), name=name, daemon=True)
            self._loop.start()

    def stop(self) -> None:
        """Stop the loop. A request that is being handled still receives a reply, but no further
        requests are handled.

        Any thread can call this method, and so can the handler. This method does not wait; `join`
        waits until the loop has stopped.
        """
        self._stopping = True
        if self._loop is not None:
            self._wake()

    def join(self, timeout: float | None = None) -> bool:
        """Wait at most ``timeout`` seconds for the loop to stop, and return whether it has stopped.
        If the handler calls this method, it returns False immediately, because the loop cannot stop
        before the handler returns.
        """
        allowed = seconds(timeout, "timeout")
        if self._loop is threading.current_thread():
            return self._idle.is_set()
        return self._idle.wait(None if allowed is None else min(allowed, threading.TIMEOUT_MAX))

    def disown(self) -> None:
        """In a forked child, leave the socket and the loop to the parent process."""
        super().disown()
        self._loop, self._idle = None, threading.Event()
        self._idle.set()

    def _run(self, handler: Handler, *, blocking: bool = False) -> None:
        try:
            while not self._stopping:
                frames = self._next(WAITING, None)
                if frames is not None:
                    self._handle(frames, handler, blocking=blocking)
        except ZmqClosedError:
            pass
        finally:
            self._loop = None
            self._idle.set()

    def _handle(self, frames: Sequence[bytes], handler: Handler, *, blocking: bool) -> None:
        try:
            reply = handler(self._read(frames))
            self._send_reply([reply if self._dumps is None else self._dumps(reply)])
        except BaseException as exc:
            # In a daemon thread, `SystemExit` would silently stop the loop but not the program, so
            # it is treated like any other exception.
            ends = blocking and not isinstance(exc, Exception)
            if not ends and not self._closing:
                _log.exception("%s: the reply to a request was an error", self._socket_address.what)
            self._reply_with_error(exc)
            if ends:
                raise

    def _reply_with_error(self, exc: BaseException) -> None:
        if self._due:
            self._send_reply(error_reply(exc))

    def _refuse_during_loop(self, call: str) -> None:
        if self._loop is not None:
            raise ZmqOrderError(
                f"{self._socket_address.what}: a loop is running; stop and join it before {call}"
            )


def _check(handler: object) -> None:
    if not callable(handler):
        raise ZmqOptionError(
            "a handler must be a function that returns the reply to a request, "
            f"not {shown(handler)}"
        )
    if any(map(inspect.iscoroutinefunction, (handler, getattr(handler, "__call__", None)))):  # noqa: B004
        raise ZmqOptionError(
            "an async handler needs an event loop: await serve(handler) of an AsyncZmqServer"
        )


class ZmqReceiver(RequestReceiver, SyncReceiver):
    """A receiver that acknowledges each message from a `ZmqSender`. The socket binds, unless
    ``bind=False`` is set.
    """

    def recv(self, *, timeout: Timeout = OWN_TIMEOUT) -> Any:
        """Receive the next message, acknowledge it, and return it. If the serializer cannot read
        the message, the sender receives an error. In all other respects, this method and the
        iteration over the socket work as in `ZmqPull`.
        """
        message = self._next_message(timeout)
        self._send_reply([b""])
        return message
