"""An event loop for file descriptors, timers, signals and calls from other threads.

The loop sleeps until a descriptor is readable, a timer expires, or a signal or a call arrives.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import select
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

Callback = Callable[[], None]
ErrorCallback = Callable[[Exception], None]

# If the callback of a descriptor raises an exception, the descriptor is not watched for this time.
# Otherwise, the loop would call the callback again at once, and would never sleep.
ERROR_PAUSE_SECONDS = 1.0
_WAKE_UP_BYTES = 4096


class EventLoop:
    """An event loop that runs callbacks, one at a time, in the thread that calls `run`.

    That thread must be the main thread, because Python runs signal handlers only in the main
    thread.

    An exception in a callback does not stop the loop. ``on_error`` is called with the exception,
    and must not raise an exception itself.
    """

    def __init__(self, on_error: ErrorCallback) -> None:
        self._on_error = on_error
        self._thread = threading.get_ident()
        self._paused: dict[int, Callback] = {}
        # Thousands of processes are observed, and the module `selectors` is slower.
        self._epoll = select.epoll()
        self._watched: dict[int, Callback] = {}
        self._timers: list[tuple[float, int, Callback]] = []
        self._timer_numbers = itertools.count()
        self._posted: deque[Callback] = deque()
        self._signal_callbacks: dict[int, list[Callback]] = {}
        self._running = True
        # Signals and other threads interrupt the loop's sleep by writing to this socket pair.
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self.watch(self._wake_read.fileno(), self._drain_wake_up_bytes)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)

    def watch(self, descriptor: int, callback: Callback) -> None:
        """Call ``callback`` whenever ``descriptor`` is readable."""
        self._epoll.register(descriptor, select.EPOLLIN)
        self._watched[descriptor] = callback

    def unwatch(self, descriptor: int) -> None:
        """Stop watching ``descriptor``."""
        if self._paused.pop(descriptor, None) is None:
            del self._watched[descriptor]
            self._epoll.unregister(descriptor)

    def after(self, seconds: float, callback: Callback) -> None:
        """Call ``callback`` once, after ``seconds`` seconds."""
        due = time.monotonic() + seconds
        heapq.heappush(self._timers, (due, next(self._timer_numbers), callback))

    def on_signal(self, number: signal.Signals, callback: Callback) -> None:
        """Call ``callback`` whenever the signal ``number`` arrives.

        The callback runs in the event loop and not in the signal handler. A signal can have several
        callbacks.
        """
        self._signal_callbacks.setdefault(number, []).append(callback)
        signal.signal(number, self._handle_signal)

    def suspend_signal(self, number: signal.Signals) -> None:
        """Restore the default action of a signal until `resume_signal`, if it has one callback.

        A signal such as SIGCHLD, whose default action is to do nothing, can arrive thousands of
        times in a row.
        """
        if len(self._signal_callbacks[number]) == 1:
            signal.signal(number, signal.SIG_DFL)

    def resume_signal(self, number: signal.Signals) -> None:
        """Call the callbacks of a signal again when it arrives."""
        signal.signal(number, self._handle_signal)

    def _handle_signal(self, number: int, _: object) -> None:
        self._posted.extend(self._signal_callbacks[number])

    def post(self, callback: Callback) -> None:
        """Call ``callback`` as soon as possible. This method can be called from any thread."""
        self._posted.append(callback)
        if threading.get_ident() == self._thread:
            # The loop calls the callback before it sleeps.
            return
        with contextlib.suppress(BlockingIOError):
            self._wake_write.send(b"\0")

    def stop(self) -> None:
        """Make `run` return."""
        self._running = False

    def run(self) -> None:
        """Run callbacks until `stop` is called."""
        while self._running:
            for descriptor, callback in self._poll():
                # An earlier callback can have closed the descriptor, and its number can be in use.
                is_watched = self._watched.get(descriptor) is callback
                if is_watched and not self._call(callback):
                    self._pause(descriptor, callback)
            while self._posted:
                self._call(self._posted.popleft())
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                _, _, callback = heapq.heappop(self._timers)
                self._call(callback)

    def _poll(self) -> list[tuple[int, Callback]]:
        """Return the readable descriptors and their callbacks, at the latest when another callback
        is due.
        """
        seconds = self._seconds_to_next_callback()
        # The system counts in milliseconds. Without rounding up, the loop would return too early.
        timeout = None if seconds is None else math.ceil(seconds * 1000) / 1000
        ready = self._epoll.poll(timeout, max(1, len(self._watched)))
        return [(descriptor, self._watched[descriptor]) for descriptor, _ in ready]

    def _call(self, callback: Callback) -> bool:
        """Call ``callback``, and return whether it returned without an exception."""
        try:
            callback()
        except Exception as exc:
            self._on_error(exc)
            return False
        return True

    def _pause(self, descriptor: int, callback: Callback) -> None:
        """Stop watching ``descriptor`` for `ERROR_PAUSE_SECONDS`, unless that was already done."""
        if self._watched.get(descriptor) is not callback:
            return
        del self._watched[descriptor]
        self._epoll.unregister(descriptor)
        self._paused[descriptor] = callback
        self.after(ERROR_PAUSE_SECONDS, lambda: self._resume(descriptor, callback))

    def _resume(self, descriptor: int, callback: Callback) -> None:
        if self._paused.get(descriptor) is callback:
            del self._paused[descriptor]
            self.watch(descriptor, callback)

    def _seconds_to_next_callback(self) -> float | None:
        """Return the time in seconds until the next callback, or None if no callback is
        scheduled.
        """
        if self._posted:
            return 0.0
        if not self._timers:
            return None
        due = self._timers[0][0]
        return max(0.0, due - time.monotonic())

    def _drain_wake_up_bytes(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_read.recv(_WAKE_UP_BYTES)


def receive(channel: socket.socket, max_bytes: int) -> bytes | None:
    """Return what has arrived at a socket that does not block, or None if nothing has arrived.

    If the other side has closed the connection, or the connection has failed, return ``b""``.
    """
    try:
        return channel.recv(max_bytes)
    except BlockingIOError:
        return None
    except OSError:
        return b""
