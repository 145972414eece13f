"""The cluster's network: a bridge on the host, and a link from each machine to the bridge.

A machine that uses the host's network has no link. Nodes reach each other directly over the bridge,
so the host forwards no packets and needs no firewall rules. The host only needs routes to the Pods
and Services. The kernel removes these routes together with the bridge.
"""

from __future__ import annotations

import ipaddress
import itertools
import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from machines.console import RequirementError, ToolError
from machines.network import bridge_exists, ip
from machines.sandbox import Machine

BRIDGE = "symphonydev0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """The addresses of a cluster, all of one family: that of IPv4 or that of IPv6.

    ``node_bits`` is the length of the prefix of a node's Pods.
    """

    host: str
    control: str
    dns_service: str
    machines_net: str
    pods_net: str
    services_net: str
    node_bits: int
    all_addresses: str
    iptables: str
    forwarding: str

    @property
    def networks(self) -> tuple[str, str, str]:
        """The networks of the machines, the Pods and the Services."""
        return self.machines_net, self.pods_net, self.services_net

    def machine(self, number: int) -> str:
        """Return the address of a node's machine on the bridge. The first node has number 1."""
        return str(ipaddress.ip_network(self.machines_net)[10 + number])

    def pods(self, number: int) -> str:
        """Return the address range of a node's Pods."""
        ranges = ipaddress.ip_network(self.pods_net).subnets(new_prefix=self.node_bits)
        return str(next(itertools.islice(ranges, number, None)))


IPV4 = Addresses(
    host="10.243.0.1",
    control="10.243.0.2",
    dns_service="10.96.0.10",
    machines_net="10.243.0.0/24",
    pods_net="10.244.0.0/16",
    services_net="10.96.0.0/16",
    node_bits=24,
    all_addresses="0.0.0.0/0",
    iptables="iptables",
    forwarding="/proc/sys/net/ipv4/ip_forward",
)
IPV6 = Addresses(
    host="fd00:243::1",
    control="fd00:243::2",
    dns_service="fd00:96::10",
    machines_net="fd00:243::/64",
    pods_net="fd00:244::/48",
    services_net="fd00:96::/112",
    node_bits=64,
    all_addresses="::/0",
    iptables="ip6tables",
    forwarding="/proc/sys/net/ipv6/conf/all/forwarding",
)


def with_port(address: str, port: int) -> str:
    """Return an address with a port, as URLs contain it."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def collisions(routes: Iterable[Mapping[str, Any]], addresses: Addresses) -> list[str]:
    """Return descriptions of the routes that overlap the cluster's networks.

    Ignore the default route and the routes through the cluster's own bridge. `routes` is the parsed
    output of `ip -json route`.
    """
    networks = [ipaddress.ip_network(text) for text in addresses.networks]
    found = []
    for route in routes:
        if route["dst"] == "default" or route.get("dev") == BRIDGE:
            continue
        if any(ipaddress.ip_network(route["dst"], strict=False).overlaps(net) for net in networks):
            found.append(f"{route['dst']} via {route.get('dev', '?')}")
    return found


def check(addresses: Addresses) -> None:
    """Raise RequirementError if the host already has the bridge, or a route that overlaps the
    cluster's networks.
    """
    if bridge_exists(BRIDGE):
        raise RequirementError(
            f"bridge {BRIDGE} already exists, from a cluster with another XDG_STATE_HOME: run "
            f"'devcluster down' with that setting, or 'ip link delete {BRIDGE}' if it is unused"
        )
    family = "-4" if addresses is IPV4 else "-6"
    found = collisions(json.loads(ip(family, "-json", "route", "show") or "[]"), addresses)
    if found:
        raise RequirementError(
            f"this machine already routes {', '.join(found)}, which overlaps the cluster's "
            f"{', '.join(addresses.networks)}: remove that route, or use a kind "
            "cluster or SYMPHONY_TEST_KUBECONFIG for the tests"
        )


def join(addresses: Addresses, nodes: Mapping[int, Machine], others: Sequence[Machine]) -> None:
    """Add routes to each node's Pods and to the Services, on the host and on all given machines.

    ``nodes`` maps the numbers of the nodes to their machines. Enable IP forwarding on the nodes.
    """
    routes = {addresses.pods(number): addresses.machine(number) for number in nodes}
    for number, machine in nodes.items():
        for pods, via in routes.items():
            if pods != addresses.pods(number):
                _inside(machine, "ip", "route", "add", pods, "via", via)
        # The node's firewall rules translate a Service's address to a Pod's address, but the kernel
        # first needs a route to the Service's address.
        services = addresses.services_net
        _inside(machine, "ip", "route", "add", services, "via", addresses.host)
        # A packet whose destination is still a Service's address belongs to a Service that
        # kube-proxy has not processed yet. It must not pass: the kernel would remember the
        # connection as one that is not translated, and all further tries of its client would get
        # lost, too.
        for chain in ("FORWARD", "OUTPUT"):
            rule = ("-w", "-A", chain, "-d", services, "-j", "DROP")
            _inside(machine, addresses.iptables, *rule)
        _inside(machine, "sh", "-c", f"echo 1 >{addresses.forwarding}")
    gateway = next(iter(routes.values()))
    for pods, via in (*routes.items(), (addresses.services_net, gateway)):
        ip("route", "add", pods, "via", via)
        for machine in others:
            _inside(machine, "ip", "route", "add", pods, "via", via)


def _inside(machine: Machine, *argv: str) -> None:
    done = subprocess.run(machine.inside(argv), capture_output=True, text=True)
    if done.returncode:
        raise ToolError(f"'{' '.join(argv)}' failed on {machine.name}: {done.stderr.strip()}")
