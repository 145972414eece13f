"""The backends for which an experiment is checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from symphony.cluster import Cluster

# The image of processes without one, while other errors are looked for.
PLACEHOLDER_IMAGE = "probe"


@runtime_checkable
class NodeGpus(Protocol):
    """A cluster that reports the GPUs of its nodes."""

    def node_gpus(self) -> Mapping[str, int]:
        """Return, by node, the GPUs that one process or group can get there.

        Raises `BackendError` if the cluster cannot be queried.
        """


@dataclass(frozen=True)
class Target:
    """A backend and its cluster."""

    name: str
    cluster: Cluster

    @property
    def is_remote(self) -> bool:
        """Whether processes run on other machines, with other files and addresses."""
        return not self.cluster.commands_run_here

    @property
    def requires_image(self) -> bool:
        """Whether every process needs a container image."""
        return self.cluster.requires_image
