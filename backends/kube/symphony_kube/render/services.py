"""Services: the names under which processes find one another. Pure."""

from __future__ import annotations

from symphony.plan.addresses import Endpoint
from symphony_kube.api.labels import EXPERIMENT, SERVICE, UNIT
from symphony_kube.render.context import Context, Group
from symphony_kube.render.text import Object


def services(groups: tuple[Group, ...], context: Context) -> list[Object]:
    """The Service of every service that is bound or exposed, in declaration order."""
    unit_of = {process.name: group.name for group in groups for process in group.processes}
    unit_of.update({group.name: group.name for group in groups})
    return [
        _service(endpoint, unit_of[endpoint.owner], context)
        for endpoint in context.plan.addresses.endpoints
    ]


def _service(endpoint: Endpoint, unit: str, context: Context) -> Object:
    labels = {**context.labels(unit), SERVICE: endpoint.service}
    outside = endpoint.exposed and context.options.expose != "none"
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": context.metadata(endpoint.service, labels),
        "spec": {
            "type": context.options.expose if outside else "ClusterIP",
            "selector": {EXPERIMENT: context.plan.experiment, UNIT: unit},
            "ports": [
                {"name": endpoint.service, "port": endpoint.port, "targetPort": endpoint.port}
            ],
            # An address leads to its process from the start, as on one machine: to be ready orders starts alone,
            # and a process may be ready only when others have connected.
            "publishNotReadyAddresses": True,
        },
    }
