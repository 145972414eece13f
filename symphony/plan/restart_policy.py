"""The restart policy, which determines whether and when a process that has exited is restarted.

All backends use this module for the restarts that they decide themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from symphony.support.data_classes import dataclass

# 2.0 ** 64 exceeds every useful delay. A larger exponent could cause an overflow.
_MAX_DOUBLINGS = 64


class Exited(Protocol):
    """The state of a process that has exited, before the exit is recorded."""

    @property
    def started(self) -> float | None:
        """The time of the latest start, in seconds since the epoch, or None."""
        ...

    @property
    def failures_in_row(self) -> int:
        """The number of consecutive restarts since the sequence of delays began."""
        ...

    @property
    def retries(self) -> int:
        """The number of restarts that have been decided since the experiment was started."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """The restart policy of a process.

    ``policy`` is ``Always``, ``OnFailure`` or ``Never``. ``max_restarts`` is the maximum number of
    restarts, or None for no limit. ``backoff`` is the delay in seconds before the second restart,
    or None for the default. After an exit with one of the ``final_codes``, it is not restarted.
    """

    policy: str = "Never"
    max_restarts: int | None = None
    backoff: float | None = None
    final_codes: tuple[int, ...] = ()

    @classmethod
    def of(cls, value: str | Mapping[str, Any] | None) -> RestartPolicy:
        """Return the restart policy for the value of the setting ``restart_policy``."""
        if value is None:
            return cls()
        if isinstance(value, str):
            return cls(policy=value)
        return cls(**{**value, "final_codes": tuple(value.get("final_codes", ()))})

    def value(self) -> str | dict[str, Any]:
        """Return the value of the setting ``restart_policy`` for this policy; see `of`."""
        values = {
            "policy": self.policy,
            "max_restarts": self.max_restarts,
            "backoff": self.backoff,
            "final_codes": list(self.final_codes) or None,
        }
        given = {key: value for key, value in values.items() if value is not None}
        return self.policy if len(given) == 1 else given

    def of_job(self, job: Mapping[str, Any] | None) -> RestartPolicy:
        """Return the restart policy of a process with the setting ``job``.

        A job without the policy ``OnFailure`` is retried as often as its ``backoff_limit`` allows.
        """
        limit = (job or {}).get("backoff_limit")
        if limit is None or self.policy == "Always":
            return self
        if limit == 0:
            return RestartPolicy()
        is_stricter = self.max_restarts is not None and self.max_restarts < limit
        return RestartPolicy(
            policy="OnFailure",
            max_restarts=self.max_restarts if is_stricter else limit,
            backoff=self.backoff,
            final_codes=self.final_codes,
        )

    def applies_to(self, code: int | None) -> bool:
        """Return whether a process that exited with ``code`` is restarted if restarts are left."""
        if code in self.final_codes:
            return False
        return self.policy == "Always" or (self.policy == "OnFailure" and code != 0)

    def is_used_up(self, restarts: int) -> bool:
        """Return whether a process that was restarted ``restarts`` times has no restart left."""
        return self.max_restarts is not None and restarts >= self.max_restarts


class Backoff(NamedTuple):
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

    def delay(self, in_row: int, first: float | None = None) -> float:
        """Return the delay in seconds before a restart that follows ``in_row`` consecutive
        restarts. ``first`` replaces the field ``first`` if it is given.
        """
        if in_row == 0:
            return 0.0
        doublings = min(in_row - 1, _MAX_DOUBLINGS)
        return min((self.first if first is None else first) * 2.0**doublings, self.longest)

    def restart(self, in_row: int, run_seconds: float, first: float | None = None) -> Restart:
        """Return the restart that follows ``in_row`` consecutive restarts and a run of
        ``run_seconds`` seconds.
        """
        previous = 0 if run_seconds >= self.reset else in_row
        return Restart(self.delay(previous, first), previous + 1)


class Restart(NamedTuple):
    """The decision to restart a process after ``delay`` seconds.

    ``in_row`` is the number of consecutive restarts since the sequence of delays began, including
    this restart.
    """

    delay: float
    in_row: int


def decide_restart(
    policy: RestartPolicy, track: Exited, code: int | None, now: float, backoff: Backoff
) -> Restart | None:
    """Return the `Restart` for a process that exited with ``code``, or None if the process must not
    be restarted.

    ``now`` is in seconds since the epoch.
    """
    if not policy.applies_to(code) or policy.is_used_up(track.retries):
        return None
    run_seconds = 0.0 if track.started is None else now - track.started
    return backoff.restart(track.failures_in_row, run_seconds, policy.backoff)
