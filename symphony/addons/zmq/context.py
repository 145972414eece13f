"""The ZeroMQ context of a process, the owners of its sockets, and their shutdown at program exit.

ZeroMQ sends messages in the background, so a program that exits immediately would lose its last
messages. All objects that are still open when the program exits are therefore closed, and the exit
waits for unsent messages for at most ``linger`` seconds per socket. The same applies to a child
process that ``multiprocessing`` starts, but not to one that is created with ``os.fork`` and calls
``os._exit``.

This module authenticates the clients of an encrypted service itself, in one thread. The
``ThreadAuthenticator`` of pyzmq is not used because it imports asyncio into every program, and
because the program hangs at exit if the context is terminated before the authenticator is stopped.
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

# The time in seconds that the program waits at exit until calls in other threads notice that their
# object was closed.
_CLOSE_TIMEOUT_SECONDS = 1.0
# The priority of the shutdown in a child of multiprocessing. It runs later than other finalizers;
# for example, queues are flushed at priority -5.
_FINALIZER_PRIORITY = -100


class Closable(Protocol):
    """An object that owns open sockets."""

    def close(self) -> None:
        """Close the sockets."""

    def wait_closed(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for the sockets to close, and return whether they are
        closed.
        """

    def disown(self) -> None:
        """Mark the sockets as closed in a forked child, and leave them to the parent."""


class _Process:
    """The ZeroMQ state of this process. A forked child starts with a new state."""

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
                _shut_down_with_child(self)
            return self.context

    def end(self) -> None:
        self.ending = True
        found: list[Closable] = list(self.open)
        for item in found:
            item.close()
        closed = [item.wait_closed(_CLOSE_TIMEOUT_SECONDS) for item in found]
        if self.context is not None and not self.context.closed and all(closed):
            self.context.term()


_current = _Process()


def _reset_after_fork() -> None:
    global _current
    inherited: list[Closable] = list(_current.open)
    for item in inherited:
        item.disown()
    # The context and the sockets belong to the parent and must not be closed by the child, so a
    # reference prevents their deletion.
    _forked.append((_current, inherited))
    _current = _Process()


_forked: list[tuple[_Process, list[Closable]]] = []
os.register_at_fork(after_in_child=_reset_after_fork)
atexit.register(lambda: _current.end())


def _shut_down_with_child(process: _Process) -> None:
    """In a child of multiprocessing, shut down when the child exits, because a forked child calls
    ``os._exit``, which skips atexit functions.

    This code runs when the first socket is opened. multiprocessing clears its finalizers and the
    atexit functions of the parent when a child starts, so registration at import time would have no
    effect. A program that uses multiprocessing has already imported it.
    """
    util, running = (
        sys.modules.get("multiprocessing.util"),
        sys.modules.get("multiprocessing.process"),
    )
    if util is None or running is None or running.parent_process() is None:
        return
    if sys.version_info >= (3, 13):  # These functions run after the threads have finished.
        util.Finalize(None, process.end, exitpriority=_FINALIZER_PRIORITY)
    elif util.is_exiting():  # A thread of the program is still running.
        _shut_down_after_threads(process)
    else:
        util.Finalize(
            None, _shut_down_after_threads, args=(process,), exitpriority=_FINALIZER_PRIORITY
        )


def _shut_down_after_threads(process: _Process) -> None:
    """Shut down after the other threads, in the same way as at program exit. The threads are joined
    after this function returns, including the thread that it starts.
    """
    Thread(target=_wait_for_threads, args=(process,), name="symphony-end", daemon=False).start()


def _wait_for_threads(process: _Process) -> None:
    excluded = {threading.current_thread(), threading.main_thread()}

    def running_threads() -> list[Thread]:
        return [
            thread
            for thread in threading.enumerate()
            if thread.is_alive() and not thread.daemon and thread not in excluded
        ]

    # A thread can start other threads before it finishes, so repeat until no threads remain.
    threads = running_threads()
    while threads:
        for thread in threads:
            thread.join()
        threads = running_threads()
    process.end()


def context() -> zmq.Context[zmq.Socket[bytes]]:
    """Return the context of this process."""
    return _current.get()


def asynchronous_context() -> zmq.asyncio.Context:
    """Return the context of this process for asyncio sockets."""
    import zmq.asyncio

    shared = _current.get()
    with _current.lock:
        if _current.asynchronous is None:
            _current.asynchronous = zmq.asyncio.Context(shared)
        return _current.asynchronous


def close_at_exit(item: Closable) -> None:
    """Close ``item`` when the program exits, unless it has been deleted earlier."""
    _current.open.add(item)


def block_at_exit() -> None:
    """Block indefinitely while the program exits. Only daemon threads call this function, and they
    must not print errors.
    """
    if _current.ending:
        threading.Event().wait()


# --- clients of an encrypted service ---

# ZeroMQ sends a request to this address for each new client. The protocol is ZAP
# (https://rfc.zeromq.org/spec/27).
_ZAP = "inproc://zeromq.zap.01"


def accept_clients(keys: Keys) -> str:
    """Accept only clients that use the client key pair in ``keys``. Return the ZAP domain for the
    server.
    """
    domain = f"symphony-{keys.other}"
    shared = _current.get()
    with _current.lock:
        if not _current.admitted:
            handler = shared.socket(zmq.REP)
            handler.linger = 0
            handler.bind(_ZAP)
            arguments = (handler, _current.admitted)
            Thread(target=_serve_zap, args=arguments, name="symphony-zap", daemon=True).start()
        _current.admitted[domain.encode()] = z85.decode(keys.other)
    return domain


def _serve_zap(handler: zmq.Socket[bytes], admitted: Mapping[bytes, bytes]) -> None:
    """Answer ZAP requests until the context is terminated. Each domain has one public key."""
    with contextlib.suppress(zmq.ContextTerminated), handler:
        while True:
            frames = handler.recv_multipart()
            version, request, domain, _address, _identity, mechanism, *credentials = frames
            if mechanism == b"CURVE" and credentials == [admitted.get(domain)]:
                verdict = [b"200", b"OK"]
            else:
                verdict = [b"400", b"not a client of this experiment"]
            handler.send_multipart([version, request, *verdict, b"", b""])
