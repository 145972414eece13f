"""A topology in DOT, the language of Graphviz. Pure.

The syntax is https://graphviz.org/doc/info/lang.html. Every identifier is quoted: ``node`` and ``graph`` are fine
names of processes, and words of the language.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from symphony.drawing.words import COLOURS, group_title, loudest, remark, state_of
from symphony.plan.topology import Node, Service, Topology

_HEAD = (
    "  rankdir=LR",
    "  compound=true",
    '  graph [fontname="Helvetica", labelloc=t, labeljust=l]',
    '  node [fontname="Helvetica", shape=box, style="filled,rounded", fillcolor="#f6f8fa", color="#57606a"]',
    '  edge [color="#57606a", fontname="Helvetica", fontsize=10]',
)


def dot(topology: Topology, states: Mapping[str, str] | None = None) -> str:
    """The source of a digraph: clients on the left, services, and who serves them on the right."""
    return "\n".join(_lines(topology, states)) + "\n"


def _lines(topology: Topology, states: Mapping[str, str] | None) -> Iterator[str]:
    yield f"digraph {_quoted(topology.experiment)} {{"
    yield from _HEAD
    yield f"  label={_quoted(topology.experiment)}"
    for name in topology.members:
        if name in topology.groups:
            yield f"  subgraph {_quoted(_cluster(name))} {{"
            yield f"    label={_quoted(group_title(topology, name))}"
            yield '    color="#8c959f"'
            yield from (f"    {_process(node, states)}" for node in topology.inside(name))
            if not topology.inside(name):
                yield f"    {_quoted(_anchor(topology, name))} [style=invis]"
            yield "  }"
        else:
            yield f"  {_process(next(node for node in topology.nodes if node.key == name), states)}"
    yield from (f"  {_service(service)}" for service in topology.services)
    yield from _edges(topology)
    yield "}"


def _edges(topology: Topology) -> Iterator[str]:
    for link in topology.links:
        source, tail = _end(topology, link.source, "ltail")
        if link.kind == "connects":
            yield f"  {source} -> {_quoted(f'service {link.target}')}{_attributes(tail)}"
        else:
            target, head = _end(topology, link.target, "lhead")
            how = {"style": "dashed", "label": f"after {link.condition}"}
            yield f"  {source} -> {target}{_attributes({**how, **tail, **head})}"
    for service in topology.services:
        for owner in service.owners:
            target, head = _end(topology, owner, "lhead")
            yield f"  {_quoted(f'service {service.name}')} -> {target}{_attributes({'penwidth': '2', **head})}"


def _end(topology: Topology, name: str, side: str) -> tuple[str, dict[str, str]]:
    """Where an edge ends: at a process, or at the border of a group, on the way to one inside it."""
    if name not in topology.groups:
        return _quoted(f"process {name}"), {}
    return _quoted(_anchor(topology, name)), {side: _cluster(name)}


def _anchor(topology: Topology, group: str) -> str:
    inside = topology.inside(group)
    return f"process {inside[len(inside) // 2].key}" if inside else f"group {group}"


def _cluster(group: str) -> str:
    return f"cluster {group}"


def _process(node: Node, states: Mapping[str, str] | None) -> str:
    state = state_of(node, states)
    given = {"label": node.label() + (f"\n{state}" if state else "")}
    fill, border = COLOURS.get(loudest(node, states), ("", ""))
    if fill:
        given |= {"fillcolor": fill, "color": border}
    if len(node.processes) > 1:
        given["peripheries"] = "2"
    return f"{_quoted(f'process {node.key}')}{_attributes(given)}"


def _service(service: Service) -> str:
    note = remark(service)
    given = {
        "label": service.label + (f"\n{note}" if note else ""),
        "shape": "ellipse",
        "style": "filled",
    }
    if service.bound or service.exposed:
        given |= {"fillcolor": "#fffaf0", "color": "#9a6700"}
    else:
        given |= {
            "fillcolor": "#ffffff",
            "color": "#cf222e",
            "fontcolor": "#cf222e",
            "style": "filled,dashed",
        }
    return f"{_quoted(f'service {service.name}')}{_attributes(given)}"


def _attributes(given: Mapping[str, str]) -> str:
    pairs = ", ".join(f"{key}={_quoted(value)}" for key, value in given.items())
    return f" [{pairs}]" if pairs else ""


def _quoted(words: str) -> str:
    return '"' + words.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
