"""A thousand Pods without a container, under the real API server, scheduler and controllers."""

from __future__ import annotations

from collections import Counter

import pytest

from kubetest.hollow import SELECTOR, TOLERATION

from . import pods

COUNT = 1000


@pytest.mark.timeout(600)
def test_a_thousand_pods_run_and_go(kube_cluster, hollow_nodes):
    container = pods.container(kube_cluster.image, pods.FOREVER)
    job = pods.job("many", container, parallelism=COUNT, completions=COUNT)
    job["spec"]["template"]["spec"] |= {"nodeSelector": SELECTOR, "tolerations": [TOLERATION]}
    jobs = kube_cluster.path("jobs", group="apis/batch/v1")
    kube_cluster.raw.call("POST", jobs, job)
    follow(kube_cluster, until=lambda phases: list(phases.values()).count("Running") == COUNT)
    listed = kube_cluster.raw.call("GET", kube_cluster.path("pods"))["items"]
    assert {pod["spec"]["nodeName"] for pod in listed} == set(hollow_nodes.names)
    assert len({pod["status"]["podIP"] for pod in listed}) == COUNT
    kube_cluster.raw.call("DELETE", f"{jobs}/many", {"propagationPolicy": "Background"})
    follow(kube_cluster, until=lambda phases: not phases)


def follow(kube_cluster, *, until) -> None:
    """Watch the Pods' phases by name until they are as wanted."""
    listed = kube_cluster.raw.call("GET", kube_cluster.path("pods"))
    phases: dict[str, str] = {
        pod["metadata"]["name"]: pod["status"].get("phase", "") for pod in listed["items"]
    }
    if until(phases):
        return
    since = kube_cluster.path(f"pods?resourceVersion={listed['metadata']['resourceVersion']}")
    for event in kube_cluster.raw.watch(since, seconds=250):
        name = event["object"]["metadata"]["name"]
        if event["type"] == "DELETED":
            phases.pop(name, None)
        else:
            phases[name] = event["object"]["status"].get("phase", "")
        if until(phases):
            return
    pytest.fail(f"after 250 s: {Counter(phases.values())}")
