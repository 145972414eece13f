"""The cluster class of the local backend."""

from __future__ import annotations

from typing import ClassVar

from symphony.host.cluster import HostCluster


class LocalCluster(HostCluster):
    """The local backend, which runs processes as children of a detached supervisor.

    The options are those of `HostCluster`.
    """

    backend: ClassVar[str] = "local"
    children: ClassVar[str] = "symphony_local.children:LocalChildren"
