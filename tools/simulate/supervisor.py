"""The simulated supervisor: it calls the production decisions, as the product's supervisors do.

It records the events, gives the actions to the executor and can be killed before and after each of
these steps. Everything in memory is lost then; the record, the wish and the programs remain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from simulate.clock import Clock
from simulate.executor import Executor
from simulate.ledger import Ledger
from simulate.machine import Program
from simulate.promises import IDLE, RECORD, Broken
from simulate.record import Record
from simulate.scenario import Crash
from symphony.plan.actions import (
    Answer,
    Clear,
    Finish,
    Kill,
    Release,
    Remove,
    Reserve,
    Start,
    Stop,
    Sweep,
)
from symphony.plan.decide import Decision, decide
from symphony.plan.state import Event, RunState, apply, fold
from symphony.plan.wish import Wish

# More decisions at one moment mean that they never end.
_MOST_DECISIONS = 60


class Killed(Exception):
    """The supervisor was killed."""


class CrashPoints:
    """The moments at which the supervisor is killed, before or after a write or an action."""

    __slots__ = ("_crashes", "count", "next_crash")

    def __init__(self, crashes: list[Crash]) -> None:
        self._crashes = sorted(crashes, key=lambda crash: crash.point, reverse=True)
        self.count = 0
        self.next_crash: Crash | None = None
        self._take_next()

    def _take_next(self) -> None:
        while self._crashes and self._crashes[-1].point < self.count:
            self._crashes.pop()
        self.next_crash = self._crashes.pop() if self._crashes else None

    def pass_one(self) -> Crash | None:
        """Count a moment, and return the crash that happens now, or None."""
        crash = self.next_crash
        if crash is None or self.count < crash.point:
            self.count += 1
            return None
        self.count += 1
        self._take_next()
        return crash


class Supervisor:
    """One supervisor, until it is killed or the experiment has finished.

    If ``checks_all`` is true, it decides once more after each decision without actions.
    """

    def __init__(
        self,
        clock: Clock,
        wish: Wish,
        record: Record,
        executor: Executor,
        ledger: Ledger,
        points: CrashPoints,
        actions: Counter[str],
        tell: Callable[[str], None] | None,
        *,
        checks_all: bool,
    ) -> None:
        self._clock = clock
        self.wish = wish
        self._record = record
        self.executor = executor
        self._ledger = ledger
        self._points = points
        self._actions = actions
        self._tell = tell
        names = [*wish.processes, *(name for name in wish.previous if name not in wish.processes)]
        self.state: RunState = fold(names, record.read())
        self.wake_at: float | None = None
        self.has_finished = False
        self._checks_all = checks_all
        self.crash: Crash | None = None
        self.steps = 0
        # The facts of the latest decision, or None if something has been recorded since.
        self._considered: tuple[object, ...] | None = None

    def begin(self) -> None:
        """Record that the experiment was launched, or that this supervisor replaces another."""
        if self.state.created is None:
            self.write({"event": "launched", "at": self._clock.now, "boot_seconds": 0.0})
        else:
            reason = "the supervisor was killed"
            self.write({"event": "supervisor-replaced", "at": self._clock.now, "reason": reason})

    def step(self) -> None:
        """Decide, record and act until nothing more follows from what is known."""
        is_known = self._has_nothing_new()
        if is_known and not self._checks_all:
            # The supervisors of the product do not decide either.
            return
        for _ in range(_MOST_DECISIONS):
            now = self._clock.now
            decision = decide(self.wish, self.state, self.executor.observation(), now)
            self.executor.note_decision()
            self._considered = self._facts()
            self.steps += 1
            self.wake_at = decision.wake_at
            if not decision.events and not decision.actions:
                self._ledger.checked[IDLE] += 1
                if decision.wake_at is not None and decision.wake_at <= now:
                    raise Broken(IDLE, "the next decision is due at once, though nothing is new")
                return
            if is_known:
                raise Broken(IDLE, f"without new facts, this was decided: {decision}")
            for name in decision.frees:
                self._ledger.check_freed(name)
                self.executor.free(name)
            self._record_decision(decision)
            for action in decision.actions:
                self._reach()
                self._execute(action)
                self._reach()
            if self.has_finished:
                return
            if not decision.actions and not self._checks_all:
                # Nothing has changed that `decide` does not know. Some histories check this.
                return
        last = [str(action) for action in decision.actions]
        kinds = [event["event"] for event in decision.events]
        raise Broken(IDLE, f"decisions at one moment do not end: {last}, {kinds}")

    def _facts(self) -> tuple[object, ...]:
        """Return what decisions depend on, except what the executor has news about."""
        return (self.wish, *self.executor.circumstances)

    def _has_nothing_new(self) -> bool:
        """Return whether nothing has happened since the latest decision."""
        if self.wake_at is not None and self.wake_at <= self._clock.now:
            return False
        return not self.executor.has_news and self._considered == self._facts()

    def _record_decision(self, decision: Decision) -> None:
        """Record what was decided.

        If the supervisor can be killed in between, its state is the one after each event.
        """
        if decision.state is None:
            return
        if self._points.next_crash is None and not self._record.is_limited:
            self.state = decision.state
            for event in decision.events:
                self._record.append(event, self.state)
                self._note(event)
            return
        for event in decision.events:
            self.write(event)
        if self.state != decision.state:
            raise Broken(RECORD, f"{decision.state} was decided, but the events say {self.state}")

    def write(self, event: Event, on_written: Callable[[], None] = lambda: None) -> None:
        """Record an event. ``on_written`` is called as soon as it is on the disk."""
        self._reach(event)
        self._considered = None
        apply(self.state, event)
        self._record.append(event, self.state)
        on_written()
        self._note(event)
        self._reach()

    def _note(self, event: Event) -> None:
        """Check a recorded event."""
        if self._tell is not None:
            self._tell(f"  record  {_event_line(event)}")
        self._ledger.note_event(event)

    def _reach(self, event: Event | None = None) -> None:
        """Pass a moment at which the supervisor can be killed."""
        crash = self._points.pass_one()
        if crash is None:
            return
        if crash.torn and event is not None:
            self._record.tear(event)
        self.crash = crash
        self.executor.is_dead = True
        raise Killed

    def _execute(self, action: Any) -> None:
        kind = type(action)
        self._actions[kind.__name__] += 1
        if self._tell is not None:
            self._tell(f"  do      {action}")
        _EXECUTE[kind](self, action)

    def _start(self, action: Start) -> None:
        self._ledger.note_start(action.process, self.executor.start(action))

    def _kill(self, action: Kill) -> None:
        program = self.executor.kill(action)
        if program is not None:
            self._ledger.note_kill(program)

    def _remove(self, action: Remove) -> None:
        self._ledger.check_removed(action.process)
        self.executor.remove(action)

    def _release(self, action: Release) -> None:
        self.executor.released = action.revision

    def _answer(self, action: Answer) -> None:
        self._ledger.note_answer(action.number, action.error)

    def _finish(self, _action: Finish) -> None:
        self.has_finished = True

    def _stop(self, action: Stop) -> None:
        program: Program | None = self.executor.program_of(action.process)
        if program is not None and program.ended is None and program.terminated is None:
            self._ledger.check_stop(action.process)
        self.executor.stop(action)


_EXECUTE: dict[type, Callable[[Supervisor, Any], None]] = {
    Start: Supervisor._start,
    Stop: Supervisor._stop,
    Kill: Supervisor._kill,
    Clear: lambda supervisor, action: supervisor.executor.clear(action),
    Sweep: lambda supervisor, action: supervisor.executor.sweep(action),
    Reserve: lambda supervisor, action: supervisor.executor.reserve(action),
    Remove: Supervisor._remove,
    Release: Supervisor._release,
    Answer: Supervisor._answer,
    Finish: Supervisor._finish,
}


def _event_line(event: Event) -> str:
    """Return an event as one line for the story."""
    name = event.get("process", "")
    details = {key: value for key, value in event.items() if key not in ("event", "process", "at")}
    texts = ", ".join(f"{key}={value}" for key, value in details.items())
    words = f"{event['event']} {name}".rstrip()
    return f"{words} ({texts})" if texts else words
