"""The resources that GKE reserves on each machine, and those that remain allocatable. Pure.

The values are from the following sources, as of GKE 1.29:

* https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes lists the reservations.
  GKE reserves 25% of the first 4 GiB of memory, 20% of the next 4 GiB, 10% of the next 8 GiB, 6% of
  the next 112 GiB and 2% of the rest. On machines with less than 1 GiB of memory, GKE reserves 255
  MiB instead. The kubelet's eviction threshold is another 100 MiB. GKE reserves 6% of the first CPU
  core, 1% of the second, 0.5% of each of the third and fourth, and 0.25% of each further core. On
  shared-core E2 machines, GKE reserves 1060 millicores instead. If a node may have more than 110
  Pods, GKE reserves another 400 millicores.
* The percentages apply to the memory that the kernel leaves available. The kernel uses a 64-byte
  record for each 4 KiB page, which amounts to 1/64 of the memory
  (https://docs.kernel.org/mm/vmemmap_dedup.html). On the nodes that were measured, the kernel uses
  another 110 to 300 MiB.
* System Pods request part of the allocatable resources. On a GKE node, the DaemonSets (kube-proxy,
  logging, metrics, storage, DNS, metadata and GPU plug-in) request 0.3 to 0.5 cores and 400 to 700
  MiB of memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from symphony.errors import SpecError, shown
from symphony_kube.node_pools.pools import MachineResources

GIB = 1024  # The unit is MiB.
CORE = 1000  # The unit is millicores.

# Each tier contains the upper bound of a range, and the fraction of this range that is reserved.
Tiers = tuple[tuple[int | None, Fraction], ...]
MEMORY_TIERS: Tiers = (
    (4 * GIB, Fraction(25, 100)),
    (8 * GIB, Fraction(20, 100)),
    (16 * GIB, Fraction(10, 100)),
    (128 * GIB, Fraction(6, 100)),
    (None, Fraction(2, 100)),
)
CPU_TIERS: Tiers = (
    (1 * CORE, Fraction(6, 100)),
    (2 * CORE, Fraction(1, 100)),
    (4 * CORE, Fraction(5, 1000)),
    (None, Fraction(25, 10000)),
)
# The memory that is reserved on machines with less than 1 GiB of memory.
SMALL_MACHINE_MEMORY_MIB = 255
SHARED_CORE_TYPES = ("e2-micro", "e2-small", "e2-medium")
SHARED_CORE_MILLICORES = 2 * CORE - 1060
# If a node can run more Pods than this default, GKE reserves more CPU.
DEFAULT_MAX_PODS = 110
MANY_PODS_MILLICORES = 400
# The kernel needs a 64-byte record for each page of 4096 bytes.
PAGE_RECORDS_FRACTION = Fraction(64, 4096)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """The parts of a machine's reserved resources that differ from cluster to cluster.

    * ``pods_millicores`` and ``pods_memory_m`` (in MiB): the requests of the system Pods on each
      node. These are the Pods of DaemonSets, static Pods and all Pods in kube-system.
    * ``kernel_memory_m`` (in MiB): the memory that the kernel needs in addition to its page
      records.
    * ``eviction_memory_m`` (in MiB): the kubelet's eviction threshold.

    The amounts that GKE itself reserves are added to these amounts.
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
                    f"{name} of a Reserve must be a whole number of at least 0, not {shown(value)}"
                )

    @property
    def pods(self) -> MachineResources:
        """The resources that system Pods request."""
        return MachineResources(millicores=self.pods_millicores, memory_m=self.pods_memory_m)

    def allocatable(
        self,
        capacity: MachineResources,
        *,
        machine_type: str = "",
        max_pods: int = DEFAULT_MAX_PODS,
    ) -> MachineResources:
        """Return the resources of a GKE machine that are available to processes.

        ``capacity`` contains the nominal resources of the machine type.
        """
        millicores = capacity.millicores - reserved(capacity.millicores, CPU_TIERS)
        if machine_type in SHARED_CORE_TYPES:
            millicores = min(millicores, SHARED_CORE_MILLICORES)
        if max_pods > DEFAULT_MAX_PODS:
            millicores -= MANY_PODS_MILLICORES
        page_records = math.ceil(capacity.memory_m * PAGE_RECORDS_FRACTION)
        memory = capacity.memory_m - page_records - self.kernel_memory_m
        memory -= reserved_memory(max(0, memory)) + self.eviction_memory_m
        remaining = MachineResources(
            millicores=max(0, millicores), memory_m=max(0, memory), gpus=capacity.gpus
        )
        return remaining.less(self.pods)


def check_reserve(value: object) -> Reserve | None:
    """Validate ``value`` as the argument ``reserve``, and return it.

    Raises `SpecError` if ``value`` is neither a `Reserve` nor None.
    """
    if value is None or isinstance(value, Reserve):
        return value
    example = "Reserve(pods_millicores=900, pods_memory_m=1500)"
    raise SpecError(f"reserve must be a Reserve, for example {example}, not {shown(value)}")


def reserved_memory(memory_m: int) -> int:
    """Return the memory in MiB that GKE reserves, not including the eviction threshold.

    ``memory_m`` is the memory in MiB that the kernel leaves available.

    >>> reserved_memory(8 * GIB)
    1844
    """
    return SMALL_MACHINE_MEMORY_MIB if memory_m < GIB else reserved(memory_m, MEMORY_TIERS)


def reserved(amount: int, tiers: Tiers) -> int:
    """Return the reserved part of ``amount``, rounded up.

    >>> reserved(8000, CPU_TIERS)
    90
    """
    total, lower = Fraction(0), 0
    for bound, fraction in tiers:
        upper = amount if bound is None else min(amount, bound)
        total += max(0, upper - lower) * fraction
        lower = upper
    return math.ceil(total)
