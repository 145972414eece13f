"""The record of a run that is being supervised: its state, and the event log that leads to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from symphony.plan.decide import Decision
from symphony.plan.state import Event, RunState, apply
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.note import NoteWriter
from symphony.supervised.supervisor.event_log import EventLog
from symphony.supervised.supervisor.event_loop import EventLoop

# The interval at which the supervisor tries again to write events that it could not write.
REWRITE_INTERVAL_SECONDS = 1.0


class Record:
    """The record of one run.

    ``state`` is the state after the events that the log contains. ``processes`` is the number of
    processes of the experiment. ``on_complete`` is called when events that could not be written at
    first have been written. ``now`` returns the time of an event. Raises OSError if the log cannot
    be created.
    """

    def __init__(
        self,
        run: RunDirectory,
        loop: EventLoop,
        notes: NoteWriter,
        *,
        state: RunState,
        processes: int,
        on_complete: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        self.state = state
        self._loop = loop
        self._log = EventLog(run, notes, processes, state)
        self._on_complete = on_complete
        self._now = now
        self._is_rewrite_scheduled = False

    def missing_support(self) -> str:
        """Return a message about what the file system does not support; see `EventLog`."""
        return self._log.missing_support()

    @property
    def is_complete(self) -> bool:
        """True if all events have been written."""
        return self._log.is_complete

    def set_processes(self, count: int) -> None:
        """Adapt the log to another number of processes."""
        self._log.set_processes(count)

    def close(self) -> None:
        """Release the reserve of the log, because no more events follow."""
        self._log.release_reserve()

    def add(
        self, event: str, process: str | None = None, *, at: float | None = None, **details: Any
    ) -> None:
        """Apply an event to the state, and write it."""
        line: dict[str, Any] = {"event": event, "at": self._now() if at is None else at}
        if process is not None:
            line["process"] = process
        line.update(details)
        self.add_event(line)

    def add_event(self, event: Event) -> None:
        """Apply an event that is complete to the state, and write it."""
        self.add_all([event])

    def add_all(self, events: Sequence[Event]) -> None:
        """Apply and write events that are complete, in this order."""
        for event in events:
            apply(self.state, event)
        self._write(events)

    def add_decided(self, decision: Decision) -> None:
        """Continue with the state that follows from a decision, and write its events."""
        if decision.state is not None:
            self.state.become(decision.state)
            self._write(decision.events)

    def _write(self, events: Sequence[Event]) -> None:
        self._log.append(events)
        self._schedule_rewrite()

    def _schedule_rewrite(self) -> None:
        if not self._log.is_complete and not self._is_rewrite_scheduled:
            self._is_rewrite_scheduled = True
            self._loop.after(REWRITE_INTERVAL_SECONDS, self._rewrite)

    def _rewrite(self) -> None:
        """Try again to write the events that could not be written."""
        self._is_rewrite_scheduled = False
        self._log.write_pending()
        self._schedule_rewrite()
        if self._log.is_complete:
            self._on_complete()

    def add_change(self, event: Event) -> None:
        """Record a change of the experiment, whose event the manifest contains."""
        details = {key: value for key, value in event.items() if key not in ("event", "at")}
        self.add("changed", **details)
