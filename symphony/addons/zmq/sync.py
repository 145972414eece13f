"""The base classes of the synchronous socket classes. They open and close sockets, and wait in a
way that other threads can interrupt.

Two threads must not use a ZeroMQ socket at the same time. If a thread closes an object while
another thread is in a call on that object, the closing thread therefore does not access the socket.
Instead, it wakes the other thread, which then closes the socket. Two flags determine which thread
closes the socket: a call sets ``_busy`` and then reads ``_closing``, and `SyncSocket.close` sets
``_closing`` and then reads ``_busy``. The flags are much faster than a lock. The flag ``_busy``
also prevents a second thread from making a call at the same time. Such a call could cause ZeroMQ to
abort the program. The flag is reliable because CPython does not switch threads between reading it
and setting it.
"""

from __future__ import annotations

import abc
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from symphony.addons.zmq import context, sockets
from symphony.addons.zmq.base import SocketOwner
from symphony.addons.zmq.errors import (
    ZmqClosedError,
    ZmqMessageError,
    ZmqOrderError,
    ZmqTimeoutError,
)
from symphony.addons.zmq.options import OWN_TIMEOUT, OwnTimeout, Timeout, seconds, setup
from symphony.addons.zmq.protocol import not_bytes_error
from symphony.addons.zmq.sockets import NOW, READABLE, WAITING, WRITABLE, Fault

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from symphony.addons.zmq.options import Options
    from symphony.addons.zmq.sockets import Socket


class SyncSocket(SocketOwner):
    """One end of a connection. Only one thread can use the object at a time, but any thread can
    call `close`.

    The constructor raises `ZmqOptionError` if a keyword argument is invalid, `ZmqAddressError` if
    the address is invalid or cannot be used, and `NotFound` if the environment does not contain the
    service or, if the service is encrypted, its keys.
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        self._setup = setup(
            type(self).__name__, self._binds, options, self._own, all_replicas=self._all_replicas
        )
        self._busy = False
        self._close_lock = threading.Lock()
        self._closed_event = threading.Event()
        self._dumps, self._loads = self._setup.dumps, self._setup.loads
        self._call_timeout = allowed = self._setup.timeout
        self._flags = WAITING if allowed is None or allowed >= sockets.FIRST_WAIT_SECONDS else NOW
        self._waker = sockets.WakeEvent()
        self._woken = (self._waker.fd, READABLE)
        try:
            self._use(self._open())
        except BaseException:
            self._waker.close()
            raise
        self._address = sockets.endpoint(self._socket, self._socket_address.address)
        self._closing = False
        context.close_at_exit(self)

    def _open(self, *, again: str | None = None) -> Socket:
        return sockets.open_socket(self._kind, self._setup, again=again)

    def _use(self, socket: Socket) -> None:
        """Make ``socket`` this object's socket. Messages are sent with the ``send`` method that
        pyzmq's socket class inherits. This method bypasses the Python wrapper that the class
        defines.
        """
        self._socket = socket
        self._put: Any = super(type(socket), socket).send
        self._take: Any = socket.recv

    # --- closing ---

    def close(self) -> None:
        """Close the socket immediately. ZeroMQ continues to send unsent messages for up to
        ``linger`` seconds. Any thread can call this method, even repeatedly.

        `ZmqClosedError` is raised in a thread that is waiting in a call.
        """
        self._closing = True
        if self._busy:
            self._wake()
        else:
            self._finish()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def disown(self) -> None:
        """In a forked child, leave the socket to the parent process."""
        super().disown()
        self._close_lock, self._busy = threading.Lock(), False

    def _busy_error(self) -> ZmqOrderError:
        return ZmqOrderError(
            f"{self._socket_address.what}: "
            f"another thread is in a call of this {type(self).__name__}; "
            "give each thread its own object, or use a lock"
        )

    def _wake(self) -> None:
        with self._close_lock:
            if not self._closed_event.is_set():
                self._waker.wake()

    def _finish(self) -> None:
        with self._close_lock:
            if not self._closed_event.is_set():
                self._socket.close()
                self._waker.close()
                self._closed_event.set()

    # --- waiting ---

    def _deadline(self, timeout: Timeout, flags: int = NOW) -> float | None:
        """Return the deadline of a call. If the first attempt with ``flags`` waited inside ZeroMQ,
        the deadline is earlier by the duration of that wait.
        """
        if isinstance(timeout, OwnTimeout):
            self._call_timeout = self._setup.timeout
        else:
            self._call_timeout = seconds(timeout, "timeout")
        if self._call_timeout is None:
            return None
        spent = 0.0 if flags == NOW else sockets.FIRST_WAIT_SECONDS
        return time.monotonic() + self._call_timeout - spent

    def _call_when_ready(
        self, call: Callable[[int], Any], event: int, deadline: float | None, what: str
    ) -> Any:
        """Wait until ``call`` can run without blocking, call it, and return its result. Return None
        if another thread interrupted the wait.

        A socket can be readable although there is no message to receive. ZeroMQ discards a
        malformed message, such as a request without a delimiter, only when it is received. In this
        case, wait again.
        """
        while self._wait(event, deadline, what):
            try:
                return call(NOW)
            except Fault as exc:
                if not sockets.would_block(exc):
                    raise
            if sockets.is_past(deadline):
                raise self._timeout_error(what)
        return None

    def _wait(self, event: int, deadline: float | None, what: str) -> bool:
        """Wait until the socket is readable or writable, as selected by ``event``. Return False if
        another thread interrupted the wait.

        Raises `ZmqTimeoutError` if the deadline passes, and `ZmqClosedError` if the object is
        closed. ``what`` is the part of the timeout message that states what did not happen, such as
        ``no message came``.
        """
        while True:
            ready = sockets.poll(
                [(self._socket, event), self._woken], sockets.milliseconds(deadline)
            )
            if self._closing:
                self._finish()
                context.block_at_exit()
                raise self._closed_error()
            if ready:
                return ready[0] != self._woken  # If both are ready, the socket has priority.
            if sockets.is_past(deadline):
                raise self._timeout_error(what)

    def _timeout_error(self, what: str) -> ZmqTimeoutError:
        return ZmqTimeoutError(f"{self._socket_address.what}: {what} in {self._call_timeout:g} s")


class SyncReceiver(SyncSocket):
    """The receiving end of a connection."""

    @abc.abstractmethod
    def recv(self, *, timeout: Timeout = OWN_TIMEOUT) -> Any:
        """Return the next message."""

    def _receive(self, timeout: Timeout) -> Any:
        flags = self._flags if timeout is OWN_TIMEOUT else NOW
        if self._busy:
            raise self._busy_error()
        self._busy = True
        try:
            if self._closing:
                raise self._closed_error()
            try:
                return self._take(flags)
            except Fault as exc:
                if not sockets.would_block(exc):
                    raise
            return self._call_when_ready(
                self._take, READABLE, self._deadline(timeout, flags), "no message came"
            )
        except Fault as exc:
            raise sockets.socket_error(self._socket_address, exc) from exc
        finally:
            self._busy = False
            if self._closing:
                self._finish()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """Return the next message, or end the iteration if this object has been closed. Messages
        that cannot be read are logged and dropped.
        """
        while True:
            try:
                return self.recv()
            except ZmqMessageError as exc:
                self._log_dropped(exc)
            except ZmqClosedError:
                raise StopIteration from None


class SyncSender(SyncSocket):
    """The sending end of a connection."""

    def _send(self, data: Any, timeout: Timeout) -> None:
        flags = self._flags if timeout is OWN_TIMEOUT else NOW
        if self._busy:
            raise self._busy_error()
        self._busy = True
        try:
            if self._closing:
                raise self._closed_error()
            try:
                self._put(data, flags)
                return
            except Fault as exc:
                if not sockets.would_block(exc):
                    raise
            self._call_when_ready(
                lambda flags: self._put(data, flags),
                WRITABLE,
                self._deadline(timeout, flags),
                "no message could be sent",
            )
        except (TypeError, BufferError) as exc:
            raise not_bytes_error(data, self._dumps) from exc
        except Fault as exc:
            raise sockets.socket_error(self._socket_address, exc) from exc
        finally:
            self._busy = False
            if self._closing:
                self._finish()
