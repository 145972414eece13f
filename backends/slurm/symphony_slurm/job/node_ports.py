"""The ports that the agent of a node holds for the servers of an experiment."""

from __future__ import annotations

import os
from collections.abc import Iterable

from symphony.supervised.resources.leases import PortLeases, better_port


class NodePorts:
    """The leased ports of one node. The methods are the orders of the supervisor."""

    def __init__(self) -> None:
        self._ports = PortLeases()

    def reserve(self, port: int) -> str | None:
        """Lease and hold a port. Return the reason why it is unavailable, or None."""
        return self._ports.reserve(port)

    def avoid(self, port: int) -> bool:
        """Return whether another port is preferable."""
        return self._ports.avoid(port)

    def keep(self, ports: list[int]) -> None:
        """Release all ports except these."""
        for port in [port for port in self._ports.leases if port not in ports]:
            self.release(port)

    def release(self, port: int) -> None:
        """Release a port that no service uses any more."""
        for sockets in (self._ports.leases, self._ports.holds):
            descriptor = sockets.pop(port, None)
            if descriptor is not None:
                os.close(descriptor)

    def replace(self, port: int, port_range: list[int]) -> int | None:
        """Reserve another port than ``port``; see `ProcessHost.replace_port`."""
        first, last = port_range
        new = better_port(self._ports, port, (first, last))
        if new is not None:
            self.release(port)
        return new

    def end_holds(self, ports: Iterable[int]) -> None:
        """Let a server bind its ports, which remain leased."""
        for port in ports:
            hold = self._ports.holds.pop(port, None)
            if hold is not None:
                os.close(hold)
