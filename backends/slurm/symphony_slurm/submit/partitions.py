"""The partitions of a cluster, as sinfo prints them. All functions are pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from symphony.errors import SpecError
from symphony.model.settings.durations import parse_time_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSize:
    """The resources of one node: CPUs, memory in MiB, and GPUs. ``count`` nodes have this size.

    ``gpu_types`` maps the types of its GPUs to their numbers, and ``features`` contains the words
    that jobs can select with ``--constraint``.
    """

    count: int
    cpus: int
    memory_mib: int
    gpus: int
    gpu_types: Mapping[str, int] = field(default_factory=dict)
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition, and the limits of its jobs.

    ``time_limit`` is in seconds. It is None if there is no limit, as is ``max_nodes``.
    """

    name: str
    sizes: tuple[NodeSize, ...]
    is_default: bool = False
    time_limit: int | None = None
    max_nodes: int | None = None


def parse_partitions(output: str) -> list[Partition]:
    """Return the partitions in the output of sinfo, which has one line for each size of nodes."""
    found: dict[str, Partition] = {}
    for line in output.splitlines():
        name, count, cpus, memory, time_limit, job_size, gres, features = line.split("|", 7)
        gpu_types = gpu_types_of(gres)
        size = NodeSize(
            count=int(count),
            cpus=int(cpus.rstrip("+")),
            memory_mib=int(memory.rstrip("+")),
            gpus=sum(gpu_types.values()),
            gpu_types=gpu_types,
            features=frozenset() if features == "(null)" else frozenset(features.split(",")),
        )
        earlier = found.get(name)
        largest_job = job_size.rpartition("-")[2]
        found[name] = Partition(
            name=name.rstrip("*"),
            sizes=(*(earlier.sizes if earlier else ()), size),
            is_default=name.endswith("*"),
            time_limit=_time_limit_seconds(time_limit),
            max_nodes=int(largest_job) if largest_job.isdecimal() else None,
        )
    return list(found.values())


def _time_limit_seconds(text: str) -> int | None:
    try:
        return parse_time_limit(text)
    except SpecError:
        # The word is "infinite".
        return None


def gpu_types_of(gres: str) -> dict[str, int]:
    """Return the types of the GPUs in a list of generic resources, and their numbers.

    GPUs without a type have the type ``""``.

    >>> gpu_types_of("gpu:a100:4(S:0-1),nvme:1")
    {'a100': 4}
    """
    types: dict[str, int] = {}
    # The numbers of sockets in parentheses can contain commas.
    for item in re.sub(r"\([^)]*\)", "", gres).split(","):
        name, *rest = item.split(":")
        if name == "gpu" and rest and rest[-1].isdecimal():
            gpu_type = rest[0] if len(rest) > 1 else ""
            types[gpu_type] = types.get(gpu_type, 0) + int(rest[-1])
    return types
