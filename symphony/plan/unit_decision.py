"""Decide what happens to a running unit of ranks if one of them exits, or if machines are found for
only some of them. All functions are pure.

The supervisor imports this module at its start, so it does not import `symphony.model`, as
`symphony.plan.resolution.ranks` does.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Protocol

from symphony.plan.disruption import UNCOUNTED_CODES, lost_rank_text
from symphony.status import UNHEALTHY, ReasonCode, State
from symphony.support.data_classes import dataclass

RESTART_UNIT, FAIL_UNIT = "restart", "fail"
# From this attempt on, the pauses before a unit looks for machines again do not become longer.
MOST_SPREAD_ATTEMPT = 7


class Rank(Protocol):
    """The state of a rank. `symphony.plan.state.Track` satisfies this protocol."""

    @property
    def state(self) -> State:
        """The current state."""
        ...

    @property
    def stopped(self) -> bool:
        """True if symphony stopped the process on request."""
        ...

    @property
    def next_start(self) -> float | None:
        """The time of the next start of a process that will be restarted, or None."""
        ...

    @property
    def ended(self) -> float | None:
        """The time of the latest exit, or None."""
        ...

    @property
    def failures_in_row(self) -> int:
        """The number of consecutive restarts."""
        ...

    @property
    def exit_code(self) -> int | None:
        """The exit code of the latest execution, or None."""
        ...

    @property
    def reason(self) -> str:
        """The reason for the state."""
        ...

    @property
    def reason_code(self) -> ReasonCode | None:
        """The code of the reason, or None."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitDecision:
    """The consequence of the exit of a rank for the other ranks of its unit.

    ``action`` is ``restart`` or ``fail``, ``rank`` is the name of the rank that has exited, and
    ``reason`` describes the decision. ``reason_code`` is that of the ranks. It is ``DISRUPTED`` or
    ``UNSCHEDULABLE`` if the restart does not count as one. ``next_start`` is the time of the
    restart in seconds since the epoch, and ``in_row`` is the number of consecutive restarts.
    """

    action: str
    rank: str
    reason: str
    next_start: float = 0.0
    in_row: int = 0
    reason_code: ReasonCode = ReasonCode.BACKING_OFF

    @property
    def is_release(self) -> bool:
        """True if the ranks release their machines, because there are none for the others."""
        return self.reason_code is ReasonCode.UNSCHEDULABLE


def decide_unit(ranks: Mapping[str, Rank]) -> UnitDecision | None:
    """Return what happens to the ranks of a unit, or None if they continue.

    If a rank has failed for good, the others fail too. If a rank will be restarted, the others are
    stopped, and all are started together.
    """
    failed = [name for name, rank in ranks.items() if _has_failed(rank)]
    if failed:
        first = _first_ended(failed, ranks)
        return UnitDecision(
            action=FAIL_UNIT,
            rank=first,
            reason=f"the unit failed: {_words(first, ranks[first])}",
            reason_code=ReasonCode.UNIT_FAILED,
        )
    waiting = [name for name, rank in ranks.items() if _is_backing_off(rank)]
    if not waiting:
        return None
    first = _first_ended(waiting, ranks)
    code = ranks[first].reason_code
    reason = f"the unit restarts: {_words(first, ranks[first])}"
    if code is ReasonCode.DISRUPTED:
        reason = lost_rank_text(first, ranks[first].reason)
    elif code is ReasonCode.UNSCHEDULABLE:
        reason = ranks[first].reason
    return UnitDecision(
        action=RESTART_UNIT,
        rank=first,
        reason=reason,
        reason_code=code if code in UNCOUNTED_CODES else ReasonCode.BACKING_OFF,
        next_start=max(ranks[name].next_start or 0.0 for name in waiting),
        in_row=max(ranks[name].failures_in_row for name in waiting),
    )


def _has_failed(rank: Rank) -> bool:
    return rank.state in (State.FAILED, State.UNKNOWN) and not rank.stopped


def _is_backing_off(rank: Rank) -> bool:
    return rank.state is State.PENDING and rank.next_start is not None


def _first_ended(names: Iterable[str], ranks: Mapping[str, Rank]) -> str:
    return min(names, key=lambda name: ranks[name].ended or 0.0)


def _words(name: str, rank: Rank) -> str:
    if rank.exit_code is not None and not rank.reason.startswith(UNHEALTHY):
        return f"{name} exited with {rank.exit_code}"
    return f"{name} failed ({rank.reason})" if rank.reason else f"{name} failed"


def release_unit(
    identity: str,
    rank: str,
    placed: int,
    ranks: int,
    within: float,
    attempt: int,
    now: float,
) -> UnitDecision:
    """Return the decision to stop the ranks of a unit, for only ``placed`` of which machines were
    found within ``within`` seconds, and to try again later.

    Several units that wait for each other try again at different times, which follow from
    ``identity``. The times differ more from ``attempt`` to ``attempt``, because the end of the
    ranks can take longer than the first pauses.
    """
    fraction = zlib.crc32(identity.encode()) / 2**32
    pause = within * (1 + fraction * min(attempt, MOST_SPREAD_ATTEMPT)) / 2
    return UnitDecision(
        action=RESTART_UNIT,
        rank=rank,
        reason=f"only {placed} of {ranks} ranks could be scheduled within {within:g} s",
        next_start=now + pause,
        reason_code=ReasonCode.UNSCHEDULABLE,
    )
