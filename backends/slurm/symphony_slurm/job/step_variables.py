"""The variables of a Slurm step, as the processes of an experiment see them.

The agents of a job are the tasks of one step. A process would inherit the task of its agent, and a
library such as JAX or submitit would take this task for that of the process. Therefore, processes
do not inherit these variables. Ranks have those that describe a step whose tasks are their unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence

from symphony.supervised.processes.slurm_task import with_task_variables
from symphony.supervised.processes.spec import ProcessSpec

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
    result = []
    for spec in specs:
        if spec.unit is not None:
            nodes_of_unit = [nodes[slot] for slot in units[spec.unit]]
            spec = with_task_variables(spec, shared_env, nodes_of_unit)
        result.append(spec)
    return tuple(result)
