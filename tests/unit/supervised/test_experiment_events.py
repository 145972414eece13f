"""The events that users see: from the event log of one machine, and from statuses."""

from __future__ import annotations

from typing import Any

import pytest

from symphony import ExperimentStatus, ProcessStatus
from symphony.events import EventKind, ExperimentEvent, events_between, select_events
from symphony.plan.restart_policy import RestartPolicy
from symphony.plan.state import apply, checkpoint, fold
from symphony.status import ReasonCode, State
from symphony.supervised.processes.spec import ProcessSpec
from symphony.supervised.record.event_stream import EventTranslator
from symphony.supervised.record.status import compute_status

LIMITED = RestartPolicy(policy="OnFailure", max_restarts=5)
MANIFEST: dict[str, Any] = {
    "experiment": "e",
    "backend": "local",
    "policies": {"on_failure": "restart", "max_restarts": 3},
    "processes": [
        ProcessSpec(name="c", argv=("true",), cwd="/", restart=LIMITED).to_dict(),
        ProcessSpec(name="s", argv=("true",), cwd="/").to_dict(),
        ProcessSpec(name="never", argv=("true",), cwd="/").to_dict(),
    ],
}


def event(kind: str, at: float, process: str | None = None, **details: Any) -> dict[str, Any]:
    owner = {} if process is None else {"process": process}
    return {"event": kind, "at": at, **owner, **details}


def started(at: float, process: str, *, ready: bool = True) -> dict[str, Any]:
    return event("started", at, process, pid=1, birth=1.0, ready=ready)


BACKING_OFF = {"reason": "restarts", "cause": "exit code 9", "reason_code": "backing-off"}
STOPPED = {"stopped": True, "reason": "stopped", "reason_code": "stopped"}
# Each recorded event, the lines that are shown for it, and the lines for the change of the status.
# None means that both are the same.
HISTORY: list[tuple[dict[str, Any], list[str], list[str] | None]] = [
    (event("launched", 100.0), ["experiment launched"], None),
    (
        event("waiting", 100.0, "c", reason="waiting for s to be ready"),
        ["process c waiting for s to be ready"],
        None,
    ),
    (event("requested", 100.1, number=1, request="restart", names=["s"], grace=None), [], []),
    (event("request-done", 100.2, number=1), [], []),
    (started(100.5, "s", ready=False), ["process s started"], None),
    (event("ready", 103.6, "s"), ["process s ready after 3.1 s"], None),
    (started(104.0, "c"), ["process c started"], None),
    (
        event("exited", 105.0, "c", code=9, restarts_in=10.0, in_row=2, **BACKING_OFF),
        ["process c exited with 9", "process c restarting in 10 s (1 of 5)"],
        None,
    ),
    (started(115.0, "c"), ["process c started again (restart 1)"], None),
    (
        event("not-ready", 116.0, "s", reason="not ready within 1 s"),
        ["process s not ready within 1 s"],
        None,
    ),
    (
        event("unhealthy", 116.5, "s", reason="unhealthy: no response", result="no response"),
        ["process s unhealthy: no response"],
        None,
    ),
    (event("signaled", 117.0, "c", signal="SIGHUP"), ["process c received SIGHUP on request"], []),
    (
        event("terminating", 118.0, "c", kill_at=123.0),
        ["process c stopping on request, killed in 5 s if it still runs"],
        ["process c stopping"],
    ),
    (
        event("exited", 119.0, "c", code=143, **STOPPED),
        ["process c stopped, killed by SIGTERM"],
        None,
    ),
    (
        event("never", 119.5, "never", reason="never started: c failed"),
        ["process never will not start: c failed"],
        None,
    ),
    (
        event("exited", 120.0, "s", code=137, reason="out of memory", reason_code="out-of-memory"),
        ["process s killed by SIGKILL (out of memory)"],
        [
            "process s killed by SIGKILL (out of memory)",
            "experiment failed after 20 s with exit code 1",
        ],
    ),
    (event("new-kind", 121.0, "s"), ["process s new kind"], []),
    (event("finished", 122.0), ["experiment failed after 22 s with exit code 1"], []),
]


def lines(events: list[ExperimentEvent]) -> list[str]:
    return [each.line for each in events]


def test_recorded_events_are_shown_in_words() -> None:
    translator = EventTranslator(MANIFEST)
    for recorded, expected, _ in HISTORY:
        events = translator.translate(recorded)
        assert lines(events) == expected
        assert all(each.at == recorded["at"] for each in events)
    assert translator.has_finished


def test_changes_of_a_status_are_shown_in_the_same_words() -> None:
    run = fold(["c", "s", "never"], [])
    previous: ExperimentStatus | None = None
    for recorded, shown, expected in HISTORY:
        apply(run, recorded)
        status = compute_status(MANIFEST, run)
        events = events_between(previous, status, recorded["at"])
        assert lines(events) == (shown if expected is None else expected), recorded
        previous = status
    assert previous is not None
    last = lines(events_between(None, previous, 130.0))
    assert last[0] == "experiment launched"
    assert last[-1] == "experiment failed after 20 s with exit code 1"
    assert "process c stopped, killed by SIGTERM" in last


def test_added_and_removed_processes_are_a_change() -> None:
    def status(*names: str) -> ExperimentStatus:
        processes = tuple(ProcessStatus(name=name, group="g") for name in names)
        return ExperimentStatus(name="rl", backend="paper", processes=processes)

    (event,) = events_between(status("a", "b"), status("b", "c", "d"), 5.0)
    assert (event.kind, event.line) == (
        EventKind.CHANGED,
        "experiment changed: remove g/a; add g/c, g/d",
    )
    assert events_between(status("a"), status(), 5.0) == []


def test_the_restart_of_an_experiment_is_shown() -> None:
    translator = EventTranslator(MANIFEST)
    restarting = event("restarting", 2.0, reason="c failed", restarts_in=0.0)
    assert lines(translator.translate(restarting)) == [
        "experiment restarting now (1 of 3): c failed"
    ]
    (again,) = translator.translate(event("restarted", 2.0))
    assert again.line == "experiment started again (restart 1)"
    (ending,) = translator.translate(event("ending", 3.0, action="stop", reason="c failed"))
    assert (ending.kind, ending.line) == (EventKind.STOPPING, "experiment stopping: c failed")


def test_events_are_selected_by_process_and_time() -> None:
    translator = EventTranslator(MANIFEST)
    events = [each for recorded, *_ in HISTORY for each in translator.translate(recorded)]
    assert list(select_events(events, None, None)) == events
    found = list(select_events(events, ["s"], 103.0))
    assert [each.kind for each in found][:2] == [EventKind.READY, EventKind.NOT_READY]
    assert {each.process for each in found} == {"s"}
    assert found[0].to_dict() == {
        "at": 103.6,
        "kind": "ready",
        "process": "s",
        "reason_code": None,
        "text": "ready after 3.1 s",
    }


def test_events_of_a_changed_experiment() -> None:
    translator = EventTranslator({**MANIFEST, "processes": MANIFEST["processes"][:2]})
    for past in (event("launched", 100.0), started(101.0, "c"), started(101.0, "s")):
        translator.translate(past)
    change = event("changed", 110.0, revision=1, added=["new"], removed=["s"], restarted=["c"])
    change["changes"] = ["stop c: env.SEED set to 1", "remove s", "start new (new)"]
    new = ProcessSpec(name="new", argv=("true",), cwd="/").to_dict()
    translator.use_manifest({**MANIFEST, "processes": [MANIFEST["processes"][0], new]})
    later = [
        change,
        event("exited", 111.0, "s", code=143, **STOPPED),
        started(112.0, "new"),
        event("exited", 113.0, "new", code=0),
        event("exited", 114.0, "c", code=0),
        event("finished", 115.0),
    ]
    lines = [found.line for item in later for found in translator.translate(item)]
    assert lines == [
        "experiment changed: stop c: env.SEED set to 1; remove s; start new (new)",
        "process s stopped, killed by SIGTERM",
        "process new started",
        "process new exited with 0",
        "process c exited with 0",
        "experiment succeeded after 15 s",
    ]


def test_a_process_that_is_restarted_on_request_has_been_stopped() -> None:
    def status(**fields: Any) -> ExperimentStatus:
        process = ProcessStatus(name="p", started=1.0, **fields)
        return ExperimentStatus(name="e", backend="b", created=0.0, processes=(process,))

    stopping = status(state=State.RUNNING, reason_code=ReasonCode.STOPPING)
    waiting = status(
        state=State.PENDING, ended=5.0, exit_code=143, reason="r", reason_code=ReasonCode.WAITING
    )
    events = events_between(stopping, waiting, 6.0)
    assert [(str(event.kind), event.line) for event in events] == [
        ("stopped", "process p stopped, killed by SIGTERM"),
        ("waiting", "process p r"),
    ]


def test_removed_events_are_reported_and_the_state_is_kept() -> None:
    earlier = [event("launched", 100.0), started(100.5, "s"), event("exited", 101.0, "s", code=1)]
    names = ["c", "s", "never"]
    translator = EventTranslator(MANIFEST)
    replaced = translator.translate(checkpoint(fold(names, earlier), 1, 102.0))
    assert lines(replaced) == ["experiment earlier events were removed to limit the event log"]
    assert lines(translator.translate(started(103.0, "s"))) == [
        "process s started again (restart 1)"
    ]


def test_a_restart_is_announced_once_although_more_becomes_known_of_it() -> None:
    def waiting(reason: str, number: int) -> ExperimentStatus:
        process = ProcessStatus(
            name="c",
            state=State.PENDING,
            reason=reason,
            reason_code=ReasonCode.BACKING_OFF,
            restart_number=number,
        )
        return ExperimentStatus(name="e", backend="kube", processes=(process,))

    first = waiting("exit code 3", 1)
    assert events_between(first, waiting("the unit restarts: c exited with 3", 1), 5.0) == []
    again = events_between(first, waiting("exit code 3", 2), 5.0)
    assert lines(again) == ["process c restarting (2)"]


def test_the_delay_of_a_restart_begins_at_the_exit() -> None:
    process = ProcessStatus(
        name="c",
        state=State.PENDING,
        reason_code=ReasonCode.BACKING_OFF,
        started=1.0,
        ended=3.0,
        next_start=13.0,
        exit_code=1,
    )
    status = ExperimentStatus(name="e", backend="kube", created=0.0, processes=(process,))
    events = events_between(None, status, 9.0)
    assert [(event.at, event.line) for event in events[2:]] == [
        (3.0, "process c exited with 1"),
        (3.0, "process c restarting in 10 s (1)"),
    ]


def test_a_start_that_fails_and_is_tried_again_is_not_an_exit() -> None:
    reason = "cannot start 'c': executable file not found in $PATH"
    process = ProcessStatus(
        name="c",
        state=State.PENDING,
        reason=reason,
        reason_code=ReasonCode.CANNOT_START,
        ended=3.0,
    )
    status = ExperimentStatus(name="e", backend="kube", created=1.0, processes=(process,))
    assert [(event.at, event.line) for event in events_between(None, status, 9.0)] == [
        (1.0, "experiment launched"),
        (3.0, f"process c {reason}"),
    ]


def test_events_without_a_time_are_not_later_than_the_end() -> None:
    first = ProcessStatus(name="a", state=State.FAILED, started=1.0, ended=3.0, exit_code=1)
    second = ProcessStatus(name="b", state=State.FAILED, reason="never started: a failed")
    status = ExperimentStatus(
        name="e", backend="kube", created=0.0, processes=(first, second), note="n"
    )
    events = events_between(None, status, 9.0)
    assert [(event.at, event.line) for event in events[3:]] == [
        (3.0, "process b will not start: a failed"),
        (3.0, "experiment reports: n"),
        (3.0, "experiment failed after 3 s with exit code 1"),
    ]


def test_disruption_is_shown_in_words() -> None:
    translator = EventTranslator(MANIFEST)
    translator.translate(event("started", 101.0, "c", pid=7, birth=1.0, ready=True))
    lost = event(
        "exited",
        102.0,
        "c",
        code=None,
        reason="restarts now (lost: node1 was drained)",
        cause="lost: node1 was drained",
        reason_code="disrupted",
        restarts_in=0.0,
        in_row=0,
    )
    assert lines(translator.translate(lost))[-1] == (
        "process c lost: node1 was drained; started again"
    )


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (ReasonCode.EXITED, "exited (r)"),
        (ReasonCode.UNIT_FAILED, "exited (r)"),
        (ReasonCode.NEVER_STARTED, "will not start: r"),
    ],
)
def test_end_of_a_process_whose_start_is_unknown(code: ReasonCode, text: str) -> None:
    # On Kubernetes, the Pod that shows the start can be gone.
    process = ProcessStatus(name="p", state=State.FAILED, reason="r", reason_code=code)
    status = ExperimentStatus(name="e", backend="kube", processes=(process,))
    (event,) = (event for event in events_between(None, status, 5.0) if event.process == "p")
    assert event.text == text


@pytest.mark.parametrize(
    ("ready_since", "expected"),
    [
        ({}, ["process p started"]),
        ({"p": 12.5}, ["process p started", "process p ready after 2.5 s"]),
        # The times of Kubernetes are those of different machines.
        ({"p": 9.0}, ["process p started", "process p ready after 0 s"]),
    ],
)
def test_start_and_readiness_that_are_observed_together(
    ready_since: dict[str, float], expected: list[str]
) -> None:
    def status(**values: Any) -> ExperimentStatus:
        process = ProcessStatus(name="p", **values)
        return ExperimentStatus(name="e", backend="kube", processes=(process,))

    ready = status(state=State.RUNNING, ready=True, started=10.0)
    earlier_run = status(state=State.RUNNING, ready=True, started=1.0)
    for before in (status(), earlier_run):
        assert lines(events_between(before, ready, 20.0, ready_since=ready_since)) == expected
    assert events_between(ready, ready, 21.0, ready_since=ready_since) == []


@pytest.mark.parametrize(
    ("reason", "code", "expected"),
    [
        ("not ready within 5 s", ReasonCode.NOT_READY, "not ready within 5 s"),
        ("the experiment ended with c", ReasonCode.EXPERIMENT_ENDED, "not ready in time"),
        ("", None, "not ready in time"),
    ],
)
def test_lateness_that_is_observed_together_with_the_end(
    reason: str, code: ReasonCode | None, expected: str
) -> None:
    def status(**values: Any) -> ExperimentStatus:
        process = ProcessStatus(name="p", state=State.RUNNING, started=1.0, **values)
        return ExperimentStatus(name="e", backend="kube", processes=(process,))

    late = status(not_ready_in_time=True, reason=reason, reason_code=code)
    assert lines(events_between(status(), late, 6.0)) == [f"process p {expected}"]
