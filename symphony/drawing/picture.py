"""The picture of a topology: the positions of its boxes and lines, without colours.

Clients are on the left, services in the middle, and the processes that bind the services on the
right. The text uses a fixed-width font, and the size of a box depends on its text. Lengths are in
pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from symphony.drawing.captions import (
    group_title,
    most_important_state,
    service_note,
    state_label,
)
from symphony.drawing.layout import GAP, Layout, Rect, Size, layout
from symphony.plan.topology import Node, Service, Topology

FONT_SIZE, SMALL_FONT_SIZE = 13.0, 11.0
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

BoxKind = Literal["process", "group", "service"]
LineKind = Literal["connects", "serves", "starts-after"]
Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
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
    members: tuple[Box, ...] = ()
    columns: int = 1

    @property
    def size(self) -> Size:
        """The size that the text or the members require."""
        if self.kind == "group":
            return self._group_size()
        widths = [text_width(self.lines[0], FONT_SIZE)]
        widths += [text_width(line, SMALL_FONT_SIZE) for line in self.lines[1:]]
        marker_width = LINE_HEIGHT if self.state else 0.0
        width = max(widths) + 2 * PADDING + marker_width
        return Size(width, LINE_HEIGHT * len(self.lines) + PADDING)

    def _group_size(self) -> Size:
        cell = self.cell_size
        title_width = text_width(self.lines[0], SMALL_FONT_SIZE)
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
class Line:
    """A line between two boxes, which are given by their keys.

    ``title`` is shown while the pointer is on the line.
    """

    kind: LineKind
    source: str
    target: str
    title: str


@dataclass(slots=True)
class Picture:
    """The positions of the boxes, the paths of the lines, and the size of the drawing.

    ``paths`` contains the lines that are drawn, and their paths in the syntax of SVG. A line inside
    a group is not drawn.
    """

    boxes: list[tuple[Box, Rect]] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    paths: list[tuple[Line, str]] = field(default_factory=list)
    rects: dict[str, Rect] = field(default_factory=dict)
    width: float = 0.0
    height: float = 0.0

    def add(self, box: Box, rect: Rect) -> None:
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


def arrange(
    topology: Topology, states: Mapping[str, str] | None = None, *, top: float = MARGIN
) -> Picture:
    """Return the picture of a topology.

    ``states`` maps the names of processes to the words that their boxes show. ``top`` is the space
    above the boxes.
    """
    boxes = _boxes(topology, states)
    lines = _lines(topology)
    # The layout places each group as a whole, so the lines of a member become edges of its group.
    outer_box: dict[str, str] = {}
    for box in boxes:
        outer_box[box.key] = box.key
        outer_box.update({member.key: box.key for member in box.members})
    edges = [(outer_box[line.source], outer_box[line.target]) for line in lines]
    sizes = {box.key: box.size for box in boxes}
    columns = {box.key: int(box.kind == "service") for box in boxes}
    positions = layout(sizes, edges, columns)
    picture = _place_boxes(boxes, positions, top)
    picture.lines = lines
    picture.paths = list(_paths(lines, edges, picture, positions, top))
    if None in positions.passages.values():
        picture.width += ARC_WIDTH
    return picture


# --- boxes and lines ---


def _boxes(topology: Topology, states: Mapping[str, str] | None) -> list[Box]:
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


def _process_box(node: Node, states: Mapping[str, str] | None) -> Box:
    lines = [node.label()]
    state = state_label(node, states)
    if state:
        lines.append(state)
    return Box(
        key=f"process {node.key}",
        kind="process",
        lines=tuple(lines),
        state=most_important_state(node, states),
        is_stack=len(node.processes) > 1,
    )


def _service_box(service: Service) -> Box:
    lines = [service.label]
    note = service_note(service)
    if note:
        lines.append(note)
    return Box(
        key=f"service {service.name}",
        kind="service",
        lines=tuple(lines),
        is_bound=service.bound or service.exposed,
    )


def _group_box(topology: Topology, name: str, members: Sequence[Box]) -> Box:
    columns = 1
    # A line can reach a member from the side of the group only if the group has one column.
    if len(members) > PROCESSES_PER_COLUMN and not _has_lines_inside(topology, name):
        columns = min(MAX_COLUMNS, math.ceil(len(members) / PROCESSES_PER_COLUMN))
    return Box(
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


def _lines(topology: Topology) -> list[Line]:
    """Return the lines between boxes.

    The lines from services to the processes that bind them come first. If a process also connects
    to a service that it binds, this order places the service to the left of the process.
    """
    lines = []
    for service in topology.services:
        for owner in service.owners:
            lines.append(
                Line(
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
        lines.append(Line(kind=link.kind, source=source, target=target, title=title))
    return lines


# --- positions ---


def _place_boxes(boxes: Sequence[Box], positions: Layout, top: float) -> Picture:
    """Return the positions of all boxes.

    Boxes without lines are placed in rows below the other boxes.
    """
    picture = Picture()
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
    lines: Sequence[Line],
    edges: Sequence[tuple[str, str]],
    picture: Picture,
    positions: Layout,
    top: float,
) -> Iterator[tuple[Line, str]]:
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
    lines: Sequence[Line], edges: Sequence[tuple[str, str]], picture: Picture
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
    controls = f"{point(x, source_y)} {point(x, target_y)} {point(target_x, target_y)}"
    return f"M{point(source_x, source_y)}C{controls}"


def _curve(points: Sequence[Point]) -> str:
    """Return a path through the points, curved between layers and straight across each layer."""
    (x, y), *rest = points
    parts = [f"M{point(x, y)}"]
    for index, (next_x, next_y) in enumerate(rest):
        is_across_layer = index % 2 == 1
        if is_across_layer:
            parts.append(f"H{number(next_x)}")
        else:
            bend = (next_x - x) / 2
            first_control = point(x + bend, y)
            second_control = point(next_x - bend, next_y)
            parts.append(f"C{first_control} {second_control} {point(next_x, next_y)}")
        x, y = next_x, next_y
    return "".join(parts)


def text_width(text: str, font_size: float) -> float:
    """Return the width of a text in a fixed-width font."""
    return len(text) * font_size * CHARACTER_WIDTH


def point(x: float, y: float) -> str:
    """Format a position."""
    return f"{number(x)} {number(y)}"


def number(value: float) -> str:
    """Format a length with at most one decimal place."""
    # Adding 0 turns -0.0 into 0.0.
    return f"{round(value, 1) + 0.0:.10g}"
