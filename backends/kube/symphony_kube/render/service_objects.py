"""The Services that connect an experiment's processes. Pure."""

from __future__ import annotations

from symphony.plan.resolution.addresses import Endpoint
from symphony_kube.api.labels import EXPERIMENT, RANK_OF, SERVICE, UNIT
from symphony_kube.render.given_fields.cluster_overrides import with_cluster_override
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
    endpoints = context.plan.addresses.endpoints
    endpoints_of: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        endpoints_of.setdefault(endpoint.owner, []).append(endpoint)
    return [
        _service(endpoint, endpoints_of[endpoint.owner], unit_of[endpoint.owner], context)
        for endpoint in endpoints
    ]


def _service(
    endpoint: Endpoint, endpoints_of_owner: list[Endpoint], unit: str, context: RenderContext
) -> Object:
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
    # As on a single machine, all services of a process can be reached at one host. Some programs
    # give others one host and several ports. From outside the cluster, only the exposed port can be
    # reached.
    reachable = [endpoint]
    if service_type == "ClusterIP" and endpoint.master_of is None:
        reachable += [other for other in endpoints_of_owner if other is not endpoint]
    body: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": context.metadata(endpoint.service, labels),
        "spec": {
            "type": service_type,
            **address,
            "selector": selector,
            "ports": [
                {"name": each.service, "port": each.port, "targetPort": each.port}
                for each in reachable
            ],
            # A process can be reached before it is ready, as on a single machine. Readiness
            # determines only the start order, and some processes become ready only after other
            # processes connect to them.
            "publishNotReadyAddresses": True,
        },
    }
    return with_cluster_override(body, context.options)
