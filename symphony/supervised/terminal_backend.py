"""The backends whose supervisors hold the terminals of processes."""

from __future__ import annotations

from symphony.cluster.backend import Access
from symphony.supervised.host_backend import HostBackend


class TerminalBackend(HostBackend):
    """A backend that attaches the user's terminal to that of a process with the setting ``tty``."""

    @property
    def access(self) -> Access:
        """The object that does this, and whatever else reaches processes."""
        from symphony.supervised.terminal_access import TerminalAccess

        return TerminalAccess(self)
