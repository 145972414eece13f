"""Which proxy is used for an API server."""

from __future__ import annotations

import ipaddress
import urllib.parse
from urllib.request import getproxies_environment


def proxy_for(host: str, proxy_url: str | None) -> str | None:
    """Return the URL of the proxy for the API server at the URL ``host``, or None for none.

    ``proxy_url`` is the proxy in the kubeconfig. By default, the variables ``HTTPS_PROXY``,
    ``HTTP_PROXY`` and ``ALL_PROXY`` apply. ``NO_PROXY`` lists hosts for which no proxy is used.
    """
    environment = getproxies_environment()
    scheme = urllib.parse.urlsplit(host).scheme
    proxy = proxy_url or environment.get(scheme) or environment.get("all")
    if not proxy or _is_excluded(host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def excluded_hosts() -> list[str]:
    """Return the entries of ``NO_PROXY``."""
    entries = getproxies_environment().get("no", "").split(",")
    return [entry.strip() for entry in entries if entry.strip()]


def _is_excluded(url: str) -> bool:
    """Return whether ``NO_PROXY`` contains the host of ``url``.

    An entry is a host name that includes its subdomains, a host with a port, an IP address, a
    network such as ``10.0.0.0/8``, or ``*``.
    """
    parts = urllib.parse.urlsplit(url)
    host = (parts.hostname or "").lower()
    for entry in excluded_hosts():
        name = entry.lower().lstrip(".")
        if entry == "*" or name in (host, f"{host}:{parts.port}") or host.endswith(f".{name}"):
            return True
        if _is_in_network(host, entry):
            return True
    return False


def _is_in_network(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
