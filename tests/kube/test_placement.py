"""The scheduler of the test cluster: GPUs, taints and anti-affinity."""

from __future__ import annotations

import pytest
from kubernetes import client

from kubetest.plugin import KubeCluster

from . import pods

# These tests examine the test cluster, and not symphony.
pytestmark = pytest.mark.long


def with_gpus(name: str, image: str, count: str) -> pods.Object:
    limits = {"limits": {"nvidia.com/gpu": count}}
    return pods.pod(name, pods.container(image, pods.FOREVER, resources=limits))


@pytest.fixture
def core(kube_cluster: KubeCluster) -> client.CoreV1Api:
    return client.CoreV1Api(kube_cluster.client)


@pytest.fixture
def gpus(core) -> int:
    """Return the largest number of GPUs of a node."""
    counts = [int(n.status.allocatable.get("nvidia.com/gpu", "0")) for n in core.list_node().items]
    if not max(counts):
        pytest.skip("no node of this cluster offers nvidia.com/gpu")
    return max(counts)


def test_pod_with_a_gpu_runs_on_a_node_with_gpus(kube_cluster, core, gpus):
    core.create_namespaced_pod(
        kube_cluster.namespace, with_gpus("one-gpu", kube_cluster.image, "1")
    )
    pod = kube_cluster.wait_for_pod("one-gpu")
    node = core.read_node(pod["spec"]["nodeName"])
    assert int(node.status.allocatable["nvidia.com/gpu"]) >= 1


def test_reserved_node_requires_a_toleration(kube_cluster, core):
    if kube_cluster.session.cluster.kind != "devcluster":
        pytest.skip("only the devcluster has a tainted node")
    toleration = {"key": "symphony.test/reserved", "value": "team-a", "effect": "NoSchedule"}
    for name, tolerations in (("guest", []), ("member", [toleration])):
        reserved = pods.pod(
            name,
            pods.container(kube_cluster.image, pods.FOREVER),
            nodeSelector={"symphony.test/pool": "reserved"},
            tolerations=tolerations,
        )
        core.create_namespaced_pod(kube_cluster.namespace, reserved)
    assert kube_cluster.wait_for_pod("member")["spec"]["nodeName"] == "node3"
    assert "taint" in unschedulable_message(kube_cluster, "guest")


def test_anti_affinity_spreads_pods_over_nodes(kube_cluster, core):
    untainted = [node for node in core.list_node().items if not node.spec.taints]
    if len(untainted) < 2:
        pytest.skip("this cluster has only one node without taints")
    anti_affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {
                "labelSelector": {"matchLabels": {"spread": "yes"}},
                "topologyKey": "kubernetes.io/hostname",
            }
        ]
    }
    for name in ("one", "two"):
        pod = pods.pod(
            name,
            pods.container(kube_cluster.image, pods.FOREVER),
            affinity={"podAntiAffinity": anti_affinity},
        )
        pod["metadata"]["labels"]["spread"] = "yes"
        core.create_namespaced_pod(kube_cluster.namespace, pod)
    nodes = {kube_cluster.wait_for_pod(name)["spec"]["nodeName"] for name in ("one", "two")}
    assert len(nodes) == 2


def unschedulable_message(kube_cluster: KubeCluster, name: str) -> str:
    """Return the message of the scheduler for a Pod that fits on no node."""
    path = kube_cluster.path(f"pods?fieldSelector=metadata.name={name}")
    for event in kube_cluster.raw.watch(path, seconds=30):
        for condition in event["object"]["status"].get("conditions", []):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                assert event["object"]["status"]["phase"] == "Pending"
                return str(condition["message"])
    pytest.fail(f"the scheduler reported nothing for {name}")
