"""Sockets as they are opened here: options, keys, and what goes wrong in words. With `context`, alone imports zmq."""

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
from symphony.addons.zmq.endpoint import Place
from symphony.addons.zmq.errors import ZmqAddressError, ZmqError
from symphony.addons.zmq.options import MOST, Setup

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
# How long a call on a socket waits inside ZeroMQ, in seconds: most of what is waited for comes sooner. Only then does
# it wait in such a way that another thread can end it, which takes longer to begin and to end.
QUICK = 0.01
# The longest wait that ZeroMQ can be asked for; a longer one is several. In ms.
LONGEST = MOST
# A socket's recv, with its flags and whether to copy.
Take = Callable[[int, bool], zmq.Frame]

# A connection that gets no answer is given up after this, and begun again. In ms. What is sent to a Service before it
# knows its Pod may never get one, however often the system sends it again.
_CONNECT_TIMEOUT = 1_500
# A peer whose machine is gone, so that nobody says goodbye, is noticed after this. In ms.
_HEARTBEAT, _SILENCE = 10_000, 30_000
_FOR_EVER = -1
# How long an address may be in use by a socket that this program has closed, and ZeroMQ not yet. In seconds.
_FREE_AGAIN = 0.5


def opened(
    kind: int, setup: Setup, *, topics: Sequence[bytes] = (), again: str | None = None
) -> Socket:
    """A socket that is bound or connected.

    ``again`` is the address that an earlier one got. Raises `ZmqAddressError` for one that cannot be bound.
    """
    with _said(setup.place):
        socket = context.context().socket(kind)
    socket.rcvtimeo = socket.sndtimeo = int(QUICK * 1000)
    _ready(socket, setup, topics, again)
    return socket


def opened_async(
    kind: int, setup: Setup, *, topics: Sequence[bytes] = (), again: str | None = None
) -> AsyncSocket:
    """The same for asyncio."""
    with _said(setup.place):
        socket = context.asynchronous_context().socket(kind)
    _ready(socket, setup, topics, again)
    return socket


@contextlib.contextmanager
def _said(place: Place) -> Iterator[None]:
    """Say why there is no socket: too many files or sockets are open."""
    try:
        yield
    except zmq.ZMQError as exc:
        raise failure(place, exc) from exc


def _ready(socket: AnySocket, setup: Setup, topics: Sequence[bytes], again: str | None) -> None:
    try:
        _prepare(socket, setup, topics)
        _attach(socket, setup.place, again or setup.place.address)
    except BaseException:
        socket.close(linger=0)
        raise


def _prepare(socket: AnySocket, setup: Setup, topics: Sequence[bytes]) -> None:
    """Set the options of a socket that is not bound or connected yet."""
    # Subscriptions to a publisher that has gone are messages on their way too, and nobody waits for those.
    socket.linger = (
        0
        if socket.type == zmq.SUB
        else _FOR_EVER
        if setup.linger is None
        else math.ceil(setup.linger * 1000)
    )
    socket.connect_timeout = _CONNECT_TIMEOUT
    socket.heartbeat_ivl, socket.heartbeat_timeout = _HEARTBEAT, _SILENCE
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
        socket.zap_domain = context.admit(keys).encode()
        socket.curve_server = True
    else:
        socket.curve_serverkey = keys.other.encode()


def _attach(socket: AnySocket, place: Place, address: str) -> None:
    deadline = time.monotonic() + _FREE_AGAIN
    while True:
        try:
            if place.bind and _is_taken(address):
                raise zmq.ZMQError(errno.EADDRINUSE)
            (socket.bind if place.bind else socket.connect)(address)
            return
        except zmq.ZMQError as exc:
            if exc.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise ZmqAddressError(_refusal(place, exc)) from exc
            time.sleep(0.005)  # ZeroMQ closes in the background and tells nobody when it has


def _is_taken(address: str) -> bool:
    """Whether somebody listens at an ipc address, from whom ZeroMQ would take it without a word."""
    path = address.removeprefix("ipc://")
    if path in (address, "*"):
        return False
    with (
        contextlib.suppress(OSError),
        plain.socket(plain.AF_UNIX) as probe,
    ):  # a path that is too long is for ZeroMQ to tell
        probe.setblocking(False)
        said = probe.connect_ex(f"\0{path[1:]}" if path.startswith("@") else path)
        return said in (0, errno.EAGAIN, errno.EPROTOTYPE)
    return False


def _refusal(place: Place, exc: zmq.ZMQError) -> str:
    tcp, verb = place.address.startswith("tcp:"), "listen" if place.bind else "connect"
    part, other = ("port", "a port from 1024 on") if tcp else ("address", "another address")
    where = place.what if place.what == place.address else f"{place.what} ({place.address})"
    why = {
        errno.EADDRINUSE: f"the address is in use; end who listens there, or choose another {part}",
        errno.EACCES: f"this user may not {verb} there; choose {other}",
    }.get(exc.errno or 0, f"{exc.strerror}")
    if exc.errno in (errno.ENODEV, errno.EADDRNOTAVAIL):
        why = (
            "that is no address of this machine; a name of a Service cannot be bound either: give service=, "
            "which binds its BIND_HOST, or bind 0.0.0.0"
        )
    return f"cannot {'listen on' if place.bind else 'connect to'} {where}: {why}"


def is_later(exc: zmq.ZMQError) -> bool:
    """Whether a call on a socket only has to wait."""
    return exc.errno == errno.EAGAIN


def failure(place: Place, exc: zmq.ZMQError) -> ZmqError:
    """What ZeroMQ said, as an error of ours."""
    return ZmqError(f"{place.what}: {exc.strerror}")


def endpoint(socket: AnySocket, address: str) -> str:
    """Where a socket is that was bound or connected to ``address``, with the port that it got."""
    try:
        last = socket.getsockopt(zmq.LAST_ENDPOINT)
    except zmq.ZMQError:  # longer than pyzmq can tell
        return address
    return last.decode().rstrip("\0") if isinstance(last, bytes) else address


def subscribe(socket: AnySocket, topic: bytes, *, on: bool) -> None:
    """Begin or end to receive what is published under a topic."""
    socket.setsockopt(zmq.SUBSCRIBE if on else zmq.UNSUBSCRIBE, topic)


def milliseconds(deadline: float | None) -> int:
    """How long is left, as ZeroMQ takes it, and as much of it as it takes; -1 for ever."""
    return (
        -1
        if deadline is None
        else max(0, math.ceil(min((deadline - time.monotonic()) * 1000, LONGEST)))
    )


def is_over(deadline: float | None) -> bool:
    """Whether nothing is left."""
    return deadline is not None and time.monotonic() >= deadline


def frames(take: Take, flags: int) -> list[bytes]:
    """The frames of the next message. A frame knows whether there are more; to ask the socket takes longer."""
    frame = take(flags, False)
    found = [frame.bytes]
    while frame.more:
        frame = take(NOW, False)
        found.append(frame.bytes)
    return found


async def pending(socket: AsyncSocket, event: int, deadline: float | None) -> bool:
    """Wait until a socket of asyncio is readable or writable; False where it is not before the deadline."""
    asking: Any = socket.poll  # whose types pyzmq has only for other sockets
    while not await asking(milliseconds(deadline), event):
        if is_over(deadline):
            return False
    return True


class Waker:
    """Ends a wait for sockets from another thread: something that is readable once `wake` was called."""

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            self.fd = self._write = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        else:  # not on Linux
            self.fd, self._write = os.pipe()
            os.set_blocking(self.fd, False)

    def wake(self) -> None:
        """Be readable."""
        os.write(self._write, (1).to_bytes(8, "little"))

    def rest(self) -> None:
        """Be readable no longer."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 8 if self.fd == self._write else 4096)

    def close(self) -> None:
        """Give the descriptors back."""
        for descriptor in {self.fd, self._write}:
            os.close(descriptor)
