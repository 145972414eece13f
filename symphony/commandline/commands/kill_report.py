"""Reporting processes that were killed because they had not exited in their grace period."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import signal_exit_code
from symphony.commandline.output.terminal import print_note
from symphony.errors import SymphonyError
from symphony.events import EventKind, ExperimentEvent, events_between, exit_text
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.status import ExperimentStatus

_KILLED = exit_text(signal_exit_code(9))
_MAX_NAMES = 4
# A command that takes less than this has not waited for the end of a grace period, so that it does
# not need to read the events.
_SHORTEST_SECONDS = 0.5


class KillReport:
    """The report of what a command on one experiment has killed, from its creation on.

    ``now`` is the time of the clock of the experiment, in seconds since the epoch. With
    ``has_option``, the command has the option ``--grace``.
    """

    def __init__(
        self, cluster: Cluster, experiment: str, now: float, *, has_option: bool = False
    ) -> None:
        self._cluster = cluster
        self._experiment = experiment
        self._since = now
        self._has_option = has_option
        self._begin = time.monotonic()
        self._is_cancelled = False

    @property
    def is_possible(self) -> bool:
        """True if the command has taken long enough to wait for the end of a grace period."""
        return time.monotonic() - self._begin >= _SHORTEST_SECONDS and not self._is_cancelled

    def cancel(self) -> None:
        """Report nothing, because the user has asked for kills."""
        self._is_cancelled = True

    def print_report(self, status: ExperimentStatus | None = None) -> None:
        """Print the report if something was killed.

        ``status`` shows processes after their stop. Without it, the events of the experiment are
        read, because the processes can have been started again.
        """
        if status is not None:
            self._print(events_between(None, status, status.now()))
        elif self.is_possible:
            # The command itself has succeeded.
            with contextlib.suppress(SymphonyError):
                self._print(self._cluster.iter_events(self._experiment))

    def _print(self, events: Iterable[ExperimentEvent]) -> None:
        names = killed_processes(event for event in events if event.at >= self._since)
        if names:
            option = " or use --grace" if self._has_option else ""
            print_note(
                f"killed at the end of the grace period: {join_names(names, limit=_MAX_NAMES)} of "
                f"{self._experiment}; to give more time, set termination_grace_period{option}"
            )


def killed_processes(events: Iterable[ExperimentEvent]) -> list[str]:
    """Return the processes that symphony has killed because they did not exit when asked to."""
    stopping: set[str | None] = set()
    killed: dict[str, None] = {}
    for event in events:
        if event.kind is EventKind.STOPPING:
            stopping.add(event.process)
        elif event.process is not None and _KILLED in event.text:
            # A process that another program kills has not been asked to exit.
            was_asked = bool(stopping & {event.process, None})
            if event.kind is EventKind.STOPPED or (event.kind is EventKind.EXITED and was_asked):
                killed[event.process] = None
    return list(killed)
