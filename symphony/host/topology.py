"""From a manifest to who is joined with whom. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symphony.plan.encryption_keys import variable
from symphony.plan.topology import Service, Topology, of_status
from symphony.status import ExperimentStatus


def topology(manifest: Mapping[str, Any], status: ExperimentStatus) -> Topology:
    """The topology of an experiment that was launched so, with the processes of its ``status``.

    Who serves a port is who has it released at the start; a port of all members is that of their group.
    """
    processes = manifest["processes"]
    return of_status(
        status,
        services=[
            _service(name, address, manifest) for name, address in manifest["services"].items()
        ],
        connects={item["name"]: item.get("connects", ()) for item in processes},
        starts_after={item["group"] or item["name"]: item["starts_after"] for item in processes},
    )


def _service(name: str, address: str, manifest: Mapping[str, Any]) -> Service:
    port = int(address.rpartition(":")[2])
    serving = [item for item in manifest["processes"] if port in item["releases"]]
    return Service(
        name=name,
        owners=(serving[0]["name"] if len(serving) == 1 else serving[0]["group"],),
        port=port,
        exposed=name in manifest["exposed"],
        encrypted=variable(name) in manifest["env"],
    )
