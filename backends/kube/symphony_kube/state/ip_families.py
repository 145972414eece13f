"""Explain why a server at ``0.0.0.0`` cannot be reached in a cluster with IPv6 addresses. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Object = Mapping[str, Any]

# The default address on which processes listen: all of IPv4.
ALL_OF_IPV4 = "0.0.0.0"
_BIND_HOST_SUFFIX = "_BIND_HOST"
_CURE = (
    f"a server at {ALL_OF_IPV4} cannot be reached there: set the option bind_host to '::', such as "
    'with options: {kube: {bind_host: "::"}} in the configuration'
)


def refusal_hint(address: str, pod: Object, container: Object) -> str:
    """Return why a container refuses connections to an address, or ``""`` if it is not known.

    ``address`` has the form ``host:port``. The hint is for servers that use the variable with the
    address on which they are to listen.
    """
    variables = {item["name"]: item.get("value") for item in container.get("env") or ()}
    listens_on_ipv4 = any(
        name.endswith(_BIND_HOST_SUFFIX) and value == ALL_OF_IPV4
        for name, value in variables.items()
    )
    status = pod.get("status") or {}
    addresses = [item.get("ip", "") for item in status.get("podIPs") or ()]
    is_refused_on_ipv6 = address.startswith("[")
    if listens_on_ipv4 and is_refused_on_ipv6 and _are_ipv6(addresses):
        return f"the Pod has only IPv6 addresses, and {_CURE}"
    return ""


def service_note(services: Iterable[Object]) -> str:
    """Return a message about the addresses of Services whose servers listen on ``0.0.0.0``.

    It is ``""`` if all Services can be reached by IPv4.
    """
    found = [
        service["metadata"]["name"]
        for service in services
        if _are_ipv6((service.get("spec") or {}).get("clusterIPs") or ())
    ]
    if not found:
        return ""
    return f"Services of this cluster, such as {found[0]!r}, have only IPv6 addresses, and {_CURE}"


def _are_ipv6(addresses: Iterable[str]) -> bool:
    """Return whether there are addresses, and all of them are IPv6 addresses."""
    found = list(addresses)
    return bool(found) and all(":" in address for address in found)
