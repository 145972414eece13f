"""Determine whether a running experiment has to be stopped, finished or started again.

All backends use this module to apply ``ends_with``, ``on_failure`` and ``deadline`` of a running
experiment. The functions are pure. A program that reads the same states comes to the same decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from symphony.plan.restart_policy import Backoff, Restart, RestartPolicy
from symphony.status import ENDED, ReasonCode, State
from symphony.support.data_classes import dataclass
from symphony.support.names import join_names

CONTINUE, STOP, RESTART = "continue", "stop", "restart"

DEADLINE_EXCEEDED = "deadline exceeded"


class Supervised(Protocol):
    """The state of a process of a running experiment.

    A process that has exited and will be restarted is pending. `symphony.status.ProcessStatus`
    satisfies this protocol.
    """

    @property
    def state(self) -> State:
        """The current state of the process."""
        ...

    @property
    def stopped(self) -> bool:
        """True if symphony stopped the process, so that its exit is not a failure."""
        ...

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process, or None if it is unknown or the process has not exited."""
        ...

    @property
    def reason(self) -> str:
        """The reason for the process's state."""
        ...

    @property
    def ended(self) -> float | None:
        """The time of the exit in seconds since the epoch, or None."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """The rules for the end of an experiment, and other settings that its supervisor applies.

    ``ends_with`` contains the names of processes. It is empty if the experiment has finished when
    all processes have finished. ``on_failure`` is ``continue``, ``stop`` or ``restart``.
    ``max_restarts`` is the maximum number of restarts of the experiment, or None for no limit, and
    ``backoff`` is the delay in seconds before its second restart, or None for the default.
    ``deadline`` is the time in seconds between the launch and the end of the experiment, or None.
    With ``record_usage``, the supervisor records the resource use of the processes. With
    ``resume``, the experiment is started again after a reboot of its machine.
    """

    ends_with: tuple[str, ...] = ()
    on_failure: str = CONTINUE
    max_restarts: int | None = None
    backoff: float | None = None
    deadline: float | None = None
    record_usage: bool = False
    resume: bool = False

    @property
    def has_end(self) -> bool:
        """True if one of the options determines the end of the experiment."""
        is_set = self.ends_with or self.deadline is not None
        return bool(is_set) or self.on_failure != CONTINUE

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the experiment options for its end that are set, as ignored settings list
        them.
        """
        names: list[str] = []
        if self.ends_with:
            names.append("ends_with")
        if self.on_failure != CONTINUE:
            names.append("on_failure")
        if self.deadline is not None:
            names.append("deadline")
        return tuple(names)

    def to_dict(self) -> dict[str, Any]:
        """Return the policies that are set, as a dictionary of JSON-serializable values."""
        values = {
            "ends_with": list(self.ends_with),
            "on_failure": None if self.on_failure == CONTINUE else self.on_failure,
            "max_restarts": self.max_restarts,
            "backoff": self.backoff,
            "deadline": self.deadline,
            "record_usage": self.record_usage or None,
            "resume": self.resume or None,
        }
        return {key: value for key, value in values.items() if value not in (None, [])}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Policies:
        """Create policies from the output of `to_dict`."""
        return cls(**{**data, "ends_with": tuple(data.get("ends_with", ()))})


class Ending(NamedTuple):
    """The decision to stop all processes of an experiment that are still running.

    ``action`` is

    * ``finish`` if the processes in ``ends_with`` have finished: the others count as stopped;
    * ``stop`` if a process has failed: the others count as stopped;
    * ``deadline`` if the deadline has passed: all processes that have not finished have failed;
    * ``eviction`` if the system on which they run stops them: they have failed, too;
    * ``restart`` if a process has failed and the experiment is started again: ``restart`` contains
      the delay, which begins at the decision.

    ``reason`` and ``reason_code`` are those of each process that is stopped. ``failed`` is the name
    of the process whose failure is the cause, and ``cause`` describes the failure. Both are ``""``
    if there is none.
    """

    action: str
    reason: str
    reason_code: ReasonCode
    failed: str = ""
    cause: str = ""
    restart: Restart | None = None

    @property
    def stops(self) -> bool:
        """True if a process that is stopped because of this decision does not count as failed."""
        return self.action not in ("deadline", "eviction")


class RestartHistory(NamedTuple):
    """The restarts of an experiment until now.

    ``restarts`` is their number. ``in_row`` is the number of consecutive restarts since the
    sequence of delays began. ``started`` is the time of the launch or of the latest restart, in
    seconds since the epoch.
    """

    restarts: int = 0
    in_row: int = 0
    started: float = 0.0


def decide_end(
    policies: Policies,
    tracks: Mapping[str, Supervised],
    *,
    launched: float,
    now: float,
    history: RestartHistory | None = None,
    backoff: Backoff | None = None,
) -> Ending | None:
    """Return the decision to end or restart an experiment, or None if it continues.

    ``tracks`` maps the names of all processes to their states. ``launched`` and ``now`` are in
    seconds since the epoch. The caller does not call this function again after a decision, until
    the experiment has been restarted. If all processes have finished and the experiment is not
    restarted, the result is None, because nothing is left to stop.

    A failure counts before ``ends_with``, and ``ends_with`` before the deadline. However, a failure
    of another process does not count if all processes in ``ends_with`` had finished before it.
    """
    if not policies.has_end:
        # A supervisor calls this function after each exit, so it must not examine all processes.
        return None
    finished_at = _end_of(policies.ends_with, tracks)
    failed = _first_failure(policies, tracks, finished_at)
    if failed is not None:
        ending = _decide_on_failure(policies, tracks, failed, now, history, backoff)
        if ending is not None:
            return ending
    if all(track.state in ENDED for track in tracks.values()):
        return None
    if finished_at is not None:
        names = join_names(policies.ends_with, limit=4)
        return Ending(
            action="finish",
            reason=f"the experiment ended with {names}",
            reason_code=ReasonCode.EXPERIMENT_ENDED,
        )
    if policies.deadline is not None and now >= launched + policies.deadline:
        return Ending(
            action="deadline", reason=DEADLINE_EXCEEDED, reason_code=ReasonCode.DEADLINE_EXCEEDED
        )
    return None


def _end_of(names: Iterable[str], tracks: Mapping[str, Supervised]) -> float | None:
    """Return the time at which the last of the named processes finished.

    Return None if there are no names, or if a process has not finished. A process that the user has
    stopped has not finished, because the user can start it again.
    """
    latest: float | None = None
    for name in names:
        track = tracks[name]
        if track.state not in ENDED or track.stopped:
            return None
        latest = max(latest or 0.0, track.ended or 0.0)
    return latest


def _first_failure(
    policies: Policies, tracks: Mapping[str, Supervised], finished_at: float | None
) -> str | None:
    """Return the name of the process that failed first, or None if no failure counts."""
    first: str | None = None
    first_time = 0.0
    for name, track in tracks.items():
        if track.state not in (State.FAILED, State.UNKNOWN) or track.stopped:
            continue
        time = float("inf") if track.ended is None else track.ended
        is_too_late = finished_at is not None and time >= finished_at
        if is_too_late and name not in policies.ends_with:
            continue
        if first is None or time < first_time:
            first, first_time = name, time
    return first


def _decide_on_failure(
    policies: Policies,
    tracks: Mapping[str, Supervised],
    failed: str,
    now: float,
    history: RestartHistory | None,
    backoff: Backoff | None,
) -> Ending | None:
    """Return the decision after the failure of the process ``failed``, or None for none."""
    if policies.on_failure == CONTINUE:
        return None
    cause = failure_words(failed, tracks[failed])
    reason = f"the experiment failed: {cause}"
    past = history or RestartHistory(started=now)
    limit = RestartPolicy(policy="OnFailure", max_restarts=policies.max_restarts)
    if policies.on_failure == RESTART and not limit.is_used_up(past.restarts):
        delays = backoff or Backoff()
        return Ending(
            action="restart",
            reason=f"the experiment restarts: {cause}",
            reason_code=ReasonCode.EXPERIMENT_RESTARTS,
            failed=failed,
            cause=cause,
            restart=delays.restart(past.in_row, now - past.started, policies.backoff),
        )
    if all(track.state in ENDED for track in tracks.values()):
        return None
    if policies.on_failure == RESTART:
        reason = f"{reason}; not restarted again, because the limit is {policies.max_restarts}"
    return Ending(
        action="stop",
        reason=reason,
        reason_code=ReasonCode.EXPERIMENT_FAILED,
        failed=failed,
        cause=cause,
    )


def failure_words(name: str, track: Supervised) -> str:
    """Return a failure as words, such as ``server failed (exit code 3)``."""
    causes: list[str] = []
    if track.exit_code is not None:
        causes.append(f"exit code {track.exit_code}")
    if track.reason:
        causes.append(track.reason)
    return f"{name} failed ({', '.join(causes)})" if causes else f"{name} failed"


def seconds_to_deadline(policies: Policies, *, launched: float, now: float) -> float | None:
    """Return the time in seconds until the deadline, at least 0. Return None without a deadline."""
    if policies.deadline is None:
        return None
    return max(0.0, launched + policies.deadline - now)
