"""The combined state and the exit code of an experiment, and the JSON form of a status."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony import ExperimentStatus, ProcessStatus, State
from symphony.status import ENDED, ReasonCode, combined_state


def process(name: str = "p", **fields: Any) -> ProcessStatus:
    return ProcessStatus(name=name, **fields)


def experiment_of(*processes: ProcessStatus) -> ExperimentStatus:
    return ExperimentStatus(name="e", backend="paper", processes=processes)


def failed(name: str, code: int | None, ended: float | None, **fields: Any) -> ProcessStatus:
    return process(name, state=State.FAILED, exit_code=code, ended=ended, **fields)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("", "unknown"),
        ("succeeded", "succeeded"),
        ("failed", "failed"),
        ("succeeded failed", "failed"),
        ("failed unknown", "unknown"),
        ("failed pending", "pending"),
        ("unknown pending", "pending"),
        ("pending running", "running"),
        ("succeeded failed unknown pending running", "running"),
    ],
)
def test_combined_state(states: str, expected: str) -> None:
    assert combined_state(State(word) for word in states.split()) == State(expected)
    assert (
        str(experiment_of(*(process(state=State(word)) for word in states.split())).state)
        == expected
    )


def test_what_symphony_stopped_has_the_state_stopped() -> None:
    by_symphony = failed("a", 143, 1.0, stopped=True)
    assert experiment_of(by_symphony).to_dict()["state"] == "stopped"
    assert by_symphony.to_dict()["state"] == "stopped"
    assert failed("b", 1, 1.0).to_dict()["state"] == "failed"
    assert experiment_of(by_symphony, failed("b", 1, 1.0)).to_dict()["state"] == "failed"
    by_itself = process(state=State.SUCCEEDED, exit_code=0)
    exits_with_0 = process("c", state=State.SUCCEEDED, exit_code=0, stopped=True)
    assert exits_with_0.to_dict()["state"] == "stopped"
    assert experiment_of(by_itself, exits_with_0).displayed_state == "stopped"
    assert experiment_of(process(state=State.PENDING), exits_with_0).displayed_state == "pending"
    stopping = process(state=State.RUNNING, reason_code=ReasonCode.STOPPING)
    assert stopping.to_dict()["state"] == "stopping"


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (0.0, "restarts in 10 s (exit code 3)"),
        (9.5, "restarts in 1 s (exit code 3)"),
        (10.0, "restarts now (exit code 3)"),
        (11.0, "restarts now (exit code 3)"),
    ],
)
def test_reason_counts_down_to_the_next_start(now: float, expected: str) -> None:
    backing_off = process(state=State.PENDING, reason="exit code 3", next_start=10.0)
    assert backing_off.displayed_reason(now) == expected
    assert process(reason="exit code 3").displayed_reason(now) == "exit code 3"


def test_the_reason_contains_the_number_of_a_limited_restart() -> None:
    limited = process(reason="exit code 3", next_start=10.0, restart_number=2, max_restarts=5)
    assert limited.displayed_reason(0.0) == "restarts in 10 s (2 of 5, exit code 3)"
    unlimited = process(reason="exit code 3", next_start=10.0, restart_number=2)
    assert unlimited.displayed_reason(0.0) == "restarts in 10 s (exit code 3)"


@pytest.mark.parametrize(("now", "expected"), [(0.0, "kill in 10 s"), (10.0, "killed")])
def test_reason_counts_down_to_the_kill(now: float, expected: str) -> None:
    assert process(state=State.RUNNING, kill_at=10.0).displayed_reason(now) == expected


@given(st.lists(st.sampled_from(list(State))))
def test_the_order_of_processes_does_not_matter(states: list[State]) -> None:
    assert combined_state(states) == combined_state(reversed(states)) == combined_state(set(states))
    status = experiment_of(*(process(state=state) for state in states))
    assert status.ended == all(state in ENDED for state in states)
    assert status.ended == (status.state in ENDED)


def test_a_state_is_equal_to_its_value() -> None:
    values = ["pending", "running", "succeeded", "failed", "unknown"]
    assert [str(state) for state in State] == values
    assert f"{State.RUNNING}" == "running" == State.RUNNING  # type: ignore[comparison-overlap]


FIRST, SECOND = failed("first", 3, 10.0), failed("second", 4, 20.0)


@pytest.mark.parametrize(
    "order", list(itertools.permutations([FIRST, SECOND, process(state=State.SUCCEEDED)]))
)
def test_the_first_failure_decides_the_exit_code(order: tuple[ProcessStatus, ...]) -> None:
    assert experiment_of(*order).exit_code == 3


@pytest.mark.parametrize(
    ("processes", "code"),
    [
        ([], 1),
        ([process(state=State.SUCCEEDED, exit_code=0)], 0),
        ([process(state=State.RUNNING)], 0),
        ([failed("stopped", 143, 1.0, stopped=True)], 0),
        ([failed("stopped", 143, 1.0, stopped=True), SECOND], 4),
        ([failed("never", None, 1.0), SECOND], 1),
        ([SECOND, failed("unknown-time", 9, None)], 4),
        ([process(state=State.UNKNOWN)], 1),
        ([process(state=State.UNKNOWN), SECOND], 4),
        ([failed("killed", 137, 1.0)], 137),
    ],
)
def test_exit_code(processes: list[ProcessStatus], code: int) -> None:
    assert experiment_of(*processes).exit_code == code


DONE = process("done", state=State.SUCCEEDED, exit_code=0, ended=30.0)
STOPPED = failed("server", 143, 31.0, stopped=True)


@pytest.mark.parametrize(
    ("ends_with", "processes", "code", "state"),
    [
        ("done", [FIRST, DONE, STOPPED], 0, "succeeded"),
        ("second", [FIRST, SECOND, STOPPED], 4, "failed"),
        ("server", [FIRST, DONE, STOPPED], 3, "failed"),
        ("done", [DONE, process("server", state=State.RUNNING)], 0, "running"),
    ],
)
def test_processes_with_which_an_experiment_ends_decide_its_result(
    ends_with: str, processes: list[ProcessStatus], code: int, state: str
) -> None:
    status = replace(experiment_of(*processes), ends_with=(ends_with,))
    assert (status.exit_code, status.displayed_state) == (code, state)


def test_exit_code_after_a_deadline_is_that_of_timeout() -> None:
    late = failed("late", 143, 5.0, reason_code=ReasonCode.DEADLINE_EXCEEDED)
    assert experiment_of(SECOND, late).exit_code == 124
    assert experiment_of(FIRST, replace(late, ended=15.0)).exit_code == 3


@pytest.mark.parametrize(
    ("status", "is_failure"),
    [
        (process(state=State.FAILED), True),
        (process(state=State.UNKNOWN), True),
        (process(state=State.FAILED, stopped=True), False),
        (process(state=State.SUCCEEDED), False),
        (process(state=State.RUNNING), False),
        (process(state=State.PENDING), False),
    ],
)
def test_failed(status: ProcessStatus, is_failure: bool) -> None:
    assert status.failed is is_failure


def test_json_form() -> None:
    first = failed("a", 2, 2.0, group="g", reason="r", reason_code=ReasonCode.EXITED)
    status = ExperimentStatus(
        name="e", backend="paper", created=1.0, note="n", processes=(first, process("b"))
    )
    data = json.loads(json.dumps(status.to_dict()))
    processes = data.pop("processes")
    assert data == {
        "name": "e", "backend": "paper", "state": "pending", "created": 1.0, "note": "n",
        "ends_with": [], "deadline": None, "parameters": {},
    }  # fmt: skip
    changed = {"name": "a", "group": "g", "state": "failed", "exit_code": 2, "ended": 2.0}
    reason = {"reason": "r", "reason_code": "exited"}
    assert processes[0] == {**processes[1], **changed, **reason}
    identity = {"name": "b", "group": None, "state": "pending", "ready": False, "pid": None}
    identity["node"] = ""
    result = {"exit_code": None, "reason": "", "reason_code": None, "stopped": False}
    times = {"started": None, "ended": None, "restarts": 0, "late": False, "test_result": ""}
    times |= {"next_start": None, "kill_at": None, "restart_number": None, "max_restarts": None}
    assert processes[1] == identity | result | times
    assert [item.path for item in status] == ["g/a", "b"]
