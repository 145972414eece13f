"""The last tests of unhealthy processes, and the events for their ends."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from symphony.events import events_between
from symphony.status import ExperimentStatus, ProcessStatus, ReasonCode, State
from symphony_kube.render.container_scripts import STOPPED_MESSAGE
from symphony_kube.state.observe import observe
from symphony_kube.state.pod_status import ContainerStatus, UnhealthyEnd
from symphony_kube.status.event_sources.earlier_runs import earlier_events
from symphony_kube.status.event_sources.health_results import HealthResults, awaits_results
from symphony_kube.watch.experiment_events import EventStream, _unhealthy_events

RECORDED = Path(__file__).parents[1] / "recorded" / "unhealthy.json"
(NEVER,) = json.loads(RECORDED.read_text())["pods"]
# The process ran from 11:08:41 to 11:08:50.
AT = 1796123320.0
REFUSED = "dial tcp 10.244.1.131:8001: connect: connection refused"
PLAIN = "unhealthy, 2 tests in a row"
EXPLAINED = "unhealthy: connection refused at 10.244.1.131:8001, 2 tests in a row"


def failure(message: str, first: int, last: int, probe: str = "Liveness") -> dict[str, Any]:
    """Return the event of a failed probe. The times are seconds after the minute."""
    return {
        "involvedObject": {"uid": NEVER["metadata"]["uid"], "fieldPath": "spec.containers{never}"},
        "reason": "Unhealthy",
        "message": f"{probe} probe failed: {message}",
        "firstTimestamp": f"2026-12-01T11:08:{first:02}Z",
        "lastTimestamp": f"2026-12-01T11:08:{last:02}Z",
    }


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], PLAIN),
        ([failure(REFUSED, 47, 49)], EXPLAINED),
        ([failure("no route", 45, 45), failure(REFUSED, 44, 49)], EXPLAINED),
        # The next execution has failed in the same way.
        ([failure(REFUSED, 47, 59), failure("no route", 45, 45)], EXPLAINED),
        # Other executions, and the other test.
        ([failure(REFUSED, 51, 59), failure(REFUSED, 30, 40)], PLAIN),
        ([failure(REFUSED, 47, 49, "Readiness")], PLAIN),
    ],
)
def test_reason_contains_the_result_of_the_last_test(events, expected):
    status = observe("rec", [NEVER], now=AT).status
    assert awaits_results(status)
    explained = HealthResults([NEVER], events).explain(status)
    assert [process.reason for process in explained] == [expected]
    assert awaits_results(explained) == (expected == PLAIN)


def test_other_failures_await_no_results():
    failed = {"state": State.FAILED, "reason": "exit code 3", "reason_code": ReasonCode.EXITED}
    status = ExperimentStatus(
        name="e", backend="kube", processes=(ProcessStatus(name="p", **failed),)
    )
    assert not awaits_results(status)
    assert HealthResults([], []).explain(status) == status


def test_events_of_an_earlier_execution():
    state = NEVER["status"]["containerStatuses"][0]
    started = {"running": {"startedAt": "2026-12-01T11:08:51Z"}}
    again = {**state, "state": started, "lastState": state["state"], "restartCount": 1}
    pod = {**NEVER, "status": {**NEVER["status"], "phase": "Running", "containerStatuses": [again]}}
    status = observe("rec", [pod], now=AT).status
    results = HealthResults([pod], [failure(REFUSED, 47, 49)])
    found = earlier_events([pod], status, events_between(None, status, AT), results)
    assert [(str(event.kind), event.at - AT, event.text) for event in found] == [
        ("started", 1.0, "started"),
        ("unhealthy", 9.0, EXPLAINED),
        ("exited", 10.0, f"killed by SIGTERM ({EXPLAINED})"),
    ]


END = UnhealthyEnd(2, 143, AT, AT + 10)
RUNS = {"state": State.RUNNING, "unhealthy_end": END}
HIDDEN = ContainerStatus(started=AT, **RUNS)
SHOWN = ContainerStatus(state=State.FAILED, started=AT, ended=AT + 10, unhealthy_end=END)
STARTED_AGAIN = ContainerStatus(started=AT + 10, **RUNS)


@pytest.mark.parametrize(
    ("observed", "is_first", "expected"),
    [
        ([HIDDEN, SHOWN, SHOWN, STARTED_AGAIN], False, [[], ["unhealthy"], [], []]),
        # The kubelet starts the container again before it reports its exit.
        ([STARTED_AGAIN, STARTED_AGAIN], False, [["unhealthy", "exited"], []]),
        ([SHOWN], True, [["unhealthy"]]),
        # This is an earlier execution.
        ([STARTED_AGAIN, STARTED_AGAIN], True, [[], []]),
    ],
)
def test_each_end_is_one_event(observed, is_first, expected):
    stream = EventStream.__new__(EventStream)
    stream._unhealthy_ends = {}
    found = []
    for container in observed:
        stream._previous = None if is_first and not found else object()
        ends = stream._find_unhealthy_ends(SimpleNamespace(containers={"p": container}))
        fields = {"state": container.state, "started": container.started, "ended": container.ended}
        process = ProcessStatus(name="p", **fields)
        status = ExperimentStatus(name="e", backend="kube", processes=(process,))
        known = events_between(None, status, AT + 20)
        events = _unhealthy_events(ends, known, HealthResults([], []))
        found.append([str(event.kind) for event in events])
    assert found == expected


def test_the_message_is_that_of_the_recording():
    terminated = NEVER["status"]["containerStatuses"][0]["state"]["terminated"]
    assert terminated["message"] == f"{STOPPED_MESSAGE}\n"
