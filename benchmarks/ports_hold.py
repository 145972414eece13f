"""Show which servers can bind a port that symphony holds for them, and which other programs cannot
bind a held port.

    python benchmarks/ports_hold.py

A hold is a socket that is bound with SO_REUSEADDR and does not listen. The benchmark creates the
hold with the code that a launch uses. Each way of binding is tried during the hold, after its
release, and on a port whose last server has just closed a connection (which the kernel remembers
for a minute). The benchmark needs Linux, and leaves no process running. docs/adr/0002-ports.md
explains the conclusions.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http.server
import os
import platform
import socket
import socketserver
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from symphony.model.settings.validators import DEFAULT_PORT_RANGE
from symphony.supervised.resources.leases import PortLeases, take_lease

LOOPBACK = "127.0.0.1"
# This option has been defined in linux/in.h since Linux 6.3. The option limits the ports that the
# kernel can choose when a program binds to port 0.
IP_LOCAL_PORT_RANGE = 51

Attempt = Callable[[int], AbstractContextManager[object]]


# --- servers: each one binds and listens, and a client connects to it ---


@contextlib.contextmanager
def plain(port: int, *options: int, host: str = LOOPBACK) -> Iterator[None]:
    with socket.socket() as server:
        for option in options:
            server.setsockopt(socket.SOL_SOCKET, option, 1)
        server.bind((host, port))
        server.listen()
        reach(port)
        yield


@contextlib.contextmanager
def create_server(port: int) -> Iterator[None]:
    with socket.create_server((LOOPBACK, port)):
        reach(port)
        yield


@contextlib.contextmanager
def served(port: int, server: type[socketserver.TCPServer]) -> Iterator[None]:
    with server((LOOPBACK, port), http.server.BaseHTTPRequestHandler):
        reach(port)
        yield


@contextlib.contextmanager
def asyncio_server(port: int) -> Iterator[None]:
    async def serve() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), LOOPBACK, port)
        async with server:
            reach(port)

    asyncio.run(serve())
    yield


@contextlib.contextmanager
def zmq_server(port: int) -> Iterator[None]:
    import zmq

    with (
        zmq.Context() as context,
        context.socket(zmq.REP) as server,
        context.socket(zmq.REQ) as client,
    ):
        server.bind(f"tcp://{LOOPBACK}:{port}")
        client.linger = server.linger = 0
        client.connect(f"tcp://{LOOPBACK}:{port}")
        client.send(b"hello")
        if not server.poll(5000):
            raise OSError(errno.ETIMEDOUT, "no message was received")
        yield


def reach(port: int) -> None:
    socket.create_connection((LOOPBACK, port), timeout=5).close()


# --- programs that a hold should prevent from binding the port ---


@contextlib.contextmanager
def chosen_by_kernel(port: int) -> Iterator[None]:
    """Bind to port 0 while the kernel may choose only this port."""
    with socket.socket() as one:
        one.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("I", port << 16 | port))
        one.bind((LOOPBACK, 0))
        chosen = one.getsockname()[1]
        if chosen != port:  # The limit applies only within the kernel's port range.
            raise OSError("another port")
        yield


@contextlib.contextmanager
def another_launch(port: int) -> Iterator[None]:
    with PortLeases() as ports:
        reason = ports.reserve(port)
        if reason:
            raise OSError(errno.EADDRINUSE, reason)
        yield


@contextlib.contextmanager
def another_lease(port: int) -> Iterator[None]:
    lease = take_lease("port", str(port))
    if lease is None:
        raise OSError(errno.EADDRINUSE, "is leased")
    os.close(lease)
    yield


SERVERS: dict[str, Attempt] = {
    "zmq REP": zmq_server,
    "asyncio.start_server": asyncio_server,
    "http.server.HTTPServer": lambda port: served(port, http.server.HTTPServer),
    "http.server.ThreadingHTTPServer": lambda port: served(port, http.server.ThreadingHTTPServer),
    "socket.create_server": create_server,
    "socketserver.TCPServer": lambda port: served(port, socketserver.TCPServer),
    "plain socket": plain,
    "plain socket, SO_REUSEADDR": lambda port: plain(port, socket.SO_REUSEADDR),
    "plain socket, SO_REUSEADDR, 0.0.0.0": lambda port: plain(
        port, socket.SO_REUSEADDR, host="0.0.0.0"
    ),
    "plain socket, SO_REUSEPORT": lambda port: plain(port, socket.SO_REUSEPORT),
}
OTHERS: dict[str, Attempt] = {
    "bind to port 0, limited to this port": chosen_by_kernel,
    "another launch, port not leased": another_launch,
    "another launch, port leased": another_lease,
}


def tried(attempt: Attempt, port: int) -> str:
    """Return the outcome: ``binds``, or the name of the error."""
    try:
        with attempt(port):
            return "binds"
    except ImportError as exc:
        return f"no {exc.name}"
    except OSError as exc:
        return errno.errorcode.get(exc.errno or 0, str(exc))


def free_port(ports: PortLeases) -> int:
    return next(
        port
        for port in range(DEFAULT_PORT_RANGE[0], DEFAULT_PORT_RANGE[1] + 1)
        if fresh(port) and not ports.reserve(port)
    )


def fresh(port: int) -> bool:
    """Return whether the port is free and has no connection that was closed in the last minute."""
    with socket.socket() as one, contextlib.suppress(OSError):
        one.bind(("0.0.0.0", port))
        return True
    return False


def held(attempt: Attempt, *, leased: bool) -> tuple[str, str]:
    """Return the outcomes of an attempt on a held port and an attempt on a released port.

    If the first attempt binds its port, the second attempt uses a different port.
    """
    with PortLeases() as ports:
        port = free_port(ports)
        if not leased:
            os.close(ports.leases.pop(port))
        during = tried(attempt, port)
    if during == "binds":
        with PortLeases() as ports:
            port = free_port(ports)
    return during, tried(attempt, port)


def used(attempt: Attempt) -> str:
    """Return the outcome of an attempt on a port whose server has just closed a connection and
    exited.
    """
    with PortLeases() as ports:
        port = free_port(ports)
    with (
        socket.create_server((LOOPBACK, port)) as server,
        socket.create_connection((LOOPBACK, port)) as client,
    ):
        server.accept()[0].close()
        client.recv(1)
    return tried(attempt, port)


def main() -> None:
    first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    print(f"Linux {platform.release()}, Python {platform.python_version()}")
    pool_first, pool_last = DEFAULT_PORT_RANGE
    print(f"symphony's pool is {pool_first}-{pool_last}; the kernel's own is {first}-{last}\n")
    print(f"{'who':38}{'while held':14}{'after':14}just used by another")
    for name, attempt in {**SERVERS, **OTHERS}.items():
        during, after = held(attempt, leased=name.endswith(", port leased"))
        print(f"{name:38}{during:14}{after:14}{used(attempt)}")


if __name__ == "__main__":
    main()
