"""The cluster class of the local backend."""

from __future__ import annotations

from typing import ClassVar

from symphony.supervised.terminal_cluster import TerminalCluster


class LocalCluster(TerminalCluster):
    """The local backend, which runs processes as children of a detached supervisor.

    The options are those of `symphony.supervised.cluster.HostCluster`.
    """

    backend: ClassVar[str] = "local"
    children: ClassVar[str] = "symphony.supervised.supervisor.local_children:LocalChildren"
