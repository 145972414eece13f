"""The events of an experiment that follow from Kubernetes events, supervisors and changes."""

from __future__ import annotations

from typing import Any

import pytest

from symphony.status import ReasonCode
from symphony_kube.record.change_log import (
    MAX_CHANGES,
    decode_changes,
    encode_changes,
    new_change,
)
from symphony_kube.render.container_scripts import STOP_MARK, STOP_PATH
from symphony_kube.status.event_sources.kubernetes_warnings import MAX_UNMATCHED, KubernetesWarnings
from symphony_kube.status.event_sources.supervisor_events import SupervisorEvents

START = 1767225600.0
IMAGE = 'Failed to pull image "nosuch": not found'
REFUSED = 'Error creating: admission webhook "mpod.kb.io" denied the request:'
UNKNOWN_JOB = 'workload owner not found\nJob.batch "object" not found'
UNKNOWN_JOB_SET = (
    'job "r-0" creation failed with error: admission webhook "mjob.kb.io" denied the request: '
    'JobSet.jobset.x-k8s.io "r" not found'
)
EXISTS = 'job "r-0" creation failed with error: jobs.batch "r-0" already exists'
PROCESSES: dict[str, tuple[str | None, ...]] = {
    "a": ("learner",),
    "g": ("one", "two"),
    "s": (None,),
}


def kubernetes_event(
    reason: str,
    message: str,
    uid: str = "a",
    *,
    type: str = "Warning",
    kind: str = "Pod",
    at: str = "2026-01-01T00:00:05Z",
    path: str = "",
) -> dict[str, Any]:
    return {
        "metadata": {"creationTimestamp": at},
        "involvedObject": {"kind": kind, "name": "object", "uid": uid, "fieldPath": path},
        "type": type,
        "reason": reason,
        "message": message,
        "firstTimestamp": at,
    }


def find_processes(event: Any) -> tuple[str | None, ...]:
    return PROCESSES.get(event["involvedObject"]["uid"], ())


def shown(*events: dict[str, Any]) -> list[str]:
    warnings = KubernetesWarnings()
    warnings.add(events)
    return [event.line for event in warnings.take(find_processes)]


@pytest.mark.parametrize(
    ("event", "lines"),
    [
        (
            kubernetes_event("FailedMount", 'secret "nosuch"\n not found'),
            ['process learner FailedMount: secret "nosuch" not found'],
        ),
        (
            kubernetes_event("FailedScheduling", "0/3 nodes are available: 3 Insufficient cpu."),
            ["process learner Unschedulable: 0/3 nodes fit: 3 insufficient cpu"],
        ),
        (kubernetes_event("Failed", IMAGE), [f"process learner Failed: {IMAGE}"]),
        (
            kubernetes_event("BackOff", "Back-off pulling image", type="Normal"),
            ["process learner BackOff: Back-off pulling image"],
        ),
        (
            kubernetes_event("Preempted", "Preempted by x", type="Normal"),
            ["process learner Preempted: Preempted by x"],
        ),
        # The processes of a group share a Pod, and some events name one container.
        (
            kubernetes_event("Evicted", "no memory", "g"),
            ["process one Evicted: no memory", "process two Evicted: no memory"],
        ),
        (
            kubernetes_event("BackOff", "again", "g", path="spec.containers{two}"),
            ["process two BackOff: again"],
        ),
        (
            kubernetes_event("FailedCreate", "exceeded quota", kind="Job"),
            ["process learner FailedCreate: exceeded quota"],
        ),
        (kubernetes_event("FailedCreate", f"{REFUSED} {UNKNOWN_JOB}", kind="Job"), []),
        (
            kubernetes_event("FailedCreate", f"{REFUSED} queue is missing", kind="Job"),
            [f"process learner FailedCreate: {REFUSED} queue is missing"],
        ),
        (kubernetes_event("JobCreationFailed", EXISTS, "g", kind="JobSet"), []),
        (kubernetes_event("JobCreationFailed", UNKNOWN_JOB_SET, "g", kind="JobSet"), []),
        (
            kubernetes_event("JobCreationFailed", "exceeded quota", "g", kind="JobSet"),
            ["experiment JobSet object: JobCreationFailed: exceeded quota"],
        ),
        # A JobSet can have hundreds of ranks.
        (
            kubernetes_event("ReachedMaxRestarts", "jobset failed", "g", kind="JobSet"),
            ["experiment JobSet object: ReachedMaxRestarts: jobset failed"],
        ),
        (
            kubernetes_event("BackOff", "again", "s", path="spec.containers{supervisor}"),
            ["experiment supervisor: BackOff: again"],
        ),
        (kubernetes_event("Evicted", "an object of another user", "other"), []),
        (kubernetes_event("Failed", "x", kind="Service"), []),
        (kubernetes_event("SandboxChanged", "x", type="Normal"), []),
        (kubernetes_event("Unhealthy", "Readiness probe failed: refused"), []),
        (kubernetes_event("FailedPreStopHook", f"hook ([/bin/sh -c {STOP_MARK}])"), []),
        (kubernetes_event("FailedPreStopHook", f"hook ([/bin/sh {STOP_PATH} 15])"), []),
        (kubernetes_event("FailedPreStopHook", "PreStopHook failed"), []),
        (kubernetes_event("FailedPreStopHook", "a"), ["process learner FailedPreStopHook: a"]),
        (
            kubernetes_event("Unhealthy", "Liveness probe failed: refused"),
            ["process learner Unhealthy: Liveness probe failed: refused"],
        ),
    ],
)
def test_a_problem_that_kubernetes_reports(event: dict[str, Any], lines: list[str]) -> None:
    assert shown(event) == lines


def test_a_message_is_shown_once_for_each_object_and_reason() -> None:
    first, second = kubernetes_event("Failed", "x"), kubernetes_event("Failed", "y")
    combined = kubernetes_event("Failed", "(combined from similar events): x")
    assert shown(first, second, first, combined) == [
        "process learner Failed: x",
        "process learner Failed: y",
    ]
    warnings = KubernetesWarnings()
    for _ in range(2):
        warnings.add([first])
        shown_now = warnings.take(find_processes)
    assert shown_now == []


def test_a_warning_can_arrive_before_its_pod() -> None:
    warnings = KubernetesWarnings()
    many = [kubernetes_event("Evicted", str(number), "other") for number in range(MAX_UNMATCHED)]
    warnings.add([*many, kubernetes_event("Failed", IMAGE, "later")])
    assert warnings.take(find_processes) == []
    (event,) = warnings.take(
        lambda event: ("p",) if event["involvedObject"]["uid"] == "later" else ()
    )
    assert (event.at, event.process) == (START + 5, "p")
    assert event.reason_code is ReasonCode.IMAGE_UNAVAILABLE


# --- the supervisor ---


def supervisor_pod(uid: str, restarts: int, **states: Any) -> dict[str, Any]:
    status = {"name": "supervisor", "restartCount": restarts, **states}
    return {
        "metadata": {"name": f"supervisor-{uid}", "uid": uid, "creationTimestamp": uid},
        "status": {"containerStatuses": [status]},
    }


def exited(code: int, start: int) -> dict[str, Any]:
    times = {"startedAt": stamp(start), "finishedAt": stamp(start + 5)}
    return {"terminated": {"exitCode": code, **times}}


def running(start: int) -> dict[str, Any]:
    return {"running": {"startedAt": stamp(start)}}


def stamp(seconds: int) -> str:
    return f"2026-01-01T00:00:{seconds:02}Z"


def test_a_crash_of_the_supervisor_and_its_restart_are_reported_once() -> None:
    logs: list[tuple[str, bool]] = []

    def read(pod: Any, is_previous: bool) -> str:
        logs.append((pod["metadata"]["name"], is_previous))
        return "OSError: disk"

    events = SupervisorEvents(read)
    crash = "experiment supervisor exited with 1: OSError: disk"
    again = "experiment supervisor started again"
    history = [
        (supervisor_pod("1", 0, state=running(0)), []),
        (supervisor_pod("1", 0, state=exited(1, 0)), [(5, crash)]),
        (supervisor_pod("1", 1, state=running(6), lastState=exited(1, 0)), [(6, again)]),
        (supervisor_pod("1", 2, state=running(20), lastState=exited(137, 6)), [(11,), (20, again)]),
        # The Job creates another Pod.
        (supervisor_pod("2", 0, state={"waiting": {}}), []),
        (supervisor_pod("2", 0, state=running(30)), [(30, again)]),
        (supervisor_pod("2", 0, state=exited(0, 30)), []),
    ]
    for pod, expected in history:
        for _ in range(2):
            found = [(int(event.at - START), event.line) for event in events.add([pod])]
            assert [item[: len(want)] for item, want in zip(found, expected, strict=True)] == (
                expected
            )
            expected = []
    assert logs == [("supervisor-1", False), ("supervisor-1", True)]
    assert events.uids == {"1", "2"}


# --- changes ---


def test_changes_survive_the_annotation() -> None:
    lines = ["start b (new)", "x" * 500, *map(str, range(20))]
    changes = [new_change(number, START + number, lines) for number in range(30)]
    decoded = decode_changes(encode_changes(changes))
    assert decoded == tuple(changes[-MAX_CHANGES:])
    event = decoded[-1].to_event()
    assert (event.at, event.line[:39]) == (
        START + 29,
        "experiment changed: start b (new); xxxx",
    )
    assert event.text.endswith("; 6; and 13 more")


@pytest.mark.parametrize(
    "text", ["", "x", "1:{}", "1:[1]", "1:[{}]", "2:null", '1:[{"revision":"x","at":1,"lines":[]}]']
)
def test_a_damaged_annotation_contains_no_changes(text: str) -> None:
    assert decode_changes(text) == ()
