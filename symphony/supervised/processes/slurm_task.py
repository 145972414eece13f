"""The variables of a rank in a job of Slurm.

Libraries such as JAX and submitit take the task of Slurm that these variables describe for that of
the rank. A rank therefore has those of a step whose tasks are the ranks of its unit. Otherwise, it
would inherit the task of the program that has launched it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence

from symphony.supervised.processes.spec import ProcessSpec
from symphony.support.data_classes import replace

_NODE_VARIABLE = "SLURMD_NODENAME"
# JAX connects to this address instead of a port that follows from the number of the job, so that
# several units of a job can run at the same time.
JAX_VARIABLE = "JAX_COORDINATOR_ADDRESS"


def with_task_of_this_node(
    spec: ProcessSpec, ranks: int, environment: Mapping[str, str]
) -> ProcessSpec:
    """Return the description of a rank with the variables of a task of Slurm on this machine.

    ``ranks`` is the number of ranks of its unit, and ``environment`` the environment in which it
    starts.
    """
    node = environment.get(_NODE_VARIABLE) or os.uname().nodename
    return with_task_variables(spec, environment, [node] * ranks)


def with_task_variables(
    spec: ProcessSpec, shared_env: Mapping[str, str], nodes: Sequence[str]
) -> ProcessSpec:
    """Return the description of a rank with the variables of a task of Slurm.

    The tasks are the ranks of its unit, and ``nodes`` contains the node of each of them.
    ``shared_env`` contains the variables of all processes.

    A rank with GPUs of its own counts as a node; see `symphony.plan.resolution.ranks`.
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
