"""The returns that evaluators have measured, for the learner."""

from __future__ import annotations

import time

from roles import checks
from roles.checks import InvalidMessage
from symphony.addons.zmq import ZmqMessageError, ZmqPull, ZmqTimeoutError

# The number of most recent versions whose mean return is compared with the target.
WINDOW = 4


class Scores:
    """The mean returns that evaluators have measured, grouped by parameter version."""

    def __init__(self) -> None:
        self._by_version: dict[int, list[float]] = {}
        self._pull = ZmqPull(service="scores", serializer="json")

    def receive(self, timeout: float = 0.0) -> None:
        """Add the scores that have arrived, or that arrive within ``timeout`` seconds."""
        while True:
            try:
                message = checks.score(self._pull.recv(timeout=timeout))
            except ZmqTimeoutError:
                return
            except (ZmqMessageError, InvalidMessage) as exc:
                print(f"a score was dropped: {exc}", flush=True)
                continue
            self._by_version.setdefault(message["version"], []).append(message["value"])
            timeout = 0.0

    def wait_for(self, version: int, number: int, patience: float) -> bool:
        """Wait at most ``patience`` seconds for ``number`` scores of a version, and return whether
        they have arrived.
        """
        deadline = time.monotonic() + patience
        while len(self._by_version.get(version, ())) < number:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return False
            self.receive(remaining)
        return True

    def mean(self, last: int) -> float | None:
        """Return the mean return of the ``last`` most recent versions, or None if fewer versions
        have been measured.
        """
        versions = sorted(self._by_version)[-last:]
        values = [value for version in versions for value in self._by_version[version]]
        return sum(values) / len(values) if values and len(versions) == last else None

    @property
    def first(self) -> float | None:
        """The mean return of the first measured version, or None if no version was measured."""
        values = self._by_version[min(self._by_version)] if self._by_version else []
        return sum(values) / len(values) if values else None
