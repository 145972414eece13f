"""The backends for which an experiment is checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from symphony.cluster import Cluster
    from symphony.model import Experiment
    from symphony.plan.findings import Finding

# The image that is used for processes without an image, so that the rules can find other errors.
PLACEHOLDER_IMAGE = "probe"


@runtime_checkable
class NodeGpus(Protocol):
    """A cluster that can report the number of GPUs on each of its nodes."""

    def node_gpus(self, resource: str | None = None) -> Mapping[str, int]:
        """Return a mapping from each node to the number of GPUs that one process or group can use
        there.

        ``resource`` is the kind of the GPUs, or None for the usual kind of the cluster. Raises
        `BackendError` if the cluster cannot be queried.
        """


@runtime_checkable
class ChecksNodes(Protocol):
    """A cluster that can check by itself whether an experiment can run on its nodes."""

    def check_nodes(self, experiment: Experiment, *, thorough: bool) -> Iterator[Finding]:
        """Yield the reasons why the nodes could not run an experiment, and which checks were
        skipped.

        If ``thorough`` is true, the check may take some seconds and run a program on the nodes.
        Otherwise, nothing is yielded if this machine cannot use the cluster at all.
        """


@dataclass(frozen=True)
class Target:
    """A backend and its cluster."""

    name: str
    cluster: Cluster

    @property
    def is_remote(self) -> bool:
        """True if processes run on other machines, which have their own files and addresses."""
        return not self.cluster.commands_run_here

    @property
    def requires_image(self) -> bool:
        """True if every process needs a container image."""
        return self.cluster.requires_image
