"""The rule for services that have the same fixed port on one machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from symphony.plan.findings import Finding, finding_of
from symphony.plan.resolution.addresses import hint_for_one_port, services_with_one_port
from symphony.plan.resolution.services import service_requests
from symphony.plan.shell import runs_entry_point

if TYPE_CHECKING:
    from symphony.lint.targets import Target
    from symphony.model import Experiment, Process, ProcessGroup


def rules(experiment: Experiment, target: Target) -> Iterator[Finding]:
    """Yield an error for each service that has the same fixed port as another one."""
    components = {component.name: component for component in experiment.list_components()}
    requests = service_requests(experiment)
    shares_ports = target.cluster.shares_ports
    for other, request in services_with_one_port(requests, shares_ports=shares_ports):
        component, service = components[request.owner], request.declared_name
        if shares_ports and (_needs_image(component) or _needs_image(components.get(other.owner))):
            # The backend refuses the process, for a reason that matters more.
            continue
        place = "on the same machine" if shares_ports else "in the same Pod"
        problem = f"gives port {request.port} to service {service!r}, but service"
        if request.replica_of is not None and other.replica_of == request.replica_of:
            problem = f"binds service {service!r} on port {request.port}, which"
            holder = f"{other.owner!r} has {place}"
        else:
            holder = f"{other.declared_name!r} of {other.owner!r} has it {place}"
        yield finding_of(
            component,
            "port-twice",
            f"{problem} {holder}",
            hint_for_one_port(request),
            below=("binds" if service in component.settings.binds else "exposes", service),
        )


def _needs_image(component: Process | ProcessGroup | None) -> bool:
    """Return whether a process can run only in an image."""
    from symphony.model import Process

    if not isinstance(component, Process):
        return False
    has_command = bool(component.command or component.cmds)
    return runs_entry_point(component.args or (), has_command=has_command)
