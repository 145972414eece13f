"""The restart policy, which determines whether and when a process that has exited is restarted."""

from __future__ import annotations

from dataclasses import dataclass

from symphony.host.run.events import Track

# 2.0 ** 64 exceeds every useful delay. A larger exponent could cause an overflow.
_MAX_DOUBLINGS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The delays, in seconds, before a process that has exited is restarted.

    The first restart is immediate. The second restart is delayed by ``first`` seconds, and the
    delay doubles with each further restart, up to ``longest`` seconds. If the process runs for at
    least ``reset`` seconds before it exits, the sequence begins again. The default values are those
    of Kubernetes
    (https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy).
    """

    first: float = 10.0
    longest: float = 300.0
    reset: float = 600.0

    def delay(self, in_row: int) -> float:
        """Return the delay in seconds before a restart that follows ``in_row`` consecutive
        restarts.
        """
        if in_row == 0:
            return 0.0
        doublings = min(in_row - 1, _MAX_DOUBLINGS)
        return min(self.first * 2.0**doublings, self.longest)


@dataclass(frozen=True, slots=True)
class Restart:
    """The decision to restart a process after ``delay`` seconds.

    ``in_row`` is the number of consecutive restarts since the sequence of delays began, including
    this restart.
    """

    delay: float
    in_row: int


def decide_restart(
    policy: str, track: Track, code: int | None, now: float, backoff: Backoff
) -> Restart | None:
    """Return the `Restart` for a process that exited with ``code``, or None if the process must not
    be restarted.

    ``policy`` is ``Always``, ``OnFailure`` or ``Never``. ``now`` is in seconds since the epoch.
    """
    if policy == "Never" or (policy == "OnFailure" and code == 0):
        return None
    run_seconds = 0.0 if track.started is None else now - track.started
    previous = 0 if run_seconds >= backoff.reset else track.failures_in_row
    return Restart(backoff.delay(previous), previous + 1)
