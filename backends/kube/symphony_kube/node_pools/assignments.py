"""Writing assignments into a specification, so that one can be changed until the experiment is launched."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from symphony.errors import SpecError
from symphony.model import Process, ProcessGroup
from symphony_kube.node_pools.choose import Assignment, Member, Unit, choose
from symphony_kube.node_pools.pools import NodePool, Resources
from symphony_kube.node_pools.quantities import MIB, MILLI, cores, quantity

Owner = Process | ProcessGroup


@dataclass(slots=True, kw_only=True)
class _Assigned:
    """A process's assignment, and the keys of its settings that were written for it."""

    owner: Owner
    assignment: Assignment
    requests: list[str] = field(default_factory=list)
    gpu: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """Where a unit was placed, and what was added to its settings for it."""

    pool: NodePool
    selector: bool
    tolerations: tuple[dict[str, Any], ...]


class Placements:
    """The assignments of one dispatcher. Assigning a process again replaces what it was assigned before."""

    def __init__(self) -> None:
        self._assigned: dict[Process, _Assigned] = {}
        self._placed: dict[Owner, _Placed] = {}

    def assign(
        self, process: Process, owner: Owner, assignment: Assignment, pools: Sequence[NodePool]
    ) -> NodePool:
        """Choose a pool for the unit of a process and write it, with the requests of the process.

        Raises `SpecError`, and then nothing is changed.
        """
        unit = self._unit(process, owner, assignment)
        pool = choose(pools, unit)
        self._refuse_other_selector(owner, pool, unit)
        _refuse_lower_limits(process, owner, assignment)
        before = self._write_process(process, owner, assignment)
        if before is not owner and not any(
            known.owner is before for known in self._assigned.values()
        ):
            self._displace(before)
        self._place(owner, pool)
        return pool

    # --- reading the specification ---

    def _unit(self, process: Process, owner: Owner, assignment: Assignment) -> Unit:
        if isinstance(owner, Process):
            return Unit(
                what=f"process {owner.name!r}", members=(self._member(process, owner, assignment),)
            )
        there = [
            *owner.list_processes(),
            *(p for p, known in self._assigned.items() if known.owner is owner),
        ]
        others = [member for member in dict.fromkeys(there) if member is not process]
        members = [self._member(other, owner, None) for other in others]
        return Unit(
            what=f"group {owner.name!r}",
            members=(*members, self._member(process, owner, assignment)),
        )

    def _member(self, process: Process, owner: Owner, assignment: Assignment | None) -> Member:
        """A process as it will be: its old assignment makes way for ``assignment``, where one is given."""
        known = self._assigned.get(process)
        given = assignment or (known.assignment if known else None)
        request, limit = (
            _requested(process, owner, "resource_request"),
            _requested(process, owner, "resource_limit"),
        )
        if assignment is not None and known is not None:
            request = {key: value for key, value in request.items() if key not in known.requests}
            limit = {key: value for key, value in limit.items() if not (known.gpu and key == "gpu")}
        if assignment is not None:
            request.update(_request_of(assignment))
            limit.update(_gpus_of(assignment))
        return Member(name=process.name, asks=_amounts({**limit, **request}), assignment=given)

    def _refuse_other_selector(self, owner: Owner, pool: NodePool, unit: Unit) -> None:
        key, value = pool.selector
        there = owner.settings.node_selector.get(key)
        placed = self._placed.get(owner)
        ours = placed is not None and placed.selector and placed.pool.selector[0] == key
        if there is not None and there != value and not ours:
            raise SpecError(
                f"{unit.what} has the node selector {key}={there} already, and node pool {pool.name!r} is "
                f"{key}={value}; take the selector away, or assign to the pool that it names"
            )

    # --- writing ---

    def _write_process(self, process: Process, owner: Owner, assignment: Assignment) -> Owner:
        """Write the requests of a process; whose Pod it was placed in before."""
        known = self._assigned.pop(process, None)
        settings = process.settings
        if known is not None:
            for key in known.requests:
                settings.resource_request.pop(key, None)
            if known.gpu:
                settings.resource_limit.pop("gpu", None)
        request, gpus = _request_of(assignment), _gpus_of(assignment)
        process.resource_request(cpu=request.get("cpu"), memory=request.get("memory"))
        process.resource_limit(gpu=gpus.get("gpu"))
        self._assigned[process] = _Assigned(
            owner=owner, assignment=assignment, requests=list(request), gpu=bool(gpus)
        )
        # Put elsewhere it would be without its placement, so that is refused.
        process.placed_with = owner if isinstance(owner, ProcessGroup) else None
        return owner if known is None else known.owner

    def _displace(self, owner: Owner) -> None:
        """Take away what was written for a placement."""
        before = self._placed.pop(owner, None)
        if before is not None:
            settings = owner.settings
            if before.selector:
                settings.node_selector.pop(before.pool.selector[0], None)
            settings.tolerations[:] = [
                item for item in settings.tolerations if item not in before.tolerations
            ]

    def _place(self, owner: Owner, pool: NodePool) -> None:
        self._displace(owner)
        settings = owner.settings
        key, value = pool.selector
        selector = key not in settings.node_selector
        owner.node_selector(key, value)
        added = [
            toleration for toleration in pool.tolerations if toleration not in settings.tolerations
        ]
        for toleration in added:
            owner.add_toleration(**toleration)
        self._placed[owner] = _Placed(pool=pool, selector=selector, tolerations=tuple(added))


# --- amounts ---


def _request_of(assignment: Assignment) -> dict[str, str]:
    given = {
        "cpu": None if assignment.millicores is None else _cpu(assignment.millicores),
        "memory": None if assignment.memory_m is None else f"{assignment.memory_m}Mi",
    }
    return {key: value for key, value in given.items() if value is not None}


def _cpu(milli: int) -> str:
    return f"{milli}m" if milli % MILLI else str(milli // MILLI)


def _gpus_of(assignment: Assignment) -> dict[str, int]:
    return {"gpu": assignment.gpus} if assignment.gpus else {}


def _requested(process: Process, owner: Owner, key: str) -> dict[str, Any]:
    """A setting of a process over that of its group, which reaches all members."""
    outer: Mapping[str, Any] = (
        getattr(owner.settings, key) if isinstance(owner, ProcessGroup) else {}
    )
    return {**outer, **getattr(process.settings, key)}


def _amounts(given: Mapping[str, Any]) -> Resources:
    """What Kubernetes counts for a container: its requests, and limits where it requests nothing."""
    return Resources(
        millicores=math.ceil(quantity(given.get("cpu", 0)) * MILLI),
        memory_m=math.ceil(quantity(given.get("memory", 0)) / MIB),
        gpus=int(given.get("gpu", 0)),
    )


def _refuse_lower_limits(process: Process, owner: Owner, assignment: Assignment) -> None:
    """Kubernetes refuses a request above its limit, and would only say so at the launch."""
    limit = _requested(process, owner, "resource_limit")
    least = _amounts({key: limit[key] for key in ("cpu", "memory") if key in limit})
    for key, asked, most, said in (
        ("cpu", assignment.millicores, least.millicores, cores),
        ("memory", assignment.memory_m, least.memory_m, lambda amount: f"{amount} MiB"),
    ):
        if asked is not None and key in limit and asked > most:
            raise SpecError(
                f"process {process.name!r} would request {key} {said(asked)} and has a limit of {limit[key]}: "
                f"take resource_limit({key}=) away, or raise it"
            )
