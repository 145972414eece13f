"""The events in the life of an experiment, in the same form for every backend.

All functions are pure. The functions that return texts are shared by the backends, so that the same
event has the same words everywhere.
"""

from __future__ import annotations

import enum
import signal
from collections.abc import Container, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from symphony.status import ENDED, ExperimentStatus, ProcessStatus, ReasonCode, State
from symphony.support.data_classes import dataclass

# A shell, and symphony, report that signal n killed a process as this number plus n.
_SIGNAL_EXIT_CODE = 128
_RESTART_CODES = (ReasonCode.BACKING_OFF, ReasonCode.EXPERIMENT_RESTARTS)
# A process that ended for one of these reasons had started, although its start may be unknown.
_AFTER_START = (ReasonCode.EXITED, ReasonCode.LOST, ReasonCode.UNIT_FAILED)


class EventKind(str, enum.Enum):
    """The kind of an event."""

    LAUNCHED = "launched"
    # The process waits, for example for another process, for a machine or for its image.
    WAITING = "waiting"
    STARTED = "started"
    READY = "ready"
    # The process did not become ready before its timeout.
    NOT_READY = "not-ready"
    # The health tests of the process have failed several times in a row, so it is being stopped.
    UNHEALTHY = "unhealthy"
    SIGNALED = "signaled"
    # The process or the experiment will be started again.
    RESTARTING = "restarting"
    # The process or the experiment is being stopped.
    STOPPING = "stopping"
    # The process has exited by itself.
    EXITED = "exited"
    # The process has exited because symphony stopped it.
    STOPPED = "stopped"
    # The process will never start.
    NEVER_STARTED = "never-started"
    # The experiment's description or its note has changed.
    CHANGED = "changed"
    # The backend reports a problem, which may solve itself.
    WARNING = "warning"
    FINISHED = "finished"

    def __str__(self) -> str:
        return self.value


# After one of these events, the process writes no more output, unless it is started again.
EXIT_KINDS = frozenset({EventKind.EXITED, EventKind.STOPPED})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentEvent:
    """An event in the life of an experiment or of one of its processes.

    ``at`` is the time in seconds since the epoch. ``process`` is the name of the process, or None
    if the event concerns the whole experiment. ``text`` describes the event in one line, such as
    ``exited with 9``, and does not contain the name of the process.
    """

    at: float
    kind: EventKind
    process: str | None = None
    reason_code: ReasonCode | None = None
    text: str

    @property
    def line(self) -> str:
        """The text with its subject, such as ``process learner exited with 9``."""
        subject = "experiment" if self.process is None else f"process {self.process}"
        return f"{subject} {self.text}"

    def to_dict(self) -> dict[str, Any]:
        """Return the event as a dictionary that can be written as JSON."""
        return {
            "at": self.at,
            "kind": str(self.kind),
            "process": self.process,
            "reason_code": None if self.reason_code is None else str(self.reason_code),
            "text": self.text,
        }


def select_events(
    events: Iterable[ExperimentEvent], names: Container[str] | None, since: float | None
) -> Iterator[ExperimentEvent]:
    """Yield the events of the processes ``names`` that are not older than ``since``.

    If ``names`` is None, the events of all processes and of the experiment itself are included.
    """
    for event in events:
        if since is not None and event.at < since:
            continue
        if names is None or (event.process is not None and event.process in names):
            yield event


# --- texts ---


def exit_text(code: int | None, reason: str = "", reason_code: ReasonCode | None = None) -> str:
    """Return the text for an exit, such as ``exited with 9`` or ``killed by SIGKILL (reason)``.

    >>> exit_text(137, "out of memory", ReasonCode.OUT_OF_MEMORY)
    'killed by SIGKILL (out of memory)'
    """
    text = "exited" if code is None else f"exited with {code}"
    name = signal_name(code)
    is_plain_exit = reason_code in (ReasonCode.EXITED, ReasonCode.CANNOT_START)
    if name and not is_plain_exit:
        text = f"killed by {name}"
    return text if reason in ("", text) else f"{text} ({reason})"


def stop_text(code: int | None, reason: str = "") -> str:
    """Return the text for a process that symphony has stopped, such as ``stopped, exited with
    0``.
    """
    text = "stopped" if code is None else f"stopped, {exit_text(code)}"
    return text if reason in ("", "stopped") else f"{text} ({reason})"


def restart_text(seconds: float | None, number: int | None = None, limit: int | None = None) -> str:
    """Return the text for a process that will be started again after ``seconds`` seconds.

    ``number`` is the number of this restart, and ``limit`` is the number of permitted restarts.

    >>> restart_text(10, 2, 5)
    'restarting in 10 s (2 of 5)'
    """
    text = "restarting"
    if seconds is not None:
        text = f"restarting in {_seconds(seconds)}" if seconds > 0 else "restarting now"
    if number is None:
        return text
    return f"{text} ({number})" if limit is None else f"{text} ({number} of {limit})"


def start_text(restarts: int) -> str:
    """Return the text for the start of a process that has been restarted ``restarts`` times."""
    return "started" if not restarts else f"started again (restart {restarts})"


def ready_text(seconds: float | None) -> str:
    """Return the text for a process that is ready ``seconds`` seconds after its start."""
    return "ready" if seconds is None else f"ready after {_seconds(seconds)}"


def finish_text(status: ExperimentStatus, seconds: float | None) -> str:
    """Return the text for the end of an experiment that ran for ``seconds`` seconds.

    For example, ``failed after 12.3 s with exit code 9``.
    """
    text = status.displayed_state
    if seconds is not None:
        text = f"{text} after {_duration(seconds)}"
    return f"{text} with exit code {status.exit_code}" if status.exit_code else text


def change_text(lines: Iterable[str]) -> str:
    """Return the text for a change of the experiment, such as ``changed: add evaluator``."""
    changes = "; ".join(" ".join(line.split()) for line in lines)
    return f"changed: {changes}" if changes else "changed"


def never_text(reason: str) -> str:
    """Return the text for a process that will never start."""
    cause = reason.removeprefix("never started: ")
    return f"will not start: {cause}" if cause else "will not start"


def signal_name(code: int | None) -> str:
    """Return the name of the signal that an exit code indicates, or ``""``."""
    if code is None or code <= _SIGNAL_EXIT_CODE:
        return ""
    try:
        return signal.Signals(code - _SIGNAL_EXIT_CODE).name
    except ValueError:
        return ""


def _seconds(seconds: float) -> str:
    """Return a number of seconds with at most three digits, such as ``3.14 s`` or ``240 s``."""
    number = f"{seconds:.0f}" if seconds >= 100 else f"{max(seconds, 0.0):.3g}"
    return f"{number} s"


def _duration(seconds: float) -> str:
    """Return a duration with its two largest units, such as ``12.3 s``, ``4m 5s`` or ``2h 3m``."""
    if seconds < 60:
        return _seconds(seconds)
    minutes, whole_seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {whole_seconds}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes}m"


# --- events from statuses ---


def events_between(
    previous: ExperimentStatus | None,
    status: ExperimentStatus,
    now: float,
    *,
    changes: bool = True,
    ready_since: Mapping[str, float] = MappingProxyType({}),
) -> list[ExperimentEvent]:
    """Return the events that explain the difference between two statuses, in chronological order.

    If ``previous`` is None, return the events that explain ``status``. ``now`` is the time of an
    event whose time is not part of the status, in seconds since the epoch. With ``changes``, an
    event describes the processes that were added and removed. ``ready_since`` contains the times at
    which processes with readiness tests became ready. Without such a time, a process that has
    started since ``previous`` is assumed to have no test.
    """
    before = {} if previous is None else {process.name: process for process in previous}
    events: list[ExperimentEvent] = []
    if previous is None and status.ended:
        # An event whose time is unknown is not later than the end.
        now = min(now, _end_time(status, now))
    if previous is not None and changes:
        events += _change_events(previous, status, now)
    for process in status:
        since = ready_since.get(process.name)
        events += _process_events(before.get(process.name), process, now, since)
    events.sort(key=lambda event: event.at)
    created = status.created or min((event.at for event in events), default=now)
    if previous is None:
        launched = ExperimentEvent(at=created, kind=EventKind.LAUNCHED, text="launched")
        events.insert(0, launched)
    if status.note and (previous is None or status.note != previous.note):
        events.append(
            ExperimentEvent(at=now, kind=EventKind.CHANGED, text=f"reports: {status.note}")
        )
    if status.ended and status.processes and (previous is None or not previous.ended):
        events.append(finish_event(status, now))
    return events


def _change_events(
    previous: ExperimentStatus, status: ExperimentStatus, now: float
) -> list[ExperimentEvent]:
    """Return the event for processes that a change has added or removed, if there are any."""
    before = {process.name for process in previous}
    after = {process.name for process in status}
    added = [process.path for process in status if process.name not in before]
    removed = [process.path for process in previous if process.name not in after]
    lines = []
    if removed:
        lines.append(f"remove {', '.join(removed)}")
    if added:
        lines.append(f"add {', '.join(added)}")
    # Without any processes, the experiment was deleted.
    if not lines or not after or not before:
        return []
    return [ExperimentEvent(at=now, kind=EventKind.CHANGED, text=change_text(lines))]


def finish_event(status: ExperimentStatus, now: float) -> ExperimentEvent:
    """Return the event for the end of an experiment whose last status is ``status``.

    ``now`` is used if no process has a time at which it ended.
    """
    at = _end_time(status, now)
    seconds = None if status.created is None else max(0.0, at - status.created)
    return ExperimentEvent(at=at, kind=EventKind.FINISHED, text=finish_text(status, seconds))


def _end_time(status: ExperimentStatus, now: float) -> float:
    """Return the time at which the last process has ended, or ``now`` if none has such a time."""
    return max((process.ended for process in status if process.ended is not None), default=now)


def _process_events(
    before: ProcessStatus | None, process: ProcessStatus, now: float, ready_since: float | None
) -> Iterator[ExperimentEvent]:
    """Yield the events that explain the difference between two statuses of a process.

    ``before`` is None if the process was not observed earlier. ``ready_since`` is None if the time
    is not known, or if the process has no readiness test.
    """
    old = ProcessStatus(name=process.name) if before is None else before
    if process.started is not None and process.started != old.started:
        yield ExperimentEvent(
            at=process.started,
            kind=EventKind.STARTED,
            process=process.name,
            text=_start_text(process),
        )
    yield from _running_events(old, process, now, ready_since)
    # A program that could not be started has an end, but it is tried again.
    was_not_started = (
        process.state is State.PENDING and process.reason_code is ReasonCode.CANNOT_START
    )
    has_exited = process.ended is not None and process.ended != old.ended and not was_not_started
    has_ended = process.state in ENDED and old.state not in ENDED
    if has_exited or has_ended:
        yield _exit_event(old, process, now)
    is_new = before is None or _pending_reason(old) != _pending_reason(process)
    if process.state is State.PENDING and (is_new or has_exited):
        yield from _pending_events(process, now)


def _start_text(process: ProcessStatus) -> str:
    """Return the text for the start of a process, which contains the disruption before it."""
    if process.reason_code is ReasonCode.DISRUPTED and process.reason:
        return process.reason
    return start_text(process.restarts)


def _pending_reason(process: ProcessStatus) -> tuple[Any, ...]:
    """Return the values that differ if there is a new reason for which a process is pending.

    The text for a restart can become more precise, and the restart remains the same.
    """
    if process.reason_code in _RESTART_CODES:
        return process.state, process.restart_number or process.restarts, process.next_start
    return process.state, process.reason


def _running_events(
    old: ProcessStatus, process: ProcessStatus, now: float, ready_since: float | None
) -> Iterator[ExperimentEvent]:
    """Yield the events of a process that is running."""

    def event(kind: EventKind, text: str, at: float = now) -> ExperimentEvent:
        return ExperimentEvent(
            at=at, kind=kind, process=process.name, reason_code=process.reason_code, text=text
        )

    is_same_run = process.started is not None and process.started == old.started
    if is_same_run and process.ready and not old.ready:
        yield event(EventKind.READY, ready_text(now - (process.started or now)))
    elif not is_same_run and process.ready and ready_since is not None:
        # A process without a readiness test is ready when it starts, which is not an event.
        started = ready_since if process.started is None else process.started
        at = max(ready_since, started)
        yield event(EventKind.READY, ready_text(at - started), at)
    if process.not_ready_in_time and not old.not_ready_in_time:
        # The experiment can end because of this, which is then the reason.
        is_reason = process.reason_code is ReasonCode.NOT_READY and process.reason
        yield event(EventKind.NOT_READY, process.reason if is_reason else "not ready in time")
    is_unhealthy = process.reason_code is ReasonCode.UNHEALTHY and process.state is State.RUNNING
    if is_unhealthy and old.reason_code is not process.reason_code:
        yield event(EventKind.UNHEALTHY, process.reason)
    is_stopping = process.reason_code in (ReasonCode.STOPPING, ReasonCode.DELETING)
    if is_stopping and process.reason_code is not old.reason_code:
        yield event(EventKind.STOPPING, "stopping")


def _pending_events(process: ProcessStatus, now: float) -> Iterator[ExperimentEvent]:
    """Yield the event for the reason why a process is pending."""
    kind, text, at = EventKind.WAITING, process.reason, now
    if process.reason_code is ReasonCode.CANNOT_START:
        at = process.ended or now
    if process.reason_code in _RESTART_CODES:
        at = process.ended or now
        seconds = None if process.next_start is None else process.next_start - at
        number = process.restart_number or process.restarts + 1
        kind, text = EventKind.RESTARTING, restart_text(seconds, number, process.max_restarts)
    elif process.reason_code is ReasonCode.DISRUPTED:
        kind = EventKind.RESTARTING
    if text:
        yield ExperimentEvent(
            at=at, kind=kind, process=process.name, reason_code=process.reason_code, text=text
        )


def _exit_event(old: ProcessStatus, process: ProcessStatus, now: float) -> ExperimentEvent:
    """Return the event for a process that has exited, or that will never start."""
    code, reason = process.exit_code, process.reason
    was_stopped = process.stopped
    if process.state is State.PENDING:
        # The reason describes the next start, for which there is another event.
        reason = ""
        was_stopped = old.reason_code is ReasonCode.STOPPING
    if was_stopped:
        kind, text = EventKind.STOPPED, stop_text(code, reason)
    elif process.started is None and code is None and process.reason_code not in _AFTER_START:
        kind, text = EventKind.NEVER_STARTED, never_text(reason)
    else:
        kind, text = EventKind.EXITED, exit_text(code, reason, process.reason_code)
    return ExperimentEvent(
        at=now if process.ended is None else process.ended,
        kind=kind,
        process=process.name,
        reason_code=process.reason_code,
        text=text,
    )
