"""Determine the node pools and GPUs of a running cluster from its nodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError, SpecError
from symphony.model.settings.quantities import MEBIBYTE_BYTES, MILLICORES_PER_CORE, parse_quantity
from symphony.support.names import did_you_mean, join_names
from symphony_kube.api.errors import ApiError
from symphony_kube.api.resources import items_of
from symphony_kube.node_pools.gke_reserve import Reserve
from symphony_kube.node_pools.pools import MachineResources, NodePool, Taint

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

Object = Mapping[str, Any]

NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
# The labels that contain the name of a node's pool, in order of precedence. GKE, EKS, Karpenter
# and AKS set the first four labels. `GKEDispatcher` uses the last label as a pool's node selector.
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
CONTROL_PLANE_TAINTS = (
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
)
# Prefixes and names of taints that depend on a node's current state, not on its pool.
TEMPORARY_TAINT_PREFIXES = (
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "karpenter.sh/",
    "cloud.google.com/impending",
)
TEMPORARY_TAINTS = ("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler")
# A taint with this effect does not repel Pods if no other node is available.
SOFT_EFFECT = "PreferNoSchedule"
SYSTEM_OWNERS = ("DaemonSet", "Node")
SYSTEM_NAMESPACE = "kube-system"


def allocatable_gpus(api: Api, resource: str) -> dict[str, int]:
    """Return the number of allocatable GPUs on each node that is not cordoned.

    Raises `BackendError` if the nodes cannot be listed.
    """
    return gpus_by_node(items_of(api.call("GET", NODES)), resource)


def read_node_pools(
    api: Api, gpu_resource: str, *, label: str | None, reserve: Reserve | None
) -> list[NodePool]:
    """Return a cluster's node pools; see `NodePoolDispatcher.from_cluster`."""
    try:
        nodes = items_of(api.call("GET", NODES))
    except ApiError as exc:
        raise BackendError(
            f"cannot list nodes: {exc.detail}; ask for the right to list nodes, or describe the "
            "pools in Terraform JSON syntax for GKEDispatcher"
        ) from exc
    return node_pools(
        nodes,
        label=label,
        gpu_resource=gpu_resource,
        system_requests=None if reserve else _system_requests(api),
        default_requests=(reserve or Reserve()).pods,
    )


def _system_requests(api: Api) -> dict[str, MachineResources] | None:
    """Return the total requests of the system Pods on each node.

    Return None if the user is not allowed to list the Pods in all namespaces.
    """
    running = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
    try:
        answer = api.call("GET", PODS, query={"fieldSelector": running})
    except ApiError as exc:
        if exc.status != 403:
            raise
        return None
    requests: dict[str, MachineResources] = {}
    for pod in items_of(answer):
        if is_system_pod(pod):
            node = pod["spec"]["nodeName"]
            requests[node] = requests.get(node, MachineResources()) + pod_requests(pod["spec"])
    return requests


# --- the rest of this module is pure ---


def gpus_by_node(nodes: list[dict[str, Any]], resource: str) -> dict[str, int]:
    """Return the number of allocatable GPUs on each node that is not cordoned."""
    result = {}
    for node in nodes:
        if node.get("spec", {}).get("unschedulable"):
            continue
        # Quantities of extended resources are always whole numbers.
        allocatable = node.get("status", {}).get("allocatable", {})
        result[node["metadata"]["name"]] = int(allocatable.get(resource, 0))
    return result


def node_pools(
    nodes: Sequence[Object],
    *,
    label: str | None,
    gpu_resource: str,
    system_requests: Mapping[str, MachineResources] | None,
    default_requests: MachineResources,
) -> list[NodePool]:
    """Return the pools that the nodes form, sorted by name.

    ``system_requests`` maps each node to the total requests of the system Pods on it. If
    ``system_requests`` is None, ``default_requests`` is assumed for every node.
    """
    by_pool: dict[tuple[str, str], list[Object]] = {}
    usable = [node for node in nodes if not _is_control_plane(node) and not _is_windows(node)]
    for node in usable:
        selector = pool_label(node, label)
        if selector:
            by_pool.setdefault(selector, []).append(node)
    if not by_pool:
        raise SpecError(_no_pools(usable, label))
    _check_unique_names(by_pool)
    return [
        _node_pool(selector, by_pool[selector], gpu_resource, system_requests, default_requests)
        for selector in sorted(by_pool, key=lambda selector: selector[1])
    ]


def pool_label(node: Object, label: str | None) -> tuple[str, str] | None:
    """Return the key and value of the label that names a node's pool, or None if there is none."""
    labels = _labels(node)
    for key in [label] if label else POOL_LABELS:
        if labels.get(key):
            return key, labels[key]
    return None


def _node_pool(
    selector: tuple[str, str],
    nodes: list[Object],
    gpu_resource: str,
    system_requests: Mapping[str, MachineResources] | None,
    default_requests: MachineResources,
) -> NodePool:
    working = [node for node in nodes if not _problem(node)]
    taints = _common_taints(working or nodes)
    # A node with additional hard taints is assumed to have been set apart by an administrator, so
    # its resources are ignored.
    typical = [node for node in working or nodes if _hard(_taints(node)) <= set(taints)]
    capacities = []
    remaining = []
    gpu_types = set()
    for node in typical:
        status = node["status"]
        requests = default_requests
        if system_requests is not None:
            requests = system_requests.get(_name(node), MachineResources())
        capacities.append(_rounded_down(status.get("capacity"), gpu_resource))
        remaining.append(_rounded_down(status.get("allocatable"), gpu_resource).less(requests))
        gpu_types.add(_gpu_type(node))
    return NodePool(
        name=selector[1],
        selector=selector,
        capacity=_smallest(capacities),
        allocatable=_smallest(remaining),
        gpu_type=gpu_types.pop() if len(gpu_types) == 1 else None,
        taints=taints,
        gpu_resource=gpu_resource,
        unusable="" if working else _why_unusable(nodes),
    )


def _smallest(amounts: Sequence[MachineResources]) -> MachineResources:
    """Return the smallest amount of each resource."""
    return MachineResources(
        millicores=min(amount.millicores for amount in amounts),
        memory_m=min(amount.memory_m for amount in amounts),
        gpus=min(amount.gpus for amount in amounts),
    )


def _rounded_down(amounts: Object | None, gpu_resource: str) -> MachineResources:
    """Return a node's resource amounts, rounded down to whole millicores, MiB and GPUs."""
    amounts = amounts or {}
    return MachineResources(
        millicores=int(parse_quantity(amounts.get("cpu", "0")) * MILLICORES_PER_CORE),
        memory_m=int(parse_quantity(amounts.get("memory", "0")) / MEBIBYTE_BYTES),
        gpus=int(parse_quantity(amounts.get(gpu_resource, "0"))),
    )


# --- nodes ---


def _name(node: Object) -> str:
    return str(node["metadata"]["name"])


def _labels(node: Object) -> Mapping[str, str]:
    return node["metadata"].get("labels") or {}


def _gpu_type(node: Object) -> str | None:
    labels = _labels(node)
    for key in GPU_TYPE_LABELS:
        if key in labels:
            return labels[key]
    return None


def _is_control_plane(node: Object) -> bool:
    """Return whether a node is reserved for the control plane.

    Such a node has a control-plane taint with an effect other than PreferNoSchedule.
    """
    return any(
        taint.key in CONTROL_PLANE_TAINTS and taint.effect != SOFT_EFFECT for taint in _taints(node)
    )


def _is_windows(node: Object) -> bool:
    return _labels(node).get("kubernetes.io/os") == "windows"


def _problem(node: Object) -> str:
    """Return why a node does not accept Pods at the moment, or ``""`` if it accepts them."""
    if node.get("spec", {}).get("unschedulable"):
        return "cordoned"
    for condition in node.get("status", {}).get("conditions") or []:
        if condition.get("type") == "Ready" and condition.get("status") == "True":
            return ""
    return "not ready"


def _why_unusable(nodes: Sequence[Object]) -> str:
    problems = [f"{_name(node)} is {_problem(node)}" for node in nodes]
    return f"none of its nodes accepts Pods at the moment: {join_names(problems, limit=4)}"


def _taints(node: Object) -> frozenset[Taint]:
    """Return a node's taints, except for temporary taints."""
    return frozenset(
        Taint(key=item["key"], value=item.get("value") or "", effect=item["effect"])
        for item in node.get("spec", {}).get("taints") or []
        if not item["key"].startswith(TEMPORARY_TAINT_PREFIXES)
        and item["key"] not in TEMPORARY_TAINTS
    )


def _hard(taints: Iterable[Taint]) -> set[Taint]:
    return {taint for taint in taints if taint.effect != SOFT_EFFECT}


def _common_taints(nodes: Sequence[Object]) -> tuple[Taint, ...]:
    """Return the taints of the nodes with the fewest hard taints.

    An administrator who temporarily takes a node out of its pool adds a taint to that node, so the
    nodes with the fewest taints are the typical ones. Taints with the effect PreferNoSchedule are
    not hard.
    """
    counts = Counter(tuple(sorted(_taints(node))) for node in nodes)
    return min(counts, key=lambda taints: (len(_hard(taints)), -counts[taints], taints))


def _no_pools(nodes: Sequence[Object], label: str | None) -> str:
    if not nodes:
        return "the cluster has no nodes for Pods"
    keys = sorted({key for node in nodes for key in _labels(node)})
    shown = join_names(keys, limit=20)
    if label is None:
        return (
            f"no node has a label with the name of its pool ({', '.join(POOL_LABELS)}); choose "
            f"one with label=, of {shown}"
        )
    hint = did_you_mean(label, keys) or f"; they have {shown}"
    return f"no node has the label {label!r}{hint}"


def _check_unique_names(selectors: Iterable[tuple[str, str]]) -> None:
    keys: dict[str, str] = {}
    for key, value in selectors:
        if value in keys:
            raise SpecError(
                f"two node pools have the name {value!r}, by the labels {keys[value]!r} and "
                f"{key!r}; choose one label with label="
            )
        keys[value] = key


# --- system Pods ---


def is_system_pod(pod: Object) -> bool:
    """Return whether a Pod is a system Pod.

    System Pods are the Pods of DaemonSets, static Pods, and all Pods in the namespace kube-system.
    """
    metadata = pod["metadata"]
    owners = {owner.get("kind") for owner in metadata.get("ownerReferences") or []}
    return metadata.get("namespace") == SYSTEM_NAMESPACE or not owners.isdisjoint(SYSTEM_OWNERS)


def pod_requests(spec: Object) -> MachineResources:
    """Return a Pod's CPU and memory requests as the scheduler computes them.

    For each resource, take the sum of the containers' requests or the largest request of an init
    container, whichever is larger, and add the Pod's overhead. An init container that is always
    restarted (a sidecar) runs at the same time as the other containers, so its requests are added
    to the sum.
    """
    together = MachineResources()
    for container in spec.get("containers") or []:
        together += _container_requests(container)
    alone = []
    for container in spec.get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            together += _container_requests(container)
        else:
            alone.append(_container_requests(container))
    overhead = _rounded_up(spec.get("overhead") or {})
    return overhead + MachineResources(
        millicores=max([together.millicores, *(amount.millicores for amount in alone)]),
        memory_m=max([together.memory_m, *(amount.memory_m for amount in alone)]),
    )


def _container_requests(container: Object) -> MachineResources:
    return _rounded_up((container.get("resources") or {}).get("requests") or {})


def _rounded_up(amounts: Object) -> MachineResources:
    return MachineResources(
        millicores=math.ceil(parse_quantity(amounts.get("cpu", "0")) * MILLICORES_PER_CORE),
        memory_m=math.ceil(parse_quantity(amounts.get("memory", "0")) / MEBIBYTE_BYTES),
    )
