"""Telling why processes do not start, beside whatever else is shown: once for each reason that lasts."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from symphony.commandline.output.terminal import ProgressLine, print_note
from symphony.names import join_names
from symphony.status import State

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.status import ExperimentStatus

# How long a reason has lasted when it is told, in seconds: one by which every start goes, and any other.
USUAL_DELAY_SECONDS, PROBLEM_DELAY_SECONDS = 10.0, 2.0
_USUAL = (
    "waiting for ",
    "being scheduled",
    "pulling image",
    "ContainerCreating",
    "PodInitializing",
    "init container",
)
# Who deletes it knows why it does not start.
_DELETED = "being deleted"
_NAMED = 4

Tell = Callable[[str], object]


class PendingReasons:
    """By process that has not started yet, why, and since when that is so. Pure: the time is given, in seconds."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[str, float]] = {}
        self._told: set[tuple[str, str]] = set()

    def see(self, status: ExperimentStatus, now: float) -> None:
        """Take how the experiment is."""
        before, self._since = self._since, {}
        for process in status:
            if (
                process.state is State.PENDING
                and process.started is None
                and _DELETED not in process.reason
            ):
                reason, since = before.get(process.path, (process.reason, now))
                self._since[process.path] = (
                    process.reason,
                    since if reason == process.reason else now,
                )

    def due(self, now: float) -> list[str]:
        """The lines to tell now: ``main: pending: Unschedulable: ...``, in one the processes of one reason.

        A reason is told once, though it comes again: of an image that cannot be pulled two take turns.
        """
        found: dict[str, list[str]] = {}
        for (path, reason), when in self._untold().items():
            if when <= now:
                found.setdefault(reason, []).append(path)
                self._told.add((path, reason))
        return [
            ": ".join(part for part in (join_names(paths, limit=_NAMED), "pending", reason) if part)
            for reason, paths in found.items()
        ]

    def next(self) -> float | None:
        """When there will be something to tell if nothing changes; None for never."""
        return min(self._untold().values(), default=None)

    def _untold(self) -> dict[tuple[str, str], float]:
        return {
            (path, reason): since + _patience(reason)
            for path, (reason, since) in self._since.items()
            if (path, reason) not in self._told
        }


def _patience(reason: str) -> float:
    return USUAL_DELAY_SECONDS if not reason or reason.startswith(_USUAL) else PROBLEM_DELAY_SECONDS


class ReasonReporter:
    """Tells the reasons out of the statuses that it sees, in a thread of its own that begins with the first."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._reasons = PendingReasons()
        self._changed = threading.Condition()
        self._over = False
        self._begun = False

    def see(self, status: ExperimentStatus) -> None:
        """Take how the experiment is."""
        with self._changed:
            self._reasons.see(status, time.monotonic())
            if not self._begun and self._reasons.next() is not None:
                self._begun = True
                threading.Thread(target=self._run, daemon=True, name="pending").start()
            self._changed.notify()

    def close(self) -> None:
        """Say nothing any more."""
        with self._changed:
            self._over = True
            self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while not self._over:
                now = time.monotonic()
                for line in self._reasons.due(now):
                    with contextlib.suppress(OSError, ValueError):  # standard error is closed
                        self._tell(line)
                coming = self._reasons.next()
                self._changed.wait(None if coming is None else max(0.0, coming - now))


@contextlib.contextmanager
def _telling(tell: Tell) -> Iterator[ReasonReporter]:
    """A `Teller` that says nothing any more at the end."""
    teller = ReasonReporter(tell)
    try:
        yield teller
    finally:
        teller.close()


@contextlib.contextmanager
def reporting_progress(
    shown: ProgressLine, view: Callable[[ExperimentStatus], str]
) -> Iterator[Callable[[ExperimentStatus], None]]:
    """What to call with each status while one waits: it shows progress, and tells why processes do not start."""

    def tell(line: str) -> None:
        shown.clear()
        print_note(line)

    def see(status: ExperimentStatus) -> None:
        shown.say(view(status))
        teller.see(status)

    with _telling(tell) as teller:
        yield see


@contextlib.contextmanager
def reporting_pending_processes(cluster: Cluster, name: str) -> Iterator[None]:
    """Tell on standard error why processes of an experiment do not start, while something else is done."""
    with _telling(print_note) as teller:
        threading.Thread(
            target=_look_on, args=(cluster, name, teller), daemon=True, name="starting"
        ).start()
        yield


def _look_on(cluster: Cluster, name: str, teller: ReasonReporter) -> None:
    # What is wrong with the cluster or the experiment, whoever reads the logs meanwhile hears it too.
    with contextlib.suppress(Exception):
        cluster.wait(name, until="started", on_change=teller.see)
