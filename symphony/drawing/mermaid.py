"""Drawing a topology as a Mermaid flowchart, which many code hosts and documentation tools render.

The syntax is documented at https://mermaid.js.org/syntax/flowchart.html. Process names are used
only in quoted labels and never as identifiers, because a name can be a Mermaid keyword, such as
``end``.
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

_SERVICE_STYLE = "fill:#fffaf0,stroke:#9a6700,color:#1f2328"
_NOT_BOUND_STYLE = "fill:#ffffff,stroke:#cf222e,color:#cf222e,stroke-dasharray:4 3"
_TEXT_COLOUR = "color:#1f2328"


def mermaid(topology: Topology, states: Mapping[str, str] | None = None) -> str:
    """Return the Mermaid source of a flowchart.

    Clients are on the left, services in the middle, and the processes that bind the services on the
    right.
    """
    return "\n".join(_lines(topology, states)) + "\n"


def _lines(topology: Topology, states: Mapping[str, str] | None) -> Iterator[str]:
    nodes = {node.key: node for node in topology.nodes}
    node_ids = {node.key: f"p{index}" for index, node in enumerate(topology.nodes)}
    group_ids = {name: f"g{index}" for index, name in enumerate(topology.groups)}
    service_ids = {service.name: f"s{index}" for index, service in enumerate(topology.services)}
    component_ids = {**node_ids, **group_ids}
    yield from ("---", f"title: {_quoted(topology.experiment)}", "---", "flowchart LR")
    for name in topology.members:
        if name in group_ids:
            yield f"  subgraph {group_ids[name]}[{_quoted(group_title(topology, name))}]"
            for node in topology.inside(name):
                yield f"    {_process(node, node_ids, states)}"
            yield "  end"
        else:
            yield f"  {_process(nodes[name], node_ids, states)}"
    for service in topology.services:
        yield f"  {service_ids[service.name]}([{_quoted(_service_label(service))}])"
    for link in topology.links:
        source = component_ids[link.source]
        if link.kind == "connects":
            yield f"  {source} --> {service_ids[link.target]}"
        else:
            label = _quoted(f"after {link.condition}")
            yield f"  {source} -. {label} .-> {component_ids[link.target]}"
    for service in topology.services:
        for owner in service.owners:
            yield f"  {service_ids[service.name]} ==> {component_ids[owner]}"
    yield from _classes(topology, states, node_ids, service_ids)


def _process(node: Node, node_ids: Mapping[str, str], states: Mapping[str, str] | None) -> str:
    label = node.label()
    state = state_label(node, states)
    if state:
        label += f"<br/>{state}"
    return f"{node_ids[node.key]}[{_quoted(label)}]"


def _service_label(service: Service) -> str:
    note = service_note(service)
    return f"{service.label}<br/>{note}" if note else service.label


def _classes(
    topology: Topology,
    states: Mapping[str, str] | None,
    node_ids: Mapping[str, str],
    service_ids: Mapping[str, str],
) -> Iterator[str]:
    """Yield the style of each state and of each kind of service, and the list of nodes with this
    style.
    """
    members: dict[str, list[str]] = {}
    for node in topology.nodes:
        state = most_important_state(node, states)
        members.setdefault(state, []).append(node_ids[node.key])
    for service in topology.services:
        is_bound = service.bound or service.exposed
        members.setdefault("service" if is_bound else "missing", []).append(
            service_ids[service.name]
        )
    styles = {
        state: f"fill:{fill},stroke:{border},{_TEXT_COLOUR}"
        for state, (fill, border) in COLOURS.items()
    }
    styles |= {"service": _SERVICE_STYLE, "missing": _NOT_BOUND_STYLE}
    for name, style in styles.items():
        if name in members:
            yield f"  classDef {name} {style}"
            yield f"  class {','.join(members[name])} {name}"


def _quoted(text: str) -> str:
    escaped = text.replace('"', "#quot;")
    return f'"{escaped}"'
