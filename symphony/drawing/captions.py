"""The texts and the colours that all drawings share."""

from __future__ import annotations

from collections.abc import Mapping

from symphony.plan.topology import Node, Service, Topology, tallied, tally

NOT_BOUND = "no process binds it"

# The fill colour and the border colour for each state. Dark text is legible on every fill colour.
COLOURS = {
    "pending": ("#fff3c4", "#9a6700"),
    "running": ("#d7ebff", "#0a5cc2"),
    "succeeded": ("#d8f5dd", "#1a7f37"),
    "failed": ("#ffdcd9", "#cf222e"),
    "unknown": ("#ecdcff", "#8250df"),
    "stopped": ("#e4e7eb", "#57606a"),
}
# The priority of states. If the processes of a node are in several states, the first matching state
# determines its colour.
_STATE_PRIORITY = ("failed", "unknown", "pending", "running", "stopped", "succeeded")


def state_label(node: Node, states: Mapping[str, str] | None) -> str:
    """Return the state of the processes of a node as text, or an empty string if it is unknown."""
    counts = tally(node.processes, states or {})
    return tallied(counts, many=len(node.processes) > 1)


def most_important_state(node: Node, states: Mapping[str, str] | None) -> str:
    """Return the state that determines the colour of a node, or an empty string if no state is
    known.
    """
    counts = tally(node.processes, states or {})
    for state in _STATE_PRIORITY:
        if state in counts:
            return state
    return ""


def service_note(service: Service) -> str:
    """Return the note that follows the name of a service, or an empty string."""
    if not service.bound and not service.exposed:
        return NOT_BOUND
    notes = []
    if service.exposed:
        notes.append("exposed")
    if service.encrypted:
        notes.append("encrypted")
    return ", ".join(notes)


def group_title(topology: Topology, group: str) -> str:
    """Return the title of a group, such as ``agents, a group of 8``."""
    size = sum(len(node.processes) for node in topology.inside(group))
    return f"{group}, a group of {size}"


def summary(topology: Topology, states: Mapping[str, str] | None) -> str:
    """Return the number of processes in each state as text, or an empty string if no state is
    known.
    """
    names = [name for node in topology.nodes for name in node.processes]
    return tallied(tally(names, states or {}), many=True)
