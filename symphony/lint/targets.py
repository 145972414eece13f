"""The backends for which an experiment is checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from symphony.cluster import Cluster

# The image for processes without an image while the rules look for other errors.
PLACEHOLDER_IMAGE = "probe"


@runtime_checkable
class NodeGpus(Protocol):
    """A cluster that reports the GPUs of its nodes."""

    def node_gpus(self) -> Mapping[str, int]:
        """Return a mapping of nodes to the number of GPUs that one process or group can use there.

        Raises `BackendError` if the cluster cannot be queried.
        """


@dataclass(frozen=True)
class Target:
    """A backend and its cluster."""

    name: str
    cluster: Cluster

    @property
    def is_remote(self) -> bool:
        """Whether processes run on other machines, which have other files and addresses."""
        return not self.cluster.commands_run_here

    @property
    def requires_image(self) -> bool:
        """Whether every process needs a container image."""
        return self.cluster.requires_image
