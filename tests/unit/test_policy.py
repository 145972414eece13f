"""What a supervisor decides: who may start, and when a process starts again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.host.run.events import Track
from symphony.host.supervisor.restart_policy import Backoff, Restart, decide_restart
from symphony.plan.start_order import START, Verdict, verdict
from symphony.status import State

# --- restarts ---


def test_the_waits_are_those_of_kubernetes() -> None:
    waits = [Backoff().delay(in_row) for in_row in range(9)]
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300, 300]
    assert Backoff().reset == 600


def test_many_failures_overflow_nothing() -> None:
    assert Backoff().delay(10**6) == 300


@given(st.integers(0, 200), st.floats(0.001, 100), st.floats(0.001, 1000))
def test_waits_never_shrink_nor_pass_the_longest(in_row: int, first: float, longest: float) -> None:
    backoff = Backoff(first=first, longest=longest)
    assert backoff.delay(in_row) <= backoff.delay(in_row + 1) <= longest


@pytest.mark.parametrize(
    ("policy", "code", "again"),
    [
        ("Never", 0, False),
        ("Never", 1, False),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("OnFailure", 137, True),
        ("Always", 0, True),
        ("Always", 1, True),
    ],
)
def test_who_starts_again(policy: str, code: int, again: bool) -> None:
    found = decide_restart(policy, Track(started=0.0), code, 1.0, Backoff())
    assert found == (Restart(0.0, 1) if again else None)


@pytest.mark.parametrize(
    ("in_row", "lasted", "expected"),
    [
        (0, 1, Restart(0.0, 1)),
        (1, 1, Restart(10.0, 2)),
        (2, 1, Restart(20.0, 3)),
        (6, 1, Restart(300.0, 7)),
        (6, 599.9, Restart(300.0, 7)),
        (6, 600, Restart(0.0, 1)),
        (6, 10_000, Restart(0.0, 1)),
    ],
)
def test_a_long_run_forgets_the_failures_before_it(
    in_row: int, lasted: float, expected: Restart
) -> None:
    track = Track(started=1000.0, failures_in_row=in_row)
    assert decide_restart("Always", track, 1, 1000.0 + lasted, Backoff()) == expected


def test_the_back_off_may_be_another() -> None:
    backoff = Backoff(first=0.01, longest=0.02, reset=0.5)
    delays = [
        decide_restart("Always", Track(started=0, failures_in_row=row), 1, 0.1, backoff)
        for row in range(4)
    ]
    assert [item.delay for item in delays if item] == [0, 0.01, 0.02, 0.02]
    assert decide_restart(
        "Always", Track(started=0, failures_in_row=3), 1, 0.5, backoff
    ) == Restart(0.0, 1)


# --- who may start ---

WAITS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    # how the awaited one is: its track, and by condition "start" or the reason
    "has not started": (
        {"reason": "waiting for x to start"},
        {"ready": "waiting for db to be ready", "started": "waiting for db to start",
         "succeeded": "waiting for db to succeed"},
    ),
    "runs": (
        {"state": State.RUNNING, "started": 1.0},
        {"ready": "waiting for db to be ready", "started": "start", "succeeded": "waiting for db to succeed"},
    ),
    "is ready": (
        {"state": State.RUNNING, "started": 1.0, "ready": True, "was_ready": True},
        {"ready": "start", "started": "start", "succeeded": "waiting for db to succeed"},
    ),
    "was not ready in time": (
        {"state": State.RUNNING, "started": 1.0, "never_ready": True, "reason": "not ready within 5 s"},
        {"ready": "never started: db was not ready within 5 s", "started": "start",
         "succeeded": "waiting for db to succeed"},
    ),
    "succeeded": (
        {"state": State.SUCCEEDED, "started": 1.0, "ended": 2.0, "was_ready": True, "exit_code": 0},
        {"ready": "start", "started": "start", "succeeded": "start"},
    ),
    "succeeded without having been ready": (
        {"state": State.SUCCEEDED, "started": 1.0, "ended": 2.0, "exit_code": 0},
        {"ready": "never started: db ended before it was ready", "started": "start", "succeeded": "start"},
    ),
    "failed": (
        {"state": State.FAILED, "started": 1.0, "ended": 2.0, "exit_code": 1},
        {"ready": "never started: db failed", "started": "start", "succeeded": "never started: db failed"},
    ),
    "failed for a reason": (
        {"state": State.FAILED, "started": 1.0, "ended": 2.0, "exit_code": 137, "reason": "killed by SIGKILL"},
        {"ready": "never started: db failed (killed by SIGKILL)", "started": "start",
         "succeeded": "never started: db failed (killed by SIGKILL)"},
    ),
    "failed after it had been ready": (
        {"state": State.FAILED, "started": 1.0, "ended": 2.0, "was_ready": True, "exit_code": 1},
        {"ready": "start", "started": "start", "succeeded": "never started: db failed"},
    ),
    "never started": (
        {"state": State.FAILED, "ended": 2.0, "reason": "never started: x failed"},
        dict.fromkeys(("ready", "started", "succeeded"), "never started: db failed (never started: x failed)"),
    ),
    "waits to start again": (
        {"state": State.PENDING, "started": 1.0, "ended": 2.0, "exit_code": 1, "reason": "restarts in 10 s"},
        {"ready": "waiting for db to be ready", "started": "start", "succeeded": "waiting for db to succeed"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("condition", ["ready", "started", "succeeded"])
@pytest.mark.parametrize("how", WAITS)
def test_who_may_start(how: str, condition: str) -> None:
    fields, expected = WAITS[how]
    found = verdict({"db": condition}, {"db": Track(**fields)})
    if expected[condition] == "start":
        assert found is START
    else:
        word = "never" if expected[condition].startswith("never") else "wait"
        assert found == Verdict(word, expected[condition])


def test_who_waits_for_nobody_may_start() -> None:
    assert verdict({}, {}) is START


def test_who_waits_for_several_says_for_whom_still() -> None:
    tracks = {"a": Track(state=State.RUNNING, started=1.0), "b": Track(), "c": Track()}
    waits = {"a": "started", "b": "ready", "c": "succeeded"}
    assert verdict(waits, tracks) == Verdict("wait", "waiting for b to be ready and c to succeed")


def test_one_that_never_will_outweighs_one_that_still_may() -> None:
    tracks = {"a": Track(), "b": Track(state=State.FAILED, started=1.0)}
    assert verdict({"a": "ready", "b": "succeeded"}, tracks) == Verdict(
        "never", "never started: b failed"
    )
