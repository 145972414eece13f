"""Write the assignments of processes to node pools into the processes' settings. An assignment can
be changed until the launch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from symphony.errors import SpecError
from symphony.model import Process, ProcessGroup
from symphony.model.settings.quantities import (
    MEBIBYTE_BYTES,
    MILLICORES_PER_CORE,
    format_cores,
    parse_quantity,
)
from symphony_kube.node_pools.choose import (
    Assignment,
    PlacementMember,
    PlacementUnit,
    choose_pool,
)
from symphony_kube.node_pools.pools import MachineResources, NodePool

# The object that becomes a Pod: a lone process or a group.
Owner = Process | ProcessGroup


@dataclass(slots=True, kw_only=True)
class _WrittenAssignment:
    """A process's assignment, and the settings that were written for this assignment."""

    owner: Owner
    assignment: Assignment
    request_keys: list[str] = field(default_factory=list)
    has_gpu_limit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _WrittenPlacement:
    """A Pod's pool, and the settings that were added for this pool."""

    pool: NodePool
    added_selector: bool
    added_tolerations: tuple[dict[str, Any], ...]


class Placements:
    """All assignments made by one dispatcher.

    If a process is assigned again, its earlier assignment is replaced.
    """

    def __init__(self) -> None:
        self._assignments: dict[Process, _WrittenAssignment] = {}
        self._placements: dict[Owner, _WrittenPlacement] = {}

    def assign(
        self, process: Process, owner: Owner, assignment: Assignment, pools: Sequence[NodePool]
    ) -> NodePool:
        """Choose a pool for a process's Pod, and write the settings for this pool.

        Raises `SpecError` if no pool fits, if the user has set a conflicting node selector, or if a
        request exceeds the process's limit. In these cases, nothing is changed.
        """
        unit = self._unit(process, owner, assignment)
        pool = choose_pool(pools, unit)
        self._check_selector(owner, pool, unit)
        _check_limits(process, owner, assignment)
        previous_owner = self._write_assignment(process, owner, assignment)
        if previous_owner is not owner and not self._has_assignments(previous_owner):
            self._remove_placement(previous_owner)
        self._write_placement(owner, pool)
        return pool

    # --- reading settings ---

    def _has_assignments(self, owner: Owner) -> bool:
        return any(known.owner is owner for known in self._assignments.values())

    def _unit(self, process: Process, owner: Owner, assignment: Assignment) -> PlacementUnit:
        new_member = self._member(process, owner, assignment)
        if isinstance(owner, Process):
            return PlacementUnit(description=f"process {owner.name!r}", members=(new_member,))
        # A process can be assigned to a pool as a member of a group before it is added to the
        # group.
        processes = dict.fromkeys(owner.list_processes())
        for other, known in self._assignments.items():
            if known.owner is owner:
                processes[other] = None
        others = [self._member(other, owner, None) for other in processes if other is not process]
        return PlacementUnit(
            description=f"group {owner.name!r}",
            members=(*others, new_member),
        )

    def _member(
        self, process: Process, owner: Owner, assignment: Assignment | None
    ) -> PlacementMember:
        """Return a placement member with the resources that a process will request.

        If ``assignment`` is given, it replaces the process's current assignment.
        """
        known = self._assignments.get(process)
        request = _effective(process, owner, "resource_request")
        limit = _effective(process, owner, "resource_limit")
        current = known.assignment if known else None
        if assignment is not None:
            current = assignment
            if known is not None:
                for key in known.request_keys:
                    request.pop(key, None)
                if known.has_gpu_limit:
                    limit.pop("gpu", None)
            request.update(_request_settings(assignment))
            limit.update(_limit_settings(assignment))
        # If a resource has a limit but no request, Kubernetes uses the limit as the request.
        requests = _resources({**limit, **request})
        return PlacementMember(name=process.name, requests=requests, assignment=current)

    def _check_selector(self, owner: Owner, pool: NodePool, unit: PlacementUnit) -> None:
        """Raise `SpecError` if the user has set the pool's node selector label to another value."""
        key, value = pool.selector
        present = owner.settings.node_selector.get(key)
        if present is None or present == value:
            return
        placement = self._placements.get(owner)
        was_added = (
            placement is not None and placement.added_selector and placement.pool.selector[0] == key
        )
        if not was_added:
            raise SpecError(
                f"{unit.description} has the node selector {key}={present} already, and node pool "
                f"{pool.name!r} is {key}={value}; remove the selector, or assign to the pool "
                "that it selects"
            )

    # --- writing settings ---

    def _write_assignment(self, process: Process, owner: Owner, assignment: Assignment) -> Owner:
        """Write a process's CPU and memory requests and GPU limit.

        Return the owner in the process's previous assignment, or ``owner`` if there was none.
        """
        known = self._assignments.pop(process, None)
        settings = process.settings
        if known is not None:
            for key in known.request_keys:
                settings.resource_request.pop(key, None)
            if known.has_gpu_limit:
                settings.resource_limit.pop("gpu", None)
        request = _request_settings(assignment)
        limit = _limit_settings(assignment)
        process.resource_request(cpu=request.get("cpu"), memory=request.get("memory"))
        process.resource_limit(gpu=limit.get("gpu"))
        self._assignments[process] = _WrittenAssignment(
            owner=owner,
            assignment=assignment,
            request_keys=list(request),
            has_gpu_limit=bool(limit),
        )
        # The placement is written into the owner's settings, and would not apply in another group.
        # Therefore, adding the process to another group is an error.
        process._placed_with = owner if isinstance(owner, ProcessGroup) else None
        return owner if known is None else known.owner

    def _remove_placement(self, owner: Owner) -> None:
        """Remove the settings that were added for a Pod's pool."""
        placement = self._placements.pop(owner, None)
        if placement is None:
            return
        settings = owner.settings
        if placement.added_selector:
            settings.node_selector.pop(placement.pool.selector[0], None)
        settings.tolerations[:] = [
            item for item in settings.tolerations if item not in placement.added_tolerations
        ]

    def _write_placement(self, owner: Owner, pool: NodePool) -> None:
        """Write the node selector and the tolerations for a pool."""
        self._remove_placement(owner)
        settings = owner.settings
        key, value = pool.selector
        is_new = key not in settings.node_selector
        owner.node_selector(key, value)
        added = [item for item in pool.tolerations if item not in settings.tolerations]
        for toleration in added:
            owner.add_toleration(**toleration)
        self._placements[owner] = _WrittenPlacement(
            pool=pool, added_selector=is_new, added_tolerations=tuple(added)
        )


# --- amounts ---


def _request_settings(assignment: Assignment) -> dict[str, str]:
    """Return an assignment's values for the setting `resource_request`."""
    settings = {}
    if assignment.millicores is not None:
        settings["cpu"] = _cpu_text(assignment.millicores)
    if assignment.memory_m is not None:
        settings["memory"] = f"{assignment.memory_m}Mi"
    return settings


def _limit_settings(assignment: Assignment) -> dict[str, int]:
    """Return an assignment's values for the setting `resource_limit`."""
    return {"gpu": assignment.gpus} if assignment.gpus else {}


def _cpu_text(millicores: int) -> str:
    if millicores % MILLICORES_PER_CORE:
        return f"{millicores}m"
    return str(millicores // MILLICORES_PER_CORE)


def _effective(process: Process, owner: Owner, setting: str) -> dict[str, Any]:
    """Return the effective value of a process's setting: the group's entries, overridden by the
    process's own entries.
    """
    of_group: Mapping[str, Any] = {}
    if isinstance(owner, ProcessGroup):
        of_group = getattr(owner.settings, setting)
    return {**of_group, **getattr(process.settings, setting)}


def _resources(amounts: Mapping[str, Any]) -> MachineResources:
    """Convert the amounts in a setting to resources, rounded up to whole units."""
    return MachineResources(
        millicores=math.ceil(parse_quantity(amounts.get("cpu", 0)) * MILLICORES_PER_CORE),
        memory_m=math.ceil(parse_quantity(amounts.get("memory", 0)) / MEBIBYTE_BYTES),
        gpus=int(amounts.get("gpu", 0)),
    )


def _check_limits(process: Process, owner: Owner, assignment: Assignment) -> None:
    """Raise `SpecError` if a request in the assignment would exceed the process's limit.

    Kubernetes would also reject such a request, but only at launch.
    """
    limit = _effective(process, owner, "resource_limit")
    maximum = _resources({key: limit[key] for key in ("cpu", "memory") if key in limit})
    if "cpu" in limit and (assignment.millicores or 0) > maximum.millicores:
        request = format_cores(assignment.millicores or 0)
        raise _above_limit(process, "cpu", request, limit["cpu"])
    if "memory" in limit and (assignment.memory_m or 0) > maximum.memory_m:
        request = f"{assignment.memory_m} MiB"
        raise _above_limit(process, "memory", request, limit["memory"])


def _above_limit(process: Process, key: str, request: str, limit: object) -> SpecError:
    return SpecError(
        f"process {process.name!r} would request {key} {request} and has a limit of {limit}: "
        f"remove resource_limit({key}=), or raise it"
    )
