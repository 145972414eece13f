"""Who may start, who has to wait, and who never will: the start order, as every backend keeps it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from symphony.status import ENDED, State


class Awaited(Protocol):
    """What has to be known of a process for which others wait."""

    @property
    def state(self) -> State:
        """Where it is in its life."""
        ...

    @property
    def was_ready(self) -> bool:
        """Whether it has been ready."""
        ...

    @property
    def never_ready(self) -> bool:
        """Whether its time to become ready is over."""
        ...

    @property
    def started(self) -> float | None:
        """When it started, or None for one that never ran."""
        ...

    @property
    def reason(self) -> str:
        """Why it is so."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """What holds for a process that has not started: ``start``, or ``wait`` or ``never`` with the reason."""

    word: str
    reason: str = ""


START = Verdict("start")


def verdict(starts_after: Mapping[str, str], tracks: Mapping[str, Awaited]) -> Verdict:
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


_MET: dict[str, Callable[[Awaited], bool]] = {
    "ready": lambda track: track.was_ready,
    "started": lambda track: track.started is not None,
    "succeeded": lambda track: track.state is State.SUCCEEDED,
}
_WORDS = {"ready": "be ready", "started": "start", "succeeded": "succeed"}


def _impossible(other: str, condition: str, track: Awaited) -> str:
    """Why a condition that does not hold never will, or ``""``."""
    if track.state is State.FAILED:
        return f"{other} failed" + (f" ({track.reason})" if track.reason else "")
    if track.state in ENDED:
        return f"{other} ended before it was ready" if condition == "ready" else f"{other} ended"
    if condition == "ready" and track.never_ready:
        return f"{other} was {track.reason}"
    return ""
