"""Equal shares of a machine. Pure."""

from __future__ import annotations

from symphony.errors import SpecError
from symphony.names import join_names
from symphony_kube.node_pools.pools import NodePool, Resources, counted


def share(pool: NodePool, parts: int) -> Resources:
    """What each of ``parts`` processes gets that share one machine of a pool; together they always fit.

    Raises `SpecError` where the GPUs do not divide evenly, or a share would be nothing.
    """
    gpus = pool.allocatable.gpus
    if gpus and gpus % parts:
        raise SpecError(_uneven(pool, parts))
    part = pool.allocatable.split(parts)
    if not (part.millicores and part.memory_m):
        whose = "a machine" if parts == 1 else f"a share of 1/{parts} of a machine"
        raise SpecError(
            f"{whose} of node pool {pool.name!r} has nothing to give ({part}): of {pool.capacity} the system leaves "
            f"{pool.allocatable}; use fewer processes a machine, a larger pool, or another Reserve"
        )
    return part


def _uneven(pool: NodePool, parts: int) -> str:
    gpus = pool.allocatable.gpus
    works = join_names(map(str, (n for n in range(1, gpus + 1) if gpus % n == 0)), limit=20)
    more = parts > gpus
    how = f"{parts} processes are more than" if more else f"{parts} processes cannot evenly share"
    return (
        f"{how} the {counted(gpus)} of a machine of node pool {pool.name!r}: process_per_machine may be {works} "
        "there; a process that needs no GPU is better assigned by assign_to_resource"
    )
