"""Opening sockets with their options and keys, and translating errors. Only this module and
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
# The time in seconds that a call on a socket waits inside ZeroMQ. Most messages arrive within this
# time. Afterwards, the call waits in a way that another thread can interrupt, which takes longer to
# start and to stop.
FIRST_WAIT_SECONDS = 0.01
# The longest wait in ms that ZeroMQ supports. A longer wait is split.
LONGEST_WAIT_MS = LARGEST_INT
# The recv method of a socket. The arguments are its flags and whether to copy the data.
Take = Callable[[int, bool], zmq.Frame]

# The time in ms after which a connection attempt without a response is repeated. If a connection
# attempt reaches a Kubernetes Service before the Service knows its Pod, the attempt may never
# receive a response, even if the system retransmits it.
_CONNECT_TIMEOUT_MS = 1_500
# The heartbeat interval, and the time without a heartbeat after which a peer is considered lost, in
# ms. Heartbeats detect a machine that failed without closing its connections.
_HEARTBEAT_MS, _HEARTBEAT_TIMEOUT_MS = 10_000, 30_000
_NO_LIMIT = -1
# The time in seconds for which an address can remain in use by a socket that this program has
# closed but ZeroMQ has not closed yet.
_REBIND_SECONDS = 0.5


def open_socket(
    kind: int, setup: Setup, *, topics: Sequence[bytes] = (), again: str | None = None
) -> Socket:
    """Return a socket that is bound or connected.

    ``again`` is the address to which an earlier socket was bound. Raises `ZmqAddressError` if the
    address cannot be bound.
    """
    with _report_exhaustion(setup.place):
        socket = context.context().socket(kind)
    socket.rcvtimeo = socket.sndtimeo = int(FIRST_WAIT_SECONDS * 1000)
    _configure_and_attach(socket, setup, topics, again)
    return socket


def open_async_socket(
    kind: int, setup: Setup, *, topics: Sequence[bytes] = (), again: str | None = None
) -> AsyncSocket:
    """Return an asyncio socket that is bound or connected."""
    with _report_exhaustion(setup.place):
        socket = context.asynchronous_context().socket(kind)
    _configure_and_attach(socket, setup, topics, again)
    return socket


@contextlib.contextmanager
def _report_exhaustion(place: SocketAddress) -> Iterator[None]:
    """Report the reason if a socket cannot be created because too many files or sockets are
    open.
    """
    try:
        yield
    except zmq.ZMQError as exc:
        raise socket_error(place, exc) from exc


def _configure_and_attach(
    socket: AnySocket, setup: Setup, topics: Sequence[bytes], again: str | None
) -> None:
    try:
        _prepare(socket, setup, topics)
        _attach(socket, setup.place, again or setup.place.address)
    except BaseException:
        socket.close(linger=0)
        raise


def _prepare(socket: AnySocket, setup: Setup, topics: Sequence[bytes]) -> None:
    """Set the options of a socket before it is bound or connected."""
    if socket.type == zmq.SUB:
        # ZeroMQ counts subscriptions to a publisher that has exited as unsent messages. The program
        # must not wait for these subscriptions.
        socket.linger = 0
    elif setup.linger is None:
        socket.linger = _NO_LIMIT
    else:
        socket.linger = math.ceil(setup.linger * 1000)
    socket.connect_timeout = _CONNECT_TIMEOUT_MS
    socket.heartbeat_ivl, socket.heartbeat_timeout = _HEARTBEAT_MS, _HEARTBEAT_TIMEOUT_MS
    if setup.hwm is not None:
        socket.set_hwm(setup.hwm)
    if setup.place.address.startswith("tcp://["):
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
            # ZeroMQ closes sockets in the background and does not report when a socket is closed.
            time.sleep(0.005)


def _is_in_use(address: str) -> bool:
    """Return whether another socket listens on an ipc address, which ZeroMQ would otherwise take
    over silently.
    """
    path = address.removeprefix("ipc://")
    if path in (address, "*"):
        return False
    name = f"\0{path[1:]}" if path.startswith("@") else path  # "@" indicates an abstract address.
    # Ignore an error for a path that is too long, because ZeroMQ reports this error.
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
    """Convert a ZeroMQ error to an exception of symphony."""
    return ZmqError(f"{place.what}: {exc.strerror}")


def endpoint(socket: AnySocket, address: str) -> str:
    """Return the address, with the actual port, of a socket that was bound or connected to
    ``address``.
    """
    try:
        last = socket.getsockopt(zmq.LAST_ENDPOINT)
    except zmq.ZMQError:  # The address is longer than the maximum length that pyzmq can return.
        return address
    return last.decode().rstrip("\0") if isinstance(last, bytes) else address


def subscribe(socket: AnySocket, topic: bytes, *, on: bool) -> None:
    """Start or cancel the subscription to a topic."""
    socket.setsockopt(zmq.SUBSCRIBE if on else zmq.UNSUBSCRIBE, topic)


def milliseconds(deadline: float | None) -> int:
    """Return the remaining time in ms, limited to the maximum that ZeroMQ accepts. The value -1
    means no limit.
    """
    if deadline is None:
        return -1
    remaining = (deadline - time.monotonic()) * 1000
    return max(0, math.ceil(min(remaining, LONGEST_WAIT_MS)))


def is_past(deadline: float | None) -> bool:
    """Return whether the deadline has passed."""
    return deadline is not None and time.monotonic() >= deadline


def frames(take: Take, flags: int) -> list[bytes]:
    """Return the frames of the next message. Checking for further frames is faster on a frame than
    on the socket.
    """
    frame = take(flags, False)
    found = [frame.bytes]
    while frame.more:
        frame = take(NOW, False)
        found.append(frame.bytes)
    return found


async def pending(socket: AsyncSocket, event: int, deadline: float | None) -> bool:
    """Wait until an asyncio socket is readable or writable. Return False if the deadline passes
    first.
    """
    poll_socket: Any = socket.poll  # pyzmq provides type annotations only for other socket classes.
    while not await poll_socket(milliseconds(deadline), event):
        if is_past(deadline):
            return False
    return True


class WakeEvent:
    """Interrupts a wait for sockets from another thread. The descriptor of the event is readable
    after `wake` has been called.
    """

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def wake(self) -> None:
        """Make the descriptor readable."""
        os.write(self.fd, (1).to_bytes(8, "little"))

    def clear(self) -> None:
        """Make the descriptor not readable."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 8)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)
