"""Topologies as pictures: text for a terminal, Mermaid, DOT and SVG. Pure: what is drawn, not where.

Each drawer takes a topology and, where the experiment runs, the state of each process in a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symphony.plan.topology import Topology

FORMATS = ("text", "mermaid", "dot", "svg")
# What a file's name says of its form.
SUFFIXES = {
    ".txt": "text",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".dot": "dot",
    ".gv": "dot",
    ".svg": "svg",
}


def draw(topology: Topology, form: str, states: Mapping[str, str] | None = None) -> str:
    """A topology in one of `FORMATS`, with a newline at its end."""
    if form == "mermaid":
        from symphony.drawing.mermaid import mermaid

        return mermaid(topology, states)
    if form == "dot":
        from symphony.drawing.dot import dot

        return dot(topology, states)
    if form == "svg":
        from symphony.drawing.svg import svg

        return svg(topology, states)
    from symphony.drawing.text import text

    return "\n".join(text(topology, states)) + "\n"
