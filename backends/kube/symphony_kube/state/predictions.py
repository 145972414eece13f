"""Determine the next step of one process of a unit by `symphony.plan.decide`. Pure.

The status shows this before a supervisor has recorded it, and if there is no supervisor.
"""

from __future__ import annotations

import functools

from symphony.plan.decide import decide
from symphony.plan.disruption import Disruption
from symphony.plan.observation import Observation, Seen
from symphony.plan.restart_policy import RestartPolicy
from symphony.plan.state import Event, Request, RunState, Track
from symphony.plan.wish import ProcessWish, Wish
from symphony.status import ReasonCode, State
from symphony_kube.state.control_state import Attempt
from symphony_kube.state.pod_status import ContainerStatus

# A number that means that an attempt exists. Kubernetes has no process numbers.
PID = 1
# Kubelets test processes, and the objects show only that a test has failed often enough.
MAX_FAILED_TESTS = 1
_NAME = "process"


def track_of(container: ContainerStatus, attempt: Attempt) -> Track:
    """Return the recorded state of a process in an attempt."""
    return Track(
        ready=container.was_ready,
        was_ready=container.was_ready,
        never_ready=container.never_ready,
        reason=container.reason,
        reason_code=container.cause.code,
        exit_code=container.exit_code,
        started=container.started,
        first_started=container.started,
        ended=container.ended,
        attempts=attempt.number,
        failures_in_row=attempt.in_row,
        retries=attempt.retries,
    )


def track_before_exit(container: ContainerStatus, attempt: Attempt) -> Track:
    """Return the state of a process that has exited as it was before."""
    track = track_of(container, attempt)
    track.state, track.pid = State.RUNNING, PID
    track.ended = track.exit_code = None
    return track


def exit_of(
    container: ContainerStatus, attempt: Attempt, disruption: Disruption | None, now: float
) -> Seen:
    """Return what is known about a process that has exited, or that ``disruption`` has ended."""
    seen = Seen(attempt=attempt.number - 1)
    if disruption is not None:
        # The exit code is not a result.
        return seen._replace(disruption=disruption, since=now)
    return seen._replace(
        exit_code=container.exit_code,
        reason=container.reason,
        reason_code=container.cause.code or ReasonCode.EXITED,
        failed_tests=container.failed_tests,
        since=container.ended,
    )


def find_next_start(
    policy: RestartPolicy,
    container: ContainerStatus,
    attempt: Attempt,
    now: float,
    *,
    disruption: Disruption | None = None,
    is_stopped: bool = False,
) -> Event | None:
    """Return the event after which a process that has exited starts again, or None.

    ``is_stopped`` is true if a user has stopped it. The other ranks of its unit are not considered.
    """
    state = RunState({_NAME: track_before_exit(container, attempt)})
    if is_stopped:
        state.requests = {1: Request("stop", [_NAME])}
    facts = Observation({_NAME: exit_of(container, attempt, disruption, now)})
    for event in decide(_wish(policy), state, facts, now).events:
        if event["event"] == "exited" and event.get("restarts_in") is not None:
            return event
    return None


def find_lateness(timeout: float, started: float, now: float) -> tuple[str, float | None]:
    """Return why a process that is not ready is late, or ``""``, and when it will be late, or None.

    ``timeout`` is the time in seconds within which it has to become ready. Its node, or the reader
    of its log, tests whether it is ready.
    """
    state = RunState({_NAME: Track(state=State.RUNNING, pid=PID, started=started, attempts=1)})
    facts = Observation({_NAME: Seen(attempt=0, running=True)})
    decision = decide(_wish(timeout=timeout), state, facts, now)
    reasons = [event["reason"] for event in decision.events if event["event"] == "not-ready"]
    return (reasons[0] if reasons else ""), decision.wake_at


@functools.lru_cache(maxsize=64)
def _wish(policy: RestartPolicy | None = None, *, timeout: float | None = None) -> Wish:
    process = ProcessWish(_NAME, max_failed_tests=MAX_FAILED_TESTS)
    if policy is not None:
        process = process._replace(restart=policy)
    if timeout is not None:
        process = process._replace(has_test=True, ready_timeout=timeout)
    return Wish([process])
