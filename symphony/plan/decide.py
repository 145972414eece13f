"""Decide what happens next in a running experiment: the one place for all of its policies. Pure.

::

    wish ─┐
    state ┼─> decide ─> events, which are recorded, then actions ─> executor ─> observation
    observation ┘

The state is the fold of the recorded events; see `symphony.plan.state`. The caller

1. records the events, and continues with the state after them, which the decision contains,
2. gives the actions to the executor, in this order,
3. calls `decide` again when the observation, the wish or the state has changed, and at
   `Decision.wake_at`.

If it is killed between these steps, another supervisor calls `decide` with the recorded state and
what it observes, and comes to the same decisions. Deciding again without new facts gives no new
event and no new action.

First, the facts that are not recorded yet become events, together with their consequences, until
nothing follows any more. Then, the actions follow from the state and the observation alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from symphony.plan.actions import Action, Answer, Finish, Sweep
from symphony.plan.decisions.draft import Draft
from symphony.plan.decisions.endings import End, apply_policies, end_run, stop_pending
from symphony.plan.decisions.executions import note_executions
from symphony.plan.decisions.request_steps import continue_requests, request_actions
from symphony.plan.decisions.starts import record_obstacles, start_actions
from symphony.plan.decisions.stops import stop_actions
from symphony.plan.observation import Observation
from symphony.plan.state import Event, RunState
from symphony.plan.unit_decision import UnitDecision
from symphony.plan.wish import Wish

# The default of a field. It is never changed.
_NO_UNITS: Mapping[str, UnitDecision] = {}


class Decision(NamedTuple):
    """The next steps of an experiment.

    ``actions`` are carried out after ``events`` have been recorded. ``wake_at`` is the time at
    which to decide again if nothing is observed before, in seconds since the epoch, or None.
    ``frees`` contains the processes that have exited for good. Their leases are released before the
    events are recorded, because a program that waits for the exit can need them. ``units`` maps the
    units of ranks that restart as a whole or have failed to the decisions, for executors that
    record these in their ranks. ``state`` is the state after the events, as
    `symphony.plan.state.apply` computes it, or None without events.
    """

    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = ()
    wake_at: float | None = None
    frees: tuple[str, ...] = ()
    units: Mapping[str, UnitDecision] = _NO_UNITS
    state: RunState | None = None


def decide(wish: Wish, state: RunState, observation: Observation, now: float) -> Decision:
    """Decide what happens next. ``now`` is in seconds since the epoch.

    Call this function after the event "launched" has been recorded. ``state`` is not changed.
    """
    if state.finished:
        return Decision()
    draft = Draft(wish, state, observation, now)
    if wish.change is not None and wish.revision > state.revision:
        details = {key: wish.change[key] for key in wish.change if key not in ("event", "at")}
        draft.record("changed", **details)
    note_executions(draft)
    end = _record_consequences(draft)
    actions: list[Action] = []
    if not draft.state.finished:
        actions.extend(stop_actions(draft))
        actions.extend(start_actions(draft))
        if draft.state.requests:
            actions.extend(request_actions(draft))
        if end is End.SWEEP:
            actions.extend(_sweep(draft))
    if draft.answers:
        actions.extend(Answer(number, error) for number, error in draft.answers.items())
    if draft.state.finished or end is End.EXIT:
        actions.append(Finish(is_evicted=end is End.EXIT))
    units = draft.unit_decisions() if wish.gangs else _NO_UNITS
    return Decision(
        actions=tuple(actions),
        events=tuple(draft.events),
        wake_at=draft.wake_at,
        frees=tuple(draft.frees),
        units=units,
        state=draft.state if draft.events else None,
    )


def _record_consequences(draft: Draft) -> End:
    """Record what follows from the state, until nothing more does.

    Return what the end of the run needs.
    """
    while True:
        count = len(draft.events)
        apply_policies(draft)
        if draft.state.requests:
            continue_requests(draft)
        if draft.state.stopping:
            stop_pending(draft)
        elif not draft.state.restarting:
            record_obstacles(draft)
        end = end_run(draft)
        if len(draft.events) == count:
            return end


def _sweep(draft: Draft) -> list[Sweep]:
    """Return the action for programs that belong to no process, if it is not in progress."""
    observation = draft.observation
    if observation.strays is None:
        return [Sweep()]
    if observation.strays_killed:
        return []
    begin = draft.now if observation.strays_since is None else observation.strays_since
    kill_at = begin + draft.wish.longest_grace
    if draft.now >= kill_at or observation.kills_at_once:
        return [Sweep(kill=True)]
    draft.wake(kill_at)
    return []
