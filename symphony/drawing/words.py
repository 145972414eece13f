"""What drawings say in words, so that all of them say the same. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from symphony.plan.topology import Node, Service, Topology, tallied, tally

NOBODY = "nobody binds it"

# Fill and border of a state, dark text is read on each.
COLOURS = {
    "pending": ("#fff3c4", "#9a6700"),
    "running": ("#d7ebff", "#0a5cc2"),
    "succeeded": ("#d8f5dd", "#1a7f37"),
    "failed": ("#ffdcd9", "#cf222e"),
    "unknown": ("#ecdcff", "#8250df"),
    "stopped": ("#e4e7eb", "#57606a"),
}
# Of many in several states the first of these is shown.
_LOUDEST = ("failed", "unknown", "pending", "running", "stopped", "succeeded")


def state_of(node: Node, states: Mapping[str, str] | None) -> str:
    """How the processes of a node are, in words; empty where that is not known."""
    return tallied(tally(node.processes, states or {}), many=len(node.processes) > 1)


def loudest(node: Node, states: Mapping[str, str] | None) -> str:
    """The one state that decides the colour of a node; empty where none is known."""
    present = tally(node.processes, states or {})
    return next((word for word in _LOUDEST if word in present), "")


def remark(service: Service) -> str:
    """What is to be said of a service beside its name."""
    if not service.bound and not service.exposed:
        return NOBODY
    return ", ".join(
        word for word, on in (("exposed", service.exposed), ("encrypted", service.encrypted)) if on
    )


def group_title(topology: Topology, group: str) -> str:
    """``agents, a group of 8``."""
    return f"{group}, a group of {sum(len(node.processes) for node in topology.inside(group))}"


def summary(topology: Topology, states: Mapping[str, str] | None) -> str:
    """How the whole stands: ``98 running, 2 pending``; empty where nothing is known."""
    names = [name for node in topology.nodes for name in node.processes]
    return tallied(tally(names, states or {}), many=True)
