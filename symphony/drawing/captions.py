"""The labels and colours that several drawing formats share."""

from __future__ import annotations

from collections.abc import Mapping

from symphony.plan.topology import Node, Service, Topology, tallied, tally

NOT_BOUND = "no process binds it"
NO_REPLICAS = "no replicas"

# The fill colour and the border colour for each state. Dark text is legible on every fill colour.
COLOURS = {
    "pending": ("#fff3c4", "#9a6700"),
    "running": ("#d7ebff", "#0a5cc2"),
    "succeeded": ("#d8f5dd", "#1a7f37"),
    "failed": ("#ffdcd9", "#cf222e"),
    "unknown": ("#ecdcff", "#8250df"),
    "stopped": ("#e4e7eb", "#57606a"),
}
# The states in order of priority. If a node's processes are in several states, the state with the
# highest priority determines the node's colour.
_STATE_PRIORITY = ("failed", "unknown", "pending", "running", "stopped", "succeeded")


def state_label(node: Node, states: Mapping[str, str] | None) -> str:
    """Return the states of a node's processes as text, or an empty string if none is known."""
    counts = tally(node.processes, states or {})
    return tallied(counts, many=len(node.processes) > 1)


def most_important_state(node: Node, states: Mapping[str, str] | None) -> str:
    """Return the state that determines a node's colour, or an empty string if no state is known."""
    counts = tally(node.processes, states or {})
    for state in _STATE_PRIORITY:
        if state in counts:
            return state
    return ""


def service_note(service: Service) -> str:
    """Return the note that follows a service's name, or an empty string if there is none."""
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
    """Return the number of processes in each state as text.

    The text is empty if no state is known.
    """
    names = [name for node in topology.nodes for name in node.processes]
    return tallied(tally(names, states or {}), many=True)
