"""The options of a `KubeCluster`, as its backend needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from symphony.archive.archive import Run
    from symphony.config import SymphonyConfig
    from symphony_kube.api.connection import ApiConnection
    from symphony_kube.api.labels import Scopes
    from symphony_kube.launch_options import LaunchOptions


class KubeOptions(NamedTuple):
    """The options of a cluster, after they have been checked.

    ``backend`` is the name of the backend, and ``scopes`` names the objects of experiments. If
    ``run`` is given, the objects of this active run are read instead of those of any launch.
    """

    backend: str
    connection: ApiConnection
    scopes: Scopes
    launch: LaunchOptions
    configuration: SymphonyConfig
    run: Run | None = None
