"""Notes on standard error about processes that have not started, and about whole experiments.

Each reason for a pending process is reported once, after it has remained unchanged for some time.
Many processes that have the same reason one after another share a few lines. The note of an
experiment is reported immediately.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from symphony.commandline.output.terminal import ProgressLine, print_note
from symphony.status import ReasonCode, State
from symphony.support.causes import group_by_cause, renamed

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.status import ExperimentStatus, ProcessStatus

# A reason that is normal during a start is reported only after this longer delay.
USUAL_DELAY_SECONDS = 10.0
PROBLEM_DELAY_SECONDS = 2.0
_USUAL_CODES = {
    None,
    ReasonCode.WAITING,
    ReasonCode.SCHEDULING,
    ReasonCode.PULLING_IMAGE,
    ReasonCode.CREATING,
}

ReportLine = Callable[[str], object]
OnChange = Callable[["ExperimentStatus"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """The reason why a process is pending.

    ``cause`` is the reason without the name of the process. ``since`` is the time at which this
    reason was first seen.
    """

    reason: str
    cause: str
    code: ReasonCode | None
    since: float

    @property
    def delay(self) -> float:
        """The seconds after which the reason is reported."""
        return USUAL_DELAY_SECONDS if self.code in _USUAL_CODES else PROBLEM_DELAY_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pause:
    """The time without another line about the same cause."""

    end: float
    seconds: float


class PendingReasons:
    """The reasons why processes have not started yet.

    The class is pure: callers pass the current time in seconds.
    """

    def __init__(self) -> None:
        self._pending: dict[str, _Pending] = {}
        self._reported: set[tuple[str, str]] = set()
        self._pauses: dict[str, _Pause] = {}

    def update(self, status: ExperimentStatus, now: float) -> None:
        """Replace the reasons with those in a new status."""
        before = self._pending
        self._pending = {}
        for process in status:
            if not _is_waiting_to_start(process):
                continue
            known = before.get(process.path)
            since = now
            if known is not None and known.reason == process.reason:
                since = known.since
            self._pending[process.path] = _Pending(
                reason=process.reason,
                cause=renamed(process.reason, process.path, ""),
                code=process.reason_code,
                since=since,
            )

    def due_lines(self, now: float) -> list[str]:
        """Return the lines to report now, such as ``main: pending: Unschedulable: ...``.

        Processes with the same reason share a line, and the time to the next line about this reason
        doubles. A reason that recurs is not reported again. For example, two reasons alternate
        while Kubernetes retries an image pull.
        """
        due: list[tuple[str, str]] = []
        reported: dict[str, _Pending] = {}
        for path, pending in self._unreported().items():
            if self._due(pending) <= now:
                due.append((path, pending.reason))
                reported[pending.cause] = pending
        self._reported.update(due)
        for cause, pending in reported.items():
            before = self._pauses.get(cause)
            seconds = pending.delay if before is None else 2 * before.seconds
            self._pauses[cause] = _Pause(end=now + seconds, seconds=seconds)
        lines: list[str] = []
        for group in group_by_cause(due):
            line = f"{group}: pending"
            lines.append(f"{line}: {group.cause}" if group.cause else line)
        return lines

    def next_time(self) -> float | None:
        """Return the time at which the next line is due if nothing changes.

        Return None if every reason has been reported.
        """
        return min((self._due(pending) for pending in self._unreported().values()), default=None)

    def _due(self, pending: _Pending) -> float:
        """Return the time at which a reason is due to be reported."""
        due = pending.since + pending.delay
        pause = self._pauses.get(pending.cause)
        return due if pause is None else max(due, pause.end)

    def _unreported(self) -> dict[str, _Pending]:
        return {
            path: pending
            for path, pending in self._pending.items()
            if (path, pending.reason) not in self._reported
        }


def _is_waiting_to_start(process: ProcessStatus) -> bool:
    # A process that is being deleted is not expected to start, so it needs no note.
    is_being_deleted = process.reason_code is ReasonCode.DELETING
    is_pending = process.state is State.PENDING and process.started is None
    return is_pending and not is_being_deleted


class ReasonReporter:
    """A reporter of the notes and of the reasons why processes are pending, in the statuses that it
    receives.

    A thread reports the reasons. The thread starts when the first pending process is seen.
    """

    def __init__(self, report: ReportLine) -> None:
        self._report = report
        self._reasons = PendingReasons()
        self._changed = threading.Condition()
        self._is_closed = False
        self._is_started = False
        self._reported_notes: set[str] = set()

    def update(self, status: ExperimentStatus) -> None:
        """Receive a new status."""
        with self._changed:
            if status.note and status.note not in self._reported_notes:
                self._reported_notes.add(status.note)
                self._report_line(f"{status.name}: {status.note}")
            self._reasons.update(status, time.monotonic())
            if not self._is_started and self._reasons.next_time() is not None:
                self._is_started = True
                threading.Thread(target=self._run, daemon=True, name="pending").start()
            self._changed.notify()

    def close(self) -> None:
        """Stop reporting."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while not self._is_closed:
                now = time.monotonic()
                for line in self._reasons.due_lines(now):
                    self._report_line(line)
                due = self._reasons.next_time()
                self._changed.wait(None if due is None else max(0.0, due - now))

    def _report_line(self, line: str) -> None:
        # Standard error may be closed.
        with contextlib.suppress(OSError, ValueError):
            self._report(line)


@contextlib.contextmanager
def reporting_progress(
    progress: ProgressLine, format_status: Callable[[ExperimentStatus], str]
) -> Iterator[Callable[[ExperimentStatus], None]]:
    """Yield a function that shows a status as progress and reports pending processes.

    The caller must call the yielded function with each new status while it waits for the
    experiment.
    """

    def report(line: str) -> None:
        progress.clear()
        print_note(line)

    with contextlib.closing(ReasonReporter(report)) as reporter:

        def update(status: ExperimentStatus) -> None:
            progress.update(format_status(status))
            reporter.update(status)

        yield update


@contextlib.contextmanager
def reporting_pending_processes(
    cluster: Cluster, name: str, on_change: OnChange = lambda _: None
) -> Iterator[None]:
    """Report an experiment's pending processes while the block runs.

    Until all processes have started, ``on_change`` is called with each new status, in a thread.
    """
    with contextlib.closing(ReasonReporter(print_note)) as reporter:

        def update(status: ExperimentStatus) -> None:
            reporter.update(status)
            on_change(status)

        threading.Thread(
            target=_observe, args=(cluster, name, update), daemon=True, name="starting"
        ).start()
        yield


def _observe(cluster: Cluster, name: str, on_change: OnChange) -> None:
    # Errors are ignored, because the code inside the block encounters and reports them as well.
    with contextlib.suppress(Exception):
        cluster.wait(name, until="started", on_change=on_change)
