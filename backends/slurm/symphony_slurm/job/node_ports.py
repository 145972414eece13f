"""The ports that the agent of a node holds for the servers of an experiment."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from symphony.supervised.resources.leases import PortLeases, better_port, take_lease


class NodePorts:
    """The leased ports of one node. The methods are the orders of the supervisor.

    ``record`` is the path of the file that contains the leased ports, which the agent leases again
    that replaces a killed one. It does not hold them, because their servers may be about to bind
    them.
    """

    def __init__(self, record: str) -> None:
        self._ports = PortLeases()
        self._record = Path(record)
        for port in map(int, self._record.read_text().split()):
            lease = take_lease("port", str(port))
            if lease is not None:
                self._ports.leases[port] = lease

    def _write_record(self) -> None:
        self._record.write_text("\n".join(map(str, self._ports.leases)))

    def reserve(self, port: int) -> str | None:
        """Lease and hold a port. Return the reason why it is unavailable, or None."""
        reason = self._ports.reserve(port)
        self._write_record()
        return reason

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
        self._write_record()

    def replace(self, port: int, port_range: list[int]) -> int | None:
        """Reserve another port than ``port``; see `ProcessHost.replace_port`."""
        first, last = port_range
        new = better_port(self._ports, port, (first, last))
        if new is not None:
            # The new port is already among the leases.
            self.release(port)
        return new

    def end_holds(self, ports: Iterable[int]) -> None:
        """Let a server bind its ports, which remain leased."""
        for port in ports:
            hold = self._ports.holds.pop(port, None)
            if hold is not None:
                os.close(hold)
