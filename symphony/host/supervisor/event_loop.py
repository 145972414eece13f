"""An event loop: descriptors, timers, signals and calls from threads. It sleeps until one of them is due."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable

Callback = Callable[[], None]


class Loop:
    """Runs callbacks, one at a time, on the thread that calls `run`, which must be the main thread."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callback]] = []
        self._order = itertools.count()
        self._posted: deque[Callback] = deque()
        self._on_signal: dict[int, Callback] = {}
        self._running = True
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self.watch(self._wake_read.fileno(), self._woken)
        signal.set_wakeup_fd(self._wake_write.fileno(), warn_on_full_buffer=False)

    def watch(self, descriptor: int, callback: Callback) -> None:
        """Call back whenever a descriptor is readable."""
        self._selector.register(descriptor, selectors.EVENT_READ, callback)

    def unwatch(self, descriptor: int) -> None:
        """Do so no more."""
        self._selector.unregister(descriptor)

    def after(self, seconds: float, callback: Callback) -> None:
        """Call back once, in so many seconds."""
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._order), callback))

    def on_signal(self, number: signal.Signals, callback: Callback) -> None:
        """Call back, outside the signal handler, whenever a signal arrives."""
        self._on_signal[number] = callback
        signal.signal(number, lambda got, _: self._posted.append(self._on_signal[got]))

    def post(self, callback: Callback) -> None:
        """Call back soon; for other threads."""
        self._posted.append(callback)
        with contextlib.suppress(BlockingIOError):
            self._wake_write.send(b"\0")

    def stop(self) -> None:
        """Let `run` return."""
        self._running = False

    def run(self) -> None:
        """Call back until `stop`."""
        while self._running:
            for key, _ in self._selector.select(self._until_next()):
                key.data()
            while self._posted:
                self._posted.popleft()()
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                heapq.heappop(self._timers)[2]()

    def _until_next(self) -> float | None:
        if self._posted:
            return 0.0
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_read.recv(4096)
