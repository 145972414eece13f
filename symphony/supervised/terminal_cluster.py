"""The base class of the backends whose supervisors hold the terminals of processes."""

from __future__ import annotations

from typing import ClassVar

from symphony.supervised.cluster import HostCluster
from symphony.supervised.host_backend import HostBackend
from symphony.supervised.terminal_backend import TerminalBackend


class TerminalCluster(HostCluster):
    """A cluster that attaches the user's terminal to that of a process with the setting ``tty``."""

    backend_class: ClassVar[type[HostBackend]] = TerminalBackend
