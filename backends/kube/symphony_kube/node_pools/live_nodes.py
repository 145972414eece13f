"""Node pools from the nodes that a live cluster has."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError, SpecError
from symphony.names import did_you_mean, join_names
from symphony_kube.api.errors import ApiError
from symphony_kube.api.resources import items_of
from symphony_kube.node_pools.gke_reserve import Reserve
from symphony_kube.node_pools.pools import NodePool, Resources, Taint
from symphony_kube.node_pools.quantities import MIB, MILLI, quantity

if TYPE_CHECKING:
    from symphony_kube.cluster import KubeCluster

Object = Mapping[str, Any]

# What GKE, EKS, Karpenter and AKS call the pool of a node; and the label of Terraform descriptions.
POOL_LABELS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "agentpool",
    "name",
)
GPU_TYPE_LABELS = (
    "cloud.google.com/gke-accelerator",
    "nvidia.com/gpu.product",
    "karpenter.k8s.aws/instance-gpu-name",
    "k8s.amazonaws.com/accelerator",
)
CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
# Taints that come and go with the state of a node, and are no property of its pool.
PASSING = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "karpenter.sh/",
    "cloud.google.com/impending",
)
PASSING_KEYS = ("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler")
SOFT = "PreferNoSchedule"
SYSTEM_OWNERS = ("DaemonSet", "Node")
SYSTEM_NAMESPACE = "kube-system"


def read(cluster: KubeCluster, *, label: str | None, reserve: Reserve | None) -> list[NodePool]:
    """The pools of a cluster's nodes; see `NodePoolDispatcher.from_cluster`."""
    api = getattr(cluster, "api", None)
    if api is None:
        raise SpecError(
            f"from_cluster takes a KubeCluster, not {type(cluster).__name__}; see GKEDispatcher for files"
        )
    try:
        nodes = items_of(api.call("GET", "/api/v1/nodes"))
    except ApiError as exc:
        raise BackendError(
            f"cannot list nodes: {exc.detail}; ask for the right to list nodes, or describe the pools in Terraform's "
            "JSON form for GKEDispatcher"
        ) from exc
    return pools(
        nodes,
        label=label,
        gpu_resource=cluster.options.gpu_resource,
        taken=None if reserve else _system_pods(cluster),
        usual=(reserve or Reserve()).pods,
    )


def _system_pods(cluster: KubeCluster) -> dict[str, Resources] | None:
    """What the system's own Pods ask for, by node; None where Pods may not be listed."""
    running = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
    try:
        answer = cluster.api.call("GET", "/api/v1/pods", query={"fieldSelector": running})
    except ApiError as exc:
        if exc.status != 403:
            raise
        return None
    found: dict[str, Resources] = {}
    for pod in items_of(answer):
        if is_system(pod):
            node = pod["spec"]["nodeName"]
            found[node] = found.get(node, Resources()) + asked(pod["spec"])
    return found


# --- pure from here on ---


def pools(
    nodes: Sequence[Object],
    *,
    label: str | None,
    gpu_resource: str,
    taken: Mapping[str, Resources] | None,
    usual: Resources,
) -> list[NodePool]:
    """Nodes as pools, by name. ``taken`` is what the system's Pods ask for on each, ``usual`` what to assume else."""
    by_pool: dict[tuple[str, str], list[Object]] = {}
    able = [node for node in nodes if not _is_control_plane(node) and not _is_windows(node)]
    for node in able:
        selector = pool_label(node, label)
        if selector:
            by_pool.setdefault(selector, []).append(node)
    if not by_pool:
        raise SpecError(_no_pools(able, label))
    _refuse_same_names(by_pool)
    return [
        _pool(selector, by_pool[selector], gpu_resource, taken, usual)
        for selector in sorted(by_pool, key=lambda selector: selector[1])
    ]


def pool_label(node: Object, label: str | None) -> tuple[str, str] | None:
    """The label that tells the pool of a node, or None where it has none."""
    has = _labels(node)
    return next(
        ((key, has[key]) for key in ([label] if label else POOL_LABELS) if has.get(key)), None
    )


def _pool(
    selector: tuple[str, str],
    nodes: list[Object],
    gpu_resource: str,
    taken: Mapping[str, Resources] | None,
    usual: Resources,
) -> NodePool:
    working = [node for node in nodes if not _trouble(node)]
    taints = _common_taints(working or nodes)
    counted = [node for node in working or nodes if _hard(_taints(node)) <= set(taints)]
    left = [
        _amounts(node["status"].get("allocatable"), gpu_resource).less(
            usual if taken is None else taken.get(_name(node), Resources())
        )
        for node in counted
    ]
    kinds = {
        next((_labels(node)[key] for key in GPU_TYPE_LABELS if key in _labels(node)), None)
        for node in counted
    }
    allocatable = _smallest(left)
    return NodePool(
        name=selector[1],
        selector=selector,
        capacity=_smallest(
            _amounts(node["status"].get("capacity"), gpu_resource) for node in counted
        ),
        allocatable=allocatable,
        gpu_type=kinds.pop() if len(kinds) == 1 else None,
        taints=taints,
        gpu_resource=gpu_resource,
        unusable="" if working else _why_unusable(nodes),
    )


def _smallest(amounts: Iterable[Resources]) -> Resources:
    every = list(amounts)
    return Resources(
        millicores=min(amount.millicores for amount in every),
        memory_m=min(amount.memory_m for amount in every),
        gpus=min(amount.gpus for amount in every),
    )


def _amounts(given: Object | None, gpu_resource: str) -> Resources:
    """Amounts of a node, in whole units, rounded down."""
    has = given or {}
    return Resources(
        millicores=int(quantity(has.get("cpu", "0")) * MILLI),
        memory_m=int(quantity(has.get("memory", "0")) / MIB),
        gpus=int(quantity(has.get(gpu_resource, "0"))),
    )


# --- nodes ---


def _name(node: Object) -> str:
    return str(node["metadata"]["name"])


def _labels(node: Object) -> Mapping[str, str]:
    return node["metadata"].get("labels") or {}


def _is_control_plane(node: Object) -> bool:
    """Whether the control plane keeps a node for itself: one that it shares with Pods is without the taint."""
    return any(taint.key in CONTROL_PLANE and taint.effect != SOFT for taint in _taints(node))


def _is_windows(node: Object) -> bool:
    return _labels(node).get("kubernetes.io/os") == "windows"


def _trouble(node: Object) -> str:
    """Why a node takes no Pods now, or ``""``."""
    if node.get("spec", {}).get("unschedulable"):
        return "cordoned"
    conditions = node.get("status", {}).get("conditions") or []
    ready = any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)
    return "" if ready else "not ready"


def _why_unusable(nodes: Sequence[Object]) -> str:
    told = [f"{_name(node)} is {_trouble(node)}" for node in nodes]
    return f"none of its nodes takes Pods now: {join_names(told, limit=4)}"


def _taints(node: Object) -> frozenset[Taint]:
    """The taints of a node, without those that tell its state."""
    given = node.get("spec", {}).get("taints") or []
    return frozenset(
        Taint(key=item["key"], value=item.get("value") or "", effect=item["effect"])
        for item in given
        if not item["key"].startswith(PASSING) and item["key"] not in PASSING_KEYS
    )


def _hard(taints: Iterable[Taint]) -> set[Taint]:
    return {taint for taint in taints if taint.effect != SOFT}


def _common_taints(nodes: Sequence[Object]) -> tuple[Taint, ...]:
    """The taints of a pool: of its nodes with the fewest, since one with more was set apart by somebody."""
    seen = Counter(tuple(sorted(_taints(node))) for node in nodes)
    return min(seen, key=lambda taints: (len(_hard(taints)), -seen[taints], taints))


def _no_pools(nodes: Sequence[Object], label: str | None) -> str:
    keys = sorted({key for node in nodes for key in _labels(node)})
    if not nodes:
        return "the cluster has no nodes that take Pods of their own"
    if label is None:
        which = f"no node has a label that tells its pool ({', '.join(POOL_LABELS)})"
        return f"{which}; name one with label=, of {join_names(keys, limit=20)}"
    return f"no node has the label {label!r}{did_you_mean(label, keys) or f'; they have {join_names(keys, limit=20)}'}"


def _refuse_same_names(selectors: Iterable[tuple[str, str]]) -> None:
    keys: dict[str, str] = {}
    for key, value in selectors:
        if value in keys:
            raise SpecError(
                f"two node pools are called {value!r}, by the labels {keys[value]!r} and {key!r}; choose with label="
            )
        keys[value] = key


# --- the system's Pods ---


def is_system(pod: Object) -> bool:
    """Whether a Pod is on its node for the system: of a DaemonSet, the kubelet's own, or in kube-system."""
    meta = pod["metadata"]
    owners = {owner.get("kind") for owner in meta.get("ownerReferences") or []}
    return meta.get("namespace") == SYSTEM_NAMESPACE or not owners.isdisjoint(SYSTEM_OWNERS)


def asked(spec: Object) -> Resources:
    """What the scheduler counts for a Pod: its containers together, or an init container that asks for more.

    An init container that restarts always runs beside the others.
    """
    init: list[Object] = spec.get("initContainers") or []
    beside = [container for container in init if container.get("restartPolicy") == "Always"]
    alone = [
        _requests(container) for container in init if container.get("restartPolicy") != "Always"
    ]
    together = reduce(
        add,
        (_requests(container) for container in [*(spec.get("containers") or []), *beside]),
        Resources(),
    )
    overhead = _rounded_up(spec.get("overhead") or {})
    return overhead + Resources(
        millicores=max([together.millicores, *(amount.millicores for amount in alone)]),
        memory_m=max([together.memory_m, *(amount.memory_m for amount in alone)]),
    )


def _requests(container: Object) -> Resources:
    return _rounded_up((container.get("resources") or {}).get("requests") or {})


def _rounded_up(given: Object) -> Resources:
    return Resources(
        millicores=math.ceil(quantity(given.get("cpu", "0")) * MILLI),
        memory_m=math.ceil(quantity(given.get("memory", "0")) / MIB),
    )
