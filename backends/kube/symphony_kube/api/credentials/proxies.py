"""The proxy through which to connect to a server."""

from __future__ import annotations

import ipaddress
import urllib.parse
from urllib.request import getproxies


def proxy_for(server: str, proxy_url: str | None) -> str | None:
    """Return the URL of the proxy for a server, or None if there is none.

    ``proxy_url`` is the proxy in the kubeconfig. The default is that of the variables
    ``HTTPS_PROXY``, ``HTTP_PROXY`` and ``ALL_PROXY``. There is no proxy for the hosts in
    ``NO_PROXY``.
    """
    variables = getproxies()
    scheme = urllib.parse.urlsplit(server).scheme
    proxy = proxy_url or variables.get(scheme) or variables.get("all")
    if not proxy or _is_excluded(server, variables.get("no", "")):
        return None
    return proxy


def _is_excluded(server: str, hosts: str) -> bool:
    """Return whether a server matches one of the comma-separated ``hosts``.

    A host is a name, which includes its subdomains, a name with a port, an IP address, a network
    such as ``10.0.0.0/8``, or ``*``.
    """
    parts = urllib.parse.urlsplit(server)
    host, host_and_port = (parts.hostname or "").lower(), parts.netloc.lower()
    for entry in hosts.lower().split(","):
        name = entry.strip().lstrip(".")
        if not name:
            continue
        if name in ("*", host, host_and_port) or _is_in_network(host, name):
            return True
        if host.endswith(f".{name}") or host_and_port.endswith(f".{name}"):
            return True
    return False


def _is_in_network(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:  # One of them is a name.
        return False
