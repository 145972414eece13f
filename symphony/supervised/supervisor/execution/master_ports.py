"""Other ports for the ranks of a unit that restarts.

The ranks meet at a port of rank 0. After a restart, closed connections of the previous execution
can prevent a server from binding this port. Then the ranks meet at another port, which the manifest
contains, so that all ranks, later commands and another supervisor agree on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from symphony.plan.resolution.addresses import PREFIX
from symphony.plan.resolution.ranks import PORT_VARIABLES, master_service
from symphony.support.data_classes import dataclass, replace
from symphony.support.names import service_env_name

if TYPE_CHECKING:
    from symphony.supervised.processes.spec import ProcessSpec
    from symphony.supervised.record.directory import RunDirectory
    from symphony.supervised.supervisor.process_host import ProcessHost


@dataclass(frozen=True, slots=True)
class NewPort:
    """Another port for the service of a unit.

    ``holds`` maps the port to the descriptor that is closed before rank 0 starts, if this machine
    holds it.
    """

    service: str
    old_address: str
    address: str
    holds: Mapping[int, int]

    @property
    def _old_port(self) -> int:
        return int(self.old_address.rpartition(":")[2])

    @property
    def _port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def shared_env(self) -> dict[str, str]:
        """Return the variables of all processes that change."""
        prefix = PREFIX + service_env_name(self.service)
        return {f"{prefix}_PORT": str(self._port), f"{prefix}_ADDR": self.address}

    def rank_env(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of a rank with the new port."""
        result = dict(env)
        for key, value in env.items():
            if value == self.old_address:
                result[key] = self.address
        return {**result, **dict.fromkeys(PORT_VARIABLES, str(self._port))}

    def releases(self, ports: tuple[int, ...]) -> tuple[int, ...]:
        """Return the ports that a rank binds with the new port."""
        new = {self._old_port: self._port}
        return tuple(new.get(port, port) for port in ports)

    def spec(self, spec: ProcessSpec) -> ProcessSpec:
        """Return the description of a rank with the new port."""
        return replace(spec, env=self.rank_env(spec.env), releases=self.releases(spec.releases))


def replace_master_port(run: RunDirectory, host: ProcessHost, unit: str) -> NewPort | None:
    """Reserve another port for a unit that restarts, and write it into the manifest.

    Return None if the port remains: if each server could bind it, if other processes use its
    address, or if no better port is available. Raises OSError if the manifest cannot be written.
    """
    manifest = run.load_manifest(is_new=True)
    service = master_service(unit)
    port_range = manifest.get("movable_ports", {}).get(service)
    if port_range is None:
        return None
    old_address: str = manifest["services"][service]
    found = host.replace_port(old_address, (port_range[0], port_range[1]))
    if found is None:
        return None
    port, holds = found
    address = f"{old_address.rpartition(':')[0]}:{port}"
    new = NewPort(service, old_address, address, holds)
    run.replace_manifest(_changed(manifest, unit, new))
    return new


def _changed(manifest: Mapping[str, Any], unit: str, new: NewPort) -> dict[str, Any]:
    processes = []
    for item in manifest["processes"]:
        if item["unit"] == unit:
            releases = new.releases(tuple(item["releases"]))
            item = {**item, "env": new.rank_env(item["env"]), "releases": releases}
        processes.append(item)
    return {
        **manifest,
        "processes": processes,
        "services": {**manifest["services"], new.service: new.address},
        "env": {**manifest["env"], **new.shared_env()},
    }
