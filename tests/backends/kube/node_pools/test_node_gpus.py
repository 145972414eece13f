"""The allocatable GPUs of the nodes of a cluster."""

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
