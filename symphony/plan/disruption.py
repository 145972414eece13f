"""Decide what follows if a process was taken away from outside. Pure.

A drain, a preemption, an eviction, a lost node or a deletion by a user is a disruption. This is not
a failure: the process is started again at once, and this does not count as a restart. The ranks of
a unit are started again together.

A supervisor imports this module at its start, so it imports neither `symphony.model` nor a backend.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from symphony.plan.restart_policy import RestartPolicy
from symphony.status import ReasonCode
from symphony.support.data_classes import dataclass

_PREFIX = "lost: "
# A restart with one of these codes is not the consequence of a failure, and does not count as one.
UNCOUNTED_CODES = frozenset({ReasonCode.DISRUPTED, ReasonCode.UNSCHEDULABLE})


class DisruptionCause(str, enum.Enum):
    """The cause that has taken a process away."""

    # The machine is emptied, for example before its maintenance.
    DRAINED = "drained"
    # A process with a higher priority needs the resources.
    PREEMPTED = "preempted"
    # The machine needs the resources itself, or shuts down.
    EVICTED = "evicted"
    # The machine does not respond any more, or no longer exists.
    NODE_LOST = "node-lost"
    # Somebody has removed what the process ran in, such as its Pod or its window.
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disruption:
    """A disruption of a process.

    ``node`` is the machine on which the process ran, or ``""`` if it is unknown. ``detail`` says
    more about the cause: why the process was evicted, or what was removed, such as ``its Pod was
    deleted``.
    """

    cause: DisruptionCause
    node: str = ""
    detail: str = ""

    def __str__(self) -> str:
        node = self.node or "its node"
        if self.cause is DisruptionCause.DRAINED:
            return f"{node} was drained"
        if self.cause is DisruptionCause.NODE_LOST:
            return f"{node} was lost"
        if self.cause is DisruptionCause.PREEMPTED:
            return f"preempted on {node}"
        if self.cause is DisruptionCause.EVICTED:
            text = f"evicted from {node}"
            return f"{text} ({self.detail})" if self.detail else text
        return self.detail or "it was removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disrupted:
    """The state of a process, for `decide_disruption`.

    ``disruption`` is None if the process was not taken away, or if it had ended before.
    ``is_running`` is true if a part of it can still be running. ``is_stopped`` is true if a user or
    the end of the experiment has stopped it.
    """

    disruption: Disruption | None = None
    is_running: bool = False
    is_stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAgain:
    """The decision to start processes again after a disruption.

    ``lost`` contains the processes that were taken away, and ``others`` the other ranks of their
    unit, which are stopped first. ``reason`` is the reason for all of them, such as ``lost: node1
    was drained``.
    """

    lost: tuple[str, ...]
    others: tuple[str, ...] = ()
    reason: str


def decide_disruption(
    policy: RestartPolicy, processes: Mapping[str, Disrupted]
) -> StartAgain | None:
    """Return the decision for a process, or for all ranks of a unit, or None if nothing follows.

    ``processes`` maps the names of the ranks, or of the only process, to their states. A process
    with the restart policy ``Never`` is not started again. A process that can still be running is
    started again when it has exited. The limit of restarts and the delays before them do not apply.
    """
    if policy.policy == "Never" or any(process.is_stopped for process in processes.values()):
        return None
    lost = {
        name: process.disruption
        for name, process in processes.items()
        if process.disruption is not None and not process.is_running
    }
    if not lost:
        return None
    first, disruption = next(iter(lost.items()))
    reason = lost_text(disruption)
    if len(processes) > 1:
        reason = lost_rank_text(first, reason)
    return StartAgain(
        lost=tuple(lost),
        others=tuple(name for name in processes if name not in lost),
        reason=reason,
    )


def lost_text(disruption: Disruption) -> str:
    """Return the reason of a process that was taken away, such as ``lost: node1 was drained``."""
    return f"{_PREFIX}{disruption}"


def lost_rank_text(rank: str, reason: str) -> str:
    """Return the reason of the ranks of a unit of which one was taken away.

    ``reason`` is the reason of this rank; see `lost_text`.

    >>> lost_rank_text("unit-1", "lost: node1 was drained")
    'lost: unit-1 (node1 was drained)'
    """
    return f"{_PREFIX}{rank} ({reason.removeprefix(_PREFIX)})"


def started_again_text(reason: str, node: str = "") -> str:
    """Return the reason of a process that runs again.

    ``reason`` is that of `StartAgain`, and ``node`` the machine on which the process now runs, or
    ``""`` if it is unknown.

    >>> started_again_text("lost: node1 was drained", "node3")
    'lost: node1 was drained; started again on node3'
    """
    text = f"{reason}; started again"
    return f"{text} on {node}" if node else text
