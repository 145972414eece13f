"""The cluster of the backend ``detached``, which adds the options of the backend."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any, ClassVar

from symphony.cluster import Cluster
from symphony.cluster.backend import Backend
from symphony.support.directories.state_home import state_root
from symphony_detached.backend import DetachedBackend


class DetachedCluster(Cluster):
    """Processes in sessions of their own. ``state_dir`` is the directory with the experiments."""

    backend: ClassVar[str] = "detached"
    ports_are_here: ClassVar[bool] = True

    def __init__(self, *, state_dir: str | os.PathLike[str] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._root = state_root(self.backend) if state_dir is None else Path(state_dir).absolute()

    @functools.cached_property
    def implementation(self) -> Backend[Any]:
        """Return the part of the cluster that depends on the platform."""
        return DetachedBackend(self.backend, self._root)
