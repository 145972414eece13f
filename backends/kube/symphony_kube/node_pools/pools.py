"""Node pools: machines of one kind, what each has, and what it gives. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from symphony_kube.node_pools.quantities import cores
from symphony_kube.render.options import GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """An amount of what machines have: CPU in thousandths of a core, memory in MiB, and GPUs."""

    millicores: int = 0
    memory_m: int = 0
    gpus: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            millicores=self.millicores + other.millicores,
            memory_m=self.memory_m + other.memory_m,
            gpus=self.gpus + other.gpus,
        )

    def less(self, other: Resources) -> Resources:
        """What is left when ``other`` is taken away, and never below nothing."""
        return Resources(
            millicores=max(0, self.millicores - other.millicores),
            memory_m=max(0, self.memory_m - other.memory_m),
            gpus=max(0, self.gpus - other.gpus),
        )

    def split(self, parts: int) -> Resources:
        """One of ``parts`` equal parts, rounded down: together they are never more than this."""
        return Resources(
            millicores=self.millicores // parts,
            memory_m=self.memory_m // parts,
            gpus=self.gpus // parts,
        )

    def __str__(self) -> str:
        parts = [f"cpu {cores(self.millicores)}", f"memory {self.memory_m} MiB"]
        return ", ".join([*parts, counted(self.gpus)] if self.gpus else parts)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Taint:
    """A mark of a node that keeps Pods away which do not tolerate it."""

    key: str
    value: str = ""
    effect: str

    @property
    def toleration(self) -> dict[str, Any]:
        """The keywords of `add_toleration` that accept this taint alone."""
        if not self.value:
            return {"key": self.key, "operator": "Exists", "effect": self.effect}
        return {"key": self.key, "operator": "Equal", "value": self.value, "effect": self.effect}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """Machines of one kind.

    ``selector`` is the label that their nodes have and no others. ``capacity`` is what a machine has,
    ``allocatable`` what it gives to processes: less what the system keeps and what the system's own Pods ask for.
    ``unusable`` says why it takes no process now, where that is so. ``alias`` is another name that finds it.
    """

    name: str
    selector: tuple[str, str]
    capacity: Resources
    allocatable: Resources
    gpu_type: str | None = None
    taints: tuple[Taint, ...] = ()
    gpu_resource: str = GPU
    unusable: str = ""
    alias: str = ""

    @property
    def tolerations(self) -> list[dict[str, Any]]:
        """The keywords of `add_toleration` that a process needs here: for each taint, and for GPUs.

        That for GPUs is the one that Kubernetes' admission plug-in ExtendedResourceToleration adds where it is
        enabled: nodes with GPUs are tainted with the name of the resource.
        """
        found = [taint.toleration for taint in self.taints]
        if self.capacity.gpus:
            gpus = Taint(key=self.gpu_resource, effect="NoSchedule").toleration
            found = [
                item
                for item in found
                if (item["key"], item["effect"]) != (gpus["key"], gpus["effect"])
            ]
            found.append(gpus)
        return found

    @property
    def size(self) -> tuple[int, int, int, str]:
        """What pools are ordered by, the smallest first: GPUs, CPU, memory, and their names where all are equal."""
        has = self.allocatable
        return (has.gpus, has.millicores, has.memory_m, self.name)


def counted(gpus: int, kind: str | None = None) -> str:
    """GPUs in words.

    >>> counted(1), counted(4, "nvidia-tesla-v100")
    ('1 GPU', '4 GPUs of type nvidia-tesla-v100')
    """
    return f"{gpus or 'no'} GPU{'' if gpus == 1 else 's'}{f' of type {kind}' if kind else ''}"
