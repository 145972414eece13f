"""A topology as a flowchart of Mermaid, which code hosts and many documentation tools draw. Pure.

The syntax is https://mermaid.js.org/syntax/flowchart.html. A name of the user's stands in quotes alone, never as an
identifier: ``end`` is a fine name of a process, and a word of the language.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from symphony.drawing.words import COLOURS, group_title, loudest, remark, state_of
from symphony.plan.topology import Node, Service, Topology

_SERVICE = "fill:#fffaf0,stroke:#9a6700,color:#1f2328"
_MISSING = "fill:#ffffff,stroke:#cf222e,color:#cf222e,stroke-dasharray:4 3"
_DARK_TEXT = "color:#1f2328"


def mermaid(topology: Topology, states: Mapping[str, str] | None = None) -> str:
    """The source of a flowchart: clients on the left, services, and who serves them on the right."""
    return "\n".join(_lines(topology, states)) + "\n"


def _lines(topology: Topology, states: Mapping[str, str] | None) -> Iterator[str]:
    nodes = {node.key: f"p{index}" for index, node in enumerate(topology.nodes)}
    groups = {name: f"g{index}" for index, name in enumerate(topology.groups)}
    services = {service.name: f"s{index}" for index, service in enumerate(topology.services)}
    ends = {**nodes, **groups}
    yield from ("---", f"title: {_quoted(topology.experiment)}", "---", "flowchart LR")
    for name in topology.members:
        if name in groups:
            yield f"  subgraph {groups[name]}[{_quoted(group_title(topology, name))}]"
            yield from (f"    {_process(node, nodes, states)}" for node in topology.inside(name))
            yield "  end"
        else:
            yield f"  {_process(next(node for node in topology.nodes if node.key == name), nodes, states)}"
    yield from (
        f"  {services[service.name]}([{_quoted(_said(service))}])" for service in topology.services
    )
    for link in topology.links:
        if link.kind == "connects":
            yield f"  {ends[link.source]} --> {services[link.target]}"
        else:
            yield f"  {ends[link.source]} -. {_quoted(f'after {link.condition}')} .-> {ends[link.target]}"
    for service in topology.services:
        yield from (f"  {services[service.name]} ==> {ends[owner]}" for owner in service.owners)
    yield from _classes(topology, states, nodes, services)


def _process(node: Node, ids: Mapping[str, str], states: Mapping[str, str] | None) -> str:
    state = state_of(node, states)
    return f"{ids[node.key]}[{_quoted(node.label() + (f'<br/>{state}' if state else ''))}]"


def _said(service: Service) -> str:
    note = remark(service)
    return f"{service.label}<br/>{note}" if note else service.label


def _classes(
    topology: Topology,
    states: Mapping[str, str] | None,
    nodes: Mapping[str, str],
    services: Mapping[str, str],
) -> Iterator[str]:
    of: dict[str, list[str]] = {}
    for node in topology.nodes:
        of.setdefault(loudest(node, states), []).append(nodes[node.key])
    for service in topology.services:
        missing = not service.bound and not service.exposed
        of.setdefault("missing" if missing else "service", []).append(services[service.name])
    styles = {
        word: f"fill:{fill},stroke:{border},{_DARK_TEXT}"
        for word, (fill, border) in COLOURS.items()
    }
    styles |= {"service": _SERVICE, "missing": _MISSING}
    for word, style in styles.items():
        if word in of:
            yield f"  classDef {word} {style}"
            yield f"  class {','.join(of[word])} {word}"


def _quoted(words: str) -> str:
    return '"' + words.replace('"', "#quot;") + '"'
