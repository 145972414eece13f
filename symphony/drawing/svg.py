"""Drawing a topology as SVG without external programs.

The drawing has its own background, and a light and a dark colour scheme (``prefers-color-scheme``,
CSS Media Queries Level 5), so that it is legible on any page. Lengths are in pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from symphony.drawing.captions import COLOURS, summary
from symphony.drawing.layout import GAP, Rect
from symphony.drawing.picture import (
    FONT_SIZE,
    LINE_HEIGHT,
    MARGIN,
    PADDING,
    SMALL_FONT_SIZE,
    STACK_OFFSET,
    Box,
    Picture,
    arrange,
    number,
    point,
    text_width,
)
from symphony.plan.topology import Topology

TITLE_FONT_SIZE = 16.0
# The width of a legend item without its text, and the length of the item's line.
LEGEND_ITEM_WIDTH, LEGEND_LINE_WIDTH = 72.0, 34.0


def svg(topology: Topology, states: Mapping[str, str] | None = None) -> str:
    """Return the drawing as the text of an SVG file."""
    header = [(topology.experiment, "title"), (summary(topology, states), "small")]
    header_lines = [text for text, _ in header if text]
    picture = arrange(topology, states, top=MARGIN + LINE_HEIGHT * len(header_lines) + PADDING)
    return "\n".join(_document(topology, picture, header)) + "\n"


# --- text of the file ---

_LIGHT_COLOURS = {
    "background": "#ffffff",
    "edge": "#d0d7de",
    "text": "#1f2328",
    "dim": "#57606a",
    "box": "#f6f8fa",
    "line": "#6e7781",
    "service": "#fff8e6",
    "amber": "#9a6700",
    "red": "#cf222e",
}
_DARK_COLOURS = {
    "background": "#0d1117",
    "edge": "#30363d",
    "text": "#e6edf3",
    "dim": "#9da7b3",
    "box": "#161b22",
    "line": "#8b949e",
    "service": "#2b2310",
    "amber": "#d29922",
    "red": "#ff7b72",
}
_LEGEND_TEXTS = {
    "connects": "connects to a service",
    "serves": "is served by",
    "starts-after": "starts after",
}
_FONTS = (
    "ui-monospace, SFMono-Regular, Menlo, Consolas, "
    "'DejaVu Sans Mono', 'Liberation Mono', monospace"
)
_ARROW_HEAD = (
    '<defs><marker id="head" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" '
    'markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">'
    '<path class="head" d="M0 0.5L8 4L0 7.5z"/></marker></defs>'
)


def _colour_rules(colours: Mapping[str, str]) -> str:
    """Return the CSS rules for the colours of one colour scheme."""
    return (
        ".ground{{fill:{background};stroke:{edge}}}"
        "text{{fill:{text}}}.small{{fill:{dim}}}"
        ".process{{fill:{box};stroke:{line}}}.group{{fill:none;stroke:{line}}}"
        ".service{{fill:{service};stroke:{amber}}}.missing{{fill:{background};stroke:{red}}}"
        ".line{{fill:none;stroke:{line}}}.head{{fill:{line}}}"
    ).format_map(colours)


def _style() -> str:
    return (
        f"<style>{_colour_rules(_LIGHT_COLOURS)}"
        f".title{{font-size:{number(TITLE_FONT_SIZE)}px;font-weight:bold}}"
        f".small{{font-size:{number(SMALL_FONT_SIZE)}px}}"
        ".group{stroke-dasharray:2 3}.missing{stroke-dasharray:5 3}"
        ".serves{stroke-width:2}.starts-after{stroke-dasharray:5 4}"
        f"@media (prefers-color-scheme:dark){{{_colour_rules(_DARK_COLOURS)}}}</style>"
    )


def _document(
    topology: Topology,
    picture: Picture,
    header: Sequence[tuple[str, str]],
) -> Iterator[str]:
    """Yield the elements of the SVG file."""
    kinds = sorted({line.kind for line in picture.lines})
    title_width = max(_header_width(text, css_class) for text, css_class in header)
    legend_width = sum(_legend_item_width(kind) for kind in kinds)
    legend_height = 2 * GAP + LINE_HEIGHT if kinds else 0.0
    content_width = max(picture.width, MARGIN + max(title_width, legend_width))
    width = math.ceil(content_width + MARGIN)
    height = math.ceil(picture.height + legend_height + MARGIN)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="title" '
        f'font-family="{_FONTS}" font-size="{number(FONT_SIZE)}">'
    )
    yield f'<title id="title">The topology of {escape(topology.experiment)}</title>'
    yield _style()
    yield _ARROW_HEAD
    yield (
        f'<rect class="ground" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>'
    )
    y = MARGIN
    for text, css_class in header:
        if text:
            y += LINE_HEIGHT
            yield _text(text, css_class, MARGIN, y - 4)
    for line, path in picture.paths:
        yield (
            f'<path class="line {line.kind}" d="{path}" marker-end="url(#head)">'
            f"<title>{escape(line.title)}</title></path>"
        )
    for box, rect in picture.boxes:
        yield from _box_elements(box, rect)
    yield from _legend(kinds, picture.height + 2 * GAP)
    yield "</svg>"


def _box_elements(box: Box, rect: Rect) -> Iterator[str]:
    css_class = box.kind if box.is_bound else "missing"
    radius = {"service": min(rect.height / 2, 16.0), "group": 10.0, "process": 5.0}[box.kind]
    if box.is_stack:
        behind = Rect(rect.x + STACK_OFFSET, rect.y - STACK_OFFSET, rect.width, rect.height)
        yield _rectangle(css_class, behind, radius)
    yield _rectangle(css_class, rect, radius)
    if box.kind == "group":
        yield _text(box.lines[0], "small", rect.x + PADDING, rect.y + LINE_HEIGHT)
        return
    text_x = rect.x + PADDING
    if box.state:
        _, border = COLOURS.get(box.state, COLOURS["unknown"])
        yield (
            f'<circle cx="{number(text_x + 4)}" cy="{number(rect.middle)}" r="5" fill="{border}"/>'
        )
        text_x += LINE_HEIGHT
    text_top = rect.middle - LINE_HEIGHT * len(box.lines) / 2
    for index, line in enumerate(box.lines):
        baseline = text_top + LINE_HEIGHT * (index + 1) - 4.5
        yield _text(line, "name" if index == 0 else "small", text_x, baseline)


def _rectangle(css_class: str, rect: Rect, radius: float) -> str:
    return (
        f'<rect class="{css_class}" x="{number(rect.x)}" y="{number(rect.y)}" '
        f'width="{number(rect.width)}" height="{number(rect.height)}" rx="{number(radius)}"/>'
    )


def _text(text: str, css_class: str, x: float, y: float) -> str:
    return f'<text class="{css_class}" x="{number(x)}" y="{number(y)}">{escape(text)}</text>'


def _legend(kinds: Sequence[str], y: float) -> Iterator[str]:
    """Yield an example line and a description for each kind of line in the drawing."""
    x = MARGIN
    for kind in kinds:
        path = f"M{point(x, y)}H{number(x + LEGEND_LINE_WIDTH)}"
        text = _text(_LEGEND_TEXTS[kind], "small", x + LEGEND_LINE_WIDTH + 8, y + 4)
        yield f'<path class="line {kind}" d="{path}" marker-end="url(#head)"/>{text}'
        x += _legend_item_width(kind)


def _header_width(text: str, css_class: str) -> float:
    size = TITLE_FONT_SIZE if css_class == "title" else SMALL_FONT_SIZE
    return text_width(text, size)


def _legend_item_width(kind: str) -> float:
    return text_width(_LEGEND_TEXTS[kind], SMALL_FONT_SIZE) + LEGEND_ITEM_WIDTH
