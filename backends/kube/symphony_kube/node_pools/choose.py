"""Choose a node pool for a lone process or for a group whose members share a machine. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from symphony.errors import SpecError, shown
from symphony.model.settings.quantities import format_cores
from symphony.support.names import did_you_mean
from symphony_kube.node_pools.gpu_types import is_same_gpu_type
from symphony_kube.node_pools.pools import MachineResources, NodePool, count_gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """The resources and the pool that were assigned to a process.

    If an amount is None, the process's current setting is kept. ``gpu_type`` is the required GPU
    type. If ``pool`` is None, the process can run in any pool that it fits.
    """

    millicores: int | None = None
    memory_m: int | None = None
    gpus: int | None = None
    gpu_type: str | None = None
    pool: NodePool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementMember:
    """A process in a placement unit, with the total resources that it requests.

    ``assignment`` is None if the process has not been assigned to a pool.
    """

    name: str
    requests: MachineResources
    assignment: Assignment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementUnit:
    """Processes that run together on one machine. ``description`` names the unit in messages."""

    description: str
    members: tuple[PlacementMember, ...]

    @property
    def requests(self) -> MachineResources:
        """The total resources that all members request."""
        return sum((member.requests for member in self.members), MachineResources())

    @property
    def gpu_types(self) -> list[str]:
        """The required GPU types, without duplicates."""
        types: dict[str, None] = {}
        for member in self.members:
            if member.assignment and member.assignment.gpu_type is not None:
                types[member.assignment.gpu_type] = None
        return list(types)


def choose_pool(pools: Sequence[NodePool], unit: PlacementUnit) -> NodePool:
    """Return the pool to which a unit was assigned by name. If there is none, return the smallest
    pool that the unit fits.

    Raises `SpecError` with the reasons if the unit does not fit the assigned pool, if it fits no
    pool at all, or if its members were assigned to different pools.
    """
    named = _named_pool(unit)
    candidates = [named] if named else sorted(pools, key=lambda pool: pool.size)
    problems: dict[str, str] = {}
    for pool in candidates:
        problem = find_problem(pool, unit)
        if not problem:
            return pool
        problems[pool.name] = problem
    if named:
        raise SpecError(
            f"{unit.description} does not fit a machine of node pool {named.name!r}: "
            f"{problems[named.name]}"
        )
    reasons = "; ".join(f"{name}: {problem}" for name, problem in problems.items())
    raise SpecError(
        f"{unit.description} fits no node pool: {reasons or 'there are no node pools'}"
        f"{_gpu_type_hint(pools, unit)}"
    )


def find_problem(pool: NodePool, unit: PlacementUnit) -> str:
    """Return why a unit cannot run on a machine in a pool, or ``""`` if it can."""
    if pool.unusable:
        return pool.unusable
    return ", ".join([*_excessive_requests(pool, unit), *_wrong_gpu_types(pool, unit)])


def _excessive_requests(pool: NodePool, unit: PlacementUnit) -> list[str]:
    requests = unit.requests
    available = pool.allocatable
    capacity = pool.capacity
    problems = []
    if requests.millicores > available.millicores:
        members = _by_member(unit, lambda amount: format_cores(amount.millicores))
        problems.append(
            f"cpu {format_cores(requests.millicores)}{members} is more than "
            f"{format_cores(available.millicores)} (of {format_cores(capacity.millicores)})"
        )
    if requests.memory_m > available.memory_m:
        members = _by_member(unit, lambda amount: str(amount.memory_m))
        problems.append(
            f"memory {requests.memory_m} MiB{members} is more than {available.memory_m} MiB "
            f"(of {capacity.memory_m} MiB)"
        )
    if requests.gpus > available.gpus:
        members = _by_member(unit, lambda amount: str(amount.gpus))
        verb = "is" if requests.gpus == 1 else "are"
        if available.gpus:
            count = count_gpus(requests.gpus)
            problems.append(f"{count}{members} {verb} more than {available.gpus}")
        else:
            problems.append("it has no GPUs")
    return problems


def _by_member(unit: PlacementUnit, show: Callable[[MachineResources], str]) -> str:
    """Format the amount for each member as text. Return ``""`` if the unit has only one member."""
    if len(unit.members) < 2:
        return ""
    amounts = [(member.name, show(member.requests)) for member in unit.members]
    return f" ({', '.join(f'{name} {amount}' for name, amount in amounts if amount != '0')})"


def _wrong_gpu_types(pool: NodePool, unit: PlacementUnit) -> list[str]:
    if not pool.allocatable.gpus:
        return []
    actual = f"of type {pool.gpu_type}" if pool.gpu_type else "of an unknown type"
    return [
        f"its GPUs are {actual}, not {shown(gpu_type)[1:-1]}"
        for gpu_type in unit.gpu_types
        if pool.gpu_type is None or not is_same_gpu_type(gpu_type, pool.gpu_type)
    ]


def _named_pool(unit: PlacementUnit) -> NodePool | None:
    """Return the pool to which members were assigned by name, or None if there is none."""
    named = [
        (member.name, member.assignment.pool)
        for member in unit.members
        if member.assignment and member.assignment.pool is not None
    ]
    if not named:
        return None
    first_name, first_pool = named[0]
    for name, pool in named[1:]:
        if pool.name != first_pool.name:
            raise SpecError(
                f"{unit.description} is one Pod, on one machine, but its process {first_name!r} is "
                f"assigned to node pool {first_pool.name!r} and its process {name!r} to "
                f"{pool.name!r}: assign both to one pool, or take one out of the group"
            )
    return first_pool


def _gpu_type_hint(pools: Iterable[NodePool], unit: PlacementUnit) -> str:
    known = {pool.gpu_type for pool in pools if pool.gpu_type}
    unknown = [gpu_type for gpu_type in unit.gpu_types if gpu_type not in known]
    return "".join(did_you_mean(gpu_type, known, limit=1) for gpu_type in unknown)
