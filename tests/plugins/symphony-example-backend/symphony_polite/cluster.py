"""The cluster of the backend ``polite``: that of all local backends, with other children."""

from __future__ import annotations

from typing import ClassVar

from symphony.supervised.cluster import HostCluster


class PoliteCluster(HostCluster):
    """Local processes with a low priority. The options are those of `HostCluster`."""

    backend: ClassVar[str] = "polite"
    children: ClassVar[str] = "symphony_polite.children:PoliteChildren"
