"""The resources that an experiment requests, and how they are divided among nodes.

All functions are pure. A group or a process without a group is a unit, which runs on one node.
Slots are the nodes of a job before Slurm has chosen them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from symphony.errors import SpecError
from symphony.model.settings.quantities import MEBIBYTE_BYTES, parse_quantity

if TYPE_CHECKING:
    from symphony.plan.plan import Plan, PlannedProcess

# The CPUs of a process that requests none, as with a task of srun.
DEFAULT_CPUS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """An amount of resources. Memory is in MiB, and 0 if none was requested."""

    cpus: float = 0.0
    memory_mib: int = 0
    gpus: int = 0

    def __add__(self, other: Demand) -> Demand:
        return Demand(
            cpus=self.cpus + other.cpus,
            memory_mib=self.memory_mib + other.memory_mib,
            gpus=self.gpus + other.gpus,
        )

    def __str__(self) -> str:
        parts = [f"{self.cpus:g} {'CPU' if self.cpus == 1 else 'CPUs'}"]
        if self.memory_mib:
            parts.append(f"{self.memory_mib} MiB of memory")
        if self.gpus:
            parts.append(f"{self.gpus} {'GPU' if self.gpus == 1 else 'GPUs'}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The nodes of a job. Each node has the same ``cpus``, ``memory_mib`` and ``gpus``.

    ``gpu_type`` is the type of the GPUs, or None for any type. ``features`` contains the words that
    all nodes must have. ``exclusive`` states that no other job uses the nodes. ``slots`` maps the
    name of each process to the number of its node. ``units`` maps the names of groups and of
    processes without a group to what they request.
    """

    nodes: int
    cpus: int
    memory_mib: int
    gpus: int
    slots: dict[str, int]
    units: dict[str, Demand]
    gpu_type: str | None = None
    features: tuple[str, ...] = ()
    exclusive: bool = False

    @property
    def node_demand(self) -> Demand:
        """The resources that the job requests on each node."""
        return Demand(cpus=self.cpus, memory_mib=self.memory_mib, gpus=self.gpus)

    def amounts(self) -> dict[str, int]:
        """Return the number of nodes, and what each of them has."""
        return {
            "nodes": self.nodes,
            "cpus": self.cpus,
            "memory_mib": self.memory_mib,
            "gpus": self.gpus,
        }

    def arguments(self) -> list[str]:
        """Return the options of sbatch that request the nodes."""
        options = [
            f"--nodes={self.nodes}",
            "--ntasks-per-node=1",
            f"--cpus-per-task={self.cpus}",
        ]
        if self.memory_mib:
            options.append(f"--mem={self.memory_mib}M")
        if self.gpus:
            kind = "gpu" if self.gpu_type is None else f"gpu:{self.gpu_type}"
            options.append(f"--gres={kind}:{self.gpus}")
        if self.features:
            options.append(f"--constraint={'&'.join(self.features)}")
        if self.exclusive:
            options.append("--exclusive")
        return options


def process_demand(process: PlannedProcess) -> Demand:
    """Return what a process requests. A limit also acts as a request."""
    settings = process.settings
    amounts = {**settings.resource_limit, **settings.resource_request}
    cpus = float(parse_quantity(amounts["cpu"], "cpu")) if "cpu" in amounts else DEFAULT_CPUS
    memory = 0
    if "memory" in amounts:
        memory = math.ceil(parse_quantity(amounts["memory"], "memory") / MEBIBYTE_BYTES)
    gpus = int(settings.resource_limit.get("gpu", 0))
    return Demand(cpus=cpus, memory_mib=memory, gpus=gpus)


def total_demand(processes: Iterable[PlannedProcess]) -> Demand:
    """Return what processes request together."""
    return sum(map(process_demand, processes), Demand())


def units_of(plan: Plan) -> dict[str, list[PlannedProcess]]:
    """Return the processes of each unit of an experiment."""
    units: dict[str, list[PlannedProcess]] = {}
    for process in plan:
        units.setdefault(process.group or process.name, []).append(process)
    return units


def in_rank_order(
    plan: Plan, slots: Mapping[str, int], movable: Collection[str] | None = None
) -> dict[str, int]:
    """Return the slots of processes, with consecutive ranks of each unit on the same node.

    Programs for distributed training expect this. The number of ranks on each node remains the
    same. Ranks that request different amounts keep their slots, and so do the units of which not
    all ranks are in ``movable``, unless it is None.
    """
    result = dict(slots)
    ranks: dict[str, list[PlannedProcess]] = {}
    for process in plan:
        if process.settings.rank_of is not None:
            ranks.setdefault(process.settings.rank_of, []).append(process)
    for members in ranks.values():
        names = [process.name for process in members]
        is_movable = movable is None or set(names).issubset(movable)
        if is_movable and len({process_demand(process) for process in members}) == 1:
            result.update(zip(names, sorted(slots[name] for name in names), strict=True))
    return result


def choose_shape(
    plan: Plan, nodes: int, *, gpu_type: str | None = None, exclusive: bool = False
) -> Shape:
    """Divide the units of an experiment among nodes.

    The unit with the largest demand is placed first, on the node with the least demand. Therefore,
    all nodes request similar amounts.

    Raises SpecError if there are more nodes than units, or if the processes select different nodes.
    """
    units = units_of(plan)
    if nodes > len(units):
        count = "one process or group" if len(units) == 1 else f"{len(units)} processes and groups"
        raise SpecError(
            f"nodes is {nodes}, but experiment {plan.experiment!r} has only {count}, each of which "
            "runs on one node; lower nodes"
        )
    demands = {name: total_demand(members) for name, members in units.items()}
    loads = [Demand() for _ in range(nodes)]
    counts = [0] * nodes
    slots: dict[str, int] = {}
    order = sorted(units, key=lambda name: size(demands[name]), reverse=True)
    for name in order:
        slot = min(range(nodes), key=lambda index: (size(loads[index]), counts[index]))
        loads[slot] += demands[name]
        counts[slot] += 1
        slots.update({process.name: slot for process in units[name]})
    slots = in_rank_order(plan, slots)
    return Shape(
        nodes=nodes,
        cpus=max(1, math.ceil(max(load.cpus for load in loads) - 1e-9)),
        memory_mib=max(load.memory_mib for load in loads),
        gpus=max(load.gpus for load in loads),
        slots={process.name: slots[process.name] for process in plan},
        units=demands,
        gpu_type=gpu_type,
        features=node_features(plan),
        exclusive=exclusive,
    )


def node_features(plan: Plan) -> tuple[str, ...]:
    """Return the features of nodes that the setting ``node_selector`` of all processes selects.

    Slurm's features are words. The word is the value of the selector, or its key if the value is
    ``true``. Raises SpecError if two processes require different values of one key, because all
    nodes of a job have the same features.
    """
    selectors: dict[str, tuple[str, str]] = {}
    for process in plan:
        for key, value in (process.pod.node_selector or {}).items():
            other, chosen = selectors.setdefault(key, (process.path, value))
            if chosen != value:
                raise SpecError(
                    f"processes {other!r} and {process.path!r} select nodes with different values "
                    f"of {key!r}, {chosen!r} and {value!r}, but all nodes of a job are selected in "
                    "the same way; set node_selector to the same value",
                    path=(*process.document_path, "node_selector", key),
                )
    words = []
    for key, (_, value) in selectors.items():
        words.append(key if value == "true" else value)
    return tuple(dict.fromkeys(words))


def size(demand: Demand) -> tuple[int, float, int]:
    """Return a value by which demands are compared."""
    return demand.gpus, demand.cpus, demand.memory_mib
