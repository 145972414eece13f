"""Drawing a topology as text, Mermaid, DOT or SVG.

The functions take a topology and return text. For a running experiment, they also take the state of
each process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symphony.plan.topology import Topology

FORMATS = ("text", "mermaid", "dot", "svg")
# Maps the suffixes of output files to formats.
SUFFIXES = {
    ".txt": "text",
    ".mmd": "mermaid",
    ".mermaid": "mermaid",
    ".dot": "dot",
    ".gv": "dot",
    ".svg": "svg",
}


def draw(topology: Topology, file_format: str, states: Mapping[str, str] | None = None) -> str:
    """Return a drawing of a topology as text that ends with a newline.

    ``file_format`` is one of `FORMATS`. ``states`` maps the names of processes to their states.
    """
    if file_format == "mermaid":
        from symphony.drawing.mermaid import mermaid

        return mermaid(topology, states)
    if file_format == "dot":
        from symphony.drawing.dot import dot

        return dot(topology, states)
    if file_format == "svg":
        from symphony.drawing.svg import svg

        return svg(topology, states)
    from symphony.drawing.text_tree import text_tree

    return "\n".join(text_tree(topology, states)) + "\n"
