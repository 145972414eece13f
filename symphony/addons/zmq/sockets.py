"""Opening sockets with their options and keys, and translating ZeroMQ errors. Only this module and
`context` import zmq.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import socket as plain
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import zmq

from symphony.addons.zmq import context
from symphony.addons.zmq.endpoint import SocketAddress
from symphony.addons.zmq.errors import ZmqAddressError, ZmqError
from symphony.addons.zmq.options import LARGEST_INT, Setup

if TYPE_CHECKING:
    import zmq.asyncio

    AsyncSocket = zmq.asyncio.Socket
    AnySocket = zmq.Socket[bytes] | AsyncSocket

Socket = zmq.Socket[bytes]
Fault = zmq.ZMQError
NOW, WAITING = zmq.NOBLOCK, 0
MORE = zmq.SNDMORE
READABLE, WRITABLE = zmq.POLLIN, zmq.POLLOUT
Kind = zmq.SocketType
REQ, REP, PUSH, PULL, PUB, SUB = zmq.REQ, zmq.REP, zmq.PUSH, zmq.PULL, zmq.PUB, zmq.SUB
poll = zmq.zmq_poll
# The time in seconds for which a call on a socket first waits inside ZeroMQ. Most messages arrive
# within this time. After that, the call polls the socket. Another thread can interrupt this second
# wait, but polling takes longer to start and to stop.
FIRST_WAIT_SECONDS = 0.01
# The longest wait in ms that ZeroMQ supports. A longer wait is divided into several waits.
LONGEST_WAIT_MS = LARGEST_INT
# The type of a socket's recv method. Its arguments are the flags, and whether to copy the data.
Take = Callable[[int, bool], zmq.Frame]

# The time in ms after which a connection attempt that has received no response is repeated. An
# attempt that reaches a Kubernetes Service before the Service knows its Pod may never receive a
# response, even if the operating system retransmits its packets.
_CONNECT_TIMEOUT_MS = 1_500
# The heartbeat interval, and the time without a heartbeat after which a peer is considered lost,
# both in ms. Heartbeats detect machines that fail without closing their connections.
_HEARTBEAT_MS, _HEARTBEAT_TIMEOUT_MS = 10_000, 30_000
_NO_LIMIT = -1
# If an address is in use, binding to it is retried for this number of seconds. This program may
# have closed the socket that uses the address, but ZeroMQ may not have released the address yet.
_REBIND_SECONDS = 0.5


def open_socket(
    kind: int, setup: Setup, *, topics: Sequence[bytes] = (), again: str | None = None
) -> Socket:
    """Open a socket, bind or connect it, and return it.

    If the new socket replaces one that was bound, ``again`` is the address of the replaced socket.
    Raises `ZmqAddressError` if the socket cannot be bound or connected to its address.
    """
    with _report_exhaustion(setup.place):
        socket = context.context().socket(kind)
    socket.rcvtimeo = socket.sndtimeo = int(FIRST_WAIT_SECONDS * 1000)
    _configure_and_attach(socket, setup, topics, again)
    return socket


def open_async_socket(
    kind: int, setup: Setup, *, topics: Sequence[bytes] = (), again: str | None = None
) -> AsyncSocket:
    """Open an asyncio socket, bind or connect it, and return it."""
    with _report_exhaustion(setup.place):
        socket = context.asynchronous_context().socket(kind)
    _configure_and_attach(socket, setup, topics, again)
    return socket


@contextlib.contextmanager
def _report_exhaustion(place: SocketAddress) -> Iterator[None]:
    """Raise `ZmqError` instead of the ZeroMQ error for too many open files or sockets."""
    try:
        yield
    except zmq.ZMQError as exc:
        raise socket_error(place, exc) from exc


def _configure_and_attach(
    socket: AnySocket, setup: Setup, topics: Sequence[bytes], again: str | None
) -> None:
    try:
        _prepare(socket, setup, topics)
        for address in setup.place.others:
            _attach(socket, setup.place, address)
        # The socket reports the address to which it was attached last.
        _attach(socket, setup.place, again or setup.place.address)
    except BaseException:
        socket.close(linger=0)
        raise


def _prepare(socket: AnySocket, setup: Setup, topics: Sequence[bytes]) -> None:
    """Set a socket's options before it is bound or connected."""
    if socket.type == zmq.SUB:
        # ZeroMQ treats subscriptions to a publisher that has exited as unsent messages. The program
        # must not wait for them when it exits.
        socket.linger = 0
    elif setup.linger is None:
        socket.linger = _NO_LIMIT
    else:
        socket.linger = math.ceil(setup.linger * 1000)
    socket.connect_timeout = _CONNECT_TIMEOUT_MS
    socket.heartbeat_ivl, socket.heartbeat_timeout = _HEARTBEAT_MS, _HEARTBEAT_TIMEOUT_MS
    if setup.hwm is not None:
        socket.set_hwm(setup.hwm)
    if any(item.startswith("tcp://[") for item in (setup.place.address, *setup.place.others)):
        socket.ipv6 = True
    for topic in topics:
        socket.setsockopt(zmq.SUBSCRIBE, topic)
    keys = setup.place.keys
    if keys is None:
        return
    socket.curve_publickey, socket.curve_secretkey = keys.public.encode(), keys.secret.encode()
    if keys.serves:
        socket.zap_domain = context.accept_clients(keys).encode()
        socket.curve_server = True
    else:
        socket.curve_serverkey = keys.other.encode()


def _attach(socket: AnySocket, place: SocketAddress, address: str) -> None:
    deadline = time.monotonic() + _REBIND_SECONDS
    while True:
        try:
            if place.bind and _is_in_use(address):
                raise zmq.ZMQError(errno.EADDRINUSE)
            (socket.bind if place.bind else socket.connect)(address)
            return
        except zmq.ZMQError as exc:
            if exc.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise ZmqAddressError(_failure_reason(place, exc)) from exc
            # ZeroMQ closes sockets in the background and does not report when a socket has been
            # closed.
            time.sleep(0.005)


def _is_in_use(address: str) -> bool:
    """Return whether ``address`` is an ipc address on which another socket listens. ZeroMQ would
    silently take over such an address.
    """
    path = address.removeprefix("ipc://")
    if path in (address, "*"):
        return False
    name = f"\0{path[1:]}" if path.startswith("@") else path  # "@" indicates an abstract address.
    # Ignore the error for a path that is too long, because ZeroMQ reports it later.
    with contextlib.suppress(OSError), plain.socket(plain.AF_UNIX) as probe:
        probe.setblocking(False)
        return probe.connect_ex(name) in (0, errno.EAGAIN, errno.EPROTOTYPE)
    return False


def _failure_reason(place: SocketAddress, exc: zmq.ZMQError) -> str:
    is_tcp = place.address.startswith("tcp:")
    if exc.errno == errno.EADDRINUSE:
        part = "port" if is_tcp else "address"
        reason = f"the address is in use; stop the program that uses it, or choose another {part}"
    elif exc.errno == errno.EACCES:
        verb = "listen" if place.bind else "connect"
        other = "a port from 1024 on" if is_tcp else "another address"
        reason = f"permission to {verb} there was denied; choose {other}"
    elif exc.errno in (errno.ENODEV, errno.EADDRNOTAVAIL):
        reason = (
            "this is not an address of this machine, and the name of a Service cannot be bound: "
            "give service=, which binds its BIND_HOST, or bind 0.0.0.0"
        )
    else:
        reason = str(exc.strerror)
    target = place.what if place.what == place.address else f"{place.what} ({place.address})"
    return f"cannot {'listen on' if place.bind else 'connect to'} {target}: {reason}"


def would_block(exc: zmq.ZMQError) -> bool:
    """Return whether the error is EAGAIN, which means that the call would block."""
    return exc.errno == errno.EAGAIN


def socket_error(place: SocketAddress, exc: zmq.ZMQError) -> ZmqError:
    """Convert a ZeroMQ error to a `ZmqError`."""
    return ZmqError(f"{place.what}: {exc.strerror}")


def endpoint(socket: AnySocket, address: str) -> str:
    """Return the address of a socket that was bound or connected to ``address``, with the actual
    port.
    """
    try:
        last = socket.getsockopt(zmq.LAST_ENDPOINT)
    except zmq.ZMQError:  # The address is longer than pyzmq can return.
        return address
    return last.decode().rstrip("\0") if isinstance(last, bytes) else address


def subscribe(socket: AnySocket, topic: bytes, *, on: bool) -> None:
    """Subscribe to a topic if ``on`` is true; otherwise, cancel the subscription."""
    socket.setsockopt(zmq.SUBSCRIBE if on else zmq.UNSUBSCRIBE, topic)


def milliseconds(deadline: float | None) -> int:
    """Return the time until ``deadline`` in ms, limited to the maximum that ZeroMQ accepts, or -1
    if there is no deadline.
    """
    if deadline is None:
        return -1
    remaining = (deadline - time.monotonic()) * 1000
    return max(0, math.ceil(min(remaining, LONGEST_WAIT_MS)))


def is_past(deadline: float | None) -> bool:
    """Return whether the deadline has passed."""
    return deadline is not None and time.monotonic() >= deadline


def frames(take: Take, flags: int) -> list[bytes]:
    """Return the frames of the next message. ``take`` returns frame objects, because a frame
    reports faster than the socket whether more frames follow.
    """
    frame = take(flags, False)
    found = [frame.bytes]
    while frame.more:
        frame = take(NOW, False)
        found.append(frame.bytes)
    return found


async def pending(socket: AsyncSocket, event: int, deadline: float | None) -> bool:
    """Wait until an asyncio socket is readable or writable, as selected by ``event``. Return False
    if the deadline passes first.
    """
    poll_socket: Any = socket.poll  # pyzmq provides no type annotations for this socket class.
    while not await poll_socket(milliseconds(deadline), event):
        if is_past(deadline):
            return False
    return True


class WakeEvent:
    """An event with which one thread interrupts another thread's wait for sockets. The event's file
    descriptor ``fd`` becomes readable when `wake` is called.
    """

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def wake(self) -> None:
        """Make the descriptor readable."""
        os.write(self.fd, (1).to_bytes(8, "little"))

    def clear(self) -> None:
        """Reset the event, so that the descriptor is no longer readable."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 8)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)
