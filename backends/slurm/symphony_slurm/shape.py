"""The resources that an experiment requests, and how they are divided among nodes.

All functions are pure. A group or a process without a group is a unit, which runs on one node.
Slots are the nodes of a job before Slurm has chosen them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from symphony.errors import SpecError
from symphony.model.quantities import MEBIBYTE_BYTES, parse_quantity
from symphony_slurm.slurm import NodeSize

if TYPE_CHECKING:
    from symphony.plan.resolve import Plan, PlannedProcess

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

    ``slots`` maps the name of each process to the number of its node. ``units`` maps the names of
    groups and of processes without a group to what they request.
    """

    nodes: int
    cpus: int
    memory_mib: int
    gpus: int
    slots: dict[str, int]
    units: dict[str, Demand]

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
            options.append(f"--gres=gpu:{self.gpus}")
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


def choose_shape(plan: Plan, nodes: int) -> Shape:
    """Divide the units of an experiment among nodes.

    The unit with the largest demand is placed first, on the node with the least demand. Therefore,
    all nodes request similar amounts.

    Raises SpecError if there are more nodes than units.
    """
    units: dict[str, list[PlannedProcess]] = {}
    for process in plan:
        units.setdefault(process.group or process.name, []).append(process)
    if nodes > len(units):
        raise SpecError(
            f"nodes is {nodes}, but experiment {plan.experiment!r} has only {len(units)} processes "
            "and groups, each of which runs on one node; lower nodes"
        )
    demands = {
        name: sum((process_demand(process) for process in members), Demand())
        for name, members in units.items()
    }
    loads = [Demand() for _ in range(nodes)]
    counts = [0] * nodes
    slots: dict[str, int] = {}
    order = sorted(units, key=lambda name: _size(demands[name]), reverse=True)
    for name in order:
        slot = min(range(nodes), key=lambda index: (_size(loads[index]), counts[index]))
        loads[slot] += demands[name]
        counts[slot] += 1
        slots.update({process.name: slot for process in units[name]})
    return Shape(
        nodes=nodes,
        cpus=max(1, math.ceil(max(load.cpus for load in loads) - 1e-9)),
        memory_mib=max(load.memory_mib for load in loads),
        gpus=max(load.gpus for load in loads),
        slots={process.name: slots[process.name] for process in plan},
        units=demands,
    )


def _size(demand: Demand) -> tuple[int, float, int]:
    return demand.gpus, demand.cpus, demand.memory_mib


def check_fits(shape: Shape, sizes: Sequence[NodeSize], partition: str | None) -> None:
    """Raise SpecError with the arithmetic if no nodes of a partition are large enough.

    Without this check, some sites keep such a job in the queue forever.
    """
    if not sizes:
        return
    where = "the default partition" if partition is None else f"partition {partition!r}"
    fitting = sum(size.count for size in sizes if _fits(shape, size))
    if fitting >= shape.nodes:
        return
    needed = Demand(cpus=shape.cpus, memory_mib=shape.memory_mib, gpus=shape.gpus)
    largest = max(sizes, key=lambda size: (size.gpus, size.cpus, size.memory_mib))
    if fitting:
        raise SpecError(
            f"the experiment needs {shape.nodes} nodes with {needed} each, but only {fitting} "
            f"nodes of {where} are that large; lower nodes or the requests"
        )
    has = Demand(cpus=largest.cpus, memory_mib=largest.memory_mib, gpus=largest.gpus)
    for name, demand in shape.units.items():
        if not any(_fits(demand, size) for size in sizes):
            raise SpecError(
                f"{name!r} requests {demand}, but the largest node of {where} has {has}; a process "
                "or group runs on one node, so lower its requests, or choose another partition"
            )
    hint = _nodes_hint(shape, largest)
    raise SpecError(
        f"the experiment needs {shape.nodes} {'node' if shape.nodes == 1 else 'nodes'} with "
        f"{needed}{' each' if shape.nodes > 1 else ''}, but the largest node of {where} has {has}; "
        f"{hint}"
    )


def _fits(needed: Shape | Demand, size: NodeSize) -> bool:
    has_processors = needed.cpus <= size.cpus and needed.gpus <= size.gpus
    return has_processors and needed.memory_mib <= size.memory_mib


def _nodes_hint(shape: Shape, largest: NodeSize) -> str:
    """Return how many nodes could have enough resources."""
    nodes = math.ceil(shape.nodes * max(_ratios(shape, largest)))
    return f"set nodes to at least {nodes}, or lower the requests (a process without one counts 1)"


def _ratios(shape: Shape, size: NodeSize) -> Iterable[float]:
    pairs = (
        (shape.cpus, size.cpus),
        (shape.memory_mib, size.memory_mib),
        (shape.gpus, size.gpus),
    )
    return [needed / present for needed, present in pairs if needed]
