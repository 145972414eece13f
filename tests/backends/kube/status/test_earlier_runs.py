"""The events of earlier executions of containers, and the times of log lines."""

from __future__ import annotations

from typing import Any

import pytest

from symphony.events import events_between
from symphony.status import ExperimentStatus, ProcessStatus, ReasonCode, State
from symphony_kube.logs.lines import line_seconds
from symphony_kube.status.event_sources.earlier_runs import earlier_events
from symphony_kube.status.event_sources.health_results import HealthResults

START = 1767225600.0


def terminated(started: int, ended: int, code: int = 3, reason: str = "Error") -> dict[str, Any]:
    """Return the state of a container that ran between two seconds after the start."""
    return {
        "terminated": {
            "exitCode": code,
            "reason": reason,
            "startedAt": f"2026-01-01T00:00:{started:02}Z",
            "finishedAt": f"2026-01-01T00:00:{ended:02}Z",
        }
    }


def pod(state: dict[str, Any], last_state: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a Pod with the process c, which is the only process, and with a sidecar."""
    sidecar = {"name": "sidecar", "state": terminated(0, 1), "lastState": terminated(0, 1)}
    container = {"name": "c", "state": state, "lastState": last_state or {}}
    return {"status": {"containerStatuses": [container, sidecar]}}


def status(**fields: Any) -> ExperimentStatus:
    for name in ("started", "ended"):
        if name in fields:
            fields[name] += START
    process = ProcessStatus(name="c", **fields)
    return ExperimentStatus(name="e", backend="kube", created=START, processes=(process,))


RUNNING = {"running": {"startedAt": "2026-01-01T00:00:20Z"}}
CRASHED = {
    "state": State.PENDING,
    "reason_code": ReasonCode.BACKING_OFF,
    "started": 20,
    "ended": 30,
    "exit_code": 3,
}


@pytest.mark.parametrize(
    ("pods", "fields", "expected"),
    [
        pytest.param(
            [pod(RUNNING, terminated(5, 10, 137, "OOMKilled")), {}],
            {"state": State.RUNNING, "started": 20, "restarts": 1},
            [(5, "c started"), (10, "c killed by SIGKILL (out of memory)")],
            id="the execution before the present one",
        ),
        pytest.param(
            [pod(RUNNING, terminated(20, 20))],
            {"state": State.RUNNING, "started": 20, "restarts": 1},
            [(20, "c started"), (20, "c exited with 3")],
            id="an execution in the same second",
        ),
        pytest.param(
            [pod(RUNNING, terminated(5, 10))],
            {"state": State.RUNNING, "started": 20, "restarts": 4},
            [
                (5, "c was started 3 times before, which Kubernetes has not kept"),
                (5, "c started again (restart 3)"),
                (10, "c exited with 3"),
            ],
            id="executions that Kubernetes has not kept",
        ),
        pytest.param(
            [pod({"waiting": {"reason": "CrashLoopBackOff"}}, terminated(20, 30))],
            {**CRASHED, "restarts": 1},
            [(20, "c was started once before, which Kubernetes has not kept")],
            id="a container that waits for its next execution",
        ),
        pytest.param(
            [pod(terminated(20, 30)), pod(terminated(5, 10))],
            {**CRASHED, "restarts": 1},
            [(5, "c started"), (10, "c exited with 3")],
            id="the Pod of an earlier attempt of a Job",
        ),
        pytest.param(
            [pod({"waiting": {}}), pod(terminated(5, 10))],
            {"restarts": 1, "reason": "waiting"},
            [(5, "c started"), (10, "c exited with 3")],
            id="a new attempt that has not started",
        ),
        pytest.param(
            [pod({"waiting": {}}, terminated(5, 10, 128, "StartError"))],
            {"restarts": 2, "reason": "cannot start"},
            [],
            id="a program that could not start",
        ),
        pytest.param(
            [],
            {"state": State.RUNNING, "started": 20, "restarts": 2},
            [(20, "c was started 2 times before, which Kubernetes has not kept")],
            id="Pods that a command has replaced",
        ),
    ],
)
def test_executions_before_the_present_one_are_shown(
    pods: list[dict[str, Any]], fields: dict[str, Any], expected: list[tuple[int, str]]
) -> None:
    observed = status(**fields)
    known = events_between(None, observed, START + 40)
    found = earlier_events(pods, observed, known, HealthResults([], []))
    lines = [(event.at - START, event.line.removeprefix("process ")) for event in found]
    assert lines == expected


def test_the_time_of_a_line_has_microseconds() -> None:
    assert line_seconds(b"2026-01-01T00:00:01.250000000Z hello") == START + 1.25
    assert line_seconds(b"2026-01-01T02:00:01.250000000+02:00 hello") == START + 1.25
    assert line_seconds(b"no time") is None
