"""The status of experiments, computed from Pods and Jobs without a cluster.

``recorded/`` has the objects as the API of Kubernetes 1.20.2, or of the version that a recording
names, listed them, without the fields that are not read. Other objects of newer versions are built
from their documentation.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from symphony.status import ReasonCode as Code
from symphony.status import State
from symphony_kube.api import labels
from symphony_kube.api.resources import parse_time
from symphony_kube.record.copies import StoredRecord
from symphony_kube.record.encoded_record import EncodedRecord
from symphony_kube.render.codec import with_revision
from symphony_kube.render.container_scripts import STOPPED_MESSAGE
from symphony_kube.render.roster import Unit, encode_roster
from symphony_kube.state import reasons
from symphony_kube.state.control_state import Control, encode
from symphony_kube.state.observe import ExperimentState, observe
from symphony_kube.state.observed_objects import JOBS, PODS

RECORDED = Path(__file__).parents[1] / "recorded"
PENDING, RUNNING, SUCCEEDED, FAILED, UNKNOWN = State

AT = 1_700_000_000.0
NOT_FOUND = "executable file not found in $PATH"
CREATING = (PENDING, None, Code.CREATING, "ContainerCreating")
RUNS = (RUNNING, None, None, "")
SUCCEEDS = (SUCCEEDED, 0, None, "")
DELETING = (RUNNING, None, Code.DELETING, "its Pod is being deleted")


def pending(code: Code, reason: str, exit_code: int | None = None) -> tuple[Any, ...]:
    return PENDING, exit_code, code, reason


def failed(exit_code: int | None, code: Code, reason: str = "") -> tuple[Any, ...]:
    return FAILED, exit_code, code, reason


def no_image(reason: str) -> tuple[Any, ...]:
    return pending(Code.IMAGE_UNAVAILABLE, reason)


def lost(why: str) -> tuple[Any, ...]:
    return UNKNOWN, None, Code.LOST, f"exit status unknown: {why}"


def read_statuses() -> dict[str, dict[str, Any]]:
    """Return the expected status of each process by its recording and its path."""
    statuses: dict[str, dict[str, Any]] = {}
    for line in (RECORDED / "statuses.txt").read_text().splitlines()[1:]:
        case, path, state, exit_code, code, reason = (cell.strip() for cell in line.split("|"))
        statuses.setdefault(case, {})[path] = (
            State(state),
            None if exit_code == "-" else int(exit_code),
            None if code == "-" else Code(code),
            reason,
        )
    return statuses


STATUSES = read_statuses()


def recorded(case: str) -> dict[str, Any]:
    return json.loads((RECORDED / f"{case}.json").read_text())


def one_second_later(case: dict[str, Any]) -> float:
    """Return a second after the latest time in the objects."""
    words = json.dumps(case).split('"')
    times = [parse_time(word) for word in words if word[:2] == "20" and word[-1:] == "Z"]
    return max(time for time in times if time) + 1


def observe_recording(case: str):
    objects = recorded(case)
    return observe("rec", objects["pods"], objects["jobs"], now=one_second_later(objects))


def summary(process):
    return process.state, process.exit_code, process.reason_code, process.reason


def test_table_has_every_recording():
    names = {path.stem for path in RECORDED.glob("*.json")}
    assert names == {*STATUSES, "pod-deadline-dying"}


@pytest.mark.parametrize("case", STATUSES)
def test_status_of_recorded_objects(case):
    status = observe_recording(case).status
    assert {item.path: summary(item) for item in status} == STATUSES[case]


def test_times_and_restarts_of_recorded_objects():
    crash = observe_recording("crash-loop").status.processes[0]
    assert crash.restarts == 3
    assert crash.ended >= crash.started > AT
    assert observe_recording("job-retry").status.processes[0].restarts == 1
    assert observe_recording("job-onfail-restarts").status.processes[0].restarts == 1
    for case, delay_seconds in {"crash-loop": 40, "crash": 80, "job-retries": 10}.items():
        process = observe_recording(case).status.processes[0]
        assert process.next_start == process.ended + delay_seconds
        assert process.restart_number == (1 if case == "job-retries" else None)
    checkout = observe_recording("init-fails-again").status.processes[0]
    assert checkout.next_start > AT
    done = observe_recording("done").status
    assert done.created <= done.processes[0].started <= done.processes[0].ended
    never_started = observe_recording("no-command").status.processes[0]
    assert (never_started.started, never_started.restarts) == (None, 0)
    assert never_started.ended > AT


def test_readiness_of_recorded_objects():
    for case, ready in {"ready": True, "unready": False, "running": True, "done": False}.items():
        assert observe_recording(case).status.processes[0].ready == ready, case
    assert observe_recording("done").containers["done"].was_ready
    assert not observe_recording("no-command").containers["no-command"].was_ready


# --- objects of other versions, and of broken nodes ---


def stamp(offset: float) -> str:
    return datetime.fromtimestamp(AT + offset, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(status: Any = None, *, name: str = "p", meta: Any = None, **spec: Any) -> dict[str, Any]:
    """Return a Pod with one container, as the API returns it."""
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": stamp(0)}
    spec = {"restartPolicy": "Never", "nodeName": "node1", **spec}
    return {
        "metadata": {**metadata, "labels": {labels.UNIT: name}, **(meta or {})},
        "spec": {"containers": [{"name": name, "image": "rl:1"}], **spec},
        "status": status or {},
    }


def container(
    state: dict[str, Any],
    *,
    phase: str = "Running",
    last: tuple[str, str] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return the status of a Pod with one container.

    ``last`` contains the identifiers of its container, and of one that has exited with 3.
    """
    status = {"name": "p", "state": state, "ready": "running" in state, "restartCount": 0}
    if last is not None:
        exited = {"exitCode": 3, "startedAt": stamp(1), "finishedAt": stamp(2)}
        terminated = {**exited, "containerID": last[1]}
        status |= {"containerID": last[0], "lastState": {"terminated": terminated}}
    return {"phase": phase, "containerStatuses": [status], **more}


def running(*, since: float = 1, **more: Any) -> dict[str, Any]:
    return container({"running": {"startedAt": stamp(since)}}, **more)


def waiting(reason: str, text: str = "", *, phase: str = "Pending", **more: Any) -> dict[str, Any]:
    return container({"waiting": {"reason": reason, "message": text}}, phase=phase, **more)


def ended(
    exit_code: int, *, at: float = 2, why: str = "", text: str = "", phase: str = "", **more: Any
) -> dict[str, Any]:
    state = {"exitCode": exit_code, "reason": why, "message": text}
    times = {"startedAt": stamp(1), "finishedAt": stamp(at)}
    phase = phase or ("Failed" if exit_code else "Succeeded")
    return container({"terminated": {**state, **times}}, phase=phase, **more)


def condition(
    kind: str, status: str = "True", reason: str = "", message: str = "", at: float = 1
) -> dict[str, Any]:
    found = {"type": kind, "status": status, "reason": reason, "message": message}
    return {**found, "lastTransitionTime": stamp(at)}


DELETED = {"deletionTimestamp": stamp(5), "deletionGracePeriodSeconds": 2}
POD_GC = condition("DisruptionTarget", "True", "DeletionByPodGC", "PodGC: node no longer exists")
TAINTED = condition("DisruptionTarget", "True", "DeletionByTaintManager", "NoExecute taint")
PREEMPTED = condition("DisruptionTarget", "True", "PreemptionByScheduler", "higher priority pod")
SANDBOX = "PodReadyToStartContainers"
LOST = "The container could not be located when the pod was terminated"
NODE_GONE = lost("node node1 is gone")
LOW_MEMORY = {"reason": "Evicted", "message": "The node was low on resource: memory. P used 9Gi."}
PULL_FAILED = (
    'Back-off pulling image "rl:1": ErrImagePull: rpc error: code = NotFound desc = failed to pull '
    'and unpack image "docker.io/library/rl:1": docker.io/library/rl:1: not found'
)
PULL_DENIED = (
    'rpc error: code = Unknown desc = failed to resolve reference "x": pull access denied, '
    "repository does not exist or may require authorization: server message: "
    "insufficient_scope: authorization failed"
)
DOCKER_NOT_FOUND = (
    "OCI runtime create failed: container_linux.go:380: starting container process "
    'caused: exec: "nope": executable file not found in $PATH: unknown'
)
SIDECAR = {"name": "side", "started": True, "state": {"running": {"startedAt": stamp(0)}}}
RESTARTS_ON_FAILURE = [{"name": "p", "image": "rl:1", "restartPolicy": "OnFailure"}]

TESTED = [{"name": "p", "image": "rl:1", "livenessProbe": {"failureThreshold": 2}}]
STOPPED = {"text": f"own message{STOPPED_MESSAGE}\n"}
NOT_HEALTHY = "unhealthy, 2 tests in a row"
SHORTEST = {"activeDeadlineSeconds": 1}


def stopped_at(time: float) -> dict[str, Any]:
    """Return the metadata of a Pod that a user has requested to stop."""
    return {"annotations": {labels.CONTROL: encode(Control(stop=AT + time))}}


OTHER_PODS = {
    "unhealthy and exits with 0": (
        pod(ended(0, **STOPPED), containers=TESTED),
        failed(0, Code.UNHEALTHY, NOT_HEALTHY),
    ),
    "unhealthy with the default number of tests": (
        pod(ended(143, **STOPPED), containers=[{**TESTED[0], "livenessProbe": {}}]),
        failed(143, Code.UNHEALTHY, "unhealthy, 3 tests in a row"),
    ),
    "unhealthy before a restart": (
        pod(ended(0, phase="Running", **STOPPED), containers=TESTED, restartPolicy="OnFailure"),
        pending(Code.BACKING_OFF, NOT_HEALTHY, 0),
    ),
    "unhealthy in a Pod that has not finished": (
        pod(ended(143, phase="Running", **STOPPED), containers=TESTED),
        (RUNNING, None, Code.FINISHING, f"{NOT_HEALTHY}; its Pod has not finished yet"),
    ),
    "unhealthy before its deletion": (
        pod(ended(0, **STOPPED), containers=TESTED, meta=DELETED),
        failed(0, Code.UNHEALTHY, NOT_HEALTHY),
    ),
    "stopped by a deletion that is complete": (
        pod(
            ended(143, **STOPPED),
            containers=TESTED,
            meta={**DELETED, "deletionGracePeriodSeconds": 0},
        ),
        failed(143, Code.KILLED, "killed by SIGTERM"),
    ),
    "unhealthy before a request": (
        pod(ended(0, **STOPPED), containers=TESTED, meta=stopped_at(3), **SHORTEST),
        failed(0, Code.UNHEALTHY, NOT_HEALTHY),
    ),
    "stopped by a request": (
        pod(ended(143, **STOPPED), containers=TESTED, meta=stopped_at(1.5), **SHORTEST),
        failed(143, Code.STOPPED, "stopped"),
    ),
    "stopped without a test": (pod(ended(0, **STOPPED)), SUCCEEDS),
    "exits by itself with a test": (pod(ended(0, text="own"), containers=TESTED), SUCCEEDS),
    "evicted with a test": (
        pod(ended(143, **STOPPED, **LOW_MEMORY), containers=TESTED),
        failed(143, Code.EVICTED, "Evicted: The node was low on resource: memory. P used 9Gi"),
    ),
    "too late with a test": (
        pod(
            ended(143, at=4, reason="DeadlineExceeded", startTime=stamp(1), **STOPPED),
            containers=TESTED,
            activeDeadlineSeconds=3,
        ),
        failed(143, Code.DEADLINE_EXCEEDED, "DeadlineExceeded: ran longer than 3 s"),
    ),
    "too late in a Pod that has not finished": (
        pod(
            ended(143, at=4, phase="Running", startTime=stamp(1), **STOPPED),
            containers=TESTED,
            activeDeadlineSeconds=3,
        ),
        (RUNNING, None, Code.FINISHING, "killed by SIGTERM; its Pod has not finished yet"),
    ),
    "out of memory with a test": (
        pod(ended(137, why="OOMKilled", **STOPPED), containers=TESTED),
        failed(137, Code.OUT_OF_MEMORY, "OOMKilled"),
    ),
    "scheduling gate": (
        pod({"conditions": [condition("PodScheduled", "False", "SchedulingGated", "gated")]}),
        pending(Code.SCHEDULING, "SchedulingGated: gated"),
    ),
    "sandbox without image": (
        pod(waiting("ContainerCreating", conditions=[condition(SANDBOX)])),
        pending(Code.PULLING_IMAGE, "pulling image rl:1"),
    ),
    "no sandbox": (
        pod(waiting("ContainerCreating", conditions=[condition(SANDBOX, "False")])),
        CREATING,
    ),
    "back-off with its cause (1.32)": (
        pod(waiting("ImagePullBackOff", PULL_FAILED)),
        no_image("ImagePullBackOff: rl:1: not found"),
    ),
    "image pull denied": (
        pod(waiting("ErrImagePull", PULL_DENIED)),
        no_image("ErrImagePull: rl:1: authorization failed"),
    ),
    "docker cannot run the command": (
        pod(ended(127, why="ContainerCannotRun")),
        failed(None, Code.CANNOT_START, "cannot start"),
    ),
    "docker does not find the command": (
        pod(ended(127, why="ContainerCannotRun", text=DOCKER_NOT_FOUND)),
        failed(None, Code.CANNOT_START, f"cannot start 'nope': {NOT_FOUND}"),
    ),
    "signal number": (
        pod(container({"terminated": {"exitCode": 0, "signal": 15}}, phase="Failed")),
        failed(143, Code.KILLED, "killed by SIGTERM"),
    ),
    "out of memory without a limit": (
        pod(ended(137, why="OOMKilled")),
        failed(137, Code.OUT_OF_MEMORY, "OOMKilled"),
    ),
    "evicted with an exit code": (
        pod(ended(137, **LOW_MEMORY)),
        failed(137, Code.EVICTED, "Evicted: The node was low on resource: memory. P used 9Gi"),
    ),
    "evicted after a failure": (pod(ended(5, **LOW_MEMORY)), failed(5, Code.EXITED)),
    "evicted after success": (pod(ended(0, phase="Failed", **LOW_MEMORY)), SUCCEEDS),
    "evicted with a lost container": (
        pod(ended(137, why="ContainerStatusUnknown", reason="Evicted", message="low on memory")),
        failed(None, Code.EVICTED, "Evicted: low on memory"),
    ),
    "evicted while its container waits for a restart": (
        pod(
            container(
                {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}},
                phase="Failed",
                reason="Evicted",
                message="low on memory",
                last=("id-1", "id-1"),
            )
        ),
        failed(3, Code.EVICTED, "Evicted: low on memory"),
    ),
    "evicted while its restarted container runs": (
        pod(
            container(
                {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown"}},
                phase="Failed",
                reason="Evicted",
                message="low on memory",
                last=("id-2", "id-1"),
            )
        ),
        failed(None, Code.EVICTED, "Evicted: low on memory"),
    ),
    "lost container": (
        pod(ended(137, why="ContainerStatusUnknown", text=LOST)),
        lost("the container could not be located when the pod was terminated"),
    ),
    "deleted node": (pod(running(phase="Failed", conditions=[POD_GC])), NODE_GONE),
    "lost container on a deleted node": (
        pod(ended(137, why="ContainerStatusUnknown", conditions=[POD_GC | {"status": "False"}])),
        NODE_GONE,
    ),
    "deleted node before 1.26": (pod(running(reason="NodeLost")), NODE_GONE),
    "silent node": (
        pod(running(conditions=[condition("Ready", "False"), condition("ContainersReady")])),
        (RUNNING, None, None, "node node1 does not respond"),
    ),
    "node silent for long": (
        pod(running(conditions=[TAINTED]), meta={**DELETED, "deletionTimestamp": stamp(-100)}),
        NODE_GONE,
    ),
    "unknown phase": (pod(running(phase="Unknown")), NODE_GONE),
    "preempted by the scheduler": (
        pod(ended(143, conditions=[PREEMPTED])),
        failed(143, Code.EVICTED, "PreemptionByScheduler: higher priority pod"),
    ),
    "preempted by a kubelet": (
        pod({"phase": "Failed", "reason": "Preempting", "message": "Preempted"}),
        failed(None, Code.EVICTED, "Preempting: Preempted"),
    ),
    "refused by a kubelet": (
        pod(
            {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed."}
        ),
        failed(None, Code.UNSCHEDULABLE, "UnexpectedAdmissionError: Allocate failed"),
    ),
    "node shutdown": (
        pod(ended(143, reason="Terminated", message="imminent node shutdown.")),
        failed(143, Code.EVICTED, "Terminated: imminent node shutdown"),
    ),
    "running sidecar": (
        pod(
            {**running(), "initContainerStatuses": [SIDECAR]},
            initContainers=[{"name": "side", "restartPolicy": "Always"}],
        ),
        RUNS,
    ),
    "restart policy of the container (1.34)": (
        pod(ended(3, phase="Running"), containers=RESTARTS_ON_FAILURE),
        pending(Code.BACKING_OFF, "exit code 3", 3),
    ),
    "restart after success": (
        pod(ended(0, phase="Running"), restartPolicy="Always"),
        pending(Code.BACKING_OFF, "exit code 0", 0),
    ),
    "long back-off": (
        pod(waiting("CrashLoopBackOff", "back-off 5m0s restarting failed container=p")),
        pending(Code.BACKING_OFF, "CrashLoopBackOff, exit code unknown"),
    ),
    "no status": (pod(nodeName=""), pending(Code.SCHEDULING, "being scheduled")),
    "succeeded without container status": (pod({"phase": "Succeeded"}), SUCCEEDS),
    "failed before its containers started": (
        pod(waiting("ContainerCreating", phase="Failed")),
        failed(None, Code.NEVER_STARTED, "never started: its Pod failed"),
    ),
}


@pytest.mark.parametrize("case", OTHER_PODS)
def test_status_of_other_pods(case):
    body, expected = OTHER_PODS[case]
    found = observe("e", [body], now=AT + 10).status.processes[0]
    assert summary(found) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "0/3 nodes are available: 1 node(s) had untolerated taint {a/control-plane: }, "
            "2 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available: 1 Preemption is "
            "not helpful for scheduling, 2 No preemption victims found for incoming pod.",
            "0/3 nodes fit: 2 insufficient nvidia.com/gpu, 1 with taint a/control-plane",
        ),
        (
            "0/2 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't match "
            "Pod's node affinity/selector. no new claims to deallocate, preemption: 0/2 nodes are "
            "available: 2 Preemption is not helpful for scheduling.",
            "0/2 nodes fit: 1 had untolerated taint(s), 2 not matching the node selector",
        ),
        (
            "0/5 nodes are available: 1 node(s) were unschedulable, 4 node(s) "
            "didn't match node selector",
            "0/5 nodes fit: 1 were unschedulable, 4 not matching the node selector",
        ),
        (
            '0/3 nodes are available: persistentvolumeclaim "nope" not found. preemption: 0/3',
            '0/3 nodes fit: persistentvolumeclaim "nope" not found',
        ),
        ("no nodes available to schedule pods", "no nodes available to schedule pods"),
    ],
)
def test_unschedulable_names_the_causes(message, expected):
    assert reasons.unschedulable(message) == f"Unschedulable: {expected}"


def test_long_message_is_shortened():
    assert len(reasons.unschedulable("0/9 nodes are available: " + "1 x y z, " * 200)) < 250


# --- readiness over time ---


PROBED = [{"name": "p", "image": "rl:1", "readinessProbe": {"tcpSocket": {"port": 1}}}]
READY = pod(running(), containers=PROBED)
UNREADY = pod(running(), containers=PROBED)
UNREADY["status"]["containerStatuses"][0]["ready"] = False
READY_IN_30_S = (Unit(name="p", processes=("p",), ready={"p": 30.0}),)


def test_readiness_timeout():
    early = observe("e", [UNREADY], now=AT + 20, roster=READY_IN_30_S)
    assert not early.containers["p"].never_ready
    assert summary(early.status.processes[0]) == RUNS
    assert early.valid_until == AT + 31
    late = observe("e", [UNREADY], now=AT + 31, roster=READY_IN_30_S)
    assert late.containers["p"].never_ready
    process = late.status.processes[0]
    assert summary(process) == (RUNNING, None, Code.NOT_READY, "not ready within 30 s")
    assert process.not_ready_in_time


def test_process_that_becomes_ready_too_late_is_ready():
    observer = ExperimentState("e", roster=READY_IN_30_S)
    observer.replace(PODS, [UNREADY])
    assert observer.observe(AT + 31).status.processes[0].not_ready_in_time
    observer.apply(PODS, "MODIFIED", READY)
    process = observer.observe(AT + 40).status.processes[0]
    assert (process.ready, process.not_ready_in_time, process.reason) == (True, False, "")
    observer.apply(PODS, "MODIFIED", UNREADY)
    container = observer.observe(AT + 500).containers["p"]
    assert (container.ready, container.was_ready, container.never_ready) == (False, True, False)
    assert container.reason == ""
    observer.apply(PODS, "MODIFIED", pod(ended(0), containers=PROBED))
    assert observer.observe(AT + 501).containers["p"].was_ready


def test_process_that_has_exited_is_not_late():
    observer = ExperimentState("e", roster=READY_IN_30_S)
    observer.replace(PODS, [UNREADY])
    assert observer.observe(AT + 31).status.processes[0].not_ready_in_time
    observer.apply(PODS, "MODIFIED", pod(ended(3), containers=PROBED))
    process = observer.observe(AT + 60).status.processes[0]
    assert (process.state, process.not_ready_in_time) == (FAILED, False)


@pytest.mark.parametrize(
    ("changed", "was_ready"),
    # The process started at 1. The kubelet creates the condition before that.
    [(0, False), (1, False), (2, True)],
)
def test_the_pod_of_a_process_that_has_exited_shows_whether_it_was_ready(changed, was_ready):
    """A program that has just been started has not observed the process while it was ready."""
    unready = condition("ContainersReady", "False", "PodFailed", at=changed)
    server = pod(ended(1, conditions=[unready]), containers=PROBED)
    roster = (*READY_IN_30_S, Unit(name="q", processes=("q",), starts_after={"p": "ready"}))
    found = observe("e", [server], now=AT + 5, roster=roster)
    assert found.containers["p"].was_ready is was_ready
    client = found.containers["q"]
    assert client.reason == ("" if was_ready else "never started: p failed")


READY_BY_LOG = (
    Unit(name="p", processes=("p",), ready={"p": 30.0}, logs={"p": "^up"}),
    Unit(name="q", processes=("q",), starts_after={"p": "ready"}),
)


def test_readiness_by_log_is_an_annotation():
    before = observe("e", [pod(running())], now=AT + 5, roster=READY_BY_LOG)
    assert not before.containers["p"].ready
    assert before.containers["q"].reason == "waiting for p to be ready"
    annotated = pod(running(), meta={"annotations": {labels.READY: "x,p"}})
    after = observe("e", [annotated], now=AT + 5, roster=READY_BY_LOG)
    assert after.containers["p"].ready
    assert after.containers["q"].reason == ""


def test_process_with_a_log_test_is_never_ready_by_its_start_alone():
    found = observe("e", [pod(running())], now=AT + 5, roster=READY_BY_LOG[:1])
    assert not found.containers["p"].ready


def test_readiness_by_log_is_that_of_the_latest_execution_of_a_container():
    ready = {}
    for value in ("p", "p:1", "p:2"):
        item = pod(running(), meta={"annotations": {labels.READY: value}})
        item["status"]["containerStatuses"][0]["restartCount"] = 2
        found = observe("e", [item], now=AT + 5, roster=READY_BY_LOG)
        ready[value] = found.containers["p"].ready
    assert ready == {"p": False, "p:1": False, "p:2": True}


def test_logs_with_the_same_problem_are_named_together():
    names = tuple("pqrst")
    roster = tuple(Unit(name=name, processes=(name,), logs={name: "up"}) for name in names)
    pods = []
    for name in names:
        problem = json.dumps({name: "its lines are long"})
        annotations = {labels.LOG_PROBLEMS: problem}
        body = pod(running(), name=name, meta={"annotations": annotations})
        body["status"]["containerStatuses"][0]["name"] = name
        pods.append(body)
    note = observe("e", pods, now=AT + 5, roster=roster).status.note
    assert note == "p, q, r and 2 more: its lines are long"


def test_readiness_that_cannot_be_recorded_is_noted():
    observer = ExperimentState("e", roster=READY_BY_LOG)
    observer.replace(PODS, [pod(running())])
    uid = pod(running())["metadata"]["uid"]
    observer.objects.note_ready("p", uid, "p", 1, now=AT + 4)
    assert not observer.observe(AT + 5).containers["p"].ready
    observer.objects.note_ready("p", uid, "p", 0, now=AT + 4)
    assert observer.observe(AT + 5).containers["p"].ready_since == AT + 4
    observer.apply(PODS, "MODIFIED", pod(running(), meta={"labels": {"x": "y"}}))
    assert observer.observe(AT + 6).containers["p"].ready


# --- the start order ---


def describe(pods: list[dict[str, Any]], roster: Any, now: float) -> dict[str, Any]:
    """Return the status without a given roster: it is an annotation of the first Pod."""
    pods[0]["metadata"]["annotations"] = {labels.ROSTER: encode_roster(roster)}
    return {item.path: summary(item) for item in observe("e", pods, now=AT + now).status}


def waits(reason: str) -> tuple[Any, ...]:
    return pending(Code.WAITING, f"waiting for {reason}")


def never(reason: str) -> tuple[Any, ...]:
    return failed(None, Code.NEVER_STARTED, f"never started: {reason}")


NOT_CREATED = (PENDING, None, None, "")
NO_POD = "its Pod does not exist: it was deleted, or the launcher exited too early"
ORDER = (
    Unit(name="p", processes=("p",)),
    Unit(name="team", group=True, processes=("a", "b"), starts_after={"p": "succeeded"}),
    Unit(name="last", processes=("last",), starts_after={"a": "started", "p": "started"}),
)


def test_missing_processes_wait_in_start_order():
    assert describe([pod(running())], ORDER, 10) == {
        "p": RUNS,
        "team/a": waits("p to succeed"),
        "team/b": waits("p to succeed"),
        "last": waits("a to start"),
    }


def test_processes_that_can_never_start_have_failed():
    assert describe([pod(ended(5))], ORDER, 10) == {
        "p": failed(5, Code.EXITED),
        "team/a": never("p failed"),
        "team/b": never("p failed"),
        "last": never("a failed (never started: p failed)"),
    }


def test_supervisor_that_creates_nothing_is_not_running():
    done = pod(ended(0, at=20))
    assert describe([done], ORDER, 79)["team/a"] == NOT_CREATED
    later = describe([done], ORDER, 80)
    why = "never started: the supervisor of the experiment is not running"
    assert later["team/a"] == (UNKNOWN, None, Code.NEVER_STARTED, why)
    assert later["last"] == never("a exited")


def test_launcher_that_created_a_pod_recently_is_running():
    first, second = pod(running()), pod(running(), name="q")
    second["metadata"]["creationTimestamp"] = stamp(50)
    roster = tuple(Unit(name=name, processes=(name,)) for name in "pqr")
    assert describe([first, second], roster, 100)["r"] == NOT_CREATED
    assert describe([first, second], roster, 111)["r"] == lost(NO_POD)


def test_supervisor_waits_without_limit():
    found = observe("e", [], now=AT, roster=ORDER)
    assert [item.state for item in found.status] == [PENDING] * 4
    assert found.valid_until is None
    assert found.empty


def test_long_chain_of_processes():
    chain = ["p", *(f"u{index}" for index in range(3000))]
    units = [
        Unit(name=name, processes=(name,), starts_after={before: "succeeded"})
        for before, name in pairwise(chain)
    ]
    # The roster is in the opposite order of the chain.
    roster = (Unit(name="p", processes=("p",)), *reversed(units))
    found = observe("e", [pod(ended(1))], now=AT, roster=roster)
    assert all(item.state is FAILED for item in found.status)
    assert max(len(item.reason) for item in found.status) < 400


@pytest.mark.parametrize("text", ["", "nonsense", encode_roster(())[:-4]])
def test_pods_without_a_valid_roster(text):
    team = pod(
        {"phase": "Running"},
        name="team",
        containers=[{"name": "a", "image": "i"}, {"name": "b", "image": "i"}],
        meta={"annotations": {labels.ROSTER: text}},
    )
    status = observe("e", [team, pod(running())], now=AT + 9).status
    assert [item.path for item in status] == ["p", "team/a", "team/b"]


# --- deletions ---


@pytest.mark.parametrize(
    ("is_changing", "seconds", "expected"),
    [
        (False, 1, lost("its Pod was deleted")),
        (True, 59, NOT_CREATED),
        (
            True,
            61,
            lost("its Pod does not exist: it was deleted, or the launcher exited too early"),
        ),
    ],
    ids=["launch-complete", "launching", "launch-interrupted"],
)
def test_stored_roster_replaces_that_of_the_first_pod(is_changing, seconds, expected):
    later = Unit(name="q", processes=("q",), starts_after={"p": "succeeded"})
    units = (Unit(name="p", processes=("p",)), later)
    record = EncodedRecord(roster=encode_roster(units))
    stored = StoredRecord(record=record, created=AT, is_changing=is_changing)
    observer = ExperimentState("e")
    assert observer.needs_stored_record
    observer.record.use_stored(stored)
    found = {item.path: summary(item) for item in observer.observe(AT + seconds).status}
    assert found["p"] == expected
    assert found["q"][2] is (Code.WAITING if expected is NOT_CREATED else Code.NEVER_STARTED)


@pytest.mark.parametrize(
    ("replaced", "seconds", "expected"),
    [
        # The supervisor can create them again. If it does not, they are lost.
        (True, 1, pending(Code.DISRUPTED, "lost: its Pod was deleted")),
        (True, 61, lost(NO_POD)),
        (False, 1, lost("its Pod was deleted")),
    ],
)
def test_ranks_whose_pods_were_all_deleted(replaced, seconds, expected):
    ranks = tuple(
        Unit(name=f"r-{rank}", processes=(f"r-{rank}",), rank_of="r", replaced_if_lost=replaced)
        for rank in (0, 1)
    )
    record = EncodedRecord(roster=encode_roster(ranks))
    observer = ExperimentState("e")
    observer.record.use_stored(StoredRecord(record=record, created=AT, is_changing=False))
    status = observer.observe(AT + seconds).status
    assert [summary(item) for item in status] == [expected, expected]


def test_roster_of_a_change_is_newer_than_the_stored_one():
    stored = StoredRecord(
        record=EncodedRecord(roster=encode_roster((Unit(name="q", processes=("q",)),)))
    )
    newer = with_revision(encode_roster((Unit(name="p", processes=("p",)),)), 2)
    observer = ExperimentState("e")
    observer.record.use_stored(stored)
    assert [unit.name for unit in observer.units] == ["q"]
    body = pod(running())
    body["metadata"]["annotations"] = {labels.ROSTER: newer}
    observer.replace(PODS, [body])
    assert [unit.name for unit in observer.units] == ["p"]


def test_process_of_a_deleted_pod_is_unknown():
    observer = ExperimentState("e")
    observer.replace(PODS, [pod(running())])
    observer.apply(PODS, "MODIFIED", pod(running(), meta=DELETED))
    process = observer.observe(AT + 4).status.processes[0]
    assert summary(process) == DELETING
    assert not process.ready
    # An exit because of the deletion is not the result of the process.
    observer.apply(PODS, "MODIFIED", pod(ended(0, at=4), meta=DELETED))
    assert observer.observe(AT + 4).status.processes[0].state is RUNNING
    observer.apply(PODS, "DELETED", pod(ended(0, at=4), meta=DELETED))
    found = observer.observe(AT + 5)
    assert summary(found.status.processes[0]) == lost("its Pod was deleted")
    assert (found.deleted_units, found.empty) == ({"p"}, True)


@pytest.mark.parametrize("listed", [True, False], ids=["list", "event"])
def test_result_before_the_deletion_is_kept(listed):
    observer = ExperimentState("e")
    observer.replace(PODS, [pod(ended(3)), pod(running(), name="q")])
    observer.observe(AT + 4)
    if listed:
        observer.replace(PODS, [pod(running(), name="q")])
    else:
        observer.apply(PODS, "MODIFIED", pod(ended(3), meta=DELETED))
        observer.apply(PODS, "DELETED", pod(ended(3), meta=DELETED))
    process = observer.observe(AT + 5).status.processes[0]
    assert (process.name, process.state, process.exit_code) == ("p", FAILED, 3)


def test_note_if_all_pods_are_being_deleted():
    deleted = pod(running(), meta=DELETED)
    assert observe("e", [deleted], now=AT + 4).status.note == "is being deleted"
    assert observe("e", [deleted, pod(running(), name="q")], now=AT + 4).status.note == ""


def test_grace_period_of_a_failed_pod():
    case = recorded("pod-deadline-dying")
    metadata = case["pods"][0]["metadata"]
    times = [word for word in json.dumps(case).split('"') if parse_time(word)]
    metadata["managedFields"] = [{"time": max(times)}]
    found = observe("rec", case["pods"], now=one_second_later(case))
    reason = "DeadlineExceeded: ran longer than 3 s"
    assert summary(found.status.processes[0]) == (RUNNING, None, Code.DEADLINE_EXCEEDED, reason)
    assert found.valid_until is not None
    later = observe("rec", case["pods"], now=found.valid_until).status.processes[0]
    assert (later.state, later.exit_code) == (FAILED, None)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (9, (State.SUCCEEDED, 0, None, "")),
        (10, (FAILED, 0, Code.DEADLINE_EXCEEDED, "deadline exceeded")),
    ],
)
def test_a_process_that_exits_with_0_at_the_deadline_has_failed(at, expected):
    status = {**ended(0, at=at, phase="Failed"), "reason": "DeadlineExceeded"}
    meta = {"annotations": {labels.DEADLINE: "10"}}
    stopped = pod({**status, "startTime": stamp(0)}, meta=meta, activeDeadlineSeconds=10)
    found = observe("e", [stopped], now=AT + 20)
    assert summary(found.status.processes[0]) == expected


def test_a_process_that_waits_for_one_stopped_at_the_deadline_has_missed_it_too():
    status = {**ended(143, at=10), "reason": "DeadlineExceeded", "startTime": stamp(0)}
    meta = {"annotations": {labels.DEADLINE: "10"}}
    stopped = pod(status, meta=meta, activeDeadlineSeconds=10)
    roster = (
        Unit(name="p", processes=("p",)),
        Unit(name="q", processes=("q",), starts_after={"p": "succeeded"}),
    )
    found = observe("e", [stopped], now=AT + 20, roster=roster)
    late = failed(None, Code.DEADLINE_EXCEEDED, "deadline exceeded")
    assert summary(found.status.processes[1]) == late


# --- Jobs ---


def job(*conditions: dict[str, Any], limit: int = 0, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "p",
            "uid": "j",
            "creationTimestamp": stamp(0),
            "labels": {labels.UNIT: "p"},
        },
        "spec": {
            "backoffLimit": limit,
            "template": {"spec": {"containers": [{"name": "p"}]}},
            **spec,
        },
        "status": {"conditions": list(conditions)},
    }


OWNED = {"ownerReferences": [{"kind": "Job", "name": "p", "uid": "j"}]}
RETRIES_EXHAUSTED = condition("Failed", "True", "BackoffLimitExceeded", "backoff limit", at=9)
TOO_LONG = condition("Failed", "True", "DeadlineExceeded", "Job was active too long", at=5)


@pytest.mark.parametrize(
    ("body", "after", "expected"),
    [
        (
            job(TOO_LONG),
            5,
            failed(None, Code.DEADLINE_EXCEEDED, "DeadlineExceeded: Job was active too long"),
        ),
        (
            job(TOO_LONG | {"type": "FailureTarget"}),
            5,
            (
                RUNNING,
                None,
                Code.DEADLINE_EXCEEDED,
                "DeadlineExceeded: Job was active too long",
            ),
        ),
        (
            job(condition("SuccessCriteriaMet", at=7)),
            9,
            (RUNNING, None, Code.FINISHING, "exited; its Job has not finished yet"),
        ),
        (job(condition("Complete", at=7)), 9, SUCCEEDS),
        (job(), 5, NOT_CREATED),
        (job(suspend=True), 5, pending(Code.SCHEDULING, "its Job is suspended")),
        (
            job(),
            10,
            pending(
                Code.NOT_PERMITTED,
                "its Job has made no Pod: 'kubectl describe job p' shows why (a quota?)",
            ),
        ),
    ],
)
def test_job_without_a_pod(body, after, expected):
    process = observe("e", [], [body], now=AT + after).status.processes[0]
    assert summary(process) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (job(limit=1), pending(Code.BACKING_OFF, NOT_HEALTHY, 143)),
        (
            job(RETRIES_EXHAUSTED, limit=1),
            failed(143, Code.UNHEALTHY, f"BackoffLimitExceeded (at last: {NOT_HEALTHY})"),
        ),
    ],
)
def test_unhealthy_process_of_a_job(body, expected):
    failures = {"status": {**body["status"], "failed": 1}}
    unhealthy = pod(ended(143, **STOPPED), containers=TESTED, meta=OWNED)
    (process,) = observe("e", [unhealthy], [{**body, **failures}], now=AT + 10).status
    assert summary(process) == expected


def test_job_counts_an_unhealthy_process_as_successful():
    unhealthy = pod(ended(0, **STOPPED), containers=TESTED, meta=OWNED)
    (process,) = observe("e", [unhealthy], [job(condition("Complete", at=7))], now=AT + 10).status
    assert summary(process) == failed(0, Code.UNHEALTHY, NOT_HEALTHY)


@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize(
    ("jobs", "exit_code", "expected"),
    [
        ([], 0, SUCCEEDS),
        ([], 3, failed(3, Code.EXITED)),
        ([job()], 0, SUCCEEDS),
        ([job()], 3, failed(3, Code.EXITED)),
        (
            [job(limit=1)],
            3,
            (RUNNING, None, Code.FINISHING, "exited with 3; its Job has not finished yet"),
        ),
    ],
)
def test_process_has_a_result_while_a_container_runs_that_a_webhook_has_added(
    jobs, exit_code, expected, is_first
):
    """Its Pod, and the Job of its Pod, may never finish."""
    body = pod(ended(exit_code, phase="Running"), meta=OWNED if jobs else None)
    added = {**running()["containerStatuses"][0], "name": "proxy"}
    position = 0 if is_first else 1
    body["spec"]["containers"].insert(position, {"name": "proxy", "image": "proxy:1"})
    body["status"]["containerStatuses"].insert(position, added)
    roster = (Unit(name="p", processes=("p",), job=bool(jobs)),)
    (process,) = observe("e", [body], jobs, now=AT + 5, roster=roster).status
    assert summary(process) == expected


@pytest.mark.parametrize(
    ("restarts", "ran_seconds", "delay"),
    [(0, 1, 0), (1, 1, 10), (2, 1, 20), (3, 599, 40), (6, 1, 300), (2000, 1, 300), (4, 600, 0)],
)
def test_the_delay_of_a_restart_is_that_of_a_kubelet(restarts, ran_seconds, delay):
    """A kubelet can report `terminated` during the whole delay."""
    body = pod(ended(3, at=1 + ran_seconds, phase="Running"), restartPolicy="OnFailure")
    body["status"]["containerStatuses"][0]["restartCount"] = restarts
    (process,) = observe("e", [body], now=AT + ran_seconds + 2).status
    assert process.state is PENDING
    assert process.next_start == process.ended + delay


def test_a_request_does_not_change_when_a_process_has_ended():
    body = pod(container({"terminated": {"exitCode": 3}}, phase="Failed"))
    written = {"manager": "kubelet", "subresource": "status", "time": stamp(2)}
    body["metadata"]["managedFields"] = [written]
    (before,) = observe("e", [body], now=AT + 9).status
    body["metadata"]["managedFields"] = [{"manager": "python", "time": stamp(5)}, written]
    (after,) = observe("e", [body], now=AT + 9).status
    assert before.ended == after.ended == AT + 2


def test_exit_code_of_a_job_whose_pod_was_deleted():
    crashed = waiting("CrashLoopBackOff", "back-off 10s restarting failed", phase="Running")
    crashed["containerStatuses"][0] |= {
        "restartCount": 2,
        "lastState": {"terminated": {"exitCode": 3, "startedAt": stamp(1), "finishedAt": stamp(2)}},
    }
    body = pod(crashed, restartPolicy="OnFailure", meta=OWNED)
    observer = ExperimentState("e")
    observer.replace(PODS, [body])
    observer.replace(JOBS, [job(limit=2)])
    assert observer.observe(AT + 3).status.processes[0].state is PENDING
    observer.apply(PODS, "DELETED", body)
    assert observer.observe(AT + 3).status.processes[0].state is PENDING
    observer.apply(JOBS, "MODIFIED", job(RETRIES_EXHAUSTED, limit=2))
    process = observer.observe(AT + 10).status.processes[0]
    assert summary(process) == failed(3, Code.EXITED, "BackoffLimitExceeded")
    assert process.restarts == 2


@pytest.mark.parametrize("first", ["running", "creating"])
def test_grace_period_of_a_failed_job(first):
    """A kubelet may still start a container of a failed Job. Its state never goes back."""
    status = running() if first == "running" else waiting("ContainerCreating")
    observer = ExperimentState("e")
    observer.replace(PODS, [pod(status, meta=OWNED, terminationGracePeriodSeconds=2)])
    observer.replace(JOBS, [job(TOO_LONG)])
    found = observer.observe(AT + 5)
    assert found.valid_until == AT + 37
    processes = [found.status.processes[0]]
    for event, status in (
        ("MODIFIED", running(since=1)),
        ("MODIFIED", ended(143, at=6)),
        ("DELETED", ended(143, at=6)),
    ):
        observer.apply(PODS, event, pod(status, meta={**OWNED, **DELETED}))
        processes.append(observer.observe(AT + 7).status.processes[0])
    states = [process.state for process in processes]
    assert states[0] is (RUNNING if first == "running" else PENDING)
    assert states == sorted(states, key=[PENDING, RUNNING, FAILED].index)
    reason = "DeadlineExceeded: Job was active too long"
    assert summary(processes[-1]) == failed(143, Code.DEADLINE_EXCEEDED, reason)


@pytest.mark.parametrize(("at", "expected"), [(4, "OOMKilled"), (6, "DeadlineExceeded")])
def test_failure_after_the_job_failed_is_caused_by_the_job(at, expected):
    body = pod(ended(137, at=at, why="OOMKilled"), meta=OWNED)
    process = observe("e", [body], [job(TOO_LONG)], now=AT + 9).status.processes[0]
    assert (process.state, process.exit_code) == (FAILED, 137)
    assert process.reason.startswith(expected)


def test_next_pod_of_a_job_replaces_the_first():
    first = pod(ended(3), meta=OWNED)
    meta = {**OWNED, "name": "p-2", "uid": "2", "creationTimestamp": stamp(15)}
    second = pod(running(since=20), meta=meta)
    process = observe("e", [second, first], [job(limit=1)], now=AT + 30).status.processes[0]
    assert (process.state, process.restarts, process.started) == (RUNNING, 1, AT + 20)


def pod_of_job(name: str, status: Any, *, created: float = 0, **meta: Any) -> dict[str, Any]:
    names = {"name": f"p-{name}", "uid": name, "creationTimestamp": stamp(created)}
    return pod(status, meta={**OWNED, **names, **meta})


@pytest.mark.parametrize(
    ("status", "failures"),
    [
        ({"failed": 2}, 2),
        ({"failed": 2, "uncountedTerminatedPods": {"failed": ["b", "c"]}}, 4),
        ({"uncountedTerminatedPods": {"failed": ["c"]}}, 1),
    ],
)
def test_failures_that_a_job_has_not_counted_yet(status, failures):
    body = job(RETRIES_EXHAUSTED, limit=failures - 1)
    body["status"].update(status)
    process = observe("e", [], [body], now=AT + 30).status.processes[0]
    times = f": failed {failures} times" if failures > 1 else ""
    assert process.reason == f"BackoffLimitExceeded{times}"
    assert process.restarts == failures - 1


def test_a_pod_of_a_job_that_a_user_deletes_is_an_attempt():
    body = job(limit=2)
    body["status"] = {"failed": 1, "terminating": 1}
    observer = ExperimentState("e")
    observer.replace(PODS, [pod_of_job("a", running())])
    observer.replace(JOBS, [body])
    observer.apply(PODS, "MODIFIED", pod_of_job("a", running(), **DELETED))
    process = observer.observe(AT + 6).status.processes[0]
    assert (process.state, process.restarts) == (RUNNING, 0)
    observer.apply(PODS, "DELETED", pod_of_job("a", ended(143, at=6), **DELETED))
    process = observer.observe(AT + 7).status.processes[0]
    assert (process.state, process.reason_code) == (PENDING, Code.BACKING_OFF)
    assert (process.restarts, process.restart_number, process.max_restarts) == (0, 1, 2)
    observer.apply(PODS, "ADDED", pod_of_job("b", running(since=9), created=8))
    process = observer.observe(AT + 10).status.processes[0]
    assert (process.state, process.restarts) == (RUNNING, 1)


def test_an_indexed_job_runs_while_any_of_its_pods_does():
    indexed = {"completionMode": "Indexed", "completions": 2, "parallelism": 2}
    pods = [pod_of_job("a", running()), pod_of_job("b", ended(0))]
    observer = ExperimentState("e")
    observer.replace(PODS, pods)
    observer.replace(JOBS, [job(limit=1, **indexed)])
    assert summary(observer.observe(AT + 3).status.processes[0]) == RUNS
    observer.apply(PODS, "MODIFIED", pod_of_job("a", ended(0, at=4)))
    state = observer.observe(AT + 5).status.processes[0]
    assert summary(state) == (
        RUNNING,
        None,
        Code.FINISHING,
        "exited with 0; its Job has not finished yet",
    )
    observer.apply(JOBS, "MODIFIED", job(condition("Complete", at=5), limit=1, **indexed))
    assert summary(observer.observe(AT + 6).status.processes[0]) == SUCCEEDS


def test_the_deletion_of_an_earlier_object_of_the_same_name_is_ignored():
    observer = ExperimentState("e")
    observer.apply(PODS, "ADDED", pod(running(), meta={"uid": "new"}))
    observer.apply(PODS, "DELETED", pod(running(), meta={"uid": "old"}))
    assert summary(observer.observe(AT + 3).status.processes[0]) == RUNS
    later = job()
    later["metadata"]["uid"] = "new"
    observer.apply(JOBS, "ADDED", later)
    observer.apply(JOBS, "DELETED", job())
    assert observer.objects.jobs_of("p")


STOPPED_BY_DEADLINE = {"reason": "DeadlineExceeded", "startTime": stamp(0)}
EVICTED_BY_NODE = condition("DisruptionTarget", "True", "TerminationByKubelet", "memory", at=6)


@pytest.mark.parametrize(
    ("status", "deadline", "expected"),
    [
        (
            ended(0, at=6, phase="Failed", **STOPPED_BY_DEADLINE),
            5,
            failed(0, Code.DEADLINE_EXCEEDED, "DeadlineExceeded: ran longer than 5 s"),
        ),
        (ended(0, at=4, phase="Failed", **STOPPED_BY_DEADLINE), 5, SUCCEEDS),
        # The shortest deadline is that of a Pod that a user stops.
        (ended(0, at=6, phase="Failed", **STOPPED_BY_DEADLINE), 1, SUCCEEDS),
        (
            ended(0, at=6, phase="Failed", conditions=[EVICTED_BY_NODE], **LOW_MEMORY),
            None,
            failed(
                0,
                Code.EVICTED,
                "Evicted: The node was low on resource: memory. P used 9Gi",
            ),
        ),
        (
            ended(0, at=6, phase="Running", startTime=stamp(0)),
            5,
            (RUNNING, None, Code.FINISHING, "exited with 0; its Pod has not finished yet"),
        ),
    ],
)
def test_a_process_that_exits_with_0_because_its_pod_is_stopped_has_failed(
    status, deadline, expected
):
    spec = {} if deadline is None else {"activeDeadlineSeconds": deadline}
    process = observe("e", [pod(status, **spec)], now=AT + 9).status.processes[0]
    assert summary(process) == expected


def test_status_of_a_job_that_the_user_may_not_read():
    process = observe("e", [pod(ended(3), meta=OWNED)], now=AT + 30).status.processes[0]
    assert (process.state, process.exit_code) == (FAILED, 3)


# --- the cost of many events ---


def test_only_changed_processes_are_computed_again():
    observer = ExperimentState("e")
    observer.replace(PODS, [pod(running(), name=f"p{index}") for index in range(50)])
    before = observer.observe(AT + 5)
    observer.apply(PODS, "MODIFIED", pod(ended(0), name="p7"))
    after = observer.observe(AT + 6)
    pairs = zip(after.status, before.status, strict=True)
    assert [new.name for new, old in pairs if new is not old] == ["p7"]
    assert not after.is_same_as(before)
    assert replace(after, valid_until=1.0).is_same_as(after)
