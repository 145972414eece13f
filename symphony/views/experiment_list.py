"""Observing the experiments of all backends in a thread, for the views."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from symphony.cluster import WatchedStatuses
from symphony.errors import SymphonyError

LIST_INTERVAL_SECONDS = 1.0


class ExperimentListFeed:
    """The statuses of all experiments, until `close` is called.

    ``open_watch`` returns a context with a function that reads the statuses. ``on_update`` is
    called in another thread with each result that differs from the previous one. If the statuses
    cannot be read, ``outage`` of the result contains the reason.
    """

    def __init__(
        self,
        open_watch: Callable[[], AbstractContextManager[Callable[[], WatchedStatuses]]],
        on_update: Callable[[WatchedStatuses], None],
    ) -> None:
        self._open_watch = open_watch
        self._on_update = on_update
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        self._previous: WatchedStatuses | None = None

    def start(self) -> None:
        """Start to observe the experiments. Returns at once."""
        threading.Thread(target=self._watch, daemon=True, name="experiments").start()

    def close(self) -> None:
        """Stop observing the experiments. ``on_update`` is not called afterwards."""
        with self._lock:
            self._is_closed.set()

    def _watch(self) -> None:
        while not self._is_closed.is_set():
            try:
                with self._open_watch() as read:
                    while not self._is_closed.is_set():
                        self._send(read())
                        self._is_closed.wait(LIST_INTERVAL_SECONDS)
            except SymphonyError as exc:
                known = self._previous.statuses if self._previous is not None else []
                self._send(WatchedStatuses(known, str(exc)))
                self._is_closed.wait(LIST_INTERVAL_SECONDS)

    def _send(self, watched: WatchedStatuses) -> None:
        with self._lock:
            if self._is_closed.is_set() or watched == self._previous:
                return
            self._previous = watched
            self._on_update(watched)
