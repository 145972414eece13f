"""The cluster's network: one bridge on the host, a cable from it to every machine.

Nodes reach one another over the bridge directly, so the host forwards nothing and has no firewall
rule; it only has routes to the Pods and Services, which go when the bridge goes.
"""

from __future__ import annotations

import ipaddress
import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.console import Failure, Refusal
from devcluster.sandbox import Machine

BRIDGE = "symphonydev0"
HOST = "10.243.0.1"
CONTROL = "10.243.0.2"
MACHINES_NET = "10.243.0.0/24"
PODS_NET = "10.244.0.0/16"
SERVICES_NET = "10.96.0.0/16"
DNS_SERVICE = "10.96.0.10"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAddress:
    """A node's place in the network, by its number from 1."""

    number: int

    @property
    def machine(self) -> str:
        """Return the address of its machine on the bridge."""
        return f"10.243.0.{10 + self.number}"

    @property
    def pods(self) -> str:
        """Return the network of its Pods."""
        return f"10.244.{self.number}.0/24"


def ip(*arguments: str) -> str:
    """Run iproute2's `ip`; Failure with what it says if it fails."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise Failure(f"'ip {' '.join(arguments)}' failed: {done.stderr.strip()}")
    return done.stdout


def collisions(routes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the machine's routes (as of `ip -json route`) that overlap the cluster's networks."""
    ours = [ipaddress.ip_network(text) for text in (MACHINES_NET, PODS_NET, SERVICES_NET)]
    found = []
    for route in routes:
        if route["dst"] == "default" or route.get("dev") == BRIDGE:
            continue
        if any(ipaddress.ip_network(route["dst"], strict=False).overlaps(net) for net in ours):
            found.append(f"{route['dst']} via {route.get('dev', '?')}")
    return found


def check() -> None:
    """Refuse if the machine already uses the cluster's bridge or addresses."""
    if Path(f"/sys/class/net/{BRIDGE}").exists():
        raise Refusal(
            f"bridge {BRIDGE} is there already, of a cluster with another XDG_STATE_HOME: run "
            f"'devcluster down' with that one, or 'ip link delete {BRIDGE}' if nobody knows it"
        )
    if found := collisions(json.loads(ip("-4", "-json", "route", "show") or "[]")):
        raise Refusal(
            f"this machine already routes {', '.join(found)}, which overlaps the cluster's "
            f"{MACHINES_NET}, {PODS_NET} and {SERVICES_NET}: take that route away, or use a kind "
            "cluster or SYMPHONY_TEST_KUBECONFIG for the tests"
        )


def make_bridge() -> None:
    """Make the bridge with the host's address on it."""
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("address", "add", f"{HOST}/24", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")


def remove_bridge() -> None:
    """Take away the bridge and every cable in it; harmless if there is none."""
    listed = json.loads(ip("-json", "link", "show") or "[]")
    cables = [link["ifname"] for link in listed if link.get("master") == BRIDGE]
    for name in (*cables, *(link["ifname"] for link in listed if link["ifname"] == BRIDGE)):
        _delete(name)


def _delete(name: str) -> None:
    """Delete an interface; a cable may go by itself meanwhile, with the machine at its other end."""
    try:
        ip("link", "delete", name)
    except Failure:
        if Path(f"/sys/class/net/{name}").exists():
            raise


def plug(machine: Machine) -> None:
    """Lay a cable from the bridge to a machine and give it its address there."""
    cable = f"sdc-{machine.name}"
    ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(machine.init.pid))
    ip("link", "set", cable, "master", BRIDGE, "up")
    inside = ("ip", "-batch", "-")
    # no default route: what looks for a cloud's metadata fails at once instead of after 5 s
    commands = f"address add {machine.address}/24 dev eth0\nlink set lo up\nlink set eth0 up\n"
    subprocess.run(machine.inside(inside), input=commands, text=True, check=True)


def join(machines: Sequence[tuple[Machine, NodeAddress]], others: Sequence[Machine]) -> None:
    """Tell every machine and the host the way to the Pods of each node, and to the Services."""
    routes = {place.pods: place.machine for _, place in machines}
    for machine, place in machines:
        for pods, via in routes.items():
            if pods != place.pods:
                _inside(machine, "ip", "route", "add", pods, "via", via)
        # the firewall turns a Service's address into a Pod's, but first there must be a way to it
        _inside(machine, "ip", "route", "add", SERVICES_NET, "via", HOST)
        _inside(machine, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward")
    gateway = next(iter(routes.values()))
    for pods, via in (*routes.items(), (SERVICES_NET, gateway)):
        ip("route", "add", pods, "via", via)
        for machine in others:
            _inside(machine, "ip", "route", "add", pods, "via", via)


def _inside(machine: Machine, *argv: str) -> None:
    done = subprocess.run(machine.inside(argv), capture_output=True, text=True)
    if done.returncode:
        raise Failure(f"'{' '.join(argv)}' failed on {machine.name}: {done.stderr.strip()}")
