"""The resource use of a process over time, with a limited number of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from symphony.usage import ProcessUsage

MAX_SAMPLES = 600


class Sample(NamedTuple):
    """The resource use of a process at a time, which is in seconds since the epoch."""

    at: float
    usage: ProcessUsage


class UsageHistory:
    """The samples of one process, from oldest to newest.

    If there are more than ``limit`` samples, every second sample of the older half is removed.
    Recent samples are therefore closer together than older ones.
    """

    def __init__(self, limit: int = MAX_SAMPLES) -> None:
        self._limit = limit
        self._samples: list[Sample] = []

    @property
    def samples(self) -> Sequence[Sample]:
        """The samples, from oldest to newest."""
        return self._samples

    @property
    def latest(self) -> ProcessUsage | None:
        """The newest sample, or None if there is none."""
        return self._samples[-1].usage if self._samples else None

    def add(self, at: float, usage: ProcessUsage) -> None:
        """Add a sample. A sample that is not newer than the newest one is ignored."""
        if self._samples and at <= self._samples[-1].at:
            return
        self._samples.append(Sample(at, usage))
        if len(self._samples) > self._limit:
            middle = len(self._samples) // 2
            self._samples = self._samples[:middle:2] + self._samples[middle:]
