"""The events of earlier executions of containers, and the times of log lines."""

from __future__ import annotations

from symphony.events import EventKind, ExperimentEvent
from symphony_kube.logs.lines import line_seconds
from symphony_kube.status.event_sources.earlier_runs import earlier_events

TERMINATED = {
    "exitCode": 137,
    "reason": "OOMKilled",
    "startedAt": "2026-01-01T00:00:00Z",
    "finishedAt": "2026-01-01T00:00:10Z",
}
POD = {
    "status": {
        "containerStatuses": [
            {"name": "new", "restartCount": 0, "lastState": {}},
            {"name": "c", "restartCount": 3, "lastState": {"terminated": TERMINATED}},
        ]
    }
}
START = 1767225600.0


def test_the_previous_execution_of_a_container_is_shown() -> None:
    events = earlier_events([POD, {}], [])
    assert [(event.at, event.line) for event in events] == [
        (START, "process c started again (restart 2)"),
        (START + 10, "process c killed by SIGKILL (out of memory)"),
    ]
    known = ExperimentEvent(at=START + 10, kind=EventKind.EXITED, process="c", text="")
    assert [event.kind for event in earlier_events([POD], [known])] == [EventKind.STARTED]


def test_the_time_of_a_line_has_microseconds() -> None:
    assert line_seconds(b"2026-01-01T00:00:01.250000000Z hello") == START + 1.25
    assert line_seconds(b"2026-01-01T02:00:01.250000000+02:00 hello") == START + 1.25
    assert line_seconds(b"no time") is None
