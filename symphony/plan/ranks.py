"""Units of ranks: copies of a process that start, restart and fail together.

A program for distributed training, such as one that uses torch.distributed, runs as one process per
rank. The ranks find each other at the address of rank 0. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from symphony.names import MAX_LENGTH
from symphony.plan.findings import Finding, finding_of

if TYPE_CHECKING:
    from symphony.model import Experiment, Process
    from symphony.plan.addresses import Endpoint

VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)


def master_service(unit: str) -> str:
    """Return the name of the service at which rank 0 of a unit waits for the other ranks."""
    return f"{unit}-master"


def units_of(experiment: Experiment) -> dict[str, list[str]]:
    """Return a mapping from each unit to the names of its processes in the order of their ranks."""
    units: dict[str, list[str]] = {}
    for process in experiment.list_all_processes():
        unit = process.settings.rank_of
        if unit is not None:
            units.setdefault(unit, []).append(process.name)
    return units


def check_ranks(experiment: Experiment) -> Iterator[Finding]:
    """Yield a finding for each error in the units of an experiment."""
    yield from _services_of_units(experiment)
    for component in experiment.list_components():
        settings = component.settings
        if settings.together_or_not is not None and settings.rank_of is None:
            yield finding_of(
                component,
                "ranks",
                "has together_or_not, but no ranks",
                "remove it, or set ranks",
                below=("together_or_not",),
            )
    for process in experiment.list_all_processes():
        if process.settings.rank_of is not None:
            yield from _errors_of_rank(process)


def _services_of_units(experiment: Experiment) -> Iterator[Finding]:
    served = {
        service: component
        for component in experiment.list_components()
        for service in (*component.settings.binds, *component.settings.exposes)
    }
    for unit, names in units_of(experiment).items():
        service = master_service(unit)
        owner = served.get(service)
        if owner is not None:
            yield finding_of(
                owner,
                "ranks",
                f"binds service {service!r}, which the ranks of {unit!r} bind",
                "rename the service",
            )
        if len(service) > MAX_LENGTH:
            yield finding_of(
                experiment.get_process(names[0]),
                "ranks",
                f"needs the service {service!r}, whose name has more than {MAX_LENGTH} characters",
                "give the ranks a shorter name",
            )


def _errors_of_rank(process: Process) -> Iterator[Finding]:
    settings = process.settings
    if process.group is not None:
        yield finding_of(
            process,
            "ranks",
            f"is a rank in the group {process.group.name!r}",
            "move it out of the group, because its ranks are a unit of their own",
        )
    for variable in VARIABLES:
        key = "env" if variable in settings.env else "env_secrets"
        if variable in settings.env or variable in settings.env_secrets:
            yield finding_of(
                process,
                "ranks",
                f"sets the variable {variable}, which symphony sets for each rank",
                "remove it",
                below=(key, variable),
            )


def rank_environment(
    rank: int, size: int, master: Endpoint, *, shares_devices: bool
) -> dict[str, str]:
    """Return the variables of one rank.

    ``master`` is the address of rank 0. If ``shares_devices`` is false, each rank has its own GPUs
    and does not see those of the other ranks, so each rank is described as a node of its own.
    """
    # Rank 0 can start before other machines know its name.
    master_host = master.own_host if rank == 0 and master.own_host else master.host
    values = (
        rank,
        size,
        rank if shares_devices else 0,
        size if shares_devices else 1,
        0 if shares_devices else rank,
        master_host,
        master.port,
    )
    named = dict(zip(VARIABLES, map(str, values), strict=True))
    return {**named, **{f"SYMPHONY_{name}": value for name, value in named.items()}}
