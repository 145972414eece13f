"""What is told of Pods and Jobs: recorded ones of Kubernetes 1.20.2, and those of newer versions by their source.

``recorded/`` has the objects as the API listed them, without the fields that nothing here reads.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from symphony.status import State
from symphony_kube.api import labels
from symphony_kube.render.roster import Unit, encode
from symphony_kube.status import reasons
from symphony_kube.status.observe import JOBS, PODS, PodObserver, observe
from symphony_kube.status.pod_status import parse_time

RECORDED = Path(__file__).parent / "recorded"
PENDING, RUNNING, SUCCEEDED, FAILED, UNKNOWN = State

AT = 1_700_000_000.0
NEVER_PULL = "ErrImageNeverPull: none:1 is not on its node, and its pull policy is Never"
TAINT = "1 with taint symphony.test/reserved=team-a"
NOT_FOUND = "executable file not found in $PATH"

# case: by process its state, exit code and reason
ENDS = {
    "scheduling": {"no-gpu": (PENDING, None, "being scheduled")},
    "no-gpu": {
        "no-gpu": (
            PENDING,
            None,
            f"Unschedulable: 0/3 nodes fit: 2 insufficient nvidia.com/gpu, {TAINT}",
        )
    },
    "no-cpu": {
        "no-cpu": (
            PENDING,
            None,
            f"Unschedulable: 0/3 nodes fit: 2 insufficient cpu, 2 insufficient memory, {TAINT}",
        )
    },
    "no-node": {
        "no-node": (
            PENDING,
            None,
            f"Unschedulable: 0/3 nodes fit: {TAINT}, 2 not matching the node selector",
        )
    },
    "no-volume": {
        "no-volume": (
            PENDING,
            None,
            'Unschedulable: 0/3 nodes fit: 3 persistentvolumeclaim "nope" not found',
        )
    },
    "creating": {"done": (PENDING, None, "ContainerCreating")},
    "bad-image": {
        "bad-image": (PENDING, None, "ErrImagePull: 127.0.0.1:5000/none:1: connection refused")
    },
    "bad-image-again": {"bad-image": (PENDING, None, "ImagePullBackOff: 127.0.0.1:5000/none:1")},
    "no-registry": {
        "no-registry": (PENDING, None, "ErrImagePull: registry.invalid/none:1: no such host")
    },
    "invalid-image": {
        "invalid-image": (
            PENDING,
            None,
            "InvalidImageName: UPPER:bad:tag: repository name must be lowercase",
        )
    },
    "never-pull": {"never-pull": (PENDING, None, NEVER_PULL)},
    "no-secret": {
        "no-secret": (PENDING, None, 'CreateContainerConfigError: secret "nope" not found')
    },
    "no-secret-volume": {"no-secret-volume": (PENDING, None, "ContainerCreating")},
    "init-runs": {"init-slow": (PENDING, None, "init container 'checkout' is running")},
    "init-image": {
        "init-image": (
            PENDING,
            None,
            "init container 'checkout': ErrImagePull: 127.0.0.1:5000/none:1: connection refused",
        )
    },
    "init-fail": {
        "init-fail": (
            FAILED,
            None,
            "init container 'checkout' failed with exit code 128: fatal: repo not found",
        )
    },
    "init-fails-again": {
        "init-fail-always": (
            PENDING,
            None,
            "init container 'checkout': CrashLoopBackOff: restarts in 80 s (exit code 128)",
        )
    },
    "running": {"done": (RUNNING, None, "")},
    "done": {"done": (SUCCEEDED, 0, "")},
    "exit-3": {"exit-3": (FAILED, 3, "")},
    "sig-9": {"sig-9": (FAILED, 137, "killed by SIGKILL")},
    "sh-127": {"sh-127": (FAILED, 127, "its command was not found")},
    "oom": {"oom": (FAILED, 137, "OOMKilled: more than its memory limit of 48Mi")},
    "no-command": {"no-command": (FAILED, None, f"cannot start 'nope': {NOT_FOUND}")},
    "no-command-path": {
        "no-command-path": (
            FAILED,
            None,
            "cannot start '/no/such': no such file or directory",
        )
    },
    "no-exec": {"no-exec": (FAILED, None, "cannot start '/etc/passwd': permission denied")},
    "no-dir": {
        "no-dir": (
            FAILED,
            None,
            "cannot start: error during container init: mkdir /etc/passwd: not a directory",
        )
    },
    "no-command-restarts": {
        "no-command-restart": (PENDING, None, f"cannot start 'nope': {NOT_FOUND}"),
    },
    "crash": {"crash": (PENDING, 4, "restarts now (exit code 4)")},
    "crash-loop": {"crash": (PENDING, 4, "CrashLoopBackOff: restarts in 40 s (exit code 4)")},
    "onfail-ok": {"onfail-ok/a": (SUCCEEDED, 0, ""), "onfail-ok/b": (RUNNING, None, "")},
    "team": {
        "team/good": (SUCCEEDED, 0, ""),
        "team/bad": (FAILED, 5, ""),
        "team/on": (RUNNING, None, ""),
    },
    "ready": {"ready": (RUNNING, None, "")},
    "unready": {"unready": (RUNNING, None, "")},
    "pod-deadline": {"pod-deadline": (FAILED, 143, "DeadlineExceeded: ran longer than 3 s")},
    "evicted": {
        "evicted": (FAILED, None, 'Evicted: Usage of EmptyDir volume "d" exceeds the limit "1Mi"')
    },
    "rejected-cpu": {
        "rejected-cpu": (
            FAILED,
            None,
            "OutOfcpu: Pod Node didn't have enough resource: cpu, requested: 5000000, used: 0, capacity: 2000",
        )
    },
    "rejected-affinity": {
        "rejected-affinity": (FAILED, None, "NodeAffinity: Pod Predicate NodeAffinity failed")
    },
    "deleting": {"deleted": (RUNNING, None, "its Pod is being deleted")},
    "deleting-ended": {"deleted": (RUNNING, None, "its Pod is being deleted")},
    "job-ok": {"job-ok": (SUCCEEDED, 0, "")},
    "job-fail": {"job-fail": (FAILED, 3, "")},
    "job-team": {"job-team/one": (SUCCEEDED, 0, ""), "job-team/two": (FAILED, 6, "")},
    "job-retries": {"job-retry": (PENDING, 3, "restarts in 10 s (exit code 3)")},
    "job-retry": {"job-retry": (FAILED, 3, "BackoffLimitExceeded: failed 2 times")},
    "job-onfail-restarts": {"job-onfail": (RUNNING, None, "")},
    "job-onfail": {"job-onfail": (FAILED, None, "BackoffLimitExceeded")},
    "job-deadline-dying": {
        "job-deadline": (RUNNING, None, "DeadlineExceeded: ran longer than 4 s")
    },
    "job-deadline": {"job-deadline": (FAILED, None, "DeadlineExceeded: ran longer than 4 s")},
}


def recorded(case: str) -> dict[str, Any]:
    return json.loads((RECORDED / f"{case}.json").read_text())


def moment(case: dict[str, Any]) -> float:
    """A second after the latest time that the objects tell of."""
    found = (
        parse_time(word)
        for word in json.dumps(case).split('"')
        if word[:2] == "20" and word[-1:] == "Z"
    )
    return max(filter(None, found)) + 1


def looked(case: str):
    objects = recorded(case)
    return observe("rec", objects["pods"], objects["jobs"], now=moment(objects))


def test_every_recording_is_in_the_table():
    assert {path.stem for path in RECORDED.glob("*.json")} == {*ENDS, "pod-deadline-dying"}


@pytest.mark.parametrize("case", ENDS)
def test_states_and_reasons_of_recorded_objects(case):
    status = looked(case).status
    assert {item.path: (item.state, item.exit_code, item.reason) for item in status} == ENDS[case]


def test_times_and_restarts():
    crash = looked("crash-loop").status.processes[0]
    assert crash.restarts == 3
    assert crash.ended >= crash.started > AT
    assert looked("job-retry").status.processes[0].restarts == 1
    assert looked("job-onfail-restarts").status.processes[0].restarts == 1
    done = looked("done").status
    assert done.created <= done.processes[0].started <= done.processes[0].ended
    never = looked("no-command").status.processes[0]
    assert (never.started, never.restarts) == (None, 0)
    assert never.ended > AT


def test_readiness():
    assert {
        item.name: item.ready for case in ("ready", "unready") for item in looked(case).status
    } == {
        "ready": True,
        "unready": False,
    }
    # without a test, to run is to be ready
    assert looked("running").status.processes[0].ready
    assert not looked("done").status.processes[0].ready
    assert looked("done").containers["done"].was_ready
    assert not looked("no-command").containers["no-command"].was_ready


# --- newer versions, and what takes a broken node ---


def pod(
    status: dict[str, Any] | None = None, *, name: str = "p", meta: Any = None, **spec: Any
) -> dict[str, Any]:
    """A Pod with one container, as the API gives it."""
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": stamp(0),
            "labels": {labels.UNIT: name},
            **(meta or {}),
        },
        "spec": {
            "containers": [{"name": name, "image": "rl:1"}],
            "restartPolicy": "Never",
            "nodeName": "node1",
            **spec,
        },
        "status": status or {},
    }


def stamp(offset: float) -> str:
    from datetime import datetime, timezone

    return datetime.fromtimestamp(AT + offset, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def container(
    state: dict[str, Any], *, name: str = "p", phase: str = "Running", **more: Any
) -> dict[str, Any]:
    """A Pod's status with one container."""
    status = {"name": name, "state": state, "ready": "running" in state, "restartCount": 0}
    return {"phase": phase, "containerStatuses": [status], **more}


def running(*, since: float = 1, **more: Any) -> dict[str, Any]:
    return container({"running": {"startedAt": stamp(since)}}, **more)


def ended(
    code: int, *, at: float = 2, why: str = "", phase: str = "Failed", **more: Any
) -> dict[str, Any]:
    reason = why or ("Error" if code else "Completed")
    state = {"exitCode": code, "reason": reason, "startedAt": stamp(1), "finishedAt": stamp(at)}
    return container({"terminated": state}, phase=phase, **more)


def condition(
    kind: str, status: str, reason: str = "", message: str = "", at: float = 1
) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": stamp(at),
    }


def waiting(reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    return container({"waiting": {"reason": reason, "message": message}}, phase="Pending", **more)


def track(one: dict[str, Any], *, after: float = 10, jobs: Any = (), roster: Any = None):
    found = observe("e", [one], jobs, now=AT + after, roster=roster)
    return next(iter(found.containers.values()))


DELETED = {"deletionTimestamp": stamp(5), "deletionGracePeriodSeconds": 2}
POD_GC = condition("DisruptionTarget", "True", "DeletionByPodGC", "PodGC: node no longer exists")
TAINTED = condition(
    "DisruptionTarget",
    "True",
    "DeletionByTaintManager",
    "Taint manager: deleting due to NoExecute taint",
)
SHIM = "failed to create containerd task: failed to create shim task: OCI runtime create failed"
LOST = "The container could not be located when the pod was terminated"

NEWER = {
    "scheduling gates": (
        pod(
            {
                "phase": "Pending",
                "conditions": [condition("PodScheduled", "False", "SchedulingGated", "gated")],
            }
        ),
        (PENDING, None, "SchedulingGated: gated"),
    ),
    "its sandbox is there and its image is not": (
        pod(
            waiting(
                "ContainerCreating", conditions=[condition("PodReadyToStartContainers", "True")]
            )
        ),
        (PENDING, None, "pulling image rl:1"),
    ),
    "its sandbox is not there": (
        pod(
            waiting(
                "ContainerCreating", conditions=[condition("PodReadyToStartContainers", "False")]
            )
        ),
        (PENDING, None, "ContainerCreating"),
    ),
    "back-off that says why (1.32)": (
        pod(
            waiting(
                "ImagePullBackOff",
                'Back-off pulling image "rl:1": ErrImagePull: rpc error: code = NotFound desc = failed to pull and '
                'unpack image "docker.io/library/rl:1": failed to resolve reference "docker.io/library/rl:1": '
                "docker.io/library/rl:1: not found",
            )
        ),
        (PENDING, None, "ImagePullBackOff: rl:1: not found"),
    ),
    "no right to an image": (
        pod(
            waiting(
                "ErrImagePull",
                'rpc error: code = Unknown desc = failed to pull and unpack image "x": failed to resolve reference '
                '"x": pull access denied, repository does not exist or may require authorization: server message: '
                "insufficient_scope: authorization failed",
            )
        ),
        (PENDING, None, "ErrImagePull: rl:1: authorization failed"),
    ),
    "docker's word for a command that is not there": (
        pod(ended(127, why="ContainerCannotRun", phase="Failed")),
        (FAILED, None, "cannot start"),
    ),
    "a command that docker does not find": (
        pod(
            container(
                {
                    "terminated": {
                        "exitCode": 127,
                        "reason": "ContainerCannotRun",
                        "message": "OCI runtime create failed: container_linux.go:380: starting container process "
                        'caused: exec: "nope": executable file not found in $PATH: unknown',
                        "startedAt": stamp(1),
                        "finishedAt": stamp(1),
                    }
                },
                phase="Failed",
            )
        ),
        (FAILED, None, f"cannot start 'nope': {NOT_FOUND}"),
    ),
    "a signal told as such": (
        pod(
            container(
                {"terminated": {"exitCode": 0, "signal": 15, "finishedAt": stamp(2)}},
                phase="Failed",
            )
        ),
        (FAILED, 143, "killed by SIGTERM"),
    ),
    "out of memory without a limit of its own": (
        pod(ended(137, why="OOMKilled")),
        (FAILED, 137, "OOMKilled"),
    ),
    "evicted, with its containers' ends": (
        pod(
            ended(
                137,
                reason="Evicted",
                message="The node was low on resource: memory. Container p was using 9Gi.",
            )
        ),
        (FAILED, 137, "Evicted: The node was low on resource: memory. Container p was using 9Gi"),
    ),
    "evicted after it had failed of itself": (
        pod(ended(5, reason="Evicted", message="The node was low on resource: memory.")),
        (FAILED, 5, ""),
    ),
    "evicted after it had succeeded": (
        pod(ended(0, reason="Evicted", message="The node was low on resource: memory.")),
        (SUCCEEDED, 0, ""),
    ),
    "evicted, and nobody knows its container": (
        pod(ended(137, why="ContainerStatusUnknown", reason="Evicted", message="low on memory")),
        (FAILED, None, "Evicted: low on memory"),
    ),
    "its container was lost": (
        pod(
            container(
                {
                    "terminated": {
                        "exitCode": 137,
                        "reason": "ContainerStatusUnknown",
                        "message": LOST,
                    }
                },
                phase="Failed",
            )
        ),
        (
            UNKNOWN,
            None,
            "exit status unknown: the container could not be located when the pod was terminated",
        ),
    ),
    "its node left the cluster": (
        pod(running(phase="Failed", conditions=[POD_GC])),
        (UNKNOWN, None, "exit status unknown: node node1 is gone"),
    ),
    "its node left the cluster before 1.26": (
        pod(
            running(
                phase="Running",
                reason="NodeLost",
                message="Node node1 which was running pod p is unresponsive",
            )
        ),
        (UNKNOWN, None, "exit status unknown: node node1 is gone"),
    ),
    "its node does not respond": (
        pod(
            running(conditions=[condition("Ready", "False"), condition("ContainersReady", "True")])
        ),
        (RUNNING, None, "node node1 does not respond"),
    ),
    "its node has not answered for long": (
        pod(running(conditions=[TAINTED]), meta={**DELETED, "deletionTimestamp": stamp(-100)}),
        (UNKNOWN, None, "exit status unknown: node node1 is gone"),
    ),
    "a phase that nobody knows": (
        pod(running(phase="Unknown")),
        (UNKNOWN, None, "exit status unknown: node node1 is gone"),
    ),
    "preempted by the scheduler": (
        pod(
            ended(
                143,
                conditions=[
                    condition(
                        "DisruptionTarget",
                        "True",
                        "PreemptionByScheduler",
                        "default-scheduler: preempting to accommodate a higher priority pod",
                    )
                ],
            )
        ),
        (
            FAILED,
            143,
            "PreemptionByScheduler: default-scheduler: preempting to accommodate a higher priority pod",
        ),
    ),
    "preempted by a kubelet": (
        pod(
            {
                "phase": "Failed",
                "reason": "Preempting",
                "message": "Preempted in order to admit critical pod",
            }
        ),
        (FAILED, None, "Preempting: Preempted in order to admit critical pod"),
    ),
    "refused by a kubelet": (
        pod(
            {
                "phase": "Failed",
                "reason": "UnexpectedAdmissionError",
                "message": "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. "
                "Requested: 1, Available: 0, which is unexpected",
            }
        ),
        (
            FAILED,
            None,
            "UnexpectedAdmissionError: Allocate failed due to requested number of devices unavailable for "
            "nvidia.com/gpu. Requested: 1, Available: 0, which is unexpected",
        ),
    ),
    "its node was shut down": (
        pod(
            ended(
                143,
                reason="Terminated",
                message="Pod was terminated in response to imminent node shutdown.",
            )
        ),
        (FAILED, 143, "Terminated: Pod was terminated in response to imminent node shutdown"),
    ),
    "a sidecar that runs before": (
        pod(
            {
                **running(),
                "initContainerStatuses": [
                    {
                        "name": "side",
                        "started": True,
                        "ready": True,
                        "state": {"running": {"startedAt": stamp(0)}},
                    }
                ],
            },
            initContainers=[{"name": "side", "restartPolicy": "Always"}],
        ),
        (RUNNING, None, ""),
    ),
    "a policy of the container's own (1.34)": (
        pod(
            ended(3, phase="Running"),
            containers=[{"name": "p", "image": "rl:1", "restartPolicy": "OnFailure"}],
        ),
        (PENDING, 3, "restarts now (exit code 3)"),
    ),
    "Always, and it succeeded": (
        pod(ended(0, phase="Running"), restartPolicy="Always"),
        (PENDING, 0, "restarts now (exit code 0)"),
    ),
    "a long back-off": (
        pod(
            container(
                {
                    "waiting": {
                        "reason": "CrashLoopBackOff",
                        "message": "back-off 5m0s restarting failed container=p",
                    }
                }
            ),
            restartPolicy="Always",
        ),
        (PENDING, None, "CrashLoopBackOff: restarts in 300 s (exit code unknown)"),
    ),
    "no status at all": (pod(None, nodeName=""), (PENDING, None, "being scheduled")),
    "over without a word of its container": (pod({"phase": "Succeeded"}), (SUCCEEDED, 0, "")),
    "failed before its containers started": (
        pod(waiting("ContainerCreating") | {"phase": "Failed"}),
        (FAILED, None, "never started: its Pod failed"),
    ),
}


@pytest.mark.parametrize("case", NEWER)
def test_states_and_reasons_of_newer_versions(case):
    one, expected = NEWER[case]
    found = track(one)
    assert (found.state, found.exit_code, found.reason) == expected


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (
            "0/3 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, "
            "2 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available: 1 Preemption is not helpful for "
            "scheduling, 2 No preemption victims found for incoming pod.",
            "0/3 nodes fit: 2 insufficient nvidia.com/gpu, 1 with taint node-role.kubernetes.io/control-plane",
        ),
        (
            "0/2 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) didn't match Pod's node "
            "affinity/selector. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not "
            "helpful for scheduling.",
            "0/2 nodes fit: 1 had untolerated taint(s), 2 not matching the node selector",
        ),
        (
            "0/5 nodes are available: 1 node(s) were unschedulable, 2 Too many pods, 3 node(s) didn't match node "
            "selector",
            "0/5 nodes fit: 1 were unschedulable, 2 Too many pods, 3 not matching the node selector",
        ),
        (
            '0/3 nodes are available: persistentvolumeclaim "nope" not found. preemption: 0/3 nodes are available: 3 '
            "Preemption is not helpful for scheduling.",
            '0/3 nodes fit: persistentvolumeclaim "nope" not found',
        ),
        ("no nodes available to schedule pods", "no nodes available to schedule pods"),
        (
            "pod has unbound immediate PersistentVolumeClaims",
            "pod has unbound immediate PersistentVolumeClaims",
        ),
    ],
)
def test_why_no_node_takes_a_pod(message, told):
    assert reasons.unschedulable(message) == f"Unschedulable: {told}"


def test_a_long_message_is_cut():
    assert len(reasons.unschedulable("0/9 nodes are available: " + "1 x y z, " * 200)) < 250


# --- readiness over time ---


PROBED = [{"name": "p", "image": "rl:1", "readinessProbe": {"tcpSocket": {"port": 1}}}]


def unready(since: float = 1) -> dict[str, Any]:
    status = running(since=since)
    status["containerStatuses"][0]["ready"] = False
    return pod(status, containers=PROBED)


def test_one_that_is_not_ready_in_time():
    roster = (Unit(name="p", processes=("p",), ready={"p": 30.0}),)
    one = unready()
    early = observe("e", [one], now=AT + 20, roster=roster)
    assert (early.containers["p"].never_ready, early.containers["p"].reason) == (False, "")
    assert early.valid_until == AT + 31
    late = observe("e", [one], now=AT + 31, roster=roster)
    assert (late.containers["p"].never_ready, late.containers["p"].reason) == (
        True,
        "not ready within 30 s",
    )
    assert late.status.processes[0].state is State.RUNNING
    assert (
        early.status.processes[0].not_ready_in_time,
        late.status.processes[0].not_ready_in_time,
    ) == (False, True)


def test_one_that_is_ready_after_its_time_is_late_no_more():
    observer = PodObserver("e", roster=(Unit(name="p", processes=("p",), ready={"p": 30.0}),))
    observer.replace(PODS, [unready()])
    assert observer.observe(AT + 31).status.processes[0].not_ready_in_time
    observer.apply(PODS, "MODIFIED", pod(running(), containers=PROBED))
    found = observer.observe(AT + 40).status.processes[0]
    assert (found.ready, found.not_ready_in_time, found.reason) == (True, False, "")
    observer.apply(PODS, "MODIFIED", unready())
    assert not observer.observe(AT + 50).status.processes[0].not_ready_in_time


def test_one_that_ended_is_not_late():
    observer = PodObserver("e", roster=(Unit(name="p", processes=("p",), ready={"p": 30.0}),))
    observer.replace(PODS, [unready()])
    assert observer.observe(AT + 31).status.processes[0].not_ready_in_time
    observer.apply(PODS, "MODIFIED", pod(ended(3, phase="Failed"), containers=PROBED))
    found = observer.observe(AT + 60).status.processes[0]
    assert (found.state, found.not_ready_in_time) == (State.FAILED, False)


def test_one_that_was_ready_once_is_not_late():
    roster = (Unit(name="p", processes=("p",), ready={"p": 30.0}),)
    observer = PodObserver("e", roster=roster)
    observer.replace(PODS, [pod(running(), containers=PROBED)])
    assert observer.observe(AT + 5).containers["p"].was_ready
    observer.apply(PODS, "MODIFIED", unready())
    found = observer.observe(AT + 500).containers["p"]
    assert (found.ready, found.was_ready, found.never_ready, found.reason) == (
        False,
        True,
        False,
        "",
    )
    observer.apply(PODS, "MODIFIED", pod(ended(0, phase="Succeeded"), containers=PROBED))
    assert observer.observe(AT + 501).containers["p"].was_ready


LOG = (
    Unit(name="p", processes=("p",), ready={"p": 30.0}, logs={"p": "^up"}),
    Unit(name="q", processes=("q",), starts_after={"p": "ready"}),
)


def test_a_log_tells_by_an_annotation():
    before = observe("e", [pod(running())], now=AT + 5, roster=LOG)
    assert (before.containers["p"].ready, before.containers["q"].reason) == (
        False,
        "waiting for p to be ready",
    )
    noted = pod(running(), meta={"annotations": {labels.READY: "x,p"}})
    after = observe("e", [noted], now=AT + 5, roster=LOG)
    assert (after.containers["p"].ready, after.containers["q"].reason) == (True, "")


def test_a_log_for_which_nobody_waits_is_not_watched():
    assert observe("e", [pod(running())], now=AT + 500, roster=LOG[:1]).containers["p"].ready


# --- the start order ---


def described(
    pods: list[dict[str, Any]], roster: Any, now: float, jobs: Any = ()
) -> dict[str, tuple[State, str]]:
    """What somebody sees who only knows the objects: the roster is on the first Pod."""
    first = pods[0]
    first["metadata"] = {**first["metadata"], "annotations": {labels.ROSTER: encode(roster)}}
    status = observe("e", pods, jobs, now=AT + now).status
    return {item.path: (item.state, item.reason) for item in status}


ORDER = (
    Unit(name="p", processes=("p",)),
    Unit(name="team", group=True, processes=("a", "b"), starts_after={"p": "succeeded"}),
    Unit(name="last", processes=("last",), starts_after={"a": "started", "p": "started"}),
)


def test_those_to_come_are_told_in_the_order_of_the_roster():
    assert described([pod(running())], ORDER, 10) == {
        "p": (RUNNING, ""),
        "team/a": (PENDING, "waiting for p to succeed"),
        "team/b": (PENDING, "waiting for p to succeed"),
        "last": (PENDING, "waiting for a to start"),
    }


def test_those_that_never_can_have_failed():
    assert described([pod(ended(5))], ORDER, 10) == {
        "p": (FAILED, ""),
        "team/a": (FAILED, "never started: p failed"),
        "team/b": (FAILED, "never started: p failed"),
        "last": (FAILED, "never started: a failed (never started: p failed)"),
    }


def test_those_that_could_and_were_not_created_have_lost_their_launcher():
    done = pod(ended(0, at=20, phase="Succeeded"))
    assert described([done], ORDER, 79)["team/a"] == (PENDING, "")
    never = "never started: the launcher exited before it was created"
    assert described([done], ORDER, 80)["team/a"] == (UNKNOWN, never)
    assert described([done], ORDER, 80)["last"] == (FAILED, "never started: a ended")


def test_a_launcher_that_still_creates_is_alive():
    first, second = pod(running()), pod(running(), name="q")
    second["metadata"]["creationTimestamp"] = stamp(50)
    roster = tuple(Unit(name=name, processes=(name,)) for name in "pqr")
    assert described([first, second], roster, 100)["r"] == (PENDING, "")
    why = "exit status unknown: its Pod does not exist: it was deleted, or the launcher exited too early"
    assert described([first, second], roster, 111)["r"] == (UNKNOWN, why)


def test_the_launcher_itself_waits_without_end():
    found = observe("e", [], now=AT, roster=ORDER)
    assert [item.state for item in found.status] == [PENDING] * 4
    assert found.valid_until is None
    assert found.empty


def test_a_long_chain_is_no_trouble():
    chain = ["p", *(f"u{index}" for index in range(3000))]
    followers = [
        Unit(name=name, processes=(name,), starts_after={before: "succeeded"})
        for before, name in pairwise(chain)
    ]
    # the last first: each is told after those that it waits for all the same
    found = observe(
        "e",
        [pod(ended(1))],
        now=AT,
        roster=(Unit(name="p", processes=("p",)), *reversed(followers)),
    )
    assert all(item.state is FAILED for item in found.status)
    assert max(len(item.reason) for item in found.status) < 400


@pytest.mark.parametrize("text", ["", "nonsense", encode(())[:-4]])
def test_without_a_roster_the_pods_are_told(text):
    team = pod(
        {"phase": "Running"},
        name="team",
        containers=[{"name": "a", "image": "i"}, {"name": "b", "image": "i"}],
        meta={"annotations": {labels.ROSTER: text}},
    )
    status = observe("e", [team, pod(running())], now=AT + 9).status
    assert [item.path for item in status] == ["p", "team/a", "team/b"]


# --- deletions ---


def test_a_pod_that_is_deleted_by_hand_is_unknown_from_then_on():
    observer = PodObserver("e")
    observer.replace(PODS, [pod(running())])
    observer.apply(PODS, "MODIFIED", pod(running(), meta=DELETED))
    going = observer.observe(AT + 4).status.processes[0]
    assert (going.state, going.reason, going.ready) == (RUNNING, "its Pod is being deleted", False)
    # it ends well when it is told to, and that is not the end that was wanted of it
    observer.apply(PODS, "MODIFIED", pod(ended(0, at=4, phase="Succeeded"), meta=DELETED))
    assert observer.observe(AT + 4).status.processes[0].state is State.RUNNING
    observer.apply(PODS, "DELETED", pod(ended(0, at=4, phase="Succeeded"), meta=DELETED))
    seen = observer.observe(AT + 5)
    assert (seen.status.processes[0].state, seen.deleted_units, seen.empty) == (
        UNKNOWN,
        {"p"},
        True,
    )
    assert seen.status.processes[0].reason == "exit status unknown: its Pod was deleted"


@pytest.mark.parametrize("listed", [True, False], ids=["by a list", "by an event"])
def test_what_was_seen_to_end_before_is_remembered(listed):
    observer = PodObserver("e")
    observer.replace(PODS, [pod(ended(3)), pod(running(), name="q")])
    observer.observe(AT + 4)
    if listed:
        observer.replace(PODS, [pod(running(), name="q")])
    else:
        observer.apply(PODS, "MODIFIED", pod(ended(3), meta=DELETED))
        observer.apply(PODS, "DELETED", pod(ended(3), meta=DELETED))
    ended_so = observer.observe(AT + 5).status.processes[0]
    assert (ended_so.name, ended_so.state, ended_so.exit_code) == ("p", FAILED, 3)


def test_an_experiment_that_is_being_deleted_says_so():
    assert (
        observe("e", [pod(running(), meta=DELETED)], now=AT + 4).status.note == "is being deleted"
    )
    both = [pod(running(), meta=DELETED), pod(running(), name="q")]
    assert observe("e", both, now=AT + 4).status.note == ""


def test_a_pod_that_failed_gives_its_processes_their_grace_period():
    case = recorded("pod-deadline-dying")
    now = moment(case)
    case["pods"][0]["metadata"]["managedFields"] = [
        {"time": case["pods"][0]["metadata"]["creationTimestamp"]}
    ]
    seen = observe("rec", case["pods"], now=now)
    dying = seen.status.processes[0]
    assert (dying.state, dying.reason) == (RUNNING, "DeadlineExceeded: ran longer than 3 s")
    assert seen.valid_until is not None
    later = observe("rec", case["pods"], now=seen.valid_until).status.processes[0]
    assert (later.state, later.exit_code) == (FAILED, None)


# --- Jobs ---


def job(
    *conditions: dict[str, Any], limit: int = 0, name: str = "p", **status: Any
) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": name}]}}
    return {
        "metadata": {
            "name": name,
            "uid": "j",
            "creationTimestamp": stamp(0),
            "labels": {labels.UNIT: name},
        },
        "spec": {"backoffLimit": limit, "template": template},
        "status": {"conditions": list(conditions), **status},
    }


OWNED = {"ownerReferences": [{"kind": "Job", "name": "p", "uid": "j"}]}
TRIED_OUT = condition(
    "Failed", "True", "BackoffLimitExceeded", "Job has reached the specified backoff limit", at=9
)


def test_a_job_that_is_about_to_fail_has_failed():
    target = condition(
        "FailureTarget", "True", "DeadlineExceeded", "Job was active longer than specified deadline"
    )
    found = observe("e", [], [job(target)], now=AT + 5).status.processes[0]
    assert (found.state, found.reason) == (
        FAILED,
        "DeadlineExceeded: Job was active longer than specified deadline",
    )


def test_a_job_whose_pod_was_cleared_away_has_succeeded():
    found = observe(
        "e", [], [job(condition("Complete", "True", at=7))], now=AT + 9
    ).status.processes[0]
    assert (found.state, found.exit_code, found.ended) == (SUCCEEDED, 0, AT + 7)


def test_a_job_without_a_pod_says_what_it_waits_for():
    now = AT + 5
    assert observe("e", [], [job()], now=now).status.processes[0].reason == ""
    late = observe("e", [], [job()], now=AT + 10)
    assert "its Job has made no Pod" in late.status.processes[0].reason
    suspended = job()
    suspended["spec"]["suspend"] = True
    assert (
        observe("e", [], [suspended], now=now).status.processes[0].reason == "its Job is suspended"
    )


def test_a_job_that_restarts_in_place_keeps_the_last_exit_code_while_it_is_followed():
    crashed = {
        **container(
            {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed"}}
        ),
    }
    crashed["containerStatuses"][0] |= {
        "restartCount": 2,
        "lastState": {"terminated": {"exitCode": 3, "startedAt": stamp(1), "finishedAt": stamp(2)}},
    }
    one = pod(crashed, restartPolicy="OnFailure", meta=OWNED)
    observer = PodObserver("e")
    observer.replace(PODS, [one])
    observer.replace(JOBS, [job(limit=2)])
    assert observer.observe(AT + 3).status.processes[0].state is PENDING
    observer.apply(PODS, "DELETED", one)
    assert observer.observe(AT + 3).status.processes[0].state is PENDING  # the Job will say
    observer.apply(JOBS, "MODIFIED", job(TRIED_OUT, limit=2))
    found = observer.observe(AT + 10).status.processes[0]
    assert (found.state, found.exit_code, found.restarts) == (FAILED, 3, 2)
    assert found.reason == "BackoffLimitExceeded"


def test_a_job_that_failed_gives_its_processes_their_grace_period():
    """Its Pod may be told to be deleted before or after that: it goes one way, and never back."""
    late = condition(
        "Failed", "True", "DeadlineExceeded", "Job was active longer than specified deadline", at=5
    )
    observer = PodObserver("e")
    observer.replace(PODS, [pod(running(), meta=OWNED, terminationGracePeriodSeconds=2)])
    observer.replace(JOBS, [job(late)])
    first = observer.observe(AT + 5)
    assert (first.status.processes[0].state, first.valid_until) == (RUNNING, AT + 37)
    observer.apply(PODS, "MODIFIED", pod(running(), meta={**OWNED, **DELETED, "name": "p"}))
    second = observer.observe(AT + 6).status.processes[0]
    assert second == first.status.processes[0]
    observer.apply(PODS, "MODIFIED", pod(ended(143, at=6), meta={**OWNED, **DELETED}))
    observer.apply(PODS, "DELETED", pod(ended(143, at=6), meta={**OWNED, **DELETED}))
    found = observer.observe(AT + 7).status.processes[0]
    assert (found.state, found.exit_code) == (FAILED, 143)
    assert found.reason.startswith("DeadlineExceeded")


@pytest.mark.parametrize(("at", "told"), [(4, "OOMKilled"), (6, "DeadlineExceeded")])
def test_what_befalls_a_process_after_its_job_failed_is_the_jobs_doing(at, told):
    late = condition(
        "Failed", "True", "DeadlineExceeded", "Job was active longer than specified deadline", at=5
    )
    one = pod(ended(137, at=at, why="OOMKilled"), meta=OWNED)
    found = observe("e", [one], [job(late)], now=AT + 9).status.processes[0]
    assert (found.state, found.exit_code) == (FAILED, 137)
    assert found.reason.startswith(told)


def test_a_process_that_was_about_to_start_when_its_job_failed_may_yet_run():
    """A kubelet starts what it had begun to start: told as failed it would come back to life."""
    late = condition(
        "Failed", "True", "DeadlineExceeded", "Job was active longer than specified deadline", at=5
    )
    observer = PodObserver("e")
    observer.replace(
        PODS, [pod(waiting("ContainerCreating"), meta=OWNED, terminationGracePeriodSeconds=2)]
    )
    observer.replace(JOBS, [job(late)])
    states = [observer.observe(AT + 5).status.processes[0].state]
    for event, status in (
        ("MODIFIED", running(since=6)),
        ("MODIFIED", ended(143, at=7)),
        ("DELETED", ended(143, at=7)),
    ):
        observer.apply(PODS, event, pod(status, meta={**OWNED, **DELETED}))
        states.append(observer.observe(AT + 7).status.processes[0].state)
    assert states[0] is PENDING
    assert states[-1] is FAILED
    assert states == sorted(states, key=[PENDING, RUNNING, FAILED].index)


def test_the_next_pod_of_a_job_takes_over():
    first = pod(ended(3), meta=OWNED)
    second = pod(
        running(since=20), meta={**OWNED, "name": "p-2", "uid": "2", "creationTimestamp": stamp(15)}
    )
    found = observe("e", [second, first], [job(limit=1)], now=AT + 30).status.processes[0]
    assert (found.state, found.restarts, found.started) == (RUNNING, 1, AT + 20)


def test_a_job_that_may_not_be_read_is_told_by_its_pods():
    found = observe("e", [pod(ended(3), meta=OWNED)], now=AT + 30).status.processes[0]
    assert (found.state, found.exit_code) == (FAILED, 3)


# --- what many events cost ---


def test_nothing_is_computed_anew_for_what_did_not_change():
    observer = PodObserver("e")
    observer.replace(PODS, [pod(running(), name=f"p{index}") for index in range(50)])
    before = observer.observe(AT + 5)
    observer.apply(PODS, "MODIFIED", pod(ended(0, phase="Succeeded"), name="p7"))
    after = observer.observe(AT + 6)
    changed = [
        new.name for new, old in zip(after.status, before.status, strict=True) if new is not old
    ]
    assert changed == ["p7"]
    assert not after.is_same_as(before)
    assert replace(after, valid_until=1.0).is_same_as(after)
