"""Waiting for the agents that replace killed ones."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable

from symphony_slurm.job.agent_protocol import Channel, Message, receive_hello

# How long a node counts as reachable without an agent. The guardian of an agent starts the next one
# at once, and it needs about a second to import its modules.
RETURN_SECONDS = 10.0
_POLL_SECONDS = 0.2
_CLOSE_SECONDS = 1.0

Arrival = tuple[Channel, Message]


class AgentReturns:
    """Accepts the connections of new agents to ``server`` while agents are expected.

    ``token`` is that of the run. ``on_arrival`` is called, in another thread, when there is a new
    connection for `take`.
    """

    def __init__(self, server: socket.socket, token: bytes) -> None:
        self._server = server
        self._token = token
        self._arrived: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._deadline = 0.0
        self.on_arrival: Callable[[], None] = lambda: None

    def expect(self) -> None:
        """Accept connections for `RETURN_SECONDS` from now on."""
        with self._lock:
            self._deadline = time.monotonic() + RETURN_SECONDS
            if self._thread is None:
                self._thread = threading.Thread(target=self._accept, daemon=True)
                self._thread.start()

    def take(self, timeout: float = 0.0) -> Arrival | None:
        """Return a new connection with the first message of its agent, or None on a timeout."""
        try:
            return self._arrived.get(timeout > 0, timeout)
        except queue.Empty:
            return None

    def close(self) -> None:
        """Accept no connections any more."""
        with self._lock:
            self._deadline = 0.0
            thread = self._thread
        if thread is not None:
            thread.join(_CLOSE_SECONDS)

    def _accept(self) -> None:
        self._server.settimeout(_POLL_SECONDS)
        while self._is_needed():
            try:
                connection, _ = self._server.accept()
            except TimeoutError:
                continue
            except OSError:
                # For example, too many files are open.
                time.sleep(_POLL_SECONDS)
                continue
            channel = Channel(connection)
            hello = receive_hello(channel, self._token)
            if hello is None:
                channel.close()
            else:
                self._arrived.put((channel, hello))
                self.on_arrival()

    def _is_needed(self) -> bool:
        with self._lock:
            is_needed = time.monotonic() < self._deadline
            if not is_needed:
                self._thread = None
            return is_needed
