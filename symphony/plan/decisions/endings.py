"""Apply the policies of the experiment, of its units and of the deadlines, and finish it."""

from __future__ import annotations

import enum
from typing import Any

from symphony.plan.decisions.draft import Draft
from symphony.plan.decisions.executions import record_final, record_stopped
from symphony.plan.decisions.unit_release import is_released
from symphony.plan.policies import DEADLINE_EXCEEDED, Ending
from symphony.plan.unit_decision import FAIL_UNIT, UnitDecision
from symphony.status import ENDED, ReasonCode, State


def apply_policies(draft: Draft) -> None:
    """Record the consequences of the policies for processes that are not running."""
    eviction = draft.observation.eviction
    if eviction is not None and not draft.state.stopping and not _is_recorded(draft, eviction):
        draft.record_ending(eviction)
    for gang, ranks in draft.wish.gangs.items():
        decision = draft.decide_unit(gang)
        if decision is not None and not draft.is_started_by_request(gang):
            is_beginning = decision.is_release and not is_released(draft, gang)
            for name in () if is_beginning else ranks:
                # Until a rank has exited, the release depends on the states of all of them.
                _apply_to_rank(draft, name, decision)
    if draft.wish.has_end and not draft.state.stopping:
        ending = draft.decide_end()
        if ending is not None:
            draft.record_ending(ending)
        else:
            _wake_at_deadline(draft)
    for name, seconds in draft.wish.deadlines.items():
        _apply_deadline(draft, name, seconds)


def _is_recorded(draft: Draft, eviction: Ending) -> bool:
    return draft.state.restarting and draft.state.restart_cause == eviction.cause


def _wake_at_deadline(draft: Draft) -> None:
    deadline = draft.wish.policies.deadline
    if deadline is None or draft.state.created is None:
        return
    due = draft.state.created + deadline
    if draft.now < due:
        # Later, nothing is running that the deadline could end.
        draft.wake(due)


def _apply_to_rank(draft: Draft, name: str, decision: UnitDecision) -> None:
    track = draft.state.tracks[name]
    if track.pid is not None or draft.seen(name).starting:
        # It is stopped first.
        return
    if decision.action == FAIL_UNIT:
        if track.state is State.PENDING:
            code = ReasonCode.UNIT_FAILED
            record_final(draft, "never", name, reason=decision.reason, reason_code=code)
    elif track.state in ENDED:
        # A rank that has succeeded starts again with the others.
        details: dict[str, Any] = {}
        if decision.reason_code is not ReasonCode.BACKING_OFF:
            details["reason_code"] = decision.reason_code
        draft.record("start-requested", name, unit=True, in_row=decision.in_row, **details)


def _apply_deadline(draft: Draft, name: str, seconds: float) -> None:
    """Record that a process that is not running has exceeded its own deadline."""
    state = draft.state
    track = state.tracks.get(name)
    if track is None or track.first_started is None or track.state in ENDED:
        return
    if state.is_stopping_all or draft.request_for(name, "stop") is not None:
        return
    due = track.first_started + seconds
    if draft.now < due:
        draft.wake(due)
    elif track.pid is None and not draft.seen(name).starting:
        code = ReasonCode.DEADLINE_EXCEEDED
        record_final(draft, "never", name, reason=DEADLINE_EXCEEDED, reason_code=code)


def stop_pending(draft: Draft) -> None:
    """Record that no process starts any more, because the experiment is being stopped."""
    for name in draft.waiting():
        if not draft.seen(name).starting:
            record_stopped(draft, name)


class End(enum.Enum):
    """The next step of the end of a run."""

    NOTHING = "nothing"
    # Programs that belong to no process have to be stopped first.
    SWEEP = "sweep"
    # The system starts the experiment again later, with another supervisor.
    EXIT = "exit"


def end_run(draft: Draft) -> End:
    """Finish or restart the experiment, if nothing of it is running."""
    state = draft.state
    if not _is_over(draft) or not is_all_gone(draft):
        return End.NOTHING
    if draft.observation.strays is not False:
        return End.SWEEP
    if not state.restarting:
        draft.record("finished")
    elif draft.observation.eviction is None:
        draft.record("restarted")
    else:
        return End.EXIT
    return End.NOTHING


def _is_over(draft: Draft) -> bool:
    """Return whether the experiment finishes or restarts when nothing of it is running."""
    state = draft.state
    if state.finished or state.requests:
        return False
    if state.restarting:
        if draft.now < state.restart_at:
            draft.wake(state.restart_at)
            return False
        return True
    # A request can start stopped processes again.
    return not state.index.live and not state.waits_for_start


def is_all_gone(draft: Draft) -> bool:
    """Return whether no process of the experiment is running."""
    return not draft.active and not draft.state.index.running
