"""Sending processes to node pools: a machine or a share of one, a GPU, any machine with room, or a pool alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from symphony.errors import NotFound, SpecError
from symphony.model import Process, ProcessGroup, validators
from symphony.names import did_you_mean, join_names
from symphony_kube.node_pools import terraform
from symphony_kube.node_pools.assignments import Owner, Placements
from symphony_kube.node_pools.choose import Assignment
from symphony_kube.node_pools.gke_reserve import Reserve, check_reserve
from symphony_kube.node_pools.pools import NodePool
from symphony_kube.node_pools.quantities import mebibytes, millicores, whole
from symphony_kube.node_pools.shares import share

if TYPE_CHECKING:
    from symphony_kube.cluster import KubeCluster

_RESOURCES = ("cpu", "memory_m", "gpu_type", "gpu_count")
# What each way of assigning takes from a configuration dictionary: what it needs, and what it may have.
WAYS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "machine": (("node_pool_name",), ("process_group", "process_per_machine")),
    "gpu": ((), ("node_pool_name", "process_group", *_RESOURCES)),
    "resource": ((), (*_RESOURCES, "node_pool_name", "process_group")),
    "node_pool": (("node_pool_name",), ("process_group", "cpu", "memory_m", "gpu_count")),
}


class NodePoolDispatcher:
    """Sends processes to the machines of node pools, without arithmetic.

    Each ``assign_to_...`` sets the node selector and the tolerations of a pool, requests of CPU and memory, and the
    limit of GPUs, and returns the pool. What is shared is what a machine gives to processes, never what it has, so
    that n shares always fit side by side. The members of a group are one Pod, on one machine: the selector and the
    tolerations go on the group, and their requests together must fit. ``process_group`` is inferred, and only needed
    for a process that is put into its group later. Assigning a process again replaces what it was assigned before,
    and other requests of its own.

    They raise `SpecError`, and `NotFound` for a pool that is not there, with the near miss; then nothing is changed.
    """

    def __init__(self, pools: Iterable[NodePool]) -> None:
        self._pools = {pool.name: pool for pool in pools}
        self._aliases = {pool.alias: pool for pool in self._pools.values() if pool.alias}
        self._placements = Placements()

    @staticmethod
    def from_cluster(
        cluster: KubeCluster, *, label: str | None = None, reserve: Reserve | None = None
    ) -> NodePoolDispatcher:
        """A dispatcher for the nodes that a cluster has now.

        Nodes with the same value of ``label`` are a pool; by default of the first that a node has of the labels that
        GKE, EKS, Karpenter and AKS put on theirs, and ``name``. A pool's machines are as small as the smallest of
        its nodes; what they can allocate is the API's figure, less what the Pods of DaemonSets and of kube-system
        ask for there, or, where a ``reserve`` is given or Pods may not be listed, what that has for Pods.

        Needs the right to list nodes. Raises `BackendError`, `PluginError` without the kubernetes package, and
        `SpecError` where no node has the label.
        """
        from symphony_kube.node_pools.live_nodes import read

        check_reserve(reserve)
        return NodePoolDispatcher(read(cluster, label=label, reserve=reserve))

    # --- looking ---

    def get_node_pools(self) -> list[NodePool]:
        """The node pools, in the order of their description."""
        return list(self._pools.values())

    def get_node_pool(self, name: str) -> NodePool:
        """The node pool of that name; `NotFound` with the near miss where there is none."""
        found = self._pools.get(str(name)) or self._aliases.get(str(name))
        if found is None:
            known = list(self._pools)
            raise NotFound(
                f"no node pool {name!r}{did_you_mean(str(name), known) or f'; there are {join_names(known, limit=20)}'}"
            )
        return found

    # --- assigning ---

    def assign_to_machine(
        self,
        process: Process,
        *,
        node_pool_name: str,
        process_group: ProcessGroup | None = None,
        process_per_machine: int | str = 1,
    ) -> NodePool:
        """Give a process a whole machine, or the share of one of ``process_per_machine`` processes, GPUs included."""
        pool = self.get_node_pool(node_pool_name)
        parts = whole(process_per_machine, "process_per_machine", least=1)
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
        """Give a process one GPU, and with it the same share of the machine's CPU and memory.

        With any of ``cpu``, ``memory_m``, ``gpu_type`` and ``gpu_count`` it is `assign_to_resource`, with one GPU
        unless ``gpu_count`` says otherwise.
        """
        if any(given is not None for given in (cpu, memory_m, gpu_type, gpu_count)):
            count = whole(
                1 if gpu_count is None else gpu_count, "gpu_count of assign_to_gpu", least=1
            )
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
                "assign_to_gpu needs node_pool_name, or what the process needs (cpu, memory_m, gpu_type, gpu_count); "
                f"pools with GPUs are {self._with_gpus()}"
            )
        pool = self.get_node_pool(node_pool_name)
        gpus = pool.allocatable.gpus
        if not gpus:
            raise SpecError(
                f"node pool {pool.name!r} has no GPUs; pools with GPUs are {self._with_gpus()}"
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
        """Send a process to the smallest pool that has what it needs: the fewest GPUs, then CPU, memory, and name.

        ``cpu`` is in cores (``0.5`` or ``"500m"``), ``memory_m`` in MiB. ``gpu_type`` without ``gpu_count`` is one
        GPU. Members of a group are sent to the smallest pool that has what they need together: it may change as more
        of them are assigned. With ``node_pool_name`` only that pool is looked at.
        """
        if all(given is None for given in (cpu, memory_m, gpu_type, gpu_count)):
            raise SpecError(
                "assign_to_resource needs at least one of cpu, memory_m, gpu_type and gpu_count"
            )
        count = None if gpu_count is None else whole(gpu_count, "gpu_count")
        if gpu_type is not None:
            gpu_type = validators.path(gpu_type, "gpu_type")
            count = 1 if count is None else count
            if not count:
                raise SpecError(
                    f"gpu_count is 0 and gpu_type is {gpu_type!r}: leave gpu_type out, or ask for a GPU"
                )
        return self._assign(
            process,
            process_group,
            Assignment(
                millicores=None if cpu is None else millicores(cpu, "cpu"),
                memory_m=None if memory_m is None else mebibytes(memory_m, "memory_m"),
                gpus=count,
                gpu_type=gpu_type,
                pool=None if node_pool_name is None else self.get_node_pool(node_pool_name),
            ),
        )

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
        """Send a process to a pool, with requests of its own or with none: then it takes what others leave."""
        return self._assign(
            process,
            process_group,
            Assignment(
                millicores=None if cpu is None else millicores(cpu, "cpu"),
                memory_m=None if memory_m is None else mebibytes(memory_m, "memory_m"),
                gpus=None if gpu_count is None else whole(gpu_count, "gpu_count"),
                pool=self.get_node_pool(node_pool_name),
            ),
        )

    def assign_to(
        self, process: Process | None = None, /, assign_to: str | None = None, **settings: Any
    ) -> NodePool:
        """Assign as a configuration says: ``assign_to`` is ``machine``, ``gpu``, ``resource`` or ``node_pool``.

        The ``settings`` are the keywords of that method; one of None counts as absent.

        >>> dispatcher.assign_to(agent, **{"assign_to": "resource", "cpu": 2, "memory_m": 4096})  # doctest: +SKIP
        """
        # By position alone: in a configuration "process" and "self" are keys like others, and wrong.
        process = settings.pop("process", None) if process is None else process
        way = validators.one_of(assign_to, list(WAYS), "assign_to")
        needed, others = WAYS[way]
        given = {key: value for key, value in settings.items() if value is not None}
        validators.refuse_unknown(given, (*needed, *others), f"assign_to={way!r}")
        for key in needed:
            if key not in given:
                raise SpecError(
                    f"assign_to={way!r} needs {key}; the node pools are {join_names(self._pools, limit=20)}"
                )
        found: NodePool = getattr(self, f"assign_to_{way}")(process, **given)
        return found

    # --- inside ---

    def _assign_share(
        self, process: Process, process_group: ProcessGroup | None, pool: NodePool, parts: int
    ) -> NodePool:
        part = share(pool, parts)
        gpus = part.gpus or None
        wanted = Assignment(
            millicores=part.millicores, memory_m=part.memory_m, gpus=gpus, pool=pool
        )
        return self._assign(process, process_group, wanted)

    def _assign(
        self, process: Process, process_group: ProcessGroup | None, assignment: Assignment
    ) -> NodePool:
        owner = _owner(process, process_group)
        return self._placements.assign(process, owner, assignment, list(self._pools.values()))

    def _with_gpus(self) -> str:
        return join_names(
            (pool.name for pool in self._pools.values() if pool.allocatable.gpus), limit=20
        )


class GKEDispatcher(NodePoolDispatcher):
    """A dispatcher for a cluster of GKE, from its description in Terraform's JSON form: a path, or a mapping.

    It reads ``resource.google_container_node_pool.<pool>.node_config``: ``taint``, ``machine_type``, and of ``labels``
    ``name``, ``cpu`` (cores), ``memory_m`` (MiB), and ``gpu_type`` and ``gpu_count`` where there are GPUs, as numbers
    or numeric strings. Processes are sent to a pool by its label ``name``, and a pool is called by it, or by its key
    in the file. ``reserve`` is what machines keep for the system; see `symphony_kube.node_pools.gke_reserve`.

    Raises `NotFound` for a file that is not there, and `SpecError` that names file, pool and field for a wrong one.
    """

    def __init__(
        self, tf_json: str | os.PathLike[str] | Mapping[str, Any], *, reserve: Reserve | None = None
    ) -> None:
        if not isinstance(tf_json, (str, os.PathLike, Mapping)):
            raise SpecError(
                f"tf_json is the path of a *.tf.json file or its content as a mapping, not {tf_json!r}"
            )
        super().__init__(terraform.read(tf_json, check_reserve(reserve) or Reserve()))


def _owner(process: object, process_group: object) -> Owner:
    """Whose Pod it is: the group's, or that of the process itself."""
    if not isinstance(process, Process):
        hint = "; assign its members, one by one" if isinstance(process, ProcessGroup) else ""
        raise SpecError(f"a Process is assigned, not {process!r}{hint}")
    if process_group is None:
        return process.group or process
    if not isinstance(process_group, ProcessGroup):
        raise SpecError(
            f"process_group is a ProcessGroup, not {process_group!r}; leave it out: it is inferred"
        )
    if process.group is process_group or (process.group is None and process.experiment is None):
        return process_group
    where = f"in group {process.group.name!r}" if process.group else "in no group"
    raise SpecError(
        f"process {process.name!r} is {where}, and process_group is {process_group.name!r}: leave process_group out, "
        "it is inferred"
    )
