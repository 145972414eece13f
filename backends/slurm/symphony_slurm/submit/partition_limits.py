"""Whether a job fits a partition. All functions are pure.

Without these checks, some sites keep a job that can never start in the queue forever.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from symphony.errors import SpecError
from symphony.support.names import did_you_mean, join_names
from symphony_slurm.render import time_text
from symphony_slurm.submit.resource_request import Demand, Shape

if TYPE_CHECKING:
    from symphony_slurm.submit.partitions import NodeSize, Partition


def check_fits(
    shape: Shape, partitions: Sequence[Partition], chosen: str | None, time_limit: int | None
) -> None:
    """Raise SpecError with the arithmetic if a job fits none of the partitions.

    ``chosen`` is the option ``partition``, or None for the default partition. ``time_limit`` is
    the time limit of the job in seconds, or None if the site chooses it.
    """
    errors = []
    for partition in partitions:
        where = "the default partition" if chosen is None else f"partition {partition.name!r}"
        try:
            _check_partition(shape, partition, where, time_limit)
        except SpecError as exc:
            errors.append(exc)
        else:
            return
    for error in errors:
        raise error


def _check_partition(
    shape: Shape, partition: Partition, where: str, time_limit: int | None
) -> None:
    if partition.max_nodes is not None and shape.nodes > partition.max_nodes:
        raise SpecError(
            f"nodes is {shape.nodes}, but a job in {where} can have at most "
            f"{_count(partition.max_nodes, 'node')}; lower nodes, or choose another partition"
        )
    maximum = partition.time_limit
    if time_limit is not None and maximum is not None and not 0 < time_limit <= maximum:
        needed = f"a time limit of {time_text(time_limit)}" if time_limit else "no time limit"
        raise SpecError(
            f"the job needs {needed}, but {where} allows {time_text(maximum)}; lower the deadline "
            "or the time limit, or choose another partition"
        )
    sizes = _with_features(shape.features, partition.sizes, where)
    if shape.gpu_type is not None and shape.gpus:
        sizes = _with_gpu_type(shape.gpu_type, sizes, where)
    _check_sizes(shape, sizes, where)


def _with_features(
    features: Sequence[str], sizes: Sequence[NodeSize], where: str
) -> Sequence[NodeSize]:
    """Return the sizes of the nodes that have all features. Raises SpecError if there are none."""
    found = [size for size in sizes if size.features.issuperset(features)]
    if found or not sizes:
        return found
    known = {feature for size in sizes for feature in size.features}
    for feature in features:
        if feature not in known:
            hint = did_you_mean(feature, known)
            raise SpecError(
                f"node_selector selects nodes with the feature {feature!r}, which no node of "
                f"{where} has{hint}; the features are {join_names(sorted(known), limit=10)}"
            )
    raise SpecError(
        f"node_selector selects nodes with the features {join_names(features)}, but no node of "
        f"{where} has all of them; remove one of them, or choose another partition"
    )


def _with_gpu_type(gpu_type: str, sizes: Sequence[NodeSize], where: str) -> Sequence[NodeSize]:
    """Return the sizes of the nodes that have GPUs of a type, without their other GPUs."""
    from dataclasses import replace

    found = [
        replace(size, gpus=size.gpu_types[gpu_type]) for size in sizes if gpu_type in size.gpu_types
    ]
    if found or not sizes:
        return found
    known = {name for size in sizes for name in size.gpu_types if name}
    raise SpecError(
        f"no node of {where} has GPUs of the type {gpu_type!r}{did_you_mean(gpu_type, known)}; "
        f"the types are {join_names(sorted(known), limit=10) or 'not declared'}: set gpu_type"
    )


def _check_sizes(shape: Shape, sizes: Sequence[NodeSize], where: str) -> None:
    if not sizes:
        return
    fitting = sum(size.count for size in sizes if _fits(shape, size))
    if fitting >= shape.nodes:
        return
    needed = shape.node_demand
    largest = max(sizes, key=lambda size: (size.gpus, size.cpus, size.memory_mib))
    selected = " that node_selector selects" if shape.features else ""
    if fitting:
        raise SpecError(
            f"the experiment needs {shape.nodes} nodes with {needed} each, but only {fitting} "
            f"nodes of {where}{selected} are that large; lower nodes or the requests"
        )
    has = Demand(cpus=largest.cpus, memory_mib=largest.memory_mib, gpus=largest.gpus)
    for name, demand in shape.units.items():
        if not any(_fits(demand, size) for size in sizes):
            raise SpecError(
                f"{name!r} requests {demand}, but the largest node of {where}{selected} has {has}; "
                "a process or group runs on one node, so lower its requests, or choose another "
                "partition",
                path=("processes", name),
            )
    raise SpecError(
        f"the experiment needs {_count(shape.nodes, 'node')} with "
        f"{needed}{' each' if shape.nodes > 1 else ''}, but the largest node of {where}{selected} "
        f"has {has}; {_nodes_hint(shape, largest)}"
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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
