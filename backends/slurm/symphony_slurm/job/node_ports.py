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
        self._record = record
        for port in recorded_ports(record):
            lease = take_lease("port", str(port))
            if lease is not None:
                self._ports.leases[port] = lease

    def _write(self, port: int) -> None:
        """Record whether a port is leased."""
        descriptor = os.open(self._record, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.pwrite(descriptor, bytes([port in self._ports.leases]), port)
        finally:
            os.close(descriptor)

    def reserve(self, port: int) -> str | None:
        """Lease and hold a port. Return the reason why it is unavailable, or None."""
        reason = self._ports.reserve(port)
        self._write(port)
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
        self._write(port)

    def replace(self, port: int, port_range: list[int]) -> int | None:
        """Reserve another port than ``port``; see `ProcessHost.replace_port`."""
        first, last = port_range
        new = better_port(self._ports, port, (first, last))
        if new is not None:
            self._write(new)
            self.release(port)
        return new

    def end_holds(self, ports: Iterable[int]) -> None:
        """Let a server bind its ports, which remain leased."""
        for port in ports:
            hold = self._ports.holds.pop(port, None)
            if hold is not None:
                os.close(hold)


def recorded_ports(record: str) -> list[int]:
    """Return the leased ports that a record contains.

    Byte N of the file is 1 if port N is leased. An agent that is killed while it writes one byte
    leaves a complete record. The file cannot be replaced, because it has no name in a directory.
    """
    contents = Path(record).read_bytes()
    return [port for port, is_leased in enumerate(contents) if is_leased]
