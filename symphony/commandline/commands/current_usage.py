"""Reading the present resource use of an experiment for ``ps --usage``."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from symphony.errors import SymphonyError, Unsupported
from symphony.usage import EVERYTHING, ExperimentUsage

if TYPE_CHECKING:
    from symphony.cluster import Cluster

_FIRST_SAMPLE_SECONDS = 2.0


def read_usage(cluster: Cluster, experiment: str, processes: Sequence[str]) -> ExperimentUsage:
    """Return one sample. It is empty if the experiment has finished."""
    try:
        for sample in cluster.iter_usage(experiment, processes):
            return sample
    except Unsupported as exc:
        return _unavailable(exc)
    return ExperimentUsage(at=time.time())


class LatestUsage:
    """The latest sample of the resource use, which a thread receives.

    The thread is a daemon, because it cannot be interrupted while it waits.
    """

    def __init__(self, cluster: Cluster, experiment: str, interval: float) -> None:
        self._cluster = cluster
        self._experiment = experiment
        self._interval = interval
        self._sample = ExperimentUsage(at=time.time())
        self._has_sample = threading.Event()
        threading.Thread(target=self._receive, daemon=True, name="usage").start()

    def get(self) -> ExperimentUsage:
        """Return the latest sample. Wait for the first one, but not for long."""
        self._has_sample.wait(_FIRST_SAMPLE_SECONDS)
        return self._sample

    def _receive(self) -> None:
        try:
            for sample in self._cluster.iter_usage(self._experiment, interval=self._interval):
                self._sample = sample
                self._has_sample.set()
            self._sample = ExperimentUsage(at=time.time())
        except SymphonyError as exc:
            self._sample = _unavailable(exc)
        self._has_sample.set()


def _unavailable(error: SymphonyError) -> ExperimentUsage:
    return ExperimentUsage(at=time.time(), unavailable={EVERYTHING: str(error)})
