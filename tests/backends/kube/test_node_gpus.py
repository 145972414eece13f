"""The allocatable GPUs of the nodes of a cluster."""

import pytest

from symphony.errors import BackendError
from symphony_kube.node_pools.live_nodes import gpus_by_node

GPU = "nvidia.com/gpu"


def test_cordoned_nodes_are_not_counted():
    nodes = [
        {"metadata": {"name": "a"}, "status": {"allocatable": {GPU: "4"}}},
        {
            "metadata": {"name": "b"},
            "spec": {"unschedulable": True},
            "status": {"allocatable": {GPU: "8"}},
        },
        {"metadata": {"name": "c"}},
    ]
    assert gpus_by_node(nodes, GPU) == {"a": 4, "c": 0}


def test_gpus_of_real_nodes(kube_cluster, shared):
    allocatable = {
        node["metadata"]["name"]: int(node["status"]["allocatable"].get(GPU, 0))
        for node in kube_cluster.raw.call("GET", "/api/v1/nodes")["items"]
    }
    # Other tests may add and remove nodes.
    found = {name: gpus for name, gpus in shared.node_gpus().items() if name in allocatable}
    assert found
    assert found == {name: allocatable[name] for name in found}


def test_gpus_without_the_right_to_list_nodes(kube_cluster, open_cluster):
    without_rights = open_cluster(
        kubeconfig=str(kube_cluster.user("no-rights", [])), namespace=kube_cluster.namespace
    )
    with pytest.raises(BackendError, match="nodes"):
        without_rights.node_gpus()
