"""What a supervisor decides: who may start, who never will, and when a process starts again. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from symphony.host.events import Track
from symphony.status import ENDED, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long a process that ended waits before it starts again, in seconds.

    The first restart is immediate; the waits after it begin at ``first``, double up to ``longest``, and are
    forgotten once a run lasts ``reset``. The defaults are Kubernetes'
    (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy).
    """

    first: float = 10.0
    longest: float = 300.0
    reset: float = 600.0

    def delay(self, in_row: int) -> float:
        """The wait before the restart that follows ``in_row`` earlier ones without a long run between."""
        return 0.0 if in_row == 0 else min(self.first * 2.0 ** min(in_row - 1, 64), self.longest)


@dataclass(frozen=True, slots=True)
class Restart:
    """Start it again after ``delay`` seconds; ``in_row`` restarts have then followed without a long run."""

    delay: float
    in_row: int


def restart(policy: str, track: Track, code: int | None, now: float, backoff: Backoff) -> Restart | None:
    """Whether a process that ended with ``code`` starts again: `Restart`, or None where it has ended for good."""
    if policy == "Never" or (policy == "OnFailure" and code == 0):
        return None
    lasted = now - (track.started if track.started is not None else now)
    before = 0 if lasted >= backoff.reset else track.failures_in_row
    return Restart(backoff.delay(before), before + 1)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What holds for a process that has not started: ``start``, or ``wait`` or ``never`` with the reason."""

    word: str
    reason: str = ""


START = Verdict("start")


def verdict(starts_after: Mapping[str, str], tracks: Mapping[str, Track]) -> Verdict:
    """Whether a process that starts after others may start now, must wait, or never can."""
    awaited = []
    for other, condition in starts_after.items():
        track = tracks[other]
        if _MET[condition](track):
            continue
        impossible = _impossible(other, condition, track)
        if impossible:
            return Verdict("never", f"never started: {impossible}")
        awaited.append(f"{other} to {_WORDS[condition]}")
    return Verdict("wait", f"waiting for {' and '.join(awaited)}") if awaited else START


_MET: dict[str, Callable[[Track], bool]] = {
    "ready": lambda track: track.was_ready,
    "started": lambda track: track.started is not None,
    "succeeded": lambda track: track.state is State.SUCCEEDED,
}
_WORDS = {"ready": "be ready", "started": "start", "succeeded": "succeed"}


def _impossible(other: str, condition: str, track: Track) -> str:
    """Why a condition that does not hold never will, or ``""``."""
    if track.state is State.FAILED:
        return f"{other} failed" + (f" ({track.reason})" if track.reason else "")
    if track.state in ENDED:
        return f"{other} ended before it was ready" if condition == "ready" else f"{other} ended"
    if condition == "ready" and track.never_ready:
        return f"{other} was {track.reason}"
    return ""
