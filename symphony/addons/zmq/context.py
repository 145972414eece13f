"""The ZeroMQ context of a process, the objects that own its sockets, and the shutdown of the
sockets and the context at program exit.

ZeroMQ sends messages in the background, so a program that exits immediately would lose its last
messages. When the program exits, this module therefore closes all objects that are still open, and
waits at most ``linger`` seconds for each socket's unsent messages to be sent. The same applies to
child processes that ``multiprocessing`` starts, but not to a child process that is created with
``os.fork`` and exits with ``os._exit``.

This module authenticates the clients of encrypted services itself, in one thread. pyzmq's
``ThreadAuthenticator`` is not used because it imports asyncio into every program, and because the
program hangs at exit if the context is terminated before the authenticator is stopped.
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

    from symphony.plan.resolution.encryption_keys import Keys

# The maximum time in seconds that the program waits at exit for calls in other threads to notice
# that their object has been closed.
_CLOSE_TIMEOUT_SECONDS = 1.0
# The priority of the shutdown among the finalizers of a multiprocessing child. It is low, so that
# the shutdown runs after other finalizers; for example, queues are flushed at priority -5.
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
        """In a forked child, mark the sockets as closed, and leave them to the parent process."""


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
    # The context and the sockets belong to the parent, so the child must not close them. Keep
    # references to them, because they would be closed if they were garbage-collected.
    _forked.append((_current, inherited))
    _current = _Process()


_forked: list[tuple[_Process, list[Closable]]] = []
os.register_at_fork(after_in_child=_reset_after_fork)
atexit.register(lambda: _current.end())


def _shut_down_with_child(process: _Process) -> None:
    """In a child that ``multiprocessing`` started, register the shutdown as a finalizer. A forked
    child exits with ``os._exit``, which skips atexit functions.

    This function is called when the first socket is opened. When a child starts, multiprocessing
    clears the finalizers and the atexit functions that it inherited from the parent, so
    registration at import time would have no effect. multiprocessing is not imported here, because
    a child that it started has already imported it.
    """
    util, running = (
        sys.modules.get("multiprocessing.util"),
        sys.modules.get("multiprocessing.process"),
    )
    if util is None or running is None or running.parent_process() is None:
        return
    # From Python 3.13 on, finalizers run after the threads have finished.
    if sys.version_info >= (3, 13):
        util.Finalize(None, process.end, exitpriority=_FINALIZER_PRIORITY)
    elif util.is_exiting():  # A thread opens the first socket while the child is exiting.
        _shut_down_after_threads(process)
    else:
        util.Finalize(
            None, _shut_down_after_threads, args=(process,), exitpriority=_FINALIZER_PRIORITY
        )


def _shut_down_after_threads(process: _Process) -> None:
    """Shut down after all other non-daemon threads have finished, as at program exit. This function
    starts a thread that waits for them. The interpreter joins that thread before the process exits.
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
    """Return this process's ZeroMQ context."""
    return _current.get()


def asynchronous_context() -> zmq.asyncio.Context:
    """Return this process's ZeroMQ context for asyncio sockets."""
    import zmq.asyncio

    shared = _current.get()
    with _current.lock:
        if _current.asynchronous is None:
            _current.asynchronous = zmq.asyncio.Context(shared)
        return _current.asynchronous


def close_at_exit(item: Closable) -> None:
    """Close ``item`` when the program exits, unless it has been garbage-collected by then."""
    _current.open.add(item)


def block_at_exit() -> None:
    """Block indefinitely if the program is exiting. This function stops daemon threads, which must
    not print errors at that time.
    """
    if _current.ending:
        threading.Event().wait()


# --- clients of an encrypted service ---

# ZeroMQ sends an authentication request to this address for each new client. The protocol is ZAP
# (https://rfc.zeromq.org/spec/27).
_ZAP = "inproc://zeromq.zap.01"


def accept_clients(keys: Keys) -> str:
    """Register a ZAP domain in which only clients with the client key in ``keys`` are accepted, and
    return the domain for the server socket.
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
    """Answer ZAP requests until the context is terminated. ``admitted`` maps each domain to its
    clients' public key.
    """
    with contextlib.suppress(zmq.ContextTerminated), handler:
        while True:
            frames = handler.recv_multipart()
            version, request, domain, _address, _identity, mechanism, *credentials = frames
            if mechanism == b"CURVE" and credentials == [admitted.get(domain)]:
                verdict = [b"200", b"OK"]
            else:
                verdict = [b"400", b"not a client of this experiment"]
            handler.send_multipart([version, request, *verdict, b"", b""])
