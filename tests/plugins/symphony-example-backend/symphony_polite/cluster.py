"""The backend ``polite``: all of what one machine's backends share, and other children."""

from __future__ import annotations

from typing import ClassVar

from symphony.host.cluster import HostCluster


class PoliteCluster(HostCluster):
    """Processes of this machine with a low priority; the options are those of `HostCluster`."""

    backend: ClassVar[str] = "polite"
    children: ClassVar[str] = "symphony_polite.children:PoliteChildren"
