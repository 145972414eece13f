"""The ports and GPUs that a supervisor holds for its processes."""

from __future__ import annotations

import os
from collections.abc import Collection

from symphony.supervised.processes.spec import GPU_VARIABLE, ProcessSpec
from symphony.supervised.record.directory import RunDirectory, all_roots
from symphony.supervised.supervisor.execution.supervised_process import SupervisedProcess
from symphony.supervised.supervisor.process_host import port_of


class HeldResources:
    """The leases of GPUs and the holds of ports of the processes of one run.

    ``holds`` maps each port to the descriptor of its hold, and ``gpus`` each process name to the
    descriptors of its leases. Descriptors that are closed are removed from both. ``lost_ports``
    contains the ports that other experiments have leased. If ``is_remote`` is true, the processes
    run on other machines, whose GPUs need no leases.
    """

    def __init__(
        self,
        run: RunDirectory,
        *,
        holds: dict[int, int],
        gpus: dict[str, list[int]],
        lost_ports: Collection[int],
        is_remote: bool,
    ) -> None:
        self._run = run
        self.holds = holds
        self.gpus = gpus
        self._lost_ports = set(lost_ports)
        self._is_remote = is_remote

    def close_holds(self, ports: Collection[int]) -> None:
        """Release ports that a process is about to serve, or that are not needed any more."""
        for port in ports:
            hold = self.holds.pop(port, None)
            if hold is not None:
                os.close(hold)

    def close_address_holds(self, addresses: Collection[str]) -> None:
        """Release the ports of addresses ``host:port``."""
        self.close_holds([port_of(address) for address in addresses])

    def lease_gpus(self, spec: ProcessSpec) -> bool:
        """Lease the GPUs of a process again. Return False if another experiment has leased them."""
        if not spec.gpus or spec.name in self.gpus or self._is_remote:
            return True
        from symphony.supervised.resources.leases import GpuLeases
        from symphony.supervised.resources.unsupervised import UnsupervisedUsage

        unsupervised = UnsupervisedUsage(all_roots(self._run.path.parent), self._run)
        leases = GpuLeases(spec.env[GPU_VARIABLE].split(","), unsupervised)
        if leases.lease(len(leases.devices)) is None:
            return False
        self.gpus[spec.name] = list(leases.leases.values())
        return True

    def release_gpus(self, name: str) -> None:
        """Release the GPUs of a process."""
        for descriptor in self.gpus.pop(name, []):
            os.close(descriptor)

    def release_all_gpus(self) -> None:
        """Release the GPUs of all processes."""
        for name in list(self.gpus):
            self.release_gpus(name)

    def find_lost(self, process: SupervisedProcess) -> str:
        """Return which resource of a process another experiment has leased, or ``""`` if none.

        If the resource is free again, lease it.
        """
        for port in sorted(self._lost_ports.intersection(process.spec.releases)):
            from symphony.supervised.resources.leases import take_lease

            if take_lease("port", str(port)) is None:
                return f"another experiment has reserved port {port} of {process.name!r}"
            self._lost_ports.discard(port)
        if process.has_lost_gpus:
            if not self.lease_gpus(process.spec):
                return f"another experiment has leased the GPUs of {process.name!r}"
            process.has_lost_gpus = False
        return ""
