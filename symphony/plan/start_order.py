"""Determine whether a process can start, has to wait for others, or can never start.

All backends use this module to evaluate the ``starts_after`` conditions of a running experiment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from symphony.status import ENDED, ReasonCode, State
from symphony.support.data_classes import dataclass

if TYPE_CHECKING:
    from symphony.status import ProcessStatus


class Awaited(Protocol):
    """The state of a process that other processes wait for."""

    @property
    def state(self) -> State:
        """The current state of the process."""
        ...

    @property
    def was_ready(self) -> bool:
        """True if the process has been ready at least once."""
        ...

    @property
    def never_ready(self) -> bool:
        """True if the process did not become ready in time and had never been ready before."""
        ...

    @property
    def started(self) -> float | None:
        """The time at which the process started, or None if it has not started."""
        ...

    @property
    def stopped(self) -> bool:
        """True if symphony stopped the process. It can be started again."""
        ...

    @property
    def reason(self) -> str:
        """The reason for the process's state."""
        ...


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision on whether a process can start.

    ``word`` is ``start``, ``wait`` or ``never``, and ``reason`` explains the last two.
    """

    word: str
    reason: str = ""


START = Verdict("start")

_INFINITIVES = {"ready": "be ready", "started": "start", "succeeded": "succeed"}


def verdict(starts_after: Mapping[str, str], tracks: Mapping[str, Awaited]) -> Verdict:
    """Decide whether a process with the conditions ``starts_after`` can start."""
    awaited: list[str] = []
    for name, condition in starts_after.items():
        track = tracks[name]
        if _is_met(condition, track):
            continue
        obstacle = _obstacle(name, condition, track)
        if obstacle:
            return Verdict("never", f"never started: {obstacle}")
        suffix = f" ({name} is stopped)" if track.stopped else ""
        awaited.append(f"{name} to {_INFINITIVES[condition]}{suffix}")
    if not awaited:
        return START
    return Verdict("wait", f"waiting for {' and '.join(awaited)}")


def is_stuck(processes: Iterable[ProcessStatus]) -> bool:
    """Return whether no process runs or can start before a user starts a stopped one.

    All processes that have not finished wait for others. The result can be true for a moment when a
    process has just exited.
    """
    found = list(processes)
    pending = [process for process in found if process.state is State.PENDING]
    is_running = any(process.state is State.RUNNING for process in found)
    if is_running or not pending or not any(process.stopped for process in found):
        return False
    return all(process.reason_code is ReasonCode.WAITING for process in pending)


def can_start_later(starts_after: Mapping[str, str], tracks: Mapping[str, Awaited]) -> bool:
    """Return whether a process that cannot start now can start if others become ready after all.

    These processes were not ready in time, and their tests continue.
    """
    unmet = {
        name: condition
        for name, condition in starts_after.items()
        if not _is_met(condition, tracks[name])
    }
    return all(
        not _obstacle(name, condition, tracks[name]) or _is_late(condition, tracks[name])
        for name, condition in unmet.items()
    )


def _is_late(condition: str, track: Awaited) -> bool:
    return condition == "ready" and track.never_ready and track.state not in ENDED


def _is_met(condition: str, track: Awaited) -> bool:
    if track.stopped:
        return False
    if condition == "ready":
        return track.was_ready
    if condition == "started":
        return track.started is not None
    return track.state is State.SUCCEEDED


def _obstacle(name: str, condition: str, track: Awaited) -> str:
    """Return why an unmet condition can never be met, or ``""`` if it can still be met."""
    if track.stopped:
        return ""
    if track.state is State.FAILED:
        reason = f" ({track.reason})" if track.reason else ""
        return f"{name} failed{reason}"
    if track.state in ENDED:
        suffix = " before it was ready" if condition == "ready" else ""
        # A server that exits with 0 has usually left a child process in the background.
        code = " with 0" if suffix and track.state is State.SUCCEEDED else ""
        return f"{name} exited{code}{suffix}"
    if condition == "ready" and track.never_ready:
        # The reason of a process that is being stopped is the stop.
        is_about_readiness = track.reason.startswith("not ready")
        return f"{name} was {track.reason if is_about_readiness else 'not ready in time'}"
    return ""
