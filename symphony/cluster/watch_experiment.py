"""Following the status of one experiment, also when it is launched again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from symphony.errors import NotFound

if TYPE_CHECKING:
    from symphony.cluster.backend import Inspection, Watch
    from symphony.cluster.results import WatchedStatuses


@contextlib.contextmanager
def watch_experiment(
    backend: Inspection, experiment: str
) -> Iterator[Callable[[], WatchedStatuses]]:
    """Return a context with a function for reading a status; see `Cluster.watch_experiment`.

    The function raises `NotFound` if the experiment does not exist. If it is launched again, the
    next call returns the status of the new run.
    """
    with contextlib.ExitStack() as opened:
        watch: Watch | None = opened.enter_context(backend.watch(experiment))

        def read() -> WatchedStatuses:
            nonlocal watch
            if watch is not None:
                try:
                    return watch.read()
                except NotFound:
                    # The experiment was launched again, or was deleted.
                    watch = None
                    opened.close()
            watch = opened.enter_context(backend.watch(experiment))
            return watch.read()

        yield read
