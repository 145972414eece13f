"""A bridge on the host, and a link from each machine to the bridge."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from machines.console import ToolError
from machines.sandbox import Machine


def ip(*arguments: str) -> str:
    """Run `ip` from iproute2 and return its output.

    Raises ToolError with the error message from `ip` if the command fails.
    """
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise ToolError(f"'ip {' '.join(arguments)}' failed: {done.stderr.strip()}")
    return done.stdout


def bridge_exists(bridge: str) -> bool:
    """Return whether the host has an interface called `bridge`."""
    return Path(f"/sys/class/net/{bridge}").exists()


def make_bridge(bridge: str, address: str) -> None:
    """Create a bridge and assign the host's address to it, in the network of `_on_link`."""
    ip("link", "add", bridge, "type", "bridge")
    ip("address", "add", *_on_link(address), "dev", bridge)
    ip("link", "set", bridge, "up")


def _on_link(address: str) -> list[str]:
    """Return an address with the length of its network's prefix: /24 for IPv4 and /64 for IPv6.

    An IPv6 address can be used at once, because no other machine is asked whether it has it, too.
    """
    return [f"{address}/64", "nodad"] if ":" in address else [f"{address}/24"]


def remove_bridge(bridge: str) -> None:
    """Remove a bridge and every link that is attached to it. Do nothing if there is no bridge."""
    listed = json.loads(ip("-json", "link", "show") or "[]")
    cables = [link["ifname"] for link in listed if link.get("master") == bridge]
    for name in (*cables, *(link["ifname"] for link in listed if link["ifname"] == bridge)):
        _delete(name)


def _delete(name: str) -> None:
    """Delete an interface.

    Ignore an error if the kernel has just removed the interface together with the machine at its
    other end.
    """
    try:
        ip("link", "delete", name)
    except ToolError:
        if bridge_exists(name):
            raise


def plug(machine: Machine, *, bridge: str, cable: str) -> None:
    """Connect a machine to a bridge and assign its address.

    `cable` is the name of the interface at the host's end of the link.
    """
    ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", str(machine.init.pid))
    ip("link", "set", cable, "master", bridge, "up")
    batch = ("ip", "-batch", "-")
    # There is no default route, so a program that looks for a cloud's metadata service fails at
    # once instead of after 5 s.
    address = " ".join(_on_link(machine.address))
    commands = f"address add {address} dev eth0\nlink set lo up\nlink set eth0 up\n"
    subprocess.run(machine.inside(batch), input=commands, text=True, check=True)
