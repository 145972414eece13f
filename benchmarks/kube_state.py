"""Measure how long it takes to compute the states of processes from the objects of their Pods.

The Pods have the fields that an API server of Kubernetes 1.36 reports. No cluster is needed. CPU
time is measured, because the computation never waits. Half of the Pods are running, and the
others have succeeded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from _pairs import Figure, Options, at_most, main

from symphony_kube.api import labels
from symphony_kube.render.roster import Unit
from symphony_kube.state.observe import observe
from symphony_kube.state.observed_attempt import ObservedAttempt
from symphony_kube.state.pod_parser import parse_pod
from symphony_kube.state.unit_status import UnitStatus

COUNT = 1000
LIMIT_MICROSECONDS = 20.0
NOW = 1_795_836_600.0
CREATED, STARTED, ENDED = (f"2026-11-28T03:30:{second}Z" for second in ("13", "15", "18"))


def measure(options: Options) -> Iterator[Figure]:
    """Yield the figures of this benchmark."""
    runs = options.pick(21, 5)
    pods = [pod(number) for number in range(COUNT)]
    units = [Unit(name=f"p{number}", processes=(f"p{number}",)) for number in range(COUNT)]

    def states() -> None:
        for unit, body in zip(units, pods, strict=True):
            UnitStatus(ObservedAttempt(unit, [parse_pod(body)], None, None, NOW))

    def statuses() -> None:
        observe("benchmark", pods, now=NOW, roster=tuple(units))

    for what, run, limit in (
        ("the state of a process from its Pod", states, LIMIT_MICROSECONDS),
        ("the same, in the status of an experiment", statuses, None),
    ):
        samples = [microseconds(run) for _ in range(runs)]
        yield at_most(what, "us", samples, limit)


def microseconds(run: Callable[[], Any]) -> float:
    """Return the CPU time that a call takes for each Pod, in microseconds."""
    before = time.process_time()
    run()
    return (time.process_time() - before) / COUNT * 1e6


def pod(number: int) -> dict[str, Any]:
    """Return a Pod as the API server reports it."""
    name = f"p{number}"
    is_running = number % 2 == 0
    state: dict[str, Any] = {"running": {"startedAt": STARTED}}
    if not is_running:
        times = {"startedAt": STARTED, "finishedAt": ENDED}
        state = {"terminated": {"exitCode": 0, "reason": "Completed", **times}}
    ready = "True" if is_running else "False"
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    conditions = [
        {
            "type": kind,
            "status": ready if kind in ("Ready", "ContainersReady") else "True",
            "lastTransitionTime": STARTED,
        }
        for kind in kinds
    ]
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{number}",
            "creationTimestamp": CREATED,
            "labels": {labels.UNIT: name},
            "annotations": {labels.MANIFEST: "x"},
            "managedFields": [{"time": CREATED}, {"time": STARTED}],
        },
        "spec": {
            "containers": [{"name": name, "image": "rl:1", "resources": {}}],
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 30,
            "nodeName": "node1",
        },
        "status": {
            "phase": "Running" if is_running else "Succeeded",
            "startTime": CREATED,
            "conditions": conditions,
            "containerStatuses": [
                {"name": name, "ready": is_running, "restartCount": 0, "state": state}
            ],
        },
    }


if __name__ == "__main__":
    main(__doc__, measure)
