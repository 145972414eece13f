"""The options of a `SlurmCluster`, as its backend needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from symphony_slurm.render import JobOptions


class SlurmJobOptions(NamedTuple):
    """The options for jobs, and the number of nodes, or None for the default."""

    options: JobOptions
    nodes: int | None
