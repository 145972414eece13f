"""The rule for replicas and ranks that have the same fixed port on one machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from symphony.plan.addresses import hint_for_one_port, replicas_with_one_port
from symphony.plan.findings import Finding, finding_of
from symphony.plan.services import service_requests

if TYPE_CHECKING:
    from symphony.lint.targets import Target
    from symphony.model import Experiment


def rules(experiment: Experiment, target: Target) -> Iterator[Finding]:
    """Yield an error for each replica that binds a service on the same port as another one."""
    components = {component.name: component for component in experiment.list_components()}
    requests = service_requests(experiment)
    shares_ports = target.cluster.shares_ports
    for other, request in replicas_with_one_port(requests, shares_ports=shares_ports):
        component, service = components[request.owner], request.replica_of or ""
        yield finding_of(
            component,
            "port-twice",
            f"binds service {service!r} on port {request.port}, which {other.owner!r} has on the "
            "same machine",
            hint_for_one_port(service),
            below=("binds" if service in component.settings.binds else "exposes", service),
        )
