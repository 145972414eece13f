"""Drawing a topology as SVG without external programs.

Clients are on the left, services in the middle, and the processes that bind the services on the
right. The drawing has its own background, and a light and a dark colour scheme
(``prefers-color-scheme``, CSS Media Queries Level 5), so that it is legible on any page. The text
uses a fixed-width font, and the size of a box depends on its text. Lengths are in pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from xml.sax.saxutils import escape

from symphony.drawing.captions import (
    COLOURS,
    group_title,
    most_important_state,
    service_note,
    state_label,
    summary,
)
from symphony.drawing.layout import GAP, Layout, Rect, Size, layout
from symphony.plan.topology import Node, Service, Topology

FONT_SIZE, SMALL_FONT_SIZE, TITLE_FONT_SIZE = 13.0, 11.0, 16.0
# The width of a character relative to the font size. The ratio is 0.6 in most fixed-width fonts.
CHARACTER_WIDTH = 0.62
LINE_HEIGHT = 17.0
MARGIN = 24.0
PADDING = 12.0
# The minimum width available for rows of boxes without lines. A wider drawing allows wider rows.
MIN_ROW_WIDTH = 900.0
# A group has one column for every PROCESSES_PER_COLUMN boxes or part thereof, up to MAX_COLUMNS. A
# group with lines that begin or end at its members has only one column.
PROCESSES_PER_COLUMN, MAX_COLUMNS = 12, 4
# The offset of the rectangle that is drawn behind a box that represents several processes.
STACK_OFFSET = 4.0
# The maximum distance by which a line between two boxes in the same column curves to the right.
ARC_WIDTH = 56.0
# The width of a legend item without its text, and the length of the item's line.
LEGEND_ITEM_WIDTH, LEGEND_LINE_WIDTH = 72.0, 34.0

BoxKind = Literal["process", "group", "service"]
LineKind = Literal["connects", "serves", "starts-after"]
Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Box:
    """A box in the drawing.

    ``lines`` contains the text of the box, and ``members`` contains the boxes inside a group, which
    are arranged in ``columns`` columns. ``state`` determines the colour. ``is_bound`` is false for
    a service that no process binds or exposes, and ``is_stack`` is true for a box that represents
    several processes.
    """

    key: str
    kind: BoxKind
    lines: tuple[str, ...]
    state: str = ""
    is_bound: bool = True
    is_stack: bool = False
    members: tuple[_Box, ...] = ()
    columns: int = 1

    @property
    def size(self) -> Size:
        """The size that the text or the members require."""
        if self.kind == "group":
            return self._group_size()
        widths = [_text_width(self.lines[0], FONT_SIZE)]
        widths += [_text_width(line, SMALL_FONT_SIZE) for line in self.lines[1:]]
        marker_width = LINE_HEIGHT if self.state else 0.0
        width = max(widths) + 2 * PADDING + marker_width
        return Size(width, LINE_HEIGHT * len(self.lines) + PADDING)

    def _group_size(self) -> Size:
        cell = self.cell_size
        title_width = _text_width(self.lines[0], SMALL_FONT_SIZE)
        columns_width = self.columns * (cell.width + GAP) - GAP
        rows = math.ceil(len(self.members) / self.columns)
        rows_height = rows * (cell.height + GAP) - GAP if rows else 0.0
        height = LINE_HEIGHT + PADDING + rows_height + PADDING
        return Size(max(title_width, columns_width) + 2 * PADDING, height)

    @property
    def cell_size(self) -> Size:
        """The size of each box inside a group: the members' largest width and largest height."""
        sizes = [member.size for member in self.members]
        width = max((size.width for size in sizes), default=0.0)
        height = max((size.height for size in sizes), default=0.0)
        return Size(width, height)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A line between two boxes, which are given by their keys.

    ``title`` is shown while the pointer is on the line.
    """

    kind: LineKind
    source: str
    target: str
    title: str


@dataclass(slots=True)
class _Picture:
    """The positions of the boxes, and the size of the drawing."""

    boxes: list[tuple[_Box, Rect]] = field(default_factory=list)
    rects: dict[str, Rect] = field(default_factory=dict)
    width: float = 0.0
    height: float = 0.0

    def add(self, box: _Box, rect: Rect) -> None:
        """Add a box, and arrange the boxes inside it in rows."""
        self.boxes.append((box, rect))
        self.rects[box.key] = rect
        self.width = max(self.width, rect.x + rect.width)
        self.height = max(self.height, rect.y + rect.height)
        if not box.members:
            return
        cell_height = box.cell_size.height
        # The group can be wider than its members require.
        cell_width = (rect.width - 2 * PADDING + GAP) / box.columns - GAP
        for index, member in enumerate(box.members):
            row, column = divmod(index, box.columns)
            x = rect.x + PADDING + column * (cell_width + GAP)
            y = rect.y + LINE_HEIGHT + PADDING + row * (cell_height + GAP)
            self.add(member, Rect(x, y, cell_width, cell_height))


def svg(topology: Topology, states: Mapping[str, str] | None = None) -> str:
    """Return the drawing as the text of an SVG file."""
    boxes = _boxes(topology, states)
    lines = _lines(topology)
    # The layout places each group as a whole, so the lines of a member become edges of its group.
    outer_box: dict[str, str] = {}
    for box in boxes:
        outer_box[box.key] = box.key
        outer_box.update({member.key: box.key for member in box.members})
    edges = [(outer_box[line.source], outer_box[line.target]) for line in lines]
    sizes = {box.key: box.size for box in boxes}
    columns = {box.key: 1 if box.kind == "service" else 0 for box in boxes}
    positions = layout(sizes, edges, columns)
    header = [(topology.experiment, "title"), (summary(topology, states), "small")]
    header_lines = [text for text, _ in header if text]
    top = MARGIN + LINE_HEIGHT * len(header_lines) + PADDING
    picture = _place_boxes(boxes, positions, top)
    paths = list(_paths(lines, edges, picture, positions, top))
    if None in positions.passages.values():
        picture.width += ARC_WIDTH
    kinds = sorted({line.kind for line in lines})
    return "\n".join(_document(topology, picture, paths, header, kinds)) + "\n"


# --- boxes and lines ---


def _boxes(topology: Topology, states: Mapping[str, str] | None) -> list[_Box]:
    """Return the boxes for the experiment's services, processes and groups."""
    process_boxes = {node.key: _process_box(node, states) for node in topology.nodes}
    boxes = [_service_box(service) for service in topology.services]
    for name in topology.members:
        if name in topology.groups:
            members = [process_boxes[node.key] for node in topology.inside(name)]
            boxes.append(_group_box(topology, name, members))
        else:
            boxes.append(process_boxes[name])
    return boxes


def _process_box(node: Node, states: Mapping[str, str] | None) -> _Box:
    lines = [node.label()]
    state = state_label(node, states)
    if state:
        lines.append(state)
    return _Box(
        key=f"process {node.key}",
        kind="process",
        lines=tuple(lines),
        state=most_important_state(node, states),
        is_stack=len(node.processes) > 1,
    )


def _service_box(service: Service) -> _Box:
    lines = [service.label]
    note = service_note(service)
    if note:
        lines.append(note)
    return _Box(
        key=f"service {service.name}",
        kind="service",
        lines=tuple(lines),
        is_bound=service.bound or service.exposed,
    )


def _group_box(topology: Topology, name: str, members: Sequence[_Box]) -> _Box:
    columns = 1
    # A line can reach a member from the side of the group only if the group has one column.
    if len(members) > PROCESSES_PER_COLUMN and not _has_lines_inside(topology, name):
        columns = min(MAX_COLUMNS, math.ceil(len(members) / PROCESSES_PER_COLUMN))
    return _Box(
        key=f"process {name}",
        kind="group",
        lines=(group_title(topology, name),),
        members=tuple(members),
        columns=columns,
    )


def _has_lines_inside(topology: Topology, group: str) -> bool:
    """Return whether a line begins or ends at a member of the group."""
    ends: set[str] = set()
    for link in topology.links:
        ends |= {link.source, link.target}
    for service in topology.services:
        ends.update(service.owners)
    return any(node.key in ends for node in topology.inside(group))


def _lines(topology: Topology) -> list[_Line]:
    """Return the lines between boxes.

    The lines from services to the processes that bind them come first. If a process also connects
    to a service that it binds, this order places the service to the left of the process.
    """
    lines = []
    for service in topology.services:
        for owner in service.owners:
            lines.append(
                _Line(
                    kind="serves",
                    source=f"service {service.name}",
                    target=f"process {owner}",
                    title=f"{service.name} is served by {owner}",
                )
            )
    for link in topology.links:
        if link.kind == "connects":
            target = f"service {link.target}"
            title = f"{link.source} connects to {link.target}"
        else:
            target = f"process {link.target}"
            title = f"{link.source} starts after {link.target} ({link.condition})"
        source = f"process {link.source}"
        lines.append(_Line(kind=link.kind, source=source, target=target, title=title))
    return lines


# --- positions ---


def _place_boxes(boxes: Sequence[_Box], positions: Layout, top: float) -> _Picture:
    """Return the positions of all boxes.

    Boxes without lines are placed in rows below the other boxes.
    """
    picture = _Picture()
    for box in boxes:
        if box.key in positions.rects:
            rect = positions.rects[box.key]
            picture.add(box, Rect(rect.x + MARGIN, rect.y + top, rect.width, rect.height))
    row_width = max(positions.width, MIN_ROW_WIDTH)
    x, row_height = 0.0, 0.0
    y = picture.height + 2 * GAP if picture.boxes else top
    for box in boxes:
        if box.key in positions.rects:
            continue
        width, height = box.size
        if x and x + width > row_width:
            y += row_height + GAP
            x, row_height = 0.0, 0.0
        picture.add(box, Rect(MARGIN + x, y, width, height))
        x += width + GAP
        row_height = max(row_height, height)
    return picture


def _paths(
    lines: Sequence[_Line],
    edges: Sequence[tuple[str, str]],
    picture: _Picture,
    positions: Layout,
    top: float,
) -> Iterator[tuple[_Line, str]]:
    """Yield each line and its path. A line inside a group has no path and is omitted."""
    ends = _line_ends(lines, edges, picture)
    for index, (line, edge) in enumerate(zip(lines, edges, strict=True)):
        if edge[0] == edge[1]:
            continue
        source, target = ends[index]
        passages = positions.passages[edge]
        if passages is None:
            yield line, _arc(source, target)
            continue
        between: list[Point] = []
        for passage in passages:
            y = passage.middle + top
            between.append((passage.x + MARGIN, y))
            between.append((passage.x + passage.width + MARGIN, y))
        goes_right = picture.rects[edge[0]].x < picture.rects[edge[1]].x
        if not goes_right:
            between.reverse()
        yield line, _curve([source, *between, target])


def _line_ends(
    lines: Sequence[_Line], edges: Sequence[tuple[str, str]], picture: _Picture
) -> dict[int, tuple[Point, Point]]:
    """Map the index of each line to the points at which the line begins and ends.

    The lines at one side of a box are distributed over the height of the box, in the vertical order
    of their other ends, so that these lines do not cross.
    """
    # Maps a side of a box to the lines at this side. The tuple for a line contains the position of
    # its other end, its index, and whether the line begins at this side.
    sides: dict[tuple[str, str], list[tuple[float, int, bool]]] = {}
    for index, (line, (source, target)) in enumerate(zip(lines, edges, strict=True)):
        if source == target:
            continue
        source_x, target_x = picture.rects[source].x, picture.rects[target].x
        source_side = "right" if source_x <= target_x else "left"
        target_side = "left" if source_x < target_x else "right"
        source_end = (picture.rects[line.target].middle, index, True)
        target_end = (picture.rects[line.source].middle, index, False)
        sides.setdefault((line.source, source_side), []).append(source_end)
        sides.setdefault((line.target, target_side), []).append(target_end)
    begins: dict[int, Point] = {}
    ends: dict[int, Point] = {}
    for (key, side), line_ends in sides.items():
        rect = picture.rects[key]
        x = rect.x if side == "left" else rect.x + rect.width
        for order, (_, index, is_begin) in enumerate(sorted(line_ends), 1):
            y = rect.y + rect.height * order / (len(line_ends) + 1)
            if is_begin:
                begins[index] = (x, y)
            else:
                ends[index] = (x, y)
    return {index: (begins[index], ends[index]) for index in begins}


def _arc(source: Point, target: Point) -> str:
    """Return a path that curves to the right between two boxes in the same column."""
    (source_x, source_y), (target_x, target_y) = source, target
    x = max(source_x, target_x) + min(ARC_WIDTH, 12 + abs(target_y - source_y) / 4)
    controls = f"{_point(x, source_y)} {_point(x, target_y)} {_point(target_x, target_y)}"
    return f"M{_point(source_x, source_y)}C{controls}"


def _curve(points: Sequence[Point]) -> str:
    """Return a path through the points, curved between layers and straight across each layer."""
    (x, y), *rest = points
    parts = [f"M{_point(x, y)}"]
    for index, (next_x, next_y) in enumerate(rest):
        is_across_layer = index % 2 == 1
        if is_across_layer:
            parts.append(f"H{_number(next_x)}")
        else:
            bend = (next_x - x) / 2
            first_control = _point(x + bend, y)
            second_control = _point(next_x - bend, next_y)
            parts.append(f"C{first_control} {second_control} {_point(next_x, next_y)}")
        x, y = next_x, next_y
    return "".join(parts)


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
        f".title{{font-size:{_number(TITLE_FONT_SIZE)}px;font-weight:bold}}"
        f".small{{font-size:{_number(SMALL_FONT_SIZE)}px}}"
        ".group{stroke-dasharray:2 3}.missing{stroke-dasharray:5 3}"
        ".serves{stroke-width:2}.starts-after{stroke-dasharray:5 4}"
        f"@media (prefers-color-scheme:dark){{{_colour_rules(_DARK_COLOURS)}}}</style>"
    )


def _document(
    topology: Topology,
    picture: _Picture,
    paths: Sequence[tuple[_Line, str]],
    header: Sequence[tuple[str, str]],
    kinds: Sequence[str],
) -> Iterator[str]:
    """Yield the elements of the SVG file. ``kinds`` are the kinds of lines in the drawing."""
    title_width = max(
        _text_width(text, TITLE_FONT_SIZE if css_class == "title" else SMALL_FONT_SIZE)
        for text, css_class in header
    )
    legend_width = sum(_legend_item_width(kind) for kind in kinds)
    legend_height = 2 * GAP + LINE_HEIGHT if kinds else 0.0
    content_width = max(picture.width, MARGIN + max(title_width, legend_width))
    width = math.ceil(content_width + MARGIN)
    height = math.ceil(picture.height + legend_height + MARGIN)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="title" '
        f'font-family="{_FONTS}" font-size="{_number(FONT_SIZE)}">'
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
    for line, path in paths:
        yield (
            f'<path class="line {line.kind}" d="{path}" marker-end="url(#head)">'
            f"<title>{escape(line.title)}</title></path>"
        )
    for box, rect in picture.boxes:
        yield from _box_elements(box, rect)
    yield from _legend(kinds, picture.height + 2 * GAP)
    yield "</svg>"


def _box_elements(box: _Box, rect: Rect) -> Iterator[str]:
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
            f'<circle cx="{_number(text_x + 4)}" cy="{_number(rect.middle)}" r="5" '
            f'fill="{border}"/>'
        )
        text_x += LINE_HEIGHT
    text_top = rect.middle - LINE_HEIGHT * len(box.lines) / 2
    for index, line in enumerate(box.lines):
        baseline = text_top + LINE_HEIGHT * (index + 1) - 4.5
        yield _text(line, "name" if index == 0 else "small", text_x, baseline)


def _rectangle(css_class: str, rect: Rect, radius: float) -> str:
    return (
        f'<rect class="{css_class}" x="{_number(rect.x)}" y="{_number(rect.y)}" '
        f'width="{_number(rect.width)}" height="{_number(rect.height)}" rx="{_number(radius)}"/>'
    )


def _text(text: str, css_class: str, x: float, y: float) -> str:
    return f'<text class="{css_class}" x="{_number(x)}" y="{_number(y)}">{escape(text)}</text>'


def _legend(kinds: Sequence[str], y: float) -> Iterator[str]:
    """Yield an example line and a description for each kind of line in the drawing."""
    x = MARGIN
    for kind in kinds:
        path = f"M{_point(x, y)}H{_number(x + LEGEND_LINE_WIDTH)}"
        text = _text(_LEGEND_TEXTS[kind], "small", x + LEGEND_LINE_WIDTH + 8, y + 4)
        yield f'<path class="line {kind}" d="{path}" marker-end="url(#head)"/>{text}'
        x += _legend_item_width(kind)


def _legend_item_width(kind: str) -> float:
    return _text_width(_LEGEND_TEXTS[kind], SMALL_FONT_SIZE) + LEGEND_ITEM_WIDTH


def _text_width(text: str, font_size: float) -> float:
    return len(text) * font_size * CHARACTER_WIDTH


def _point(x: float, y: float) -> str:
    return f"{_number(x)} {_number(y)}"


def _number(value: float) -> str:
    """Format a length with at most one decimal place."""
    # Adding 0 turns -0.0 into 0.0.
    return f"{round(value, 1) + 0.0:.10g}"
