"""Who is joined with whom: an experiment as processes, groups, services and the lines between them. Pure.

A topology is made of the description alone, so that one with mistakes can be drawn too: a service that nobody binds
has no owner there. That of what runs is `symphony.cluster.Cluster.describe_topology`. What it shows is what
`symphony.drawing` draws.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from symphony.model import Experiment, Process, ProcessGroup

if TYPE_CHECKING:
    from symphony.status import ExperimentStatus

Kind = Literal["connects", "starts-after"]

# How many processes that are alike are drawn as one: fewer are quicker read one by one.
FOLD = 3
_NUMBERED = re.compile(r"(.*?)\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A process, or several alike that are drawn as one, by their names in declaration order."""

    processes: tuple[str, ...]
    group: str | None = None

    @property
    def key(self) -> str:
        """What links call it: the name of its first process."""
        return self.processes[0]

    def label(self, ellipsis: str = "…") -> str:
        """``agent``, or ``agent-0 … agent-99 (100)``."""
        if len(self.processes) == 1:
            return self.key
        return f"{self.key} {ellipsis} {self.processes[-1]} ({len(self.processes)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service that somebody binds, exposes or connects to.

    ``owners`` are the processes and groups that serve it: one, where the experiment can be launched. ``port`` is
    1..65535, or None where symphony chooses it.
    """

    name: str
    owners: tuple[str, ...] = ()
    port: int | None = None
    bound: bool = False
    exposed: bool = False
    encrypted: bool = False

    @property
    def label(self) -> str:
        """``replay``, or ``replay:6006`` with a port of its own."""
        return self.name if self.port is None else f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A process or group that connects to a service, or starts after another under a ``condition``."""

    kind: Kind
    source: str
    target: str
    condition: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """An experiment as it is drawn.

    ``members`` are what stands side by side, in declaration order: the keys of nodes in no group, and the names of
    groups. No process has the name of a group, so that a link's end is never in doubt.
    """

    experiment: str
    members: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    groups: tuple[str, ...] = ()
    services: tuple[Service, ...] = ()
    links: tuple[Link, ...] = ()

    def inside(self, group: str) -> tuple[Node, ...]:
        """The nodes of a group."""
        return tuple(node for node in self.nodes if node.group == group)

    def clients(self, service: str) -> tuple[str, ...]:
        """The processes and groups that connect to a service."""
        return tuple(
            link.source for link in self.links if link.kind == "connects" and link.target == service
        )

    def to_dict(self) -> dict[str, Any]:
        """The topology as JSON knows it, each process by itself."""
        return {
            "experiment": self.experiment,
            "processes": [
                {"name": name, "group": node.group}
                for node in self.nodes
                for name in node.processes
            ],
            "groups": list(self.groups),
            "services": [
                {
                    "name": service.name,
                    "owners": list(service.owners),
                    "port": service.port,
                    "bound": service.bound,
                    "exposed": service.exposed,
                    "encrypted": service.encrypted,
                }
                for service in self.services
            ],
            "links": [
                {
                    "kind": link.kind,
                    "source": link.source,
                    "target": link.target,
                    "condition": link.condition or None,
                }
                for link in self.links
            ],
        }


def topology(experiment: Experiment) -> Topology:
    """The topology of an experiment, each process by itself. Mistakes are no errors here: `symphony.lint` tells them.

    What a group connects to is linked with the group, and not with its members again.
    """
    return Topology(
        experiment=experiment.name,
        members=tuple(member.name for member in experiment.list_members()),
        nodes=tuple(
            Node(processes=(process.name,), group=process.group.name if process.group else None)
            for process in experiment.list_all_processes()
        ),
        groups=tuple(group.name for group in experiment.list_process_groups()),
        services=tuple(_services(experiment).values()),
        links=tuple(_links(experiment)),
    )


def of_status(
    status: ExperimentStatus,
    *,
    services: Iterable[Service] = (),
    connects: Mapping[str, Collection[str]] = MappingProxyType({}),
    starts_after: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> Topology:
    """The topology of what runs, as far as is known of it: processes and groups, and how they are joined.

    ``connects`` has, by process, the services it connects to, what its group connects to among them, and
    ``starts_after``, by process or group, the condition to wait for by process. What all members of a group have in
    common is said of the group. A service that is exposed counts as bound where somebody connects to it, any other
    always.
    """
    used = dict.fromkeys(name for names in connects.values() for name in names)
    known = {one.name: replace(one, bound=not one.exposed or one.name in used) for one in services}
    members = dict.fromkeys(process.group or process.name for process in status)
    groups: dict[str, tuple[str, ...]] = {}
    for process in status:
        if process.group:
            groups[process.group] = (*groups.get(process.group, ()), process.name)
    return Topology(
        experiment=status.name,
        members=tuple(members),
        nodes=tuple(Node(processes=(process.name,), group=process.group) for process in status),
        groups=tuple(groups),
        services=tuple(
            {**known, **{name: Service(name=name) for name in used if name not in known}}.values()
        ),
        links=tuple(_links_of_members(members, groups, connects, starts_after)),
    )


def _links_of_members(
    members: Iterable[str],
    groups: Mapping[str, tuple[str, ...]],
    connects: Mapping[str, Collection[str]],
    starts_after: Mapping[str, Mapping[str, str]],
) -> Iterator[Link]:
    for member in members:
        inside = groups.get(member, (member,))
        common = [
            name
            for name in connects.get(inside[0], ())
            if all(name in connects.get(one, ()) for one in inside)
        ]
        for service in common:
            yield Link(kind="connects", source=member, target=service)
        for other, condition in _by_group(starts_after.get(member, {}), groups).items():
            yield Link(kind="starts-after", source=member, target=other, condition=condition)
        for one in inside:
            for service in connects.get(one, ()):
                if service not in common:
                    yield Link(kind="connects", source=one, target=service)


def _by_group(waits: Mapping[str, str], groups: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Conditions by process, with a group in the place of its members where it is waited for as a whole."""
    whole = {
        process: group
        for group, processes in groups.items()
        if {waits.get(process) for process in processes} == {waits.get(processes[0], "")}
        for process in processes
    }
    return {whole.get(process, process): condition for process, condition in waits.items()}


def components(experiment: Experiment) -> Iterator[Process | ProcessGroup]:
    """Every process and every group, each group before its members, in declaration order."""
    for member in experiment.list_members():
        yield member
        if isinstance(member, ProcessGroup):
            yield from member.list_processes()


def _services(experiment: Experiment) -> dict[str, Service]:
    found: dict[str, Service] = {}
    for component in components(experiment):
        settings = component.settings
        for name in dict.fromkeys([*settings.binds, *settings.exposes]):
            before = found.get(name, Service(name=name))
            found[name] = replace(
                before,
                owners=(*before.owners, component.name),
                port=before.port or settings.binds.get(name) or settings.exposes.get(name),
                bound=before.bound or name in settings.binds,
                exposed=before.exposed or name in settings.exposes,
                encrypted=before.encrypted or name in settings.encrypted,
            )
    for component in components(experiment):
        for name in component.settings.connects:
            found.setdefault(name, Service(name=name))
    return found


def _links(experiment: Experiment) -> Iterator[Link]:
    known = {component.name for component in components(experiment)}
    for component in components(experiment):
        group = component.group if isinstance(component, Process) else None
        of_group = group.settings.connects if group else ()
        for service in component.settings.connects:
            if service not in of_group:
                yield Link(kind="connects", source=component.name, target=service)
        for other, condition in component.settings.starts_after.items():
            if other in known:
                yield Link(
                    kind="starts-after", source=component.name, target=other, condition=condition
                )


# --- many that are alike ---


def folded(whole: Topology, *, least: int = FOLD) -> Topology:
    """The same with processes that are alike as one node, where there are at least ``least`` of them.

    They are alike if they stand in one group or in none, their names differ in the number at the end alone, and
    they are linked with the same others in the same way. One that serves something is like no other.
    """
    alike: dict[object, list[Node]] = {}
    signatures = _signatures(whole)
    for node in whole.nodes:
        alike.setdefault(signatures[node.key], []).append(node)
    first = {same[0].key: same for same in alike.values() if len(same) >= least}
    gone = {node.key: key for key, same in first.items() for node in same[1:]}
    if not gone:
        return whole
    nodes = tuple(
        replace(node, processes=tuple(one.key for one in first[node.key]))
        if node.key in first
        else node
        for node in whole.nodes
        if node.key not in gone
    )
    links = (
        replace(
            link,
            source=gone.get(link.source, link.source),
            # A service may have the name of a process.
            target=link.target if link.kind == "connects" else gone.get(link.target, link.target),
        )
        for link in whole.links
    )
    return replace(
        whole,
        members=tuple(name for name in whole.members if name not in gone),
        nodes=nodes,
        links=tuple(dict.fromkeys(links)),
    )


def _signatures(whole: Topology) -> dict[str, object]:
    """By node, what two that are alike have in common."""
    joined: dict[str, set[tuple[str, str, str, str]]] = {node.key: set() for node in whole.nodes}
    for link in whole.links:
        for here, there, side in (
            (link.source, link.target, "from"),
            (link.target, link.source, "to"),
        ):
            if here in joined and (side == "from" or link.kind == "starts-after"):
                joined[here].add((link.kind, side, there, link.condition))
    owners = {owner for service in whole.services for owner in service.owners}
    found: dict[str, object] = {}
    for node in whole.nodes:
        stem = _NUMBERED.fullmatch(node.key)
        single = stem is None or node.key in owners
        found[node.key] = (
            node.key
            if single or stem is None
            else (node.group, stem[1], frozenset(joined[node.key]))
        )
    return found


# --- states ---


def tally(names: Iterable[str], states: Mapping[str, str]) -> dict[str, int]:
    """How many of some processes are in which state, by its word; those that have none are not counted.

    >>> tally(["a", "b", "c"], {"a": "running", "c": "running"})
    {'running': 2}
    """
    found: dict[str, int] = {}
    for name in names:
        if name in states:
            found[states[name]] = found.get(states[name], 0) + 1
    return found


def tallied(counts: Mapping[str, int], *, many: bool) -> str:
    """States in words: ``running``, or for ``many`` ``98 running, 2 pending``."""
    return ", ".join(f"{number} {word}" if many else word for word, number in counts.items())
