"""Decide whether a unit of ranks releases its machines, because no more are found for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony.plan.unit_decision import UnitDecision, release_unit
from symphony.status import ENDED, ReasonCode

if TYPE_CHECKING:
    from symphony.plan.decisions.draft import Draft


def decide_release(draft: Draft, gang: str, within: float) -> UnitDecision | None:
    """Return the decision to release the machines of a unit for whose other ranks none was
    found in time, or None.
    """
    due = _release_time(draft, gang)
    if due is None:
        return None
    if draft.now >= due and not is_released(draft, gang) and _keeps_machines(draft, gang):
        due += within
    if draft.now < due:
        draft.wake(due)
        return None
    ranks, tracks = _unfinished_ranks(draft, gang), draft.state.tracks
    placed = [name for name in ranks if _is_placed(draft, name)]
    waiting = [name for name in ranks if draft.seen(name).running and name not in placed]
    attempt = tracks[placed[0]].attempts
    return release_unit(
        f"{draft.wish.name}/{gang}/{attempt}",
        waiting[0] if waiting else placed[0],
        len(placed),
        len(ranks),
        within,
        attempt,
        draft.now,
    )


def _release_time(draft: Draft, gang: str) -> float | None:
    """Return when a unit releases its machines if no more are found for it, or None if it has
    none, or all.
    """
    all_ranks, tracks = draft.wish.gangs[gang], draft.state.tracks
    within = draft.wish.processes[all_ranks[0]].place_within
    if not within or any(name not in tracks for name in all_ranks):
        return None
    ranks = _unfinished_ranks(draft, gang)
    if any(_is_changing(draft, name) for name in ranks):
        return None
    placed = [name for name in ranks if _is_placed(draft, name)]
    if not 0 < len(placed) < len(ranks):
        return None
    begin = max(_begin_of(draft, name) for name in ranks if tracks[name].pid is not None)
    # A unit that waits for its first machine holds none. The others can be found right after.
    first_placed = min(draft.seen(name).placed_since or begin for name in placed)
    return max(begin, first_placed) + within


def _unfinished_ranks(draft: Draft, gang: str) -> list[str]:
    """Return the ranks of a unit that need a machine, because they have not finished."""
    tracks = draft.state.tracks
    return [name for name in draft.wish.gangs[gang] if tracks[name].state not in ENDED]


def _is_changing(draft: Draft, name: str) -> bool:
    """Return whether a rank is being stopped or started, or is about to be started again.

    A rank that has never been started does not change: its creation can fail for the same
    reason for which there is no machine.
    """
    track = draft.state.tracks[name]
    is_stopping = track.kill_at is not None
    starts_again = track.pid is None and track.attempts > 0
    return is_stopping or starts_again or draft.seen(name).starting


def _is_placed(draft: Draft, name: str) -> bool:
    return draft.state.tracks[name].pid is not None and draft.seen(name).placed


def _keeps_machines(draft: Draft, gang: str) -> bool:
    """Return whether a unit keeps its machines for longer, because another unit releases those
    that can be missing.

    If several units are to release theirs at the same time, the first one in the order of the
    declaration keeps them.
    """
    comes_later = False
    keeps = False
    for other in draft.wish.gangs:
        if other == gang:
            comes_later = True
            continue
        if is_released(draft, other):
            return True
        due = _release_time(draft, other)
        if due is not None and due <= draft.now:
            keeps = comes_later
            if not comes_later:
                return False
    return keeps


def is_released(draft: Draft, gang: str) -> bool:
    """Return whether a unit releases its machines, or waits until it tries again."""
    for name in draft.wish.gangs[gang]:
        track = draft.state.tracks.get(name)
        if track is not None and track.next_start is not None:
            return track.reason_code is ReasonCode.UNSCHEDULABLE
    return False


def _begin_of(draft: Draft, name: str) -> float:
    """Return when the present execution of a process began."""
    seen = draft.seen(name)
    begin = seen.since if seen.running else draft.state.tracks[name].started
    return draft.now if begin is None else begin
