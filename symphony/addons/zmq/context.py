"""The one ZeroMQ context of a process, who opened sockets in it, and how all of it ends with the program.

ZeroMQ sends in the background: a program that ends at once would lose what it sent last. Whatever is open at the end
of the program is closed then, and the end waits for messages on their way, each socket's for its ``linger`` at most.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Mapping
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

import zmq
from zmq.utils import z85

if TYPE_CHECKING:
    import zmq.asyncio

    from symphony.keys import Keys

# How long the end of the program waits for calls of other threads to notice that their object was closed, in seconds.
_NOTICE = 1.0


class Closable(Protocol):
    """What has sockets open."""

    def close(self) -> None:
        """Close them."""

    def wait_closed(self, timeout: float) -> bool:
        """Whether they are closed, after at most ``timeout`` seconds."""


class _Process:
    """What this process has of ZeroMQ. A fork begins anew."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.context: zmq.Context[zmq.Socket[bytes]] | None = None
        self.asynchronous: zmq.asyncio.Context | None = None
        self.admitted: dict[bytes, bytes] = {}
        self.open: weakref.WeakSet[Any] = weakref.WeakSet()
        self.ending = False

    def get(self) -> zmq.Context[zmq.Socket[bytes]]:
        with self.lock:
            if self.context is None:
                self.context = zmq.Context()
            return self.context

    def end(self) -> None:
        self.ending = True
        found: list[Closable] = list(self.open)
        for item in found:
            item.close()
        closed = [item.wait_closed(_NOTICE) for item in found]
        if self.context is not None and all(closed):
            self.context.term()


_here = _Process()


def _begin_anew() -> None:
    global _here
    _forked.append(_here)  # its context belongs to the parent, and must not be ended here
    _here = _Process()


_forked: list[_Process] = []
os.register_at_fork(after_in_child=_begin_anew)
atexit.register(lambda: _here.end())


def context() -> zmq.Context[zmq.Socket[bytes]]:
    """The context of this process."""
    return _here.get()


def asynchronous_context() -> zmq.asyncio.Context:
    """The same context for sockets of asyncio."""
    import zmq.asyncio

    shared = _here.get()
    with _here.lock:
        if _here.asynchronous is None:
            _here.asynchronous = zmq.asyncio.Context(shared)
        return _here.asynchronous


def remember(item: Closable) -> None:
    """Close ``item`` at the end of the program, unless it is gone by then."""
    _here.open.add(item)


def rest_in_peace() -> None:
    """At the end of the program, do not come back: only daemon threads are left to wait, and they are to be silent."""
    if _here.ending:
        threading.Event().wait()


# --- who may connect to an encrypted service ---

# ZeroMQ asks at this address whether a client may come in (ZAP, https://rfc.zeromq.org/spec/27).
_ZAP = "inproc://zeromq.zap.01"


def admit(keys: Keys) -> str:
    """Let those in who have the clients' pair of ``keys``, and nobody else; the ZAP domain that a server names."""
    domain = f"symphony-{keys.other}"
    shared = _here.get()
    with _here.lock:
        if not _here.admitted:
            asked = shared.socket(zmq.REP)
            asked.linger = 0
            asked.bind(_ZAP)
            Thread(target=_judge, args=(asked, _here.admitted), name="symphony-zap", daemon=True).start()
        _here.admitted[domain.encode()] = z85.decode(keys.other)
    return domain


def _judge(asked: zmq.Socket[bytes], admitted: Mapping[bytes, bytes]) -> None:
    """Answer who may come in, to the end of the context: the one public key of each domain."""
    with contextlib.suppress(zmq.ContextTerminated), asked:
        while True:
            version, request, domain, _address, _identity, mechanism, *credentials = asked.recv_multipart()
            known = mechanism == b"CURVE" and credentials == [admitted.get(domain)]
            verdict = (b"200", b"OK") if known else (b"400", b"not a client of this experiment")
            asked.send_multipart([version, request, *verdict, b"", b""])
