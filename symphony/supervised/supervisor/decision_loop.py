"""The loop of a supervisor: observe, decide, record and execute."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from symphony.plan.actions import Action, Answer, Finish, Release
from symphony.plan.decide import decide
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.execution.executor import Executor
from symphony.supervised.supervisor.execution.facts import Facts
from symphony.supervised.supervisor.live_record import Record
from symphony.supervised.supervisor.serving.requested_steps import RequestedSteps
from symphony.supervised.supervisor.wishes import Wishes

# The longest time by which a deadline can be missed because the machine was suspended. The timers
# of the event loop do not advance then.
LONGEST_SLEEP_SECONDS = 30.0


class DecisionLoop:
    """The decisions of one supervisor, and what follows from them.

    ``on_answer`` is called for each recorded request that is done, and ``on_finish`` when nothing
    of the experiment is running any more and nothing starts again.
    """

    def __init__(
        self,
        loop: EventLoop,
        facts: Facts,
        wishes: Wishes,
        record: Record,
        executor: Executor,
        requested_steps: RequestedSteps,
        on_answer: Callable[[Answer], None],
        on_finish: Callable[[Finish], None],
    ) -> None:
        self._loop = loop
        self._facts = facts
        self._wishes = wishes
        self._record = record
        self._executor = executor
        self._requested_steps = requested_steps
        self._on_answer = on_answer
        self._on_finish = on_finish
        self.is_due = False
        """True if something has happened since the latest decision."""
        # The requests that are done and not answered yet.
        self._answers: list[Answer] = []
        # The time on the clock of the launch at which the next decision is scheduled.
        self._wake_at: float | None = None

    def advance_soon(self) -> None:
        """Decide again after the present step, so that facts that come together count together."""
        if not self.is_due:
            self.is_due = True
            self._loop.post(self._advance_if_due)

    def _advance_if_due(self) -> None:
        if self.is_due:
            self.advance()

    def advance(self) -> None:
        """Decide what happens next, record it and carry it out.

        The actions can cause new facts. Then, this is called again after the present step.
        """
        self.is_due = False
        now = self._executor.now()
        decision = decide(self._wishes.present, self._record.state, self._facts.observation(), now)
        for name in decision.frees:
            self._executor.free(name)
        if decision.actions and isinstance(decision.actions[-1], Finish):
            # A program that waits for the end can then use what the experiment has held.
            self._executor.close()
        self._record.add_decided(decision)
        # After an error before this line, the next decision considers the same facts again. Nothing
        # is recorded about the resources that were freed in the meantime.
        self._facts.note_decision()
        self._execute(decision.actions)
        self._schedule(decision.wake_at)
        if not self.is_due:
            # A request that needed no further step is done.
            self.send_answers()

    def _execute(self, actions: Iterable[Action]) -> None:
        self._executor.execute(actions)
        for action in actions:
            if isinstance(action, Answer):
                self._answers.append(action)
                self._facts.forget_unavailable()
            elif isinstance(action, Release):
                self._requested_steps.end_change()
                self._facts.note_released(action.revision)
            elif isinstance(action, Finish):
                self._on_finish(action)

    def send_answers(self) -> None:
        """Answer the requests that are done."""
        answers, self._answers = self._answers, []
        for answer in answers:
            self._on_answer(answer)

    def _schedule(self, wake_at: float | None) -> None:
        """Decide again at a time, if nothing happens before."""
        if wake_at is None or (self._wake_at is not None and self._wake_at <= wake_at):
            return
        seconds = max(0.0, wake_at - self._executor.now())
        self._wake_at = wake_at
        self._loop.after(min(seconds, LONGEST_SLEEP_SECONDS), lambda: self._wake(wake_at))

    def _wake(self, wake_at: float) -> None:
        if self._wake_at == wake_at:
            self._wake_at = None
            self.advance()
