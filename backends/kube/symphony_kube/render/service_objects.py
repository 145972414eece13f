"""The Services that connect an experiment's processes. Pure."""

from __future__ import annotations

from symphony.plan.resolution.addresses import Endpoint
from symphony_kube.api.labels import EXPERIMENT, RANK_OF, SERVICE, UNIT
from symphony_kube.render.render_context import PlannedUnit, RenderContext
from symphony_kube.render.text import Object


def render_services(units: tuple[PlannedUnit, ...], context: RenderContext) -> list[Object]:
    """Return a Service for every bound or exposed service, in declaration order."""
    unit_of: dict[str, str] = {}
    for unit in units:
        for process in unit.processes:
            unit_of[process.name] = unit.name
    # A service that is declared on a group belongs to the group itself.
    unit_of.update({unit.name: unit.name for unit in units})
    return [
        _service(endpoint, unit_of[endpoint.owner], context)
        for endpoint in context.plan.addresses.endpoints
    ]


def _service(endpoint: Endpoint, unit: str, context: RenderContext) -> Object:
    labels = {**context.labels(unit), SERVICE: endpoint.service}
    service_type = "ClusterIP"
    if endpoint.exposed and context.options.expose != "none":
        service_type = context.options.expose
    selector = {EXPERIMENT: context.plan.experiment, UNIT: unit}
    address: Object = {}
    if endpoint.master_of is not None:
        # The Pods of all ranks have host names below the name of this Service. Rank 0 cannot bind
        # the address of another Service.
        selector = {EXPERIMENT: context.plan.experiment, RANK_OF: endpoint.master_of}
        address = {"clusterIP": "None"}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": context.metadata(endpoint.service, labels),
        "spec": {
            "type": service_type,
            **address,
            "selector": selector,
            "ports": [
                {"name": endpoint.service, "port": endpoint.port, "targetPort": endpoint.port}
            ],
            # A process can be reached before it is ready, as on a single machine. Readiness
            # determines only the start order, and some processes become ready only after other
            # processes connect to them.
            "publishNotReadyAddresses": True,
        },
    }
