"""Dispatchers that assign processes to machines, shares of machines, GPUs or node pools."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from symphony.errors import NotFound, SpecError, shown
from symphony.model import Process, ProcessGroup
from symphony.model.settings import validators
from symphony.model.settings.quantities import parse_mebibytes, parse_millicores, parse_whole_number
from symphony.support.names import did_you_mean, join_names
from symphony_kube.node_pools.assignments import Owner, Placements
from symphony_kube.node_pools.choose import Assignment
from symphony_kube.node_pools.gke_reserve import Reserve, check_reserve
from symphony_kube.node_pools.gpu_types import find_gpu_type
from symphony_kube.node_pools.live_nodes import read_node_pools
from symphony_kube.node_pools.pools import NodePool, share
from symphony_kube.node_pools.terraform import read_terraform

if TYPE_CHECKING:
    from symphony_kube.cluster import KubeCluster

_RESOURCES = ("cpu", "memory_m", "gpu_type", "gpu_count")
# For each assignment method, the required and the optional configuration keys.
ASSIGNMENT_KEYS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "machine": (("node_pool_name",), ("process_group", "process_per_machine")),
    "gpu": ((), ("node_pool_name", "process_group", *_RESOURCES)),
    "resource": ((), (*_RESOURCES, "node_pool_name", "process_group")),
    "node_pool": (("node_pool_name",), ("process_group", "cpu", "memory_m", "gpu_count")),
}


class NodePoolDispatcher:
    """A dispatcher that assigns processes to node pools and computes their resource settings.

    Each ``assign_to_...`` method sets the node selector and the tolerations for a pool, sets the
    CPU and memory requests and the GPU limit, and returns the pool. Shares are computed from a
    machine's allocatable resources, not from its capacity, so that n shares always fit on one
    machine.

    The members of a group run in one Pod on one machine. The selector and the tolerations are set
    on the group, and the machine must satisfy the requests of all members together. The argument
    ``process_group`` is normally inferred. It is needed only for a process that is added to its
    group later. The requests in an assignment override requests that were set on the process
    itself. If a process is assigned again, the settings from its earlier assignment are replaced.

    The methods raise `SpecError` if a process does not fit, and `NotFound` if the requested pool
    does not exist. In both cases, nothing is changed.
    """

    def __init__(self, pools: Iterable[NodePool]) -> None:
        given = validators.instances(pools, NodePool, "pools")
        self._pools = {pool.name: pool for pool in given}
        self._aliases = {pool.alias: pool for pool in self._pools.values() if pool.alias}
        self._placements = Placements()

    @staticmethod
    def from_cluster(
        cluster: KubeCluster, *, label: str | None = None, reserve: Reserve | None = None
    ) -> NodePoolDispatcher:
        """Return a dispatcher for the current nodes of a cluster.

        Nodes with the same value for the label ``label`` form a pool. By default, this is the label
        that GKE, EKS, Karpenter or AKS sets on nodes, or ``name`` if there is no such label. For
        each resource, a pool's machine size is the smallest amount on any of the pool's nodes. The
        allocatable resources are those that the API reports, minus the requests of system Pods:
        the Pods of DaemonSets, static Pods and all Pods in kube-system. If you set ``reserve`` or
        are not allowed to list all Pods, the Pod requests in ``reserve`` (by default, in
        ``Reserve()``) are subtracted instead.

        You need permission to list nodes. Raises `BackendError` if the nodes cannot be listed,
        `PluginError` if the packages of the extra ``kube`` are not installed, and `SpecError` if no
        node has the label or two pools have the same name.
        """
        check_reserve(reserve)
        api = getattr(cluster, "api", None)
        if api is None:
            raise SpecError(
                f"from_cluster takes a KubeCluster, not {type(cluster).__name__}; use "
                "GKEDispatcher for files"
            )
        pools = read_node_pools(api, cluster.options.gpu_resource, label=label, reserve=reserve)
        return NodePoolDispatcher(pools)

    # --- pools ---

    def get_node_pools(self) -> list[NodePool]:
        """Return the node pools, in the order of the cluster description or, for a running cluster,
        sorted by name.
        """
        return list(self._pools.values())

    def get_node_pool(self, name: str) -> NodePool:
        """Return the node pool with the given name or alias.

        Raises `NotFound` if no such pool exists.
        """
        name = validators.text(name, "node_pool_name")
        pool = self._pools.get(name) or self._aliases.get(name)
        if pool is None:
            hint = did_you_mean(name, self._pools)
            known = join_names(self._pools, limit=20)
            raise NotFound(f"no node pool {shown(name)}{hint or f'; there are {known}'}")
        return pool

    # --- assignments ---

    def assign_to_machine(
        self,
        process: Process,
        *,
        node_pool_name: str,
        process_group: ProcessGroup | None = None,
        process_per_machine: int | str = 1,
    ) -> NodePool:
        """Assign a process to a whole machine, or to an equal share of a machine, including its
        GPUs.

        ``process_per_machine`` is the number of equal shares into which the machine is divided.
        """
        pool = self.get_node_pool(node_pool_name)
        parts = parse_whole_number(process_per_machine, "process_per_machine", least=1)
        return self._assign_share(process, process_group, pool, parts)

    def assign_to_gpu(
        self,
        process: Process,
        *,
        node_pool_name: str | None = None,
        process_group: ProcessGroup | None = None,
        cpu: float | str | None = None,
        memory_m: float | str | None = None,
        gpu_type: str | None = None,
        gpu_count: int | str | None = None,
    ) -> NodePool:
        """Assign a process to one GPU, with a proportional share of the machine's CPU and memory.

        With ``cpu``, ``memory_m``, ``gpu_type`` or ``gpu_count``, this method is equivalent to
        `assign_to_resource` with a default of one GPU.
        """
        if any(value is not None for value in (cpu, memory_m, gpu_type, gpu_count)):
            count = 1
            if gpu_count is not None:
                count = parse_whole_number(gpu_count, "gpu_count of assign_to_gpu", least=1)
            return self.assign_to_resource(
                process,
                cpu=cpu,
                memory_m=memory_m,
                gpu_type=gpu_type,
                gpu_count=count,
                node_pool_name=node_pool_name,
                process_group=process_group,
            )
        if node_pool_name is None:
            raise SpecError(
                "assign_to_gpu needs node_pool_name, or resources (cpu, memory_m, gpu_type, "
                f"gpu_count); pools with GPUs are {self._pools_with_gpus()}"
            )
        pool = self.get_node_pool(node_pool_name)
        gpus = pool.allocatable.gpus
        if not gpus:
            raise SpecError(
                f"node pool {pool.name!r} has no GPUs; pools with GPUs are "
                f"{self._pools_with_gpus()}"
            )
        return self._assign_share(process, process_group, pool, gpus)

    def assign_to_resource(
        self,
        process: Process,
        *,
        cpu: float | str | None = None,
        memory_m: float | str | None = None,
        gpu_type: str | None = None,
        gpu_count: int | str | None = None,
        node_pool_name: str | None = None,
        process_group: ProcessGroup | None = None,
    ) -> NodePool:
        """Assign a process to the smallest pool that has the requested resources.

        Pools are compared by GPUs, and then by CPU, memory and name. ``cpu`` is in cores (``0.5``
        or ``"500m"``), and ``memory_m`` is in MiB. If ``gpu_type`` is set but ``gpu_count`` is not,
        one GPU is requested. The members of a group are assigned to the smallest pool that has
        enough resources for all members together. Therefore, the pool can change when another
        member is assigned. With ``node_pool_name``, only the pool with this name is considered.

        ``gpu_type`` can be a short name, such as ``k80`` for ``nvidia-tesla-k80``. A short name
        that can mean several types of the pools is an error.
        """
        if all(value is None for value in (cpu, memory_m, gpu_type, gpu_count)):
            raise SpecError(
                "assign_to_resource needs at least one of cpu, memory_m, gpu_type and gpu_count"
            )
        count = None if gpu_count is None else parse_whole_number(gpu_count, "gpu_count")
        if gpu_type is not None:
            gpu_type = validators.nonempty_text(gpu_type, "gpu_type")
            if count is None:
                count = 1
            if count == 0:
                raise SpecError(
                    f"gpu_count is 0 and gpu_type is {gpu_type!r}: remove gpu_type, or request a "
                    "GPU"
                )
        pool = None if node_pool_name is None else self.get_node_pool(node_pool_name)
        if gpu_type is not None:
            gpu_type = self._known_gpu_type(gpu_type, pool)
        assignment = _assignment(cpu, memory_m, count, gpu_type=gpu_type, pool=pool)
        return self._assign(process, process_group, assignment)

    def assign_to_node_pool(
        self,
        process: Process,
        *,
        node_pool_name: str,
        process_group: ProcessGroup | None = None,
        cpu: float | str | None = None,
        memory_m: float | str | None = None,
        gpu_count: int | str | None = None,
    ) -> NodePool:
        """Assign a process to a pool, with optional resource requests.

        Without requests, the process can use only the resources that other processes leave unused.
        """
        pool = self.get_node_pool(node_pool_name)
        count = None if gpu_count is None else parse_whole_number(gpu_count, "gpu_count")
        assignment = _assignment(cpu, memory_m, count, pool=pool)
        return self._assign(process, process_group, assignment)

    def assign_to(
        self, process: Process | None = None, /, assign_to: str | None = None, **settings: Any
    ) -> NodePool:
        """Assign a process with settings from a configuration.

        ``assign_to`` selects the assignment method: ``machine``, ``gpu``, ``resource`` or
        ``node_pool``. ``settings`` contains the arguments for this method. Settings that are None
        are ignored.

        >>> settings = {"assign_to": "resource", "cpu": 2, "memory_m": 4096}
        >>> dispatcher.assign_to(agent, **settings)  # doctest: +SKIP
        """
        # The parameter is positional-only, so that the configuration key "process" is reported as
        # unknown if the process is also passed as a positional argument.
        process = settings.pop("process", None) if process is None else process
        method = validators.one_of(assign_to, list(ASSIGNMENT_KEYS), "assign_to")
        required, optional = ASSIGNMENT_KEYS[method]
        present = {key: value for key, value in settings.items() if value is not None}
        validators.refuse_unknown(present, (*required, *optional), f"assign_to={method!r}")
        for key in required:
            if key not in present:
                raise SpecError(
                    f"assign_to={method!r} needs {key}; the node pools are "
                    f"{join_names(self._pools, limit=20)}"
                )
        pool: NodePool = getattr(self, f"assign_to_{method}")(process, **present)
        return pool

    # --- internals ---

    def _assign_share(
        self, process: Process, process_group: ProcessGroup | None, pool: NodePool, parts: int
    ) -> NodePool:
        part = share(pool, parts)
        assignment = Assignment(
            millicores=part.millicores,
            memory_m=part.memory_m,
            gpus=part.gpus or None,
            pool=pool,
        )
        return self._assign(process, process_group, assignment)

    def _assign(
        self, process: Process, process_group: ProcessGroup | None, assignment: Assignment
    ) -> NodePool:
        owner = _owner(process, process_group)
        for component in (process, owner):
            component.check_values()
        return self._placements.assign(process, owner, assignment, list(self._pools.values()))

    def _known_gpu_type(self, name: str, pool: NodePool | None) -> str:
        """Return the GPU type that ``name`` means in a pool, or in all pools if ``pool`` is None.

        Return ``name`` if no pool has such a type. The error message of the assignment then
        contains the types that exist.
        """
        pools = list(self._pools.values()) if pool is None else [pool]
        known = [pool.gpu_type for pool in pools if pool.gpu_type]
        return find_gpu_type(name, known) or name

    def _pools_with_gpus(self) -> str:
        names = [pool.name for pool in self._pools.values() if pool.allocatable.gpus]
        return join_names(names, limit=20)


class GKEDispatcher(NodePoolDispatcher):
    """A dispatcher for a GKE cluster that is described in Terraform's JSON syntax.

    ``tf_json`` is the path of a ``*.tf.json`` file, or its contents as a mapping. From each
    ``resource.google_container_node_pool.<pool>.node_config``, the dispatcher reads ``taint``,
    ``machine_type`` and the ``labels`` ``name``, ``cpu`` (cores), ``memory_m`` (MiB), ``gpu_type``
    and ``gpu_count``. If the labels do not specify GPUs, it reads ``guest_accelerator``. It also
    reads the pool's ``max_pods_per_node``. The amounts are numbers or numeric strings. The label
    ``name`` is used as the pool's node selector. The methods accept this label or the pool's key in
    the file as the pool's name. ``reserve`` contains the resources that system components use on
    each machine; see `symphony_kube.node_pools.gke_reserve`.

    Raises `NotFound` if the file does not exist, and `SpecError` if the contents are not valid. The
    message names the file, the pool and the field.
    """

    def __init__(
        self, tf_json: str | os.PathLike[str] | Mapping[str, Any], *, reserve: Reserve | None = None
    ) -> None:
        if not isinstance(tf_json, (str, os.PathLike, Mapping)):
            raise SpecError(
                "tf_json must be the path of a *.tf.json file or its content as a mapping, not "
                f"{shown(tf_json)}"
            )
        super().__init__(read_terraform(tf_json, check_reserve(reserve) or Reserve()))


def _assignment(
    cpu: float | str | None,
    memory_m: float | str | None,
    gpus: int | None,
    *,
    gpu_type: str | None = None,
    pool: NodePool | None,
) -> Assignment:
    """Return an assignment with the amounts that a user specified."""
    return Assignment(
        millicores=None if cpu is None else parse_millicores(cpu, "cpu"),
        memory_m=None if memory_m is None else parse_mebibytes(memory_m, "memory_m"),
        gpus=gpus,
        gpu_type=gpu_type,
        pool=pool,
    )


def _owner(process: object, process_group: object) -> Owner:
    """Return a process's group, or the process itself if it does not belong to a group."""
    if not isinstance(process, Process):
        hint = "; assign its members one by one" if isinstance(process, ProcessGroup) else ""
        raise SpecError(f"only a Process can be assigned, not {shown(process)}{hint}")
    if process_group is None:
        return process.group or process
    if not isinstance(process_group, ProcessGroup):
        raise SpecError(
            f"process_group must be a ProcessGroup, not {shown(process_group)}; remove it: "
            "the group is inferred"
        )
    is_free = process.group is None and process.experiment is None
    if process.group is process_group or is_free:
        return process_group
    actual = f"in group {process.group.name!r}" if process.group else "in no group"
    raise SpecError(
        f"process {process.name!r} is {actual}, and process_group is {process_group.name!r}: "
        "remove process_group, because the group is inferred"
    )
