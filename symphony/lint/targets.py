"""The backends for which an experiment is checked, and what is known of them by asking them alone."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from symphony.errors import SpecError
from symphony.model import Experiment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from symphony.cluster import Cluster

PROBE = "probe"


@runtime_checkable
class KnowsGpus(Protocol):
    """A cluster of several nodes that tells which GPUs they have."""

    def node_gpus(self) -> Mapping[str, int]:
        """By node, how many GPUs one process or group can get there. Raises `BackendError`."""


@dataclass(frozen=True)
class Target:
    """A backend by its name, and its cluster."""

    name: str
    cluster: Cluster

    @property
    def elsewhere(self) -> bool:
        """Whether processes run on machines of their own, with other files and other addresses than this one."""
        return not self.cluster.commands_run_here

    @functools.cached_property
    def needs_image(self) -> bool:
        """Whether a process without an image is refused there, and one with an image is not."""
        return self._refuses(None) and not self._refuses(PROBE)

    def _refuses(self, image: str | None) -> bool:
        """Whether it refuses the least experiment that there is."""
        experiment = Experiment(PROBE)
        experiment.new_process(PROBE, command="true", container_image=image)
        try:
            self.cluster.manifest(experiment)
        except SpecError:
            return True
        return False
