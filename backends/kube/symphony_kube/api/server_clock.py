"""The clock of the API server, estimated from its responses.

The creation times of objects are those of the API server. A machine whose clock is some minutes off
must not compare them with its own time.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from email.utils import parsedate_to_datetime

# The Date header contains whole seconds.
_RESOLUTION_SECONDS = 1.0


class ServerClock:
    """An estimate of the server's time. Several threads can share it.

    Each response limits the difference between the clocks to an interval. As long as the local
    clock can be correct, it is used unchanged, so that the times of one program stay consistent.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lowest = -math.inf
        self._highest = math.inf

    def note(self, date: str | None, *, sent: float, received: float) -> None:
        """Take into account the Date header of a response.

        ``sent`` and ``received`` are the local times of the request and of the response, in seconds
        since the epoch. A missing or invalid header is ignored.
        """
        if date is None:
            return
        server = None
        with contextlib.suppress(ValueError):
            server = parsedate_to_datetime(date).timestamp()
        if server is None:
            return
        lowest, highest = server - received, server + _RESOLUTION_SECONDS - sent
        with self._lock:
            self._lowest = max(self._lowest, lowest)
            self._highest = min(self._highest, highest)
            if self._lowest > self._highest:
                # The local clock was set in the meantime.
                self._lowest, self._highest = lowest, highest

    def now(self) -> float:
        """Return the server's time in seconds since the epoch.

        Before the first response, it is the local time.
        """
        return time.time() + self.offset()

    def offset(self) -> float:
        """Return how many seconds the server's clock is ahead of the local clock."""
        with self._lock:
            return min(max(0.0, self._lowest), self._highest)
