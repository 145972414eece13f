"""The local backend: what `HostCluster` does, with plain children."""

from __future__ import annotations

from typing import ClassVar

from symphony.host.cluster import HostCluster


class LocalCluster(HostCluster):
    """Processes of this machine as children of a detached supervisor; the options are those of `HostCluster`."""

    backend: ClassVar[str] = "local"
    children: ClassVar[str] = "symphony_local.children:LocalChildren"
