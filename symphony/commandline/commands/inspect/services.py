"""``services``: show the services of an experiment."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from symphony.commandline.commands import shared_arguments
from symphony.commandline.commands.lookup.find_experiment import find_experiment
from symphony.commandline.commands.next_steps import exposed_services
from symphony.commandline.exit_codes import OK
from symphony.commandline.output.tables import Column
from symphony.commandline.parsing.command import Command
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line
    from symphony.plan.topology import Service

COMMAND = Command(json="a list of the services as JSON")

_COLUMNS = (
    Column("SERVICE"),
    Column("PORT", right=True),
    Column("SERVED BY", flexible=True, least=20),
    Column("USED BY", flexible=True, least=20, prose=True),
    Column("ADDRESS", flexible=True, least=20),
)
_MAX_NAMES = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    shared_arguments.add_experiment(parser)


def run(args: argparse.Namespace, line: Line) -> int | None:
    """Show the services of an experiment, and which processes serve and use them.

    ADDRESS is where an exposed service can be reached from outside the experiment; visit opens it.
    forward makes the other services available on this machine. A cell without a value contains "-".
    With --json, a service has the fields name, port, served_by, used_by, exposed and address, and
    replicas, which maps the names of exposed replicas, such as board-0, to their addresses.

    For example:
      symphony services rl
      symphony services rl --json | jq '.[].port'
    """
    from symphony.commandline.output.printing import show_json, show_table

    name = find_experiment(line, args).name
    topology = line.cluster.describe_topology(name)
    addresses = exposed_services(line, name)
    services = [
        _description(service, topology.clients(service.name), addresses)
        for service in topology.services
    ]
    if args.json:
        show_json(services)
        return OK
    show_table(_COLUMNS, [_row(service) for service in services])
    return OK


def _description(
    service: Service, clients: Iterable[str], addresses: Mapping[str, str | None]
) -> dict[str, Any]:
    """Return a service as it is shown as JSON."""
    replicas = [name for name in service.replicas if name in addresses]
    return {
        "name": service.name,
        "port": service.port,
        "served_by": list(service.owners),
        "used_by": list(clients),
        "exposed": service.exposed,
        "address": addresses.get(service.name),
        "replicas": {name: addresses[name] for name in replicas},
    }


def _row(service: Mapping[str, Any]) -> list[object]:
    """Return a service as a row with the columns `_COLUMNS`."""
    owners, clients = (
        join_names(service[key], limit=_MAX_NAMES) for key in ("served_by", "used_by")
    )
    found = [service["address"], *service["replicas"].values()]
    known = [address for address in found if address is not None]
    addresses = join_names(known, limit=_MAX_NAMES) if known else None
    return [service["name"], service["port"], owners, clients, addresses]
