"""Units of ranks: copies of a process that start, restart and fail together.

A program for distributed training, such as one that uses torch.distributed, runs as one process per
rank. The ranks find each other at the address of rank 0. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from symphony.plan.findings import ERROR, Finding, finding_of
from symphony.support.names import MAX_LENGTH

if TYPE_CHECKING:
    from symphony.model import Experiment, Process
    from symphony.plan.resolution.addresses import Endpoint

VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)
# The variables that contain the port at which the ranks meet.
PORT_VARIABLES = ("MASTER_PORT", "SYMPHONY_MASTER_PORT")
# torchrun sets this variable. Libraries such as Lightning and Accelerate use the other variables as
# they are if it is set, and otherwise derive ranks from the numbers of devices and machines.
_LAUNCHED_VARIABLE = "TORCHELASTIC_RUN_ID"


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
    yield from _ranks_of_pods(experiment)
    yield from _ranks_of_job_sets(experiment)
    yield from _variables_of_experiment(experiment)
    for component in experiment.list_components():
        settings = component.settings
        for key in ("together_or_not", "per_pod", "jobset"):
            if getattr(settings, key) and settings.rank_of is None:
                yield finding_of(
                    component,
                    "ranks",
                    f"has {key}, but no ranks",
                    "remove it, or set ranks",
                    below=(key,),
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


def _variables_of_experiment(experiment: Experiment) -> Iterator[Finding]:
    if not units_of(experiment):
        return
    for variable in VARIABLES:
        if variable in experiment.env:
            yield Finding(
                rule="ranks",
                level=ERROR,
                problem=f"the experiment sets the variable {variable}, which symphony sets for "
                "each rank",
                hint="remove it, or set it for the processes without ranks that need it",
                path=("env", variable),
            )


def _ranks_of_pods(experiment: Experiment) -> Iterator[Finding]:
    for names in units_of(experiment).values():
        ranks = [experiment.get_process(name) for name in names]
        numbers = {rank.settings.per_pod or 1 for rank in ranks}
        problem = ""
        if len(numbers) > 1:
            problem = "has another value of per_pod than other ranks of its unit"
        elif len(ranks) % max(numbers):
            problem = f"is one of {len(ranks)} ranks, which is no multiple of per_pod"
        if problem:
            yield finding_of(
                ranks[-1],
                "ranks",
                problem,
                "set the same per_pod for all ranks, so that all Pods have as many",
                below=("per_pod",),
            )


def _ranks_of_job_sets(experiment: Experiment) -> Iterator[Finding]:
    for names in units_of(experiment).values():
        ranks = [experiment.get_process(name) for name in names]
        if len({bool(rank.settings.jobset) for rank in ranks}) > 1:
            yield finding_of(
                ranks[-1],
                "ranks",
                "has another value of jobset than other ranks of its unit",
                "set the same jobset for all ranks, because a JobSet contains all of them",
                below=("jobset",),
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
    if settings.jobset and settings.together_or_not is not None:
        yield finding_of(
            process,
            "ranks",
            "has both jobset and together_or_not, but only symphony releases ranks that are not "
            "all scheduled, and not the controller of a JobSet",
            "remove one of them; with queue, a JobSet is admitted as a whole",
            below=("together_or_not",),
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
    unit: str, number: int, nodes: Sequence[int], master: Endpoint, *, per_process: int = 1
) -> dict[str, str]:
    """Return the variables of one rank of a unit.

    ``nodes`` contains the node of each process of the unit, and ``number`` is the index of the
    process. A rank that does not see the GPUs of the other ranks has a node of its own. Each
    process runs ``per_process`` ranks, and the variables are those of the first of them.
    ``master`` is the address of rank 0.
    """
    node = nodes[number]
    node_rank = list(dict.fromkeys(nodes)).index(node)
    # Rank 0 can start before other machines know its name.
    master_host = master.own_host if number == 0 and master.own_host else master.host
    values = (
        number * per_process,
        len(nodes) * per_process,
        nodes[:number].count(node) * per_process,
        nodes.count(node) * per_process,
        node_rank,
        node_rank,
        master_host,
        master.port,
    )
    named = dict(zip(VARIABLES, map(str, values), strict=True))
    prefixed = {f"SYMPHONY_{name}": value for name, value in named.items()}
    return {**named, **prefixed, _LAUNCHED_VARIABLE: unit}
