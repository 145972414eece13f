"""The variables of a Slurm step, as the processes of an experiment see them.

The agents of a job are the tasks of one step. A process would inherit the task of its agent, and a
library such as JAX or submitit would take this task for that of the process. Therefore, processes
do not inherit these variables. Ranks have those that describe a step whose tasks are their unit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace

from symphony.host.processes.spec import ProcessSpec

_NAMES = frozenset(
    {
        "SLURM_CPUS_PER_TASK",
        "SLURM_DISTRIBUTION",
        "SLURM_GTIDS",
        "SLURM_KILL_BAD_EXIT",
        "SLURM_LAUNCH_NODE_IPADDR",
        "SLURM_LOCALID",
        "SLURM_MPI_TYPE",
        "SLURM_NODEID",
        "SLURM_NPROCS",
        "SLURM_PROCID",
        "SLURM_TASKS_PER_NODE",
        "SLURM_TASK_PID",
        "SLURM_TRES_PER_TASK",
        "SLURM_UMASK",
    }
)
_PREFIXES = (
    "PMI2_",
    "PMIX_",
    "PMI_",
    "SLURM_CPU_BIND",
    "SLURM_NTASKS",
    "SLURM_PMI",
    "SLURM_SRUN_",
    "SLURM_STEP",
    "SRUN_",
)
# Users set variables with this prefix to configure PMIx.
_SETTINGS_PREFIX = "PMIX_MCA_"
# JAX connects to this address instead of a port that follows from the number of the job, so that
# several units of a job can run at the same time.
JAX_VARIABLE = "JAX_COORDINATOR_ADDRESS"


def remove_step_variables(environ: MutableMapping[str, str]) -> None:
    """Remove the variables that describe a step and the task of an agent in it."""
    for name in [name for name in environ if _is_of_step(name)]:
        del environ[name]


def _is_of_step(name: str) -> bool:
    if name.startswith(_SETTINGS_PREFIX):
        return False
    return name in _NAMES or name.startswith(_PREFIXES)


def with_step_variables(
    processes: Iterable[ProcessSpec],
    shared_env: Mapping[str, str],
    nodes: Sequence[str],
    slots: Mapping[str, int],
) -> tuple[ProcessSpec, ...]:
    """Return descriptions in which each rank has the variables of a task of Slurm.

    ``nodes`` contains the names of the job's nodes, and ``slots`` maps processes to indexes of it.
    ``shared_env`` contains the variables of all processes.
    """
    specs = list(processes)
    units: dict[str, list[int]] = {}
    for spec in specs:
        if spec.unit is not None:
            units.setdefault(spec.unit, []).append(slots[spec.name])
    return tuple(
        spec
        if spec.unit is None
        else _with_task(spec, shared_env, [nodes[slot] for slot in units[spec.unit]])
        for spec in specs
    )


def _with_task(
    spec: ProcessSpec, shared_env: Mapping[str, str], nodes: Sequence[str]
) -> ProcessSpec:
    """Return the description of a rank as a task. ``nodes`` contains the node of each rank.

    A rank with GPUs of its own counts as a node; see `symphony.plan.ranks`.
    """
    env, names = spec.env, list(dict.fromkeys(nodes))
    counts = [1] * len(nodes) if spec.gpus else [nodes.count(name) for name in names]
    count, size = str(len(counts)), env["WORLD_SIZE"]
    variables = {
        "SLURM_PROCID": env["RANK"],
        "SLURM_NTASKS": size,
        "SLURM_NPROCS": size,
        "SLURM_LOCALID": env["LOCAL_RANK"],
        "SLURM_NODEID": env["NODE_RANK"],
        "SLURM_NNODES": count,
        "SLURM_TASKS_PER_NODE": tasks_per_node(counts),
        "SLURM_STEP_NODELIST": ",".join(names),
        "SLURM_STEP_NUM_NODES": count,
        "SLURM_STEP_NUM_TASKS": size,
        "SLURM_STEP_TASKS_PER_NODE": tasks_per_node(counts),
    }
    if len(set(counts)) == 1:
        variables["SLURM_NTASKS_PER_NODE"] = str(counts[0])
    if JAX_VARIABLE not in shared_env and JAX_VARIABLE not in spec.env_secrets:
        variables[JAX_VARIABLE] = f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}"
    return replace(spec, env={**variables, **env})


def tasks_per_node(counts: Iterable[int]) -> str:
    """Return the numbers of tasks on nodes as Slurm writes them.

    >>> tasks_per_node([2, 2, 1])
    '2(x2),1'
    """
    parts = []
    for count, group in itertools.groupby(counts):
        length = len(list(group))
        parts.append(str(count) if length == 1 else f"{count}(x{length})")
    return ",".join(parts)
