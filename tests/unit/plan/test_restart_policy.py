"""The decisions of a supervisor: when a process starts, and when it starts again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.plan.restart_policy import Backoff, Restart, RestartPolicy, decide_restart
from symphony.plan.start_order import START, Verdict, can_start_later, is_stuck, verdict
from symphony.plan.state import Track
from symphony.status import ProcessStatus, ReasonCode, State

# --- restarts ---


def test_default_delays_are_those_of_kubernetes() -> None:
    delays = [Backoff().delay(in_row) for in_row in (*range(9), 10**6)]
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300, 300, 300]
    assert Backoff().reset == 600


@given(st.integers(0, 200), st.floats(0.001, 100), st.floats(0.001, 1000))
def test_delays_never_decrease_or_exceed_the_longest(
    in_row: int, first: float, longest: float
) -> None:
    backoff = Backoff(first=first, longest=longest)
    assert backoff.delay(in_row) <= backoff.delay(in_row + 1) <= longest


@pytest.mark.parametrize(
    ("policy", "restarted_codes"),
    [("Never", []), ("OnFailure", [1, 137, None]), ("Always", [0, 1, 137, None])],
)
@pytest.mark.parametrize("code", [0, 1, 137, None])
def test_policy_decides_by_exit_code(
    policy: str, restarted_codes: list[int | None], code: int | None
) -> None:
    found = decide_restart(RestartPolicy(policy=policy), Track(started=0.0), code, 1.0, Backoff())
    assert found == (Restart(0.0, 1) if code in restarted_codes else None)


@pytest.mark.parametrize("policy", ["OnFailure", "Always"])
@pytest.mark.parametrize(("code", "is_restarted"), [(2, False), (78, False), (1, True)])
def test_process_is_not_restarted_after_a_final_exit_code(
    policy: str, code: int, is_restarted: bool
) -> None:
    final = RestartPolicy.of({"policy": policy, "final_codes": [2, 78]})
    assert RestartPolicy.of(final.value()) == final
    found = decide_restart(final, Track(started=0.0), code, 1.0, Backoff())
    assert (found is not None) is is_restarted


@pytest.mark.parametrize(
    ("in_row", "run_seconds", "expected"),
    [
        (0, 1, Restart(0.0, 1)),
        (1, 1, Restart(10.0, 2)),
        (2, 1, Restart(20.0, 3)),
        (6, 599.9, Restart(300.0, 7)),
        (6, 600, Restart(0.0, 1)),
    ],
)
def test_long_run_resets_the_delay(in_row: int, run_seconds: float, expected: Restart) -> None:
    track = Track(started=1000.0, failures_in_row=in_row)
    policy = RestartPolicy(policy="Always")
    assert decide_restart(policy, track, 1, 1000.0 + run_seconds, Backoff()) == expected


@pytest.mark.parametrize(("retries", "expected"), [(1, Restart(5.0, 2)), (2, None)])
def test_policy_limits_the_restarts_and_sets_the_first_delay(
    retries: int, expected: Restart | None
) -> None:
    policy = RestartPolicy(policy="OnFailure", max_restarts=2, backoff=5.0)
    track = Track(started=0.0, failures_in_row=1, retries=retries)
    assert decide_restart(policy, track, 1, 1.0, Backoff()) == expected


# --- the start order ---

# The state of the process "db", and what it means for a process that starts after it is ready,
# has started, or has succeeded: "start", "wait", or the reason why it never starts.
CONDITIONS = {"ready": "be ready", "started": "start", "succeeded": "succeed"}
KILLED = "db failed (killed by SIGKILL)"
NEVER_STARTED = "db failed (never started: x failed)"
WAITS: dict[str, tuple[dict[str, Any], tuple[str, str, str]]] = {
    "pending": ({"reason": "waiting for x to start"}, ("wait", "wait", "wait")),
    "running": ({"state": State.RUNNING, "started": 1.0}, ("wait", "start", "wait")),
    "ready": (
        {"state": State.RUNNING, "started": 1.0, "ready": True, "was_ready": True},
        ("start", "start", "wait"),
    ),
    "not ready in time": (
        {"state": State.RUNNING, "started": 1.0, "never_ready": True, "reason": "not ready"},
        ("db was not ready", "start", "wait"),
    ),
    "stopping, and not ready in time": (
        {"state": State.RUNNING, "started": 1.0, "never_ready": True, "reason": "stopping"},
        ("db was not ready in time", "start", "wait"),
    ),
    "succeeded": (
        {"state": State.SUCCEEDED, "started": 1.0, "was_ready": True},
        ("start", "start", "start"),
    ),
    "succeeded before it was ready": (
        {"state": State.SUCCEEDED, "started": 1.0},
        ("db exited with 0 before it was ready", "start", "start"),
    ),
    "failed": ({"state": State.FAILED, "started": 1.0}, ("db failed", "start", "db failed")),
    "failed with a reason": (
        {"state": State.FAILED, "started": 1.0, "reason": "killed by SIGKILL"},
        (KILLED, "start", KILLED),
    ),
    "failed after it was ready": (
        {"state": State.FAILED, "started": 1.0, "was_ready": True},
        ("start", "start", "db failed"),
    ),
    "never started": (
        {"state": State.FAILED, "ended": 2.0, "reason": "never started: x failed"},
        (NEVER_STARTED, NEVER_STARTED, NEVER_STARTED),
    ),
    "backing off": (
        {"state": State.PENDING, "started": 1.0, "reason": "restarts in 10 s"},
        ("wait", "start", "wait"),
    ),
}


@pytest.mark.parametrize("state", WAITS)
def test_verdict_depends_on_the_awaited_process(state: str) -> None:
    fields, expected = WAITS[state]
    for (condition, words), outcome in zip(CONDITIONS.items(), expected, strict=True):
        found = verdict({"db": condition}, {"db": Track(**fields)})
        if outcome == "start":
            assert found is START
        elif outcome == "wait":
            assert found == Verdict("wait", f"waiting for db to {words}")
        else:
            assert found == Verdict("never", f"never started: {outcome}")
        is_possible = outcome in ("start", "wait") or outcome.startswith("db was not ready")
        assert can_start_later({"db": condition}, {"db": Track(**fields)}) is is_possible


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"state": State.RUNNING}, False),
        # The supervisor restarts it.
        ({"state": State.PENDING, "reason_code": ReasonCode.BACKING_OFF}, False),
        ({"state": State.SUCCEEDED}, True),
    ],
)
def test_an_experiment_is_stuck_if_all_others_wait_for_stopped_processes(
    changed: dict[str, Any], expected: bool
) -> None:
    stopped = ProcessStatus(name="a", state=State.FAILED, stopped=True)
    waiting = ProcessStatus(name="b", reason_code=ReasonCode.WAITING)
    assert is_stuck([stopped, waiting, replace(waiting, **changed)]) is expected
    assert not is_stuck([stopped])
    assert not is_stuck([waiting])


def test_process_without_conditions_may_start() -> None:
    assert verdict({}, {}) is START


def test_verdict_names_every_unmet_condition() -> None:
    tracks = {"a": Track(state=State.RUNNING, started=1.0), "b": Track(), "c": Track()}
    waits = {"a": "started", "b": "ready", "c": "succeeded"}
    assert verdict(waits, tracks) == Verdict("wait", "waiting for b to be ready and c to succeed")


def test_impossible_condition_outweighs_an_unmet_one() -> None:
    tracks = {"a": Track(), "b": Track(state=State.FAILED, started=1.0)}
    found = verdict({"a": "ready", "b": "succeeded"}, tracks)
    assert found == Verdict("never", "never started: b failed")
