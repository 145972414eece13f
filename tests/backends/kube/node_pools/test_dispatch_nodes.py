"""Node pools from the nodes of a running cluster."""

from __future__ import annotations

import pytest
from kubernetes.utils.quantity import parse_quantity

from symphony import Cluster, SpecError
from symphony.kube import NodePoolDispatcher, Reserve
from symphony_kube.node_pools.live_nodes import is_system_pod, node_pools, pod_requests
from symphony_kube.node_pools.pools import MachineResources, Taint
from tests.backends.kube.conftest import FOREVER, python, wait_until

POOL = "cloud.google.com/gke-nodepool"
HOST = "kubernetes.io/hostname"
DEVCLUSTER = "symphony.test/pool"
GPU = "nvidia.com/gpu"
NONE = MachineResources()


def node(
    name,
    pool="a",
    *,
    cpu="4",
    memory="16Gi",
    gpus=None,
    labels=None,
    taints=(),
    ready="True",
    **spec,
):
    amounts = {
        "cpu": cpu,
        "memory": memory,
        **({} if gpus is None else {GPU: str(gpus)}),
    }
    return {
        "metadata": {
            "name": name,
            "labels": {**({POOL: pool} if pool else {}), HOST: name, **(labels or {})},
        },
        "spec": {**spec, "taints": [taint(text) for text in taints]} if taints else spec,
        "status": {
            "capacity": {**amounts, "cpu": "4"},
            "allocatable": amounts,
            "conditions": [
                {"type": "DiskPressure", "status": "True"},
                {"type": "Ready", "status": ready},
            ],
        },
    }


def taint(text):
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def read(*nodes, label=None, taken=(), usual=NONE):
    given = None if taken is None else dict(taken)
    return node_pools(
        nodes,
        label=label,
        gpu_resource="nvidia.com/gpu",
        system_requests=given,
        default_requests=usual,
    )


# --- pools of nodes ---


def test_pool_is_as_small_as_its_smallest_node():
    (pool,) = read(
        node("n1", cpu="3920m", memory="13581864Ki", gpus=2),
        node("n2", cpu="3.8", memory="15G", gpus=1),
    )
    assert pool.allocatable == MachineResources(millicores=3800, memory_m=13263, gpus=1)
    assert (pool.name, pool.selector) == ("a", (POOL, "a"))


def test_requests_of_system_pods_are_subtracted():
    taken = {
        "n1": MachineResources(millicores=300, memory_m=400),
        "n2": MachineResources(millicores=500, memory_m=100),
    }
    (pool,) = read(node("n1", cpu="3500m"), node("n2"), taken=taken)
    assert pool.allocatable == MachineResources(millicores=3200, memory_m=16384 - 400)
    (pool,) = read(
        node("n1"), node("n2"), taken=None, usual=MachineResources(millicores=500, memory_m=768)
    )
    assert pool.allocatable == MachineResources(millicores=3500, memory_m=16384 - 768)


@pytest.mark.parametrize(
    "label",
    [
        "cloud.google.com/gke-nodepool",
        "eks.amazonaws.com/nodegroup",
        "karpenter.sh/nodepool",
        "agentpool",
        "name",
    ],
)
def test_default_pool_labels(label):
    (pool,) = read(node("n1", None, labels={label: "workers"}), node("alone", None))
    assert pool.selector == (label, "workers")


def test_custom_pool_label():
    found = read(node("n1"), node("n2"), label=HOST)
    assert [(pool.name, pool.selector) for pool in found] == [
        ("n1", (HOST, "n1")),
        ("n2", (HOST, "n2")),
    ]


@pytest.mark.parametrize("key", ["cloud.google.com/gke-accelerator", "nvidia.com/gpu.product"])
def test_gpu_type_from_labels(key):
    first, second = node("n1", labels={key: "l4"}, gpus=1), node("n2", labels={key: "t4"}, gpus=1)
    assert read(first)[0].gpu_type == "l4"
    assert read(first, second)[0].gpu_type is None


def test_unknown_gpu_type():
    dispatcher = NodePoolDispatcher(read(node("n1", gpus=1)))
    exp = Cluster.new("local").new_experiment("e")
    with pytest.raises(SpecError, match="a: its GPUs are of an unknown type, not nvidia-l4$"):
        dispatcher.assign_to_resource(exp.new_process("p"), gpu_type="nvidia-l4")


def test_temporary_taints_are_ignored():
    (pool,) = read(
        node("n1", taints=["team=rl:NoSchedule", "node.kubernetes.io/memory-pressure:NoSchedule"])
    )
    assert pool.taints == (Taint(key="team", value="rl", effect="NoSchedule"),)
    (pool,) = read(
        node(
            "n1",
            gpus=1,
            taints=["nvidia.com/gpu=present:NoSchedule", "karpenter.sh/disrupted:NoExecute"],
        )
    )
    assert pool.tolerations == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]


def test_node_with_additional_taints_is_not_counted():
    plain = node("n1", taints=["team=rl:NoSchedule"])
    apart = node("n2", cpu="1", taints=["team=rl:NoSchedule", "repair:NoExecute"])
    (pool,) = read(apart, plain)
    assert [item.key for item in pool.taints] == ["team"]
    assert pool.allocatable.millicores == 4000


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        ({"unschedulable": True}, "n1 is cordoned"),
        ({"ready": "False"}, "not ready"),
        ({"ready": "Unknown"}, "not ready"),
    ],
)
def test_unusable_nodes_are_not_counted(trouble, message):
    out = node("n1", cpu="1", **trouble)
    (pool,) = read(out, node("n2"))
    assert (pool.allocatable.millicores, pool.unusable) == (4000, "")
    found = read(out, node("n2", "b", cpu="2"))
    dispatcher = NodePoolDispatcher(found)
    exp = Cluster.new("local").new_experiment("e")
    assert dispatcher.assign_to_resource(exp.new_process("p"), cpu=0.5).name == "b"
    with pytest.raises(
        SpecError, match=f"'a': none of its nodes accepts Pods at the moment: .*{message}"
    ):
        dispatcher.assign_to_machine(exp.new_process("q"), node_pool_name="a")


def test_control_plane_and_windows_nodes_are_ignored():
    kept = node("n1", taints=["node-role.kubernetes.io/control-plane:NoSchedule"])
    found = read(kept, node("w", "b", labels={"kubernetes.io/os": "windows"}), node("n2", "c"))
    assert [pool.name for pool in found] == ["c"]


@pytest.mark.parametrize(
    ("nodes", "label", "message"),
    [
        (
            [node("n1", None)],
            None,
            f"no node has a label with the name of its pool .*; choose one with label=, of {HOST}",
        ),
        (
            [node("n1")],
            "cloud.google.com/gke-nodepol",
            f"no node has the label .*; did you mean '{POOL}'",
        ),
        ([node("n1")], "x", f"no node has the label 'x'; they have {POOL}, {HOST}"),
        ([], None, "the cluster has no nodes for Pods"),
        (
            [node("n1"), node("n2", None, labels={"name": "a"})],
            None,
            f"two node pools have the name 'a', by the labels '{POOL}' and 'name'; choose one "
            "label with label=",
        ),
    ],
)
def test_nodes_without_pools(nodes, label, message):
    with pytest.raises(SpecError, match=message):
        read(*nodes, label=label)


# --- Pods of the system ---


@pytest.mark.parametrize(
    ("namespace", "owner", "system"),
    [
        ("x", "DaemonSet", True),
        ("x", "Node", True),
        ("kube-system", "ReplicaSet", True),
        ("x", "Job", False),
        ("x", None, False),
    ],
)
def test_is_system_pod(namespace, owner, system):
    owners = [{"kind": owner}] if owner else None
    assert (
        is_system_pod({"metadata": {"namespace": namespace, "ownerReferences": owners}}) is system
    )


def test_pod_requests():
    def container(cpu=None, memory=None, **more):
        given = {"cpu": cpu, "memory": memory}
        return {"resources": {"requests": {k: v for k, v in given.items() if v}}, **more}

    spec = {
        "initContainers": [
            container("2", "1Mi"),
            container("100m", "10Mi", restartPolicy="Always"),
        ],
        "containers": [container("0.5", "100M"), {"resources": {}}, {}],
        "overhead": {"cpu": "10m", "memory": "1"},
    }
    assert pod_requests(spec) == MachineResources(millicores=2010, memory_m=96 + 10 + 1)
    assert pod_requests(
        {"containers": [container("0.5"), container("300m", "1Gi")]}
    ) == MachineResources(millicores=800, memory_m=1024)


# --- a real cluster ---


def test_nodes_of_a_real_cluster(kube_cluster, open_cluster):
    cluster = open_cluster()
    nodes = {
        item["metadata"]["name"]: item["status"]["allocatable"]
        for item in kube_cluster.raw.call("GET", "/api/v1/nodes")["items"]
    }
    # Other tests may add and remove nodes.
    gpus = {node: number for node, number in cluster.node_gpus().items() if node in nodes}
    assert gpus
    assert gpus == {node: int(nodes[node].get(GPU, 0)) for node in gpus}

    given = Reserve(pods_millicores=100, pods_memory_m=50)
    measured = NodePoolDispatcher.from_cluster(cluster, label=HOST).get_node_pools()
    reserved = NodePoolDispatcher.from_cluster(cluster, label=HOST, reserve=given)
    seen = [pool for pool in measured if pool.name in nodes]
    assert seen
    for pool in seen:
        cpu = int(parse_quantity(nodes[pool.name]["cpu"]) * 1000)  # "1k" on a simulated node
        assert 0 < pool.allocatable.millicores <= cpu
        assert reserved.get_node_pool(pool.name).allocatable.millicores == cpu - 100

    if kube_cluster.session.cluster.kind != "devcluster":
        return  # only the devcluster has a node with a taint of ours
    pools = NodePoolDispatcher.from_cluster(cluster, label=DEVCLUSTER).get_node_pools()
    found = {pool.name: pool for pool in pools}
    assert list(found) == ["gpu", "plain", "reserved"]
    assert [found[name].capacity.gpus for name in found] == [4, 0, 0]
    assert found["reserved"].taints == (
        Taint(key="symphony.test/reserved", value="team-a", effect="NoSchedule"),
    )
    assert found["plain"].taints == found["gpu"].taints == ()


@pytest.mark.long
def test_daemon_set_is_counted_on_its_nodes(kube_cluster, open_cluster):
    pools = NodePoolDispatcher.from_cluster(open_cluster(), label=HOST).get_node_pools()
    target = next(pool for pool in pools if not pool.taints)
    container = {
        "name": "daemon",
        "image": kube_cluster.image,
        "command": ["python3", "-c", FOREVER],
        "resources": {"requests": {"cpu": "70m", "memory": "30Mi"}},
    }
    labels = {"app": "daemon"}
    spec = {
        "nodeSelector": {HOST: target.name},
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    kube_cluster.raw.call(
        "POST",
        kube_cluster.path("daemonsets", group="apis/apps/v1"),
        {
            "metadata": {"name": "daemon"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        },
    )

    def bound():
        found = kube_cluster.raw.call("GET", kube_cluster.path("pods"))["items"]
        return any(pod["spec"].get("nodeName") for pod in found)

    wait_until(bound)
    after = {
        pool.name: pool
        for pool in NodePoolDispatcher.from_cluster(open_cluster(), label=HOST).get_node_pools()
    }
    taken = MachineResources(millicores=70, memory_m=30)
    for pool in (
        pool for pool in pools if pool.name in after
    ):  # other tests may add and remove nodes
        expected = pool.allocatable.less(taken) if pool.name == target.name else pool.allocatable
        assert after[pool.name].allocatable == expected


def test_cluster_of_another_backend_is_refused(tmp_path):
    with pytest.raises(SpecError, match="from_cluster takes a KubeCluster, not LocalCluster"):
        NodePoolDispatcher.from_cluster(Cluster.new("local", state_dir=tmp_path))


@pytest.mark.parametrize("grouped", [False, pytest.param(True, marks=pytest.mark.long)])
def test_gpu_shares_are_scheduled_on_one_node(kube_cluster, shared, name, grouped):
    """The shares use a whole node. Other tests on this node delay this one until they finish."""
    dispatcher = NodePoolDispatcher.from_cluster(shared, label=HOST)
    pool = max(dispatcher.get_node_pools(), key=lambda pool: pool.size)
    gpus = pool.allocatable.gpus
    if not gpus:
        pytest.skip("no node of this cluster offers nvidia.com/gpu")
    exp = shared.new_experiment(name)
    to = exp.new_process_group("squad") if grouped else exp
    for i in range(gpus):
        dispatcher.assign_to_gpu(python(to, f"p{i}", FOREVER), node_pool_name=pool.name)
    shared.launch(exp)
    path = kube_cluster.path(f"pods?labelSelector=symphony/experiment%3D{name}")

    def placed():
        found = [pod["spec"].get("nodeName") for pod in kube_cluster.raw.call("GET", path)["items"]]
        return found if all(found) else None

    nodes = wait_until(placed)
    assert set(nodes) == {pool.name}
    assert len(nodes) == (1 if grouped else gpus)
