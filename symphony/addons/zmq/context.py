"""The one ZeroMQ context of a process, who opened sockets in it, and how all of it ends with the program.

ZeroMQ sends in the background: a program that ends at once would lose what it sent last. Whatever is open at the end
of the program is closed then, and the end waits for messages on their way, each socket's for its ``linger`` at most.
So it is with a child of multiprocessing. A child made by ``os.fork`` that ends by ``os._exit`` has no such end.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Mapping
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

import zmq
from zmq.utils import z85

if TYPE_CHECKING:
    import zmq.asyncio

    from symphony.plan.encryption_keys import Keys

# How long the end of the program waits for calls of other threads to notice that their object was closed, in seconds.
_NOTICE = 1.0
# When that is in a child of multiprocessing: after what others do there. Queues, for one, are emptied at -5.
_LAST = -100


class Closable(Protocol):
    """What has sockets open."""

    def close(self) -> None:
        """Close them."""

    def wait_closed(self, timeout: float) -> bool:
        """Whether they are closed, after at most ``timeout`` seconds."""

    def disown(self) -> None:
        """Be closed for a forked child, and leave them to the parent."""


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
                _end_with_child(self)
            return self.context

    def end(self) -> None:
        self.ending = True
        found: list[Closable] = list(self.open)
        for item in found:
            item.close()
        closed = [item.wait_closed(_NOTICE) for item in found]
        if self.context is not None and not self.context.closed and all(closed):
            self.context.term()


_here = _Process()


def _begin_anew() -> None:
    global _here
    inherited: list[Closable] = list(_here.open)
    for item in inherited:
        item.disown()
    _forked.append(
        (_here, inherited)
    )  # context and sockets are the parent's, and must not be ended here
    _here = _Process()


_forked: list[tuple[_Process, list[Closable]]] = []
os.register_at_fork(after_in_child=_begin_anew)
atexit.register(lambda: _here.end())


def _end_with_child(process: _Process) -> None:
    """Where this is a child of multiprocessing, end with it: forked ones leave by ``os._exit``, without atexit.

    This comes with the first socket. What the child is told before it begins, multiprocessing has it forget, the
    function of this module for atexit too; and who uses multiprocessing has imported it by now.
    """
    util, running = (
        sys.modules.get("multiprocessing.util"),
        sys.modules.get("multiprocessing.process"),
    )
    if util is None or running is None or running.parent_process() is None:
        return
    if sys.version_info >= (3, 13):  # where this comes when the threads have ended
        util.Finalize(None, process.end, exitpriority=_LAST)
    elif util.is_exiting():  # and one of its threads goes on
        _end_after_threads(process)
    else:
        util.Finalize(None, _end_after_threads, args=(process,), exitpriority=_LAST)


def _end_after_threads(process: _Process) -> None:
    """End after the other threads, as a program does. They are waited for when this has returned, and so is its own."""
    Thread(target=_await_threads, args=(process,), name="symphony-end", daemon=False).start()


def _await_threads(process: _Process) -> None:
    here = {threading.current_thread(), threading.main_thread()}
    while others := [
        each
        for each in threading.enumerate()
        if each.is_alive() and not each.daemon and each not in here
    ]:
        for thread in others:
            thread.join()
    process.end()


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
            Thread(
                target=_judge, args=(asked, _here.admitted), name="symphony-zap", daemon=True
            ).start()
        _here.admitted[domain.encode()] = z85.decode(keys.other)
    return domain


def _judge(asked: zmq.Socket[bytes], admitted: Mapping[bytes, bytes]) -> None:
    """Answer who may come in, to the end of the context: the one public key of each domain."""
    with contextlib.suppress(zmq.ContextTerminated), asked:
        while True:
            version, request, domain, _address, _identity, mechanism, *credentials = (
                asked.recv_multipart()
            )
            known = mechanism == b"CURVE" and credentials == [admitted.get(domain)]
            verdict = (b"200", b"OK") if known else (b"400", b"not a client of this experiment")
            asked.send_multipart([version, request, *verdict, b"", b""])
