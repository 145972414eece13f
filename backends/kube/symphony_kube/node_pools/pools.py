"""Node pools, each of which consists of machines of one kind, and equal shares of a machine. All
functions are pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from symphony.errors import SpecError
from symphony.model.settings.quantities import format_cores
from symphony.support.names import join_names
from symphony_kube.render.options import GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineResources:
    """Amounts of CPU (in thousandths of a core), memory (in MiB) and GPUs."""

    millicores: int = 0
    memory_m: int = 0
    gpus: int = 0

    def __add__(self, other: MachineResources) -> MachineResources:
        return MachineResources(
            millicores=self.millicores + other.millicores,
            memory_m=self.memory_m + other.memory_m,
            gpus=self.gpus + other.gpus,
        )

    def less(self, other: MachineResources) -> MachineResources:
        """Return these resources minus ``other``, but at least zero of each resource."""
        return MachineResources(
            millicores=max(0, self.millicores - other.millicores),
            memory_m=max(0, self.memory_m - other.memory_m),
            gpus=max(0, self.gpus - other.gpus),
        )

    def split(self, parts: int) -> MachineResources:
        """Return one of ``parts`` equal shares of these resources, rounded down."""
        return MachineResources(
            millicores=self.millicores // parts,
            memory_m=self.memory_m // parts,
            gpus=self.gpus // parts,
        )

    def __str__(self) -> str:
        parts = [f"cpu {format_cores(self.millicores)}", f"memory {self.memory_m} MiB"]
        if self.gpus:
            parts.append(count_gpus(self.gpus))
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Taint:
    """A node's taint, which repels Pods that do not tolerate it."""

    key: str
    value: str = ""
    effect: str

    @property
    def toleration(self) -> dict[str, Any]:
        """The keyword arguments to pass to `add_toleration` so that a Pod tolerates this taint."""
        if not self.value:
            return {"key": self.key, "operator": "Exists", "effect": self.effect}
        return {"key": self.key, "operator": "Equal", "value": self.value, "effect": self.effect}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """A pool of machines of one kind.

    * ``selector``: the label, as a key and a value, that selects the nodes in the pool.
    * ``capacity``: a machine's total resources.
    * ``allocatable``: the part of a machine's resources that processes can use. This is the
      capacity minus the requests of the system Pods, and minus the amounts that are reserved for
      the system.
    * ``unusable``: why the pool cannot accept a process at the moment, or ``""`` if it can.
    * ``alias``: a second name by which the pool can be found.
    """

    name: str
    selector: tuple[str, str]
    capacity: MachineResources
    allocatable: MachineResources
    gpu_type: str | None = None
    taints: tuple[Taint, ...] = ()
    gpu_resource: str = GPU
    unusable: str = ""
    alias: str = ""

    @property
    def tolerations(self) -> list[dict[str, Any]]:
        """The keyword arguments for each call to `add_toleration` that a process in this pool
        needs.

        There is a toleration for each of the pool's taints. Machines with GPUs usually have a taint
        whose key is the name of the GPU resource, so a toleration for this taint is added. The
        Kubernetes admission plug-in ExtendedResourceToleration adds the same toleration in clusters
        that enable it.
        """
        tolerations = [taint.toleration for taint in self.taints]
        if not self.capacity.gpus:
            return tolerations
        gpu_toleration = Taint(key=self.gpu_resource, effect="NoSchedule").toleration
        replaced = (gpu_toleration["key"], gpu_toleration["effect"])
        others = [item for item in tolerations if (item["key"], item["effect"]) != replaced]
        return [*others, gpu_toleration]

    @property
    def size(self) -> tuple[int, int, int, str]:
        """The key for sorting pools from smallest to largest.

        Pools are compared by GPUs, then by CPU, memory and name.
        """
        available = self.allocatable
        return (available.gpus, available.millicores, available.memory_m, self.name)


def count_gpus(gpus: int) -> str:
    """Format a number of GPUs as text.

    >>> count_gpus(1), count_gpus(4), count_gpus(0)
    ('1 GPU', '4 GPUs', 'no GPUs')
    """
    return f"{gpus or 'no'} GPU{'' if gpus == 1 else 's'}"


def share(pool: NodePool, parts: int) -> MachineResources:
    """Return the resources for each of ``parts`` processes that share one of the pool's machines.

    Raises `SpecError` if the GPUs cannot be divided evenly, or if a share has no CPU or no memory.
    """
    gpus = pool.allocatable.gpus
    if gpus and gpus % parts:
        raise SpecError(_uneven_share(pool, parts))
    part = pool.allocatable.split(parts)
    if not part.millicores or not part.memory_m:
        what = "a machine" if parts == 1 else f"a share of 1/{parts} of a machine"
        raise SpecError(
            f"{what} of node pool {pool.name!r} has no resources to give ({part}): of "
            f"{pool.capacity} the system leaves {pool.allocatable}; use fewer processes per "
            "machine, a larger pool, or another Reserve"
        )
    return part


def _uneven_share(pool: NodePool, parts: int) -> str:
    gpus = pool.allocatable.gpus
    divisors = join_names([str(n) for n in range(1, gpus + 1) if gpus % n == 0], limit=20)
    if parts > gpus:
        problem = f"{parts} processes are more than"
    else:
        problem = f"{parts} processes cannot evenly share"
    return (
        f"{problem} the {count_gpus(gpus)} of a machine of node pool {pool.name!r}: there "
        f"process_per_machine can be {divisors}; use assign_to_resource for a process that needs "
        "no GPU"
    )
