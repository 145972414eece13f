"""Drawing a topology as a text tree.

On a terminal, the tree fits the width of the terminal: long text is wrapped, and a name that is
longer than a line is truncated. In a pipe or a file, text is neither wrapped nor truncated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from symphony.drawing.captions import NO_REPLICAS, NOT_BOUND, group_title, state_label, summary
from symphony.plan.topology import Node, Service, Topology

# The number of spaces between the name and the state of a process.
_STATE_GAP = 2
# The minimum number of text characters in a line, even on a narrower terminal.
_MIN_TEXT_WIDTH = 8

Paint = Callable[[str], str]


class Signs(NamedTuple):
    """The characters with which a tree is drawn.

    ``middle`` and ``last`` begin a branch, and ``vertical`` continues the line to the next branch.
    ``to`` and ``by`` are arrows. ``ellipsis`` replaces omitted text.
    """

    middle: str
    last: str
    vertical: str
    to: str
    by: str
    ellipsis: str


UNICODE = Signs("├─ ", "└─ ", "│  ", "→", "←", "…")
ASCII = Signs("|- ", "`- ", "|  ", "->", "<-", "...")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Branch:
    owner: str
    text: str
    state: str = ""
    children: list[_Branch] = field(default_factory=list)


class _Row(NamedTuple):
    """A row of the tree before it is wrapped.

    ``owner`` is the key of the process or the name of the group that the row is about. ``prefix``
    is the tree prefix of the first line, and ``next_prefix`` is the tree prefix of all further
    lines.
    """

    owner: str
    prefix: str
    next_prefix: str
    text: str
    state: str


class TreeRow(NamedTuple):
    """A row of a tree that is not wrapped.

    ``owner`` is the key of the process or the name of the group that the row is about.
    """

    owner: str
    text: str
    state: str


def tree_rows(topology: Topology, states: Mapping[str, str] | None, signs: Signs) -> list[TreeRow]:
    """Return the rows of the tree that `text_tree` draws, without its title."""
    rows = _rows(_TreeBuilder(topology, states, signs).branches(), "", signs)
    return [TreeRow(row.owner, row.prefix + row.text, row.state) for row in rows]


def text_tree(
    topology: Topology,
    states: Mapping[str, str] | None = None,
    *,
    width: int | None = None,
    signs: Signs = UNICODE,
    paint: Paint | None = None,
) -> list[str]:
    """Return the lines of a tree of processes and groups, with their services and start conditions.

    ``states`` maps the names of processes to their states. ``width`` is the width of the terminal,
    or None for a pipe or a file. ``paint`` takes the text of a state and returns it in colour.
    """
    branches = _TreeBuilder(topology, states, signs).branches()
    rows = list(_rows(branches, "", signs))
    title = _Row("", "", "", topology.experiment, summary(topology, states))
    column = _state_column(rows, width)
    lines = _row_lines(title, 0, width, signs, paint)
    for row in rows:
        lines += _row_lines(row, column, width, signs, paint)
    return lines


class _TreeBuilder:
    """A builder for the branches of a tree."""

    def __init__(self, topology: Topology, states: Mapping[str, str] | None, signs: Signs) -> None:
        self._topology = topology
        self._states = states
        self._signs = signs
        self._nodes = {node.key: node for node in topology.nodes}
        self._services = {service.name: service for service in topology.services}

    def branches(self) -> list[_Branch]:
        """Return a branch for each group and for each process that is not in a group."""
        branches = []
        for name in self._topology.members:
            is_group = name in self._topology.groups
            branches.append(self._group(name) if is_group else self._node(name))
        return branches

    def _node(self, key: str) -> _Branch:
        node = self._nodes[key]
        return _Branch(
            owner=key,
            text=self._node_label(node),
            state=state_label(node, self._states),
            children=self._connections(key),
        )

    def _group(self, name: str) -> _Branch:
        members = [self._node(node.key) for node in self._topology.inside(name)]
        return _Branch(
            owner=name,
            text=group_title(self._topology, name),
            children=[*self._connections(name), *members],
        )

    def _node_label(self, node: Node) -> str:
        return node.label(self._signs.ellipsis)

    def _connections(self, name: str) -> list[_Branch]:
        """Return a branch for each service and each start condition of a process or group."""
        branches = []
        for service in self._topology.services:
            if name in service.owners:
                branches.append(_Branch(owner=name, text=self._bound_service(service)))
        for link in self._topology.links:
            if link.source != name:
                continue
            if link.kind == "connects":
                line = self._connected_service(self._services[link.target])
            else:
                line = f"starts after {self._label(link.target)} ({link.condition})"
            branches.append(_Branch(owner=name, text=line))
        return branches

    def _bound_service(self, service: Service) -> str:
        verbs = []
        if service.bound:
            verbs.append("binds")
        if service.exposed:
            verbs.append("exposes")
        line = f"{' and '.join(verbs)} {service.label}"
        if service.encrypted:
            line += " (encrypted)"
        clients = [self._label(client) for client in self._topology.clients(service.name)]
        if clients:
            line += f" {self._signs.by} {', '.join(clients)}"
        return line

    def _connected_service(self, service: Service) -> str:
        owners = NOT_BOUND
        if service.bound:
            owners = ", ".join(self._label(owner) for owner in service.owners) or NO_REPLICAS
        return f"connects {service.label} {self._signs.to} {owners}"

    def _label(self, name: str) -> str:
        return self._node_label(self._nodes[name]) if name in self._nodes else name


def _rows(branches: Sequence[_Branch], parent_prefix: str, signs: Signs) -> Iterator[_Row]:
    blank = " " * len(signs.vertical)
    for branch in branches:
        is_last = branch is branches[-1]
        prefix = parent_prefix + (signs.last if is_last else signs.middle)
        child_prefix = parent_prefix + (blank if is_last else signs.vertical)
        next_prefix = child_prefix + (signs.vertical if branch.children else blank)
        yield _Row(branch.owner, prefix, next_prefix, branch.text, branch.state)
        yield from _rows(branch.children, child_prefix, signs)


def _state_column(rows: Sequence[_Row], width: int | None) -> int:
    """Return the column in which states are aligned, or 0 if the terminal is too narrow."""
    with_state = [row for row in rows if row.state]
    longest_text = max((len(row.prefix) + len(row.text) for row in with_state), default=0)
    longest_state = max((len(row.state) for row in with_state), default=0)
    column = longest_text + _STATE_GAP
    fits = width is None or column + longest_state <= width
    return column if fits else 0


def _row_lines(
    row: _Row, column: int, width: int | None, signs: Signs, paint: Paint | None
) -> list[str]:
    """Return a row as one line, or as several lines if the row is too long."""
    painted = paint or str
    if row.state:
        line = row.prefix + row.text
        line = line.ljust(column) if column else line + " " * _STATE_GAP
        if width is None or len(line) + len(row.state) <= width:
            return [line + painted(row.state)]
    lines = _wrap(row.prefix, row.next_prefix, row.text, width, signs)
    if row.state:
        for line in _wrap(row.next_prefix, row.next_prefix, row.state, width, signs):
            # Paint only the text, without the prefix.
            lines.append(row.next_prefix + painted(line[len(row.next_prefix) :]))
    return lines


def _wrap(prefix: str, next_prefix: str, text: str, width: int | None, signs: Signs) -> list[str]:
    """Wrap text at word boundaries, and truncate words that are longer than a line.

    The first line begins with ``prefix``, and all further lines begin with ``next_prefix``.
    """
    if width is None or len(prefix) + len(text) <= width:
        return [prefix + text]
    lines: list[str] = []
    remaining = text
    while remaining:
        room = max(_MIN_TEXT_WIDTH, width - len(prefix))
        line, remaining = _split_line(remaining, room, signs.ellipsis)
        lines.append(prefix + line)
        prefix = next_prefix
    return lines


def _split_line(text: str, room: int, ellipsis: str) -> tuple[str, str]:
    """Return the part of ``text`` that fits in ``room`` characters, and the remaining text.

    The text is split after a comma if possible, and otherwise between words. If the first word is
    longer than ``room``, it is truncated.
    """
    if len(text) <= room:
        return text, ""
    comma = text.rfind(", ", 0, room)
    end = comma + 1 if comma > 0 else text.rfind(" ", 0, room + 1)
    if end > 0:
        return text[:end], text[end + 1 :]
    word, _, rest = text.partition(" ")
    return f"{word[: room - len(ellipsis)]}{ellipsis}", rest
