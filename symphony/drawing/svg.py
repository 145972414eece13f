"""A topology as SVG, written without any other program. Pure.

Clients stand on the left, services in the middle, who serves them on the right. The picture brings its own ground
and dark colours for who prefers them (``prefers-color-scheme``, CSS Media Queries Level 5), so that it can be read
wherever it is put. Text is set in a fixed-width font and boxes are made to fit it. Lengths are in pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from xml.sax.saxutils import escape

from symphony.drawing.layout import GAP, Layout, Place, Size, layout
from symphony.drawing.words import COLOURS, group_title, loudest, remark, state_of, summary
from symphony.plan.topology import Topology

FONT, SMALL, TITLE = 13.0, 11.0, 16.0
# Fixed-width fonts are 0.6 of their size wide, a few a little more.
ADVANCE = 0.62
LINE = 17.0
MARGIN = 24.0
PAD = 12.0
# Parts that nothing joins stand in rows about as wide as this, or as the rest of the drawing.
ROW = 900.0
# A group of more processes than this has several columns, if no line ends inside it.
COLUMN = 12
STACKED = 4.0
# How far a line bends out that joins two boxes of one column.
ARC = 56.0

Sort = Literal["process", "group", "service"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Box:
    """A part to be drawn: its lines of text, and for a group the boxes inside, in ``columns`` columns.

    ``many`` says that it stands for several processes, ``state`` gives its colour.
    """

    key: str
    sort: Sort
    lines: tuple[str, ...]
    state: str = ""
    missing: bool = False
    many: bool = False
    inside: tuple[_Box, ...] = ()
    columns: int = 1

    @property
    def size(self) -> Size:
        if self.sort == "group":
            return self._size_of_group()
        widest = max(
            _extent(line, FONT if index == 0 else SMALL) for index, line in enumerate(self.lines)
        )
        return Size(widest + 2 * PAD + (LINE if self.state else 0.0), LINE * len(self.lines) + PAD)

    def _size_of_group(self) -> Size:
        cell = self.cell
        rows = math.ceil(len(self.inside) / self.columns)
        title = _extent(self.lines[0], SMALL)
        width = max(title, self.columns * (cell.width + GAP) - GAP) + 2 * PAD
        return Size(width, LINE + PAD + rows * (cell.height + GAP) - (GAP if rows else 0.0) + PAD)

    @property
    def cell(self) -> Size:
        """The room that each box inside a group takes."""
        sizes = [box.size for box in self.inside]
        return Size(
            max((size.width for size in sizes), default=0.0),
            max((size.height for size in sizes), default=0.0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A line to be drawn between two boxes, by their keys; ``said`` is what it means in words."""

    sort: Literal["connects", "serves", "starts-after"]
    source: str
    target: str
    said: str


@dataclass(slots=True)
class _Picture:
    """Where everything stands."""

    boxes: list[tuple[_Box, Place]] = field(default_factory=list)
    where: dict[str, Place] = field(default_factory=dict)
    width: float = 0.0
    height: float = 0.0

    def put(self, box: _Box, place: Place) -> None:
        self.boxes.append((box, place))
        self.where[box.key] = place
        self.width = max(self.width, place.x + place.width)
        self.height = max(self.height, place.y + place.height)
        if not box.inside:
            return
        cell = box.cell
        wide = (place.width - 2 * PAD + GAP) / box.columns - GAP
        for index, inner in enumerate(box.inside):
            row, column = divmod(index, box.columns)
            x = place.x + PAD + column * (wide + GAP)
            self.put(
                inner, Place(x, place.y + LINE + PAD + row * (cell.height + GAP), wide, cell.height)
            )


def svg(topology: Topology, states: Mapping[str, str] | None = None) -> str:
    """The text of an SVG file."""
    boxes = _boxes(topology, states)
    lines = _lines(topology)
    holder = {inner.key: box.key for box in boxes for inner in (box, *box.inside)}
    sizes = {box.key: box.size for box in boxes}
    edges = [(holder[line.source], holder[line.target]) for line in lines]
    found = layout(sizes, edges, {box.key: int(box.sort == "service") for box in boxes})
    head = [(topology.experiment, "title"), (summary(topology, states), "small")]
    top = MARGIN + sum(LINE for words, _ in head if words) + PAD
    picture = _pictured(boxes, found, top)
    paths = list(_paths(lines, edges, picture, found, top))
    if None in found.passages.values():
        picture.width += ARC
    return (
        "\n".join(_document(topology, picture, paths, head, sorted({line.sort for line in lines})))
        + "\n"
    )


# --- what there is ---


def _boxes(topology: Topology, states: Mapping[str, str] | None) -> list[_Box]:
    """The parts of the drawing: services, and what stands side by side."""
    ends = {end for link in topology.links for end in (link.source, link.target)}
    ends |= {owner for service in topology.services for owner in service.owners}
    nodes = {
        node.key: _Box(
            key=f"process {node.key}",
            sort="process",
            lines=tuple(line for line in (node.label(), state_of(node, states)) if line),
            state=loudest(node, states),
            many=len(node.processes) > 1,
        )
        for node in topology.nodes
    }
    found = [
        _Box(
            key=f"service {service.name}",
            sort="service",
            lines=tuple(line for line in (service.label, remark(service)) if line),
            missing=not service.bound and not service.exposed,
        )
        for service in topology.services
    ]
    for name in topology.members:
        if name not in topology.groups:
            found.append(nodes[name])
            continue
        keys = [node.key for node in topology.inside(name)]
        joined = any(key in ends for key in keys)
        found.append(
            _Box(
                key=f"process {name}",
                sort="group",
                lines=(group_title(topology, name),),
                inside=tuple(nodes[key] for key in keys),
                columns=1
                if joined or len(keys) <= COLUMN
                else min(4, math.ceil(len(keys) / COLUMN)),
            )
        )
    return found


def _lines(topology: Topology) -> list[_Line]:
    """The lines: first those that lead to who serves, which give the direction where one connects to its own."""
    found = [
        _Line(
            sort="serves",
            source=f"service {service.name}",
            target=f"process {owner}",
            said=f"{service.name} is served by {owner}",
        )
        for service in topology.services
        for owner in service.owners
    ]
    for link in topology.links:
        if link.kind == "connects":
            said = f"{link.source} connects to {link.target}"
            target = f"service {link.target}"
        else:
            said = f"{link.source} starts after {link.target} ({link.condition})"
            target = f"process {link.target}"
        found.append(
            _Line(sort=link.kind, source=f"process {link.source}", target=target, said=said)
        )
    return found


# --- where it is ---


def _pictured(boxes: Sequence[_Box], found: Layout, top: float) -> _Picture:
    picture = _Picture()
    for box in boxes:
        if box.key in found.places:
            place = found.places[box.key]
            picture.put(box, Place(place.x + MARGIN, place.y + top, place.width, place.height))
    alone = [box for box in boxes if box.key not in found.places]
    y = picture.height + 2 * GAP if picture.boxes else top
    room = max(found.width, ROW)
    x, lowest = 0.0, 0.0
    for box in alone:
        width, height = box.size
        if x and x + width > room:
            x, y, lowest = 0.0, y + lowest + GAP, 0.0
        picture.put(box, Place(MARGIN + x, y, width, height))
        x, lowest = x + width + GAP, max(lowest, height)
    return picture


def _paths(
    lines: Sequence[_Line],
    edges: Sequence[tuple[str, str]],
    picture: _Picture,
    found: Layout,
    top: float,
) -> Iterator[tuple[_Line, str]]:
    """The path of each line, from its source to its target."""
    ends = _line_ends(lines, edges, picture)
    for index, (line, edge) in enumerate(zip(lines, edges, strict=True)):
        if edge[0] == edge[1]:
            continue
        source, target = ends[index]
        passages = found.passages[edge]
        if passages is None:
            yield line, _arc(source, target)
            continue
        between = [
            (x + MARGIN, passage.middle + top)
            for passage in passages
            for x in (passage.x, passage.x + passage.width)
        ]  # fmt: skip
        forth = picture.where[edge[0]].x < picture.where[edge[1]].x
        yield line, _curve([source, *(between if forth else between[::-1]), target])


def _line_ends(
    lines: Sequence[_Line], edges: Sequence[tuple[str, str]], picture: _Picture
) -> dict[int, tuple[tuple[float, float], tuple[float, float]]]:
    """By line, where it begins and ends: spread over the sides of boxes in the order of the other ends."""
    sides: dict[tuple[str, str], list[tuple[float, int, bool]]] = {}
    for index, (line, (source, target)) in enumerate(zip(lines, edges, strict=True)):
        if source == target:
            continue
        from_x, to_x = picture.where[source].x, picture.where[target].x
        here = "right" if from_x <= to_x else "left"
        there = "left" if from_x < to_x else "right"
        sides.setdefault((line.source, here), []).append(
            (picture.where[line.target].middle, index, True)
        )
        sides.setdefault((line.target, there), []).append(
            (picture.where[line.source].middle, index, False)
        )
    begins: dict[int, tuple[float, float]] = {}
    ends: dict[int, tuple[float, float]] = {}
    for (key, side), those in sides.items():
        place = picture.where[key]
        x = place.x if side == "left" else place.x + place.width
        for order, (_, index, begin) in enumerate(sorted(those), 1):
            (begins if begin else ends)[index] = (
                x,
                place.y + place.height * order / (len(those) + 1),
            )
    return {index: (begins[index], ends[index]) for index in begins}


def _arc(source: tuple[float, float], target: tuple[float, float]) -> str:
    (from_x, from_y), (to_x, to_y) = source, target
    out = max(from_x, to_x) + min(ARC, 12 + abs(to_y - from_y) / 4)
    points = ((from_x, from_y), (out, from_y), (out, to_y), (to_x, to_y))
    start, *rest = (f"{_number(x)} {_number(y)}" for x, y in points)
    return f"M{start}C{' '.join(rest)}"


def _curve(points: Sequence[tuple[float, float]]) -> str:
    (x, y), *rest = points
    parts = [f"M{_number(x)} {_number(y)}"]
    for index, (to_x, to_y) in enumerate(rest):
        if index % 2:  # across a layer that it passes
            parts.append(f"H{_number(to_x)}")
        else:
            bend = (to_x - x) / 2
            control = f"{_number(x + bend)} {_number(y)} {_number(to_x - bend)} {_number(to_y)}"
            parts.append(f"C{control} {_number(to_x)} {_number(to_y)}")
        x, y = to_x, to_y
    return "".join(parts)


# --- how it is written ---

_LIGHT = {"ground": "#ffffff", "edge": "#d0d7de", "text": "#1f2328", "dim": "#57606a", "box": "#f6f8fa",
          "line": "#6e7781", "service": "#fff8e6", "amber": "#9a6700", "red": "#cf222e"}  # fmt: skip
_DARK = {"ground": "#0d1117", "edge": "#30363d", "text": "#e6edf3", "dim": "#9da7b3", "box": "#161b22",
         "line": "#8b949e", "service": "#2b2310", "amber": "#d29922", "red": "#ff7b72"}  # fmt: skip
_LEGEND = {
    "connects": "connects to a service",
    "serves": "is served by",
    "starts-after": "starts after",
}


def _style(colours: Mapping[str, str]) -> str:
    c = colours
    return (
        f".ground{{fill:{c['ground']};stroke:{c['edge']}}}"
        f"text{{fill:{c['text']}}}.small{{fill:{c['dim']}}}"
        f".process{{fill:{c['box']};stroke:{c['line']}}}.group{{fill:none;stroke:{c['line']}}}"
        f".service{{fill:{c['service']};stroke:{c['amber']}}}.missing{{fill:{c['ground']};stroke:{c['red']}}}"
        f".line{{fill:none;stroke:{c['line']}}}.head{{fill:{c['line']}}}"
    )


def _document(
    topology: Topology,
    picture: _Picture,
    paths: Sequence[tuple[_Line, str]],
    head: Sequence[tuple[str, str]],
    sorts: Sequence[str],
) -> Iterator[str]:
    legend = _legend(sorts, picture.height + 2 * GAP)
    titles = [_extent(words, TITLE if sort == "title" else SMALL) for words, sort in head]
    wide = sum(_extent(_LEGEND[sort], SMALL) + 72 for sort in sorts)
    width = math.ceil(max(picture.width, MARGIN + max(*titles, wide)) + MARGIN)
    height = math.ceil(picture.height + (2 * GAP + LINE if sorts else 0.0) + MARGIN)
    name = escape(topology.experiment)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-labelledby="title" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, '
        f"'DejaVu Sans Mono', 'Liberation Mono', monospace\" font-size=\"{_number(FONT)}\">"
    )
    yield f'<title id="title">The topology of {name}</title>'
    yield (
        f"<style>{_style(_LIGHT)}.title{{font-size:{_number(TITLE)}px;font-weight:bold}}"
        f".small{{font-size:{_number(SMALL)}px}}.group{{stroke-dasharray:2 3}}.missing{{stroke-dasharray:5 3}}"
        f".serves{{stroke-width:2}}.starts-after{{stroke-dasharray:5 4}}"
        f"@media (prefers-color-scheme:dark){{{_style(_DARK)}}}</style>"
    )
    yield (
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8" '
        'markerUnits="userSpaceOnUse" orient="auto"><path class="head" d="M0 0.5L8 4L0 7.5z"/></marker></defs>'
    )
    yield f'<rect class="ground" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>'
    y = MARGIN
    for words, sort in head:
        if words:
            y += LINE
            yield f'<text class="{sort}" x="{_number(MARGIN)}" y="{_number(y - 4)}">{escape(words)}</text>'
    yield from (
        f'<path class="line {line.sort}" d="{path}" marker-end="url(#head)"><title>{escape(line.said)}</title></path>'
        for line, path in paths
    )
    for box, place in picture.boxes:
        yield from _drawn(box, place)
    yield from legend
    yield "</svg>"


def _drawn(box: _Box, place: Place) -> Iterator[str]:
    sort = "missing" if box.missing else box.sort
    radius = {"service": min(place.height / 2, 16.0), "group": 10.0, "process": 5.0}[box.sort]
    if box.many:
        yield _rectangle(
            sort, Place(place.x + STACKED, place.y - STACKED, place.width, place.height), radius
        )
    yield _rectangle(sort, place, radius)
    if box.sort == "group":
        yield _text(box.lines[0], "small", place.x + PAD, place.y + LINE)
        return
    first = place.middle - LINE * len(box.lines) / 2
    left = place.x + PAD
    if box.state:
        border = COLOURS[box.state][1] if box.state in COLOURS else COLOURS["unknown"][1]
        yield f'<circle cx="{_number(left + 4)}" cy="{_number(place.middle)}" r="5" fill="{border}"/>'
        left += LINE
    for index, line in enumerate(box.lines):
        yield _text(line, "name" if index == 0 else "small", left, first + LINE * (index + 1) - 4.5)


def _rectangle(sort: str, place: Place, radius: float) -> str:
    return (
        f'<rect class="{sort}" x="{_number(place.x)}" y="{_number(place.y)}" width="{_number(place.width)}" '
        f'height="{_number(place.height)}" rx="{_number(radius)}"/>'
    )


def _text(words: str, sort: str, x: float, y: float) -> str:
    return f'<text class="{sort}" x="{_number(x)}" y="{_number(y)}">{escape(words)}</text>'


def _legend(sorts: Sequence[str], y: float) -> Iterator[str]:
    """What the lines mean, for those that there are."""
    x = MARGIN
    for sort in sorts:
        yield (
            f'<path class="line {sort}" d="M{_number(x)} {_number(y)}H{_number(x + 34)}" marker-end="url(#head)"/>'
            f"{_text(_LEGEND[sort], 'small', x + 42, y + 4)}"
        )
        x += _extent(_LEGEND[sort], SMALL) + 72


def _extent(words: str, size: float) -> float:
    """How wide text is at a size."""
    return len(words) * size * ADVANCE


def _number(value: float) -> str:
    """A length with at most one digit after the point."""
    return f"{round(value, 1) + 0.0:.10g}"  # adding 0 makes -0 0
