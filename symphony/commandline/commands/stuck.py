"""Interrupt the main thread when an experiment can make no more progress by itself."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

from symphony.commandline.output.pending_reasons import reporting_pending_processes
from symphony.plan.start_order import is_stuck

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.status import ExperimentStatus

# How long an experiment must be stuck. When a process has exited, the supervisor can take a moment
# to start the next one.
STUCK_SECONDS = 2.0
# Programs rarely use this signal, and its handler is restored after the block.
_SIGNAL = signal.SIGUSR2


class Stuck(Exception):
    """No process of an experiment runs, and none can start before a user starts a stopped one."""

    def __init__(self, status: ExperimentStatus) -> None:
        super().__init__(status.name)
        self.status = status


@contextlib.contextmanager
def observing_pending_processes(cluster: Cluster, name: str) -> Iterator[None]:
    """Report an experiment's pending processes while the block runs.

    Raises `Stuck` in the block as soon as no process can start any more. The caller must be the
    main thread.
    """
    watch = _Watch(threading.get_ident())
    previous = signal.signal(_SIGNAL, watch.handle_signal)
    try:
        with reporting_pending_processes(cluster, name, watch.update):
            yield
    finally:
        watch.close()
        signal.signal(_SIGNAL, previous)


class _Watch:
    """A watch of an experiment. ``thread`` is the thread that is interrupted."""

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._stuck: ExperimentStatus | None = None
        self._timer: threading.Timer | None = None

    def update(self, status: ExperimentStatus) -> None:
        """Receive a new status."""
        if not is_stuck(status):
            self._stuck = None
            self.close()
            return
        self._stuck = status
        if self._timer is None:
            self._timer = threading.Timer(STUCK_SECONDS, self._interrupt)
            self._timer.daemon = True
            self._timer.start()

    def close(self) -> None:
        """Do not interrupt the thread any more."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _interrupt(self) -> None:
        if self._timer is not None:
            signal.pthread_kill(self._thread, _SIGNAL)

    def handle_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Interrupt the block, unless the signal has come from another program."""
        if self._stuck is not None:
            raise Stuck(self._stuck)
