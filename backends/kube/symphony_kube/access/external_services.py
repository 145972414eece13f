"""An experiment's Services, and their addresses outside the cluster.

Such an address belongs to a load balancer or to a port of a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from symphony.errors import NotFound, Unsupported
from symphony.support.names import did_you_mean, join_names
from symphony_kube.api import labels
from symphony_kube.api.errors import ApiError
from symphony_kube.api.resources import collection_path, items_of
from symphony_kube.status import experiments
from symphony_kube.status.find_pod import list_containers
from symphony_kube.status.permission_errors import missing_right

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment

Object = Mapping[str, Any]


def external_address(experiment: KubeExperiment, service: str) -> str:
    """Return the external address of a service as ``host:port``.

    This is the address of the service's load balancer. If no load balancer has an address, the
    external address consists of the address of a node and the service's node port.

    Raises `NotFound` if the service is not exposed, and `Unsupported` if it has no external
    address.
    """
    resource = find_service(experiment, service, list_services(experiment))
    spec = resource["spec"]
    visit_command = f"symphony visit {experiment.name} {service}"
    if not _is_exposed(resource):
        raise NotFound(
            f"experiment {experiment.name!r} does not expose {service!r} outside the cluster; "
            f"connect through the API server with: {visit_command}"
        )
    address = _load_balancer_address(resource)
    if address is not None:
        return address
    port = spec["ports"][0]
    if port.get("nodePort"):
        host = _node_host(experiment, resource)
        if host:
            return _join_address(host, port["nodePort"])
    raise Unsupported(
        f"service {service!r} has no external address yet: no load balancer has assigned one; "
        f"connect through the API server with: {visit_command}"
    )


def exposed_services(experiment: KubeExperiment) -> dict[str, str | None]:
    """Return a mapping from the exposed services to the addresses of their load balancers.

    The address is None if no load balancer has assigned one.
    """
    return {
        name: _load_balancer_address(resource)
        for name, resource in list_services(experiment).items()
        if _is_exposed(resource)
    }


def _is_exposed(resource: Object) -> bool:
    return resource["spec"].get("type") in ("LoadBalancer", "NodePort")


def _load_balancer_address(resource: Object) -> str | None:
    """Return the ``host:port`` that a load balancer has assigned to a Service, or None."""
    load_balancer = (resource.get("status") or {}).get("loadBalancer") or {}
    for ingress in load_balancer.get("ingress") or ():
        host = ingress.get("ip") or ingress.get("hostname")
        if host:
            return _join_address(host, resource["spec"]["ports"][0]["port"])
    return None


def list_services(experiment: KubeExperiment) -> dict[str, Object]:
    """Return an experiment's Services, keyed by the names that processes use for them."""
    path = collection_path("Service", experiment.namespace)
    try:
        answer = experiment.api.call("GET", path, query={"labelSelector": experiment.selector})
    except ApiError as exc:
        action = f"list the services of {experiment.name!r}"
        raise missing_right(exc, action, "list services", experiment.scope) from exc
    return {service_name(resource): resource for resource in items_of(answer)}


def service_name(resource: Object) -> str:
    """Return the name that processes use for a Service."""
    metadata = resource["metadata"]
    return str(metadata["labels"].get(labels.SERVICE, metadata["name"]))


def find_service(experiment: KubeExperiment, service: str, known: Mapping[str, Object]) -> Object:
    """Return one of the ``known`` Services. Raises `NotFound` if it is not among them."""
    if service in known:
        return known[service]
    if not known:
        # This call raises NotFound if the experiment does not exist.
        experiments.experiment_status(experiment)
    hint = did_you_mean(service, known) or f"; its services are {join_names(known)}"
    raise NotFound(f"experiment {experiment.name!r} does not expose {service!r}{hint}")


def _node_host(experiment: KubeExperiment, service: Object) -> str | None:
    """Return the address of a node through which ``service`` can be reached, or None if no
    address is known.

    External addresses are preferred to internal ones. Among addresses of the same type, the address
    of the node that runs the service's Pod is preferred.
    """
    refs = list_containers(experiment, service["spec"]["selector"].get(labels.UNIT))
    host = next((ref.host for ref in refs if ref.host), None)
    try:
        nodes = items_of(experiment.api.call("GET", "/api/v1/nodes"))
    except ApiError:  # Most users are not allowed to list nodes.
        return host
    addresses_of_nodes = []
    for node in nodes:
        addresses = node["status"].get("addresses") or ()
        addresses_of_nodes.append({item["type"]: item["address"] for item in addresses})
    addresses_of_nodes.sort(key=lambda addresses: addresses.get("InternalIP") != host)
    for kind in ("ExternalIP", "ExternalDNS", "InternalIP"):
        for addresses in addresses_of_nodes:
            if kind in addresses:
                return str(addresses[kind])
    return host


def _join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
