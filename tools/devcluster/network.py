"""The cluster's network: a bridge on the host, and a link from each machine to the bridge.

A machine that uses the host's network has no link. Nodes reach each other directly over the bridge,
so the host forwards no packets and needs no firewall rules. The host only needs routes to the Pods
and Services. The kernel removes these routes together with the bridge.
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from machines.console import RequirementError, ToolError
from machines.network import bridge_exists, ip
from machines.sandbox import Machine

BRIDGE = "symphonydev0"
HOST = "10.243.0.1"
CONTROL = "10.243.0.2"
MACHINES_NET = "10.243.0.0/24"
PODS_NET = "10.244.0.0/16"
SERVICES_NET = "10.96.0.0/16"
DNS_SERVICE = "10.96.0.10"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAddress:
    """The addresses of a node, derived from its number. The first node has number 1."""

    number: int

    @property
    def machine(self) -> str:
        """The address of the node's machine on the bridge."""
        return f"10.243.0.{10 + self.number}"

    @property
    def pods(self) -> str:
        """The address range of the node's Pods."""
        return f"10.244.{self.number}.0/24"


def collisions(routes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return descriptions of the routes that overlap the cluster's networks.

    Ignore the default route and the routes through the cluster's own bridge. `routes` is the parsed
    output of `ip -json route`.
    """
    networks = [ipaddress.ip_network(text) for text in (MACHINES_NET, PODS_NET, SERVICES_NET)]
    found = []
    for route in routes:
        if route["dst"] == "default" or route.get("dev") == BRIDGE:
            continue
        if any(ipaddress.ip_network(route["dst"], strict=False).overlaps(net) for net in networks):
            found.append(f"{route['dst']} via {route.get('dev', '?')}")
    return found


def check() -> None:
    """Raise RequirementError if the host already has the bridge, or a route that overlaps the
    cluster's networks.
    """
    if bridge_exists(BRIDGE):
        raise RequirementError(
            f"bridge {BRIDGE} already exists, from a cluster with another XDG_STATE_HOME: run "
            f"'devcluster down' with that setting, or 'ip link delete {BRIDGE}' if it is unused"
        )
    found = collisions(json.loads(ip("-4", "-json", "route", "show") or "[]"))
    if found:
        raise RequirementError(
            f"this machine already routes {', '.join(found)}, which overlaps the cluster's "
            f"{MACHINES_NET}, {PODS_NET} and {SERVICES_NET}: remove that route, or use a kind "
            "cluster or SYMPHONY_TEST_KUBECONFIG for the tests"
        )


def join(machines: Sequence[tuple[Machine, NodeAddress]], others: Sequence[Machine]) -> None:
    """Add routes to each node's Pods and to the Services, on the host and on all given machines.

    Enable IP forwarding on the nodes, which are listed in `machines`.
    """
    routes = {address.pods: address.machine for _, address in machines}
    for machine, address in machines:
        for pods, via in routes.items():
            if pods != address.pods:
                _inside(machine, "ip", "route", "add", pods, "via", via)
        # The node's firewall rules translate a Service's address to a Pod's address, but the kernel
        # first needs a route to the Service's address.
        _inside(machine, "ip", "route", "add", SERVICES_NET, "via", HOST)
        # A packet whose destination is still a Service's address belongs to a Service that
        # kube-proxy has not processed yet. It must not pass: the kernel would remember the
        # connection as one that is not translated, and all further tries of its client would get
        # lost, too.
        for chain in ("FORWARD", "OUTPUT"):
            _inside(machine, "iptables", "-w", "-A", chain, "-d", SERVICES_NET, "-j", "DROP")
        _inside(machine, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
    gateway = next(iter(routes.values()))
    for pods, via in (*routes.items(), (SERVICES_NET, gateway)):
        ip("route", "add", pods, "via", via)
        for machine in others:
            _inside(machine, "ip", "route", "add", pods, "via", via)


def _inside(machine: Machine, *argv: str) -> None:
    done = subprocess.run(machine.inside(argv), capture_output=True, text=True)
    if done.returncode:
        raise ToolError(f"'{' '.join(argv)}' failed on {machine.name}: {done.stderr.strip()}")
