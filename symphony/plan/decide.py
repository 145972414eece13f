"""Decide what happens next in a running experiment: the one place for all of its policies. Pure.

::

    wish ─┐
    state ┼─> decide ─> events, which are recorded, then actions ─> executor ─> observation
    observation ┘

The state is the fold of the recorded events; see `symphony.plan.state`. The caller

1. records the events and applies them to its state, in this order,
2. gives the actions to the executor, in this order,
3. calls `decide` again when the observation, the wish or the state has changed, and at
   `Decision.wake_at`.

If it is killed between these steps, another supervisor calls `decide` with the recorded state and
what it observes, and comes to the same decisions. Deciding again without new facts gives no new
event and no new action.
"""

from __future__ import annotations

from typing import NamedTuple

from symphony.plan.actions import Action, Answer, Finish, Release, Sweep
from symphony.plan.observation import Observation
from symphony.plan.state import Event, RunState
from symphony.plan.wish import Wish

AnyAction = Action | Answer | Finish | Release | Sweep


class Decision(NamedTuple):
    """The next steps of an experiment.

    ``actions`` are carried out after ``events`` have been recorded. ``wake_at`` is the time at
    which to decide again if nothing is observed before, in seconds since the epoch, or None.
    ``frees`` contains the processes that have exited for good. Their leases are released before the
    events are recorded, because a program that waits for the exit can need them.
    """

    actions: tuple[AnyAction, ...] = ()
    events: tuple[Event, ...] = ()
    wake_at: float | None = None
    frees: tuple[str, ...] = ()


def decide(wish: Wish, state: RunState, observation: Observation, now: float) -> Decision:
    """Decide what happens next. ``now`` is in seconds since the epoch.

    Call this function after the event "launched" has been recorded. ``state`` is not changed.
    """
    del wish, state, observation, now
    return Decision()
