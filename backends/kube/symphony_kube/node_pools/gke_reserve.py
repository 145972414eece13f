"""What a machine of GKE keeps for itself, and so what it can allocate. Pure.

Sources, as of GKE 1.29:

* https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes (memory and CPU reservations): of memory
  25 % of the first 4 GiB, 20 % of the next 4, 10 % of the next 8, 6 % of the next 112 and 2 % of the rest, or
  255 MiB of a machine with less than 1 GiB, and 100 MiB for the kubelet's eviction threshold; of CPU 6 % of the first
  core, 1 % of the second, 0.5 % of the third and fourth and 0.25 % of the rest; 1060 millicores of a shared-core
  E2 machine; 400 millicores more where a node may have more than 110 Pods.
* The kernel: those percentages are of what it leaves, and it keeps a 64-byte record of each page of 4 KiB, a 64th of
  the memory (https://docs.kernel.org/mm/vmemmap_dedup.html), and 110 to 300 MiB besides on nodes that were looked at.
* The system's own Pods, which ask for a part of what is allocatable: the DaemonSets of a node of GKE (kube-proxy,
  logging, metrics, storage, DNS, metadata, GPU plug-in) ask for 0.3 to 0.5 cores and 400 to 700 MiB.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from symphony.errors import SpecError
from symphony_kube.node_pools.pools import Resources

GIB = 1024  # in MiB
CORE = 1000  # in millicores

# (up to where, what part is kept of what lies between the one before and there)
Tiers = tuple[tuple[int | None, Fraction], ...]
MEMORY: Tiers = (
    (4 * GIB, Fraction(25, 100)),
    (8 * GIB, Fraction(20, 100)),
    (16 * GIB, Fraction(10, 100)),
    (128 * GIB, Fraction(6, 100)),
    (None, Fraction(2, 100)),
)
CPU: Tiers = (
    (1 * CORE, Fraction(6, 100)),
    (2 * CORE, Fraction(1, 100)),
    (4 * CORE, Fraction(5, 1000)),
    (None, Fraction(25, 10000)),
)
SMALL_MEMORY = 255
SHARED_CORE = ("e2-micro", "e2-small", "e2-medium")
SHARED_CORE_LEFT = 2 * CORE - 1060
USUAL_PODS = 110
MANY_PODS = 400
PAGE_RECORDS = Fraction(64, 4096)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """What is taken off a machine's capacity before it is shared: the parts that differ from cluster to cluster.

    ``pods_millicores`` and ``pods_memory_m`` (MiB) are for the system's own Pods on each node: DaemonSets, and what
    else runs in kube-system there. ``kernel_memory_m`` is what the kernel keeps besides its records of pages,
    ``eviction_memory_m`` the kubelet's eviction threshold. The tiers of GKE are added to these.
    """

    pods_millicores: int = 500
    pods_memory_m: int = 768
    kernel_memory_m: int = 384
    eviction_memory_m: int = 100

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise SpecError(
                    f"{name} of a Reserve is a whole number of at least 0, not {value!r}"
                )

    @property
    def pods(self) -> Resources:
        """What the system's own Pods ask for."""
        return Resources(millicores=self.pods_millicores, memory_m=self.pods_memory_m)

    def allocatable(
        self, capacity: Resources, *, machine_type: str = "", max_pods: int = USUAL_PODS
    ) -> Resources:
        """What a machine of GKE gives to processes; ``capacity`` is what its type is said to have."""
        millicores = capacity.millicores - kept(capacity.millicores, CPU)
        if machine_type in SHARED_CORE:
            millicores = min(millicores, SHARED_CORE_LEFT)
        if max_pods > USUAL_PODS:
            millicores -= MANY_PODS
        memory = (
            capacity.memory_m - math.ceil(capacity.memory_m * PAGE_RECORDS) - self.kernel_memory_m
        )
        memory -= kept_memory(max(0, memory)) + self.eviction_memory_m
        left = Resources(millicores=max(0, millicores), memory_m=max(0, memory), gpus=capacity.gpus)
        return left.less(self.pods)


def check_reserve(value: object) -> Reserve | None:
    """What was given as ``reserve``; `SpecError` where that is none."""
    if value is None or isinstance(value, Reserve):
        return value
    example = "Reserve(pods_millicores=900, pods_memory_m=1500)"
    raise SpecError(f"reserve is a Reserve, for example {example}, not {value!r}")


def kept_memory(memory_m: int) -> int:
    """The MiB that GKE keeps of what the kernel leaves, without the eviction threshold.

    >>> kept_memory(8 * GIB)
    1844
    """
    return SMALL_MEMORY if memory_m < GIB else kept(memory_m, MEMORY)


def kept(amount: int, tiers: Tiers) -> int:
    """How much of an amount is kept, tier by tier, rounded up.

    >>> kept(8000, CPU)
    90
    """
    total, below = Fraction(0), 0
    for top, part in tiers:
        end = amount if top is None else min(amount, top)
        total += max(0, end - below) * part
        below = end
    return math.ceil(total)
