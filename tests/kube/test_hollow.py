"""Many Pods without containers, with a real API server, scheduler and controllers."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from kubetest.hollow import SELECTOR, TOLERATION

from . import pods

# These tests examine the test cluster, and not symphony.
pytestmark = pytest.mark.long

COUNT = 100


@pytest.mark.timeout(600)
def test_a_hundred_pods_start_and_are_deleted(kube_cluster, hollow_nodes):
    container = pods.container(kube_cluster.image, pods.FOREVER)
    job = pods.job("many", container, parallelism=COUNT, completions=COUNT)
    job["spec"]["template"]["spec"] |= {"nodeSelector": SELECTOR, "tolerations": [TOLERATION]}
    jobs = kube_cluster.path("jobs", group="apis/batch/v1")
    kube_cluster.raw.call("POST", jobs, job)
    wait_for_phases(kube_cluster, until=lambda phases: running(phases) == COUNT)
    listed = kube_cluster.raw.call("GET", kube_cluster.path("pods"))["items"]
    # The scheduler decides how many of the nodes it uses.
    assert {pod["spec"]["nodeName"] for pod in listed} <= set(hollow_nodes.names)
    assert len({pod["status"]["podIP"] for pod in listed}) == COUNT
    kube_cluster.raw.call("DELETE", f"{jobs}/many", {"propagationPolicy": "Background"})
    wait_for_phases(kube_cluster, until=lambda phases: not phases)


def running(phases: dict[str, str]) -> int:
    """Return the number of Pods that are running."""
    return list(phases.values()).count("Running")


def wait_for_phases(kube_cluster, *, until) -> None:
    """Watch the phases of the Pods by name until they meet a condition.

    The API server closes the watch of a client that reads too slowly.
    """
    deadline = time.monotonic() + 250
    phases: dict[str, str] = {}
    while (seconds := deadline - time.monotonic()) > 0:
        listed = kube_cluster.raw.call("GET", kube_cluster.path("pods"))
        phases = {
            pod["metadata"]["name"]: pod["status"].get("phase", "") for pod in listed["items"]
        }
        if until(phases):
            return
        since = kube_cluster.path(f"pods?resourceVersion={listed['metadata']['resourceVersion']}")
        for event in kube_cluster.raw.watch(since, seconds=seconds):
            name = event["object"]["metadata"]["name"]
            if event["type"] == "DELETED":
                phases.pop(name, None)
            else:
                phases[name] = event["object"]["status"].get("phase", "")
            if until(phases):
                return
    pytest.fail(f"after 250 s: {Counter(phases.values())}")
