"""A topology as a tree of text. Pure: a topology in, lines out.

On a terminal a tree fits its width: what is too long goes on in the next line, and a name that is longer than a
line is cut. In a pipe or a file nothing is broken or cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from symphony.drawing.words import NOBODY, group_title, state_of, summary
from symphony.plan.topology import Node, Service, Topology

GAP = 2
# The least that is left for words, however narrow the terminal is and however deep the tree.
_LEAST = 8

Paint = Callable[[str], str]


class Signs(NamedTuple):
    """The signs that a tree is made of: ``middle`` and ``last`` branches, what goes ``on`` below, and arrows."""

    middle: str
    last: str
    on: str
    to: str
    by: str
    ellipsis: str


UNICODE = Signs("├─ ", "└─ ", "│  ", "→", "←", "…")
ASCII = Signs("|- ", "`- ", "|  ", "->", "<-", "...")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Branch:
    text: str
    state: str = ""
    below: list[_Branch] = field(default_factory=list)


class _Row(NamedTuple):
    """A line to be: what stands before it, what stands before its continuation, its text, and a state."""

    before: str
    after: str
    text: str
    state: str


def text(
    topology: Topology,
    states: Mapping[str, str] | None = None,
    *,
    width: int | None = None,
    signs: Signs = UNICODE,
    paint: Paint | None = None,
) -> list[str]:
    """The lines of a tree: each process and group, and below it what it serves, needs and waits for.

    ``states`` has the state of processes by their names. ``width`` is that of the terminal, None for a pipe.
    ``paint`` is given what is said of states and returns it in colour.
    """
    rows = list(_rows(_Tree(topology, states, signs).branches(), "", signs))
    head = _Row("", "", topology.experiment, summary(topology, states))
    column = _column(rows, width)
    lines = _laid_out(head, 0, width, signs, paint)
    for row in rows:
        lines += _laid_out(row, column, width, signs, paint)
    return lines


class _Tree:
    """What is said of each process and group."""

    def __init__(self, topology: Topology, states: Mapping[str, str] | None, signs: Signs) -> None:
        self._topology = topology
        self._states = states
        self._signs = signs
        self._nodes = {node.key: node for node in topology.nodes}
        self._services = {service.name: service for service in topology.services}

    def branches(self) -> list[_Branch]:
        groups = set(self._topology.groups)
        return [
            self._group(name) if name in groups else self._node(name)
            for name in self._topology.members
        ]

    def _node(self, key: str) -> _Branch:
        node = self._nodes[key]
        return _Branch(
            text=self._label(node),
            state=state_of(node, self._states),
            below=list(self._joined(key)),
        )

    def _group(self, name: str) -> _Branch:
        members = [self._node(node.key) for node in self._topology.inside(name)]
        return _Branch(
            text=group_title(self._topology, name), below=[*self._joined(name), *members]
        )

    def _label(self, node: Node) -> str:
        return node.label(self._signs.ellipsis)

    def _joined(self, name: str) -> Iterator[_Branch]:
        """What a process or group serves, connects to and waits for."""
        for service in self._topology.services:
            if name in service.owners:
                yield _Branch(text=self._served(service))
        for link in self._topology.links:
            if link.source != name:
                continue
            if link.kind == "connects":
                yield _Branch(text=self._used(self._services[link.target]))
            else:
                yield _Branch(text=f"starts after {self._named(link.target)} ({link.condition})")

    def _served(self, service: Service) -> str:
        verb = " and ".join(
            word for word, on in (("binds", service.bound), ("exposes", service.exposed)) if on
        )
        clients = ", ".join(self._named(client) for client in self._topology.clients(service.name))
        what = f"{verb} {service.label}{' (encrypted)' if service.encrypted else ''}"
        return f"{what} {self._signs.by} {clients}" if clients else what

    def _used(self, service: Service) -> str:
        owners = (
            ", ".join(self._named(owner) for owner in service.owners) if service.bound else NOBODY
        )
        return f"connects {service.label} {self._signs.to} {owners}"

    def _named(self, name: str) -> str:
        return self._label(self._nodes[name]) if name in self._nodes else name


def _rows(branches: Sequence[_Branch], before: str, signs: Signs) -> Iterator[_Row]:
    for branch in branches:
        is_last = branch is branches[-1]
        on = before + (" " * len(signs.on) if is_last else signs.on)
        own = on + (signs.on if branch.below else " " * len(signs.on))
        yield _Row(
            before + (signs.last if is_last else signs.middle), own, branch.text, branch.state
        )
        yield from _rows(branch.below, on, signs)


def _column(rows: Sequence[_Row], width: int | None) -> int:
    """Where states begin, if there is room for all of them beside the text; else 0."""
    having = [row for row in rows if row.state]
    column = max((len(row.before) + len(row.text) for row in having), default=0) + GAP
    longest = max((len(row.state) for row in having), default=0)
    return column if width is None or column + longest <= width else 0


def _laid_out(
    row: _Row, column: int, width: int | None, signs: Signs, paint: Paint | None
) -> list[str]:
    """A row as one line, or as several where it is too long."""
    shown = paint or str
    whole = row.before + row.text
    if row.state:
        padded = whole.ljust(column) if column else whole + " " * GAP
        if width is None or len(padded) + len(row.state) <= width:
            return [padded + shown(row.state)]
    lines = _wrapped(row.before, row.after, row.text, width, signs)
    if row.state:
        below = _wrapped(row.after, row.after, row.state, width, signs)
        lines += [row.after + shown(line[len(row.after) :]) for line in below]
    return lines


def _wrapped(before: str, after: str, words: str, width: int | None, signs: Signs) -> list[str]:
    """Text broken between words; what continues is indented."""
    if width is None or len(before) + len(words) <= width:
        return [before + words]
    lines: list[str] = []
    start, rest = before, words
    while rest:
        room = max(_LEAST, width - len(start))
        taken, rest = _first(rest, room, signs.ellipsis)
        lines.append(start + taken)
        start = after
    return lines


def _first(words: str, room: int, ellipsis: str) -> tuple[str, str]:
    """What of a text goes into a line, and the rest: broken after a comma, else between words.

    A word that is longer than the line is cut.
    """
    if len(words) <= room:
        return words, ""
    comma = words.rfind(", ", 0, room)
    place = comma + 1 if comma > 0 else words.rfind(" ", 0, room + 1)
    if place > 0:
        return words[:place], words[place + 1 :]
    word, _, rest = words.partition(" ")
    return f"{word[: room - len(ellipsis)]}{ellipsis}", rest
