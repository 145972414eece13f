"""Drawing a topology in DOT, the language of Graphviz.

The syntax is documented at https://graphviz.org/doc/info/lang.html. Every identifier is quoted,
because a process name can be a DOT keyword, such as ``node`` or ``graph``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from symphony.drawing.captions import (
    COLOURS,
    group_title,
    most_important_state,
    service_note,
    state_label,
)
from symphony.plan.topology import Node, Service, Topology

_ATTRIBUTES = (
    "  rankdir=LR",
    "  compound=true",
    '  graph [fontname="Helvetica", labelloc=t, labeljust=l]',
    '  node [fontname="Helvetica", shape=box, style="filled,rounded", fillcolor="#f6f8fa", '
    'color="#57606a"]',
    '  edge [color="#57606a", fontname="Helvetica", fontsize=10]',
)


def dot(topology: Topology, states: Mapping[str, str] | None = None) -> str:
    """Return the DOT source of a directed graph.

    Clients are on the left, services in the middle, and the processes that bind or expose the
    services on the right.
    """
    return "\n".join(_lines(topology, states)) + "\n"


def _lines(topology: Topology, states: Mapping[str, str] | None) -> Iterator[str]:
    nodes = {node.key: node for node in topology.nodes}
    yield f"digraph {_quoted(topology.experiment)} {{"
    yield from _ATTRIBUTES
    yield f"  label={_quoted(topology.experiment)}"
    for name in topology.members:
        if name in topology.groups:
            yield from _group_lines(topology, name, states)
        else:
            yield f"  {_process(nodes[name], states)}"
    for service in topology.services:
        yield f"  {_service(service)}"
    yield from _edges(topology)
    yield "}"


def _group_lines(topology: Topology, group: str, states: Mapping[str, str] | None) -> Iterator[str]:
    members = topology.inside(group)
    yield f"  subgraph {_quoted(_subgraph(group))} {{"
    yield f"    label={_quoted(group_title(topology, group))}"
    yield '    color="#8c959f"'
    for node in members:
        yield f"    {_process(node, states)}"
    if not members:
        # Graphviz does not draw a subgraph that contains no node.
        yield f"    {_quoted(_anchor(topology, group))} [style=invis]"
    yield "  }"


def _edges(topology: Topology) -> Iterator[str]:
    for link in topology.links:
        source, tail = _edge_end(topology, link.source, "ltail")
        if link.kind == "connects":
            target = _quoted(f"service {link.target}")
            yield f"  {source} -> {target}{_attribute_list(tail)}"
        else:
            target, head = _edge_end(topology, link.target, "lhead")
            style = {"style": "dashed", "label": f"after {link.condition}"}
            yield f"  {source} -> {target}{_attribute_list({**style, **tail, **head})}"
    for service in topology.services:
        source = _quoted(f"service {service.name}")
        for owner in service.owners:
            target, head = _edge_end(topology, owner, "lhead")
            yield f"  {source} -> {target}{_attribute_list({'penwidth': '2', **head})}"


def _edge_end(topology: Topology, name: str, attribute: str) -> tuple[str, dict[str, str]]:
    """Return the node at one end of an edge, and the attributes that this end adds to the edge.

    An edge cannot end at a subgraph, so an edge to or from a group ends at one of the group's
    nodes. The ``attribute`` (``lhead`` or ``ltail``) clips the edge at the border of the subgraph.
    """
    if name not in topology.groups:
        return _quoted(f"process {name}"), {}
    return _quoted(_anchor(topology, name)), {attribute: _subgraph(name)}


def _anchor(topology: Topology, group: str) -> str:
    """Return the node at which a group's edges end.

    This node is the group's middle member, or an invisible node if the group has no members.
    """
    members = topology.inside(group)
    if not members:
        return f"group {group}"
    return f"process {members[len(members) // 2].key}"


def _subgraph(group: str) -> str:
    # Graphviz draws a border only around subgraphs whose names begin with "cluster".
    return f"cluster {group}"


def _process(node: Node, states: Mapping[str, str] | None) -> str:
    state = state_label(node, states)
    label = node.label()
    if state:
        label += f"\n{state}"
    attributes = {"label": label}
    colours = COLOURS.get(most_important_state(node, states))
    if colours:
        fill, border = colours
        attributes |= {"fillcolor": fill, "color": border}
    if len(node.processes) > 1:
        attributes["peripheries"] = "2"
    return f"{_quoted(f'process {node.key}')}{_attribute_list(attributes)}"


def _service(service: Service) -> str:
    note = service_note(service)
    label = service.label
    if note:
        label += f"\n{note}"
    attributes = {"label": label, "shape": "ellipse", "style": "filled"}
    if service.bound or service.exposed:
        attributes |= {"fillcolor": "#fffaf0", "color": "#9a6700"}
    else:
        attributes |= {
            "fillcolor": "#ffffff",
            "color": "#cf222e",
            "fontcolor": "#cf222e",
            "style": "filled,dashed",
        }
    return f"{_quoted(f'service {service.name}')}{_attribute_list(attributes)}"


def _attribute_list(attributes: Mapping[str, str]) -> str:
    if not attributes:
        return ""
    pairs = ", ".join(f"{name}={_quoted(value)}" for name, value in attributes.items())
    return f" [{pairs}]"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
