"""What a supervisor decides when a process has ended: whether and when it starts again. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from symphony.host.run.events import Track


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


def restart(
    policy: str, track: Track, code: int | None, now: float, backoff: Backoff
) -> Restart | None:
    """Whether a process that ended with ``code`` starts again: `Restart`, or None where it has ended for good."""
    if policy == "Never" or (policy == "OnFailure" and code == 0):
        return None
    lasted = now - (track.started if track.started is not None else now)
    before = 0 if lasted >= backoff.reset else track.failures_in_row
    return Restart(backoff.delay(before), before + 1)
