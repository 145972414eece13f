"""The events of an experiment on a backend that does not record events, from its statuses."""

from __future__ import annotations

import queue
import threading
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from symphony.errors import NotFound
from symphony.events import ExperimentEvent, events_between
from symphony.status import ENDED, ExperimentStatus

if TYPE_CHECKING:
    from symphony.cluster import Cluster


class _Abandoned(Exception):
    """Raised in the waiting thread after the caller has stopped reading events."""


def events_of_statuses(
    cluster: Cluster, experiment: str, names: Collection[str] | None, *, follow: bool
) -> Iterator[ExperimentEvent]:
    """Yield the events that an experiment's statuses show.

    With ``follow``, continue until the experiment has finished or was deleted, or until the
    processes ``names`` have exited.
    """
    if not follow:
        status = cluster.describe_experiment(experiment)
        yield from events_between(None, status, status.now())
        return
    previous: ExperimentStatus | None = None
    for status in _statuses(cluster, experiment):
        yield from events_between(previous, status, status.now())
        previous = status
        if names is not None and _have_ended(status, names):
            return


def _have_ended(status: ExperimentStatus, names: Collection[str]) -> bool:
    return all(process.state in ENDED for process in status if process.name in names)


def _statuses(cluster: Cluster, experiment: str) -> Iterator[ExperimentStatus]:
    """Yield the current status, and each status that differs from the previous one.

    `Cluster.wait` passes the statuses to a function, so it runs in a thread of its own.
    """
    results: queue.SimpleQueue[ExperimentStatus | Exception | None] = queue.SimpleQueue()
    is_abandoned = threading.Event()

    def on_change(status: ExperimentStatus) -> None:
        if is_abandoned.is_set():
            raise _Abandoned
        results.put(status)

    def wait() -> None:
        try:
            results.put(cluster.wait(experiment, on_change=on_change))
        except (NotFound, _Abandoned):
            # The experiment was deleted, or the caller has stopped reading.
            pass
        except Exception as exc:
            results.put(exc)
        results.put(None)

    threading.Thread(target=wait, daemon=True, name="events").start()
    try:
        while (result := results.get()) is not None:
            if isinstance(result, Exception):
                raise result
            yield result
    finally:
        is_abandoned.set()
