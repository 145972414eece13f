"""The topology of an experiment: its processes, groups and services, and the links between them.

The function `topology` requires only an experiment's description, so an experiment with errors can
also be drawn. A service that no process or group binds or exposes has no owner.
`symphony.cluster.Cluster.describe_topology` returns the topology of a running experiment, and
`symphony.drawing` draws topologies.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from symphony.model import Process
from symphony.plan.resolution.addresses import replicated_service, replicated_services

if TYPE_CHECKING:
    from symphony.model import Experiment
    from symphony.status import ExperimentStatus

Kind = Literal["connects", "starts-after"]

# The smallest number of similar processes that are drawn as one node.
MIN_FOLDED_PROCESSES = 3
_NUMBERED_NAME = re.compile(r"(.*?)\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A process, or several similar processes (in declaration order) that are drawn as one node."""

    processes: tuple[str, ...]
    group: str | None = None

    @property
    def key(self) -> str:
        """The node's name in links: the name of its first process."""
        return self.processes[0]

    def label(self, ellipsis: str = "…") -> str:
        """Return a label, such as ``agent``, or ``agent-0 … agent-99 (100)`` if processes are
        merged.
        """
        if len(self.processes) == 1:
            return self.key
        return f"{self.key} {ellipsis} {self.processes[-1]} ({len(self.processes)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service that a process or group binds, exposes or connects to.

    ``owners`` contains the processes and groups that serve the service. If the experiment has no
    errors, there is exactly one owner, or one for each replica of a replicated service. ``port`` is
    1 to 65535, or None if symphony chooses the port or if the replicas have different ports.
    ``replicas`` contains the names at which the replicas of a replicated service have their
    addresses. Of a recorded topology, it is empty.
    """

    name: str
    owners: tuple[str, ...] = ()
    port: int | None = None
    bound: bool = False
    exposed: bool = False
    encrypted: bool = False
    replicas: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The label, such as ``replay``, or ``replay:6006`` if the service has a fixed port."""
        return self.name if self.port is None else f"{self.name}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link from a process or group to a service that it connects to, or to a process or group
    that it starts after.

    ``condition`` is ``ready``, ``started`` or ``succeeded``, or an empty string if the target is a
    service.
    """

    kind: Kind
    source: str
    target: str
    condition: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The processes, groups, services and links of an experiment, as they are drawn.

    ``members`` contains the names of the groups and the keys of the nodes outside groups, in
    declaration order. A process and a group cannot have the same name, so a name in a link is
    unambiguous.
    """

    experiment: str
    members: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    groups: tuple[str, ...] = ()
    services: tuple[Service, ...] = ()
    links: tuple[Link, ...] = ()

    def inside(self, group: str) -> tuple[Node, ...]:
        """Return the nodes in a group."""
        return tuple(node for node in self.nodes if node.group == group)

    def clients(self, service: str) -> tuple[str, ...]:
        """Return the processes and groups that connect to a service."""
        return tuple(
            link.source for link in self.links if link.kind == "connects" and link.target == service
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the topology as a dictionary that can be written as JSON.

        Merged processes are listed separately.
        """
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

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Topology:
        """Return the topology that `to_dict` has converted, with one node for each process.

        Raises KeyError or TypeError if ``data`` is damaged.
        """
        processes = [(str(item["name"]), item["group"]) for item in data["processes"]]
        members = dict.fromkeys(group or name for name, group in processes)
        services = [{**item, "owners": tuple(item["owners"])} for item in data["services"]]
        links = [{**item, "condition": item["condition"] or ""} for item in data["links"]]
        return cls(
            experiment=data["experiment"],
            members=tuple(members),
            nodes=tuple(Node(processes=(name,), group=group) for name, group in processes),
            groups=tuple(data["groups"]),
            services=tuple(Service(**item) for item in services),
            links=tuple(Link(**item) for item in links),
        )


def topology(experiment: Experiment) -> Topology:
    """Return the topology of an experiment, with one node for each process.

    Errors in the experiment are not reported; `symphony.lint` reports them. A service that a group
    connects to is linked only to the group, not to its members.
    """
    return Topology(
        experiment=experiment.name,
        members=tuple(member.name for member in experiment.list_members()),
        nodes=tuple(map(_node_of, experiment.list_all_processes())),
        groups=tuple(group.name for group in experiment.list_process_groups()),
        services=tuple(_services(experiment).values()),
        links=tuple(_links(experiment)),
    )


def _node_of(process: Process) -> Node:
    group = None if process.group is None else process.group.name
    return Node(processes=(process.name,), group=group)


def of_status(
    status: ExperimentStatus,
    *,
    services: Iterable[Service] = (),
    connects: Mapping[str, Collection[str]] = MappingProxyType({}),
    starts_after: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> Topology:
    """Return the topology of a running experiment.

    ``connects`` maps the name of each process to the names of the services that it or its group
    connects to. ``starts_after`` maps the name of each process or group to a mapping from the names
    of awaited processes to conditions. If all members of a group connect to a service, a single
    link leads from the group to the service. If a process or group waits for all members of a group
    under the same condition, a single link leads to the awaited group. An exposed service in
    ``services`` counts as bound only if a process connects to it. Any other service in ``services``
    always counts as bound.
    """
    used = dict.fromkeys(name for names in connects.values() for name in names)
    known: dict[str, Service] = {}
    for service in services:
        is_bound = not service.exposed or service.name in used
        known[service.name] = replace(service, bound=is_bound)
    for name in used:
        known.setdefault(name, Service(name=name))
    groups: dict[str, tuple[str, ...]] = {}
    for process in status:
        if process.group:
            groups[process.group] = (*groups.get(process.group, ()), process.name)
    members = tuple(dict.fromkeys(process.group or process.name for process in status))
    return Topology(
        experiment=status.name,
        members=members,
        nodes=tuple(Node(processes=(process.name,), group=process.group) for process in status),
        groups=tuple(groups),
        services=tuple(known.values()),
        links=tuple(_links_of_members(members, groups, connects, starts_after)),
    )


def with_merged_replicas(
    services: Iterable[Service], environment: Mapping[str, str]
) -> list[Service]:
    """Return services with the replicas of each replicated service merged into one service.

    ``environment`` contains the variables with the addresses of all services.
    """
    merged: dict[str, Service] = {}
    for service in services:
        replica_of = replicated_service(service.name, environment)
        name = replica_of or service.name
        other = merged.get(name)
        if other is None:
            replicas = () if replica_of is None else (service.name,)
            merged[name] = replace(service, name=name, replicas=replicas)
            continue
        merged[name] = replace(
            other,
            replicas=(*other.replicas, service.name),
            owners=(*other.owners, *service.owners),
            port=other.port if other.port == service.port else None,
            exposed=other.exposed or service.exposed,
            encrypted=other.encrypted or service.encrypted,
        )
    for name in replicated_services(environment):
        merged.setdefault(name, Service(name=name))
    return list(merged.values())


def _links_of_members(
    members: Iterable[str],
    groups: Mapping[str, tuple[str, ...]],
    connects: Mapping[str, Collection[str]],
    starts_after: Mapping[str, Mapping[str, str]],
) -> Iterator[Link]:
    for member in members:
        processes = groups.get(member, (member,))
        common = []
        for service in connects.get(processes[0], ()):
            if all(service in connects.get(process, ()) for process in processes):
                common.append(service)
        for service in common:
            yield Link(kind="connects", source=member, target=service)
        conditions = _conditions_by_group(starts_after.get(member, {}), groups)
        for other, condition in conditions.items():
            yield Link(kind="starts-after", source=member, target=other, condition=condition)
        for process in processes:
            for service in connects.get(process, ()):
                if service not in common:
                    yield Link(kind="connects", source=process, target=service)


def _conditions_by_group(
    conditions: Mapping[str, str], groups: Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    """Replace a group's processes with the group if all of them have the same condition."""
    group_of: dict[str, str] = {}
    for group, processes in groups.items():
        member_conditions = {conditions.get(process) for process in processes}
        if len(member_conditions) == 1 and None not in member_conditions:
            group_of.update(dict.fromkeys(processes, group))
    return {group_of.get(process, process): condition for process, condition in conditions.items()}


def _services(experiment: Experiment) -> dict[str, Service]:
    services: dict[str, Service] = {}
    components = experiment.list_components()
    for component in components:
        settings = component.settings
        for name in dict.fromkeys([*settings.binds, *settings.exposes]):
            service = services.get(name, Service(name=name))
            own_name = [f"{name}-{len(service.replicas)}"] if name in settings.replicated else []
            services[name] = replace(
                service,
                replicas=(*service.replicas, *own_name),
                owners=(*service.owners, component.name),
                port=service.port or settings.binds.get(name) or settings.exposes.get(name),
                bound=service.bound or name in settings.binds,
                exposed=service.exposed or name in settings.exposes,
                encrypted=service.encrypted or name in settings.encrypted,
            )
    for name in experiment.services_without_replicas:
        services.setdefault(name, Service(name=name, bound=True))
    for component in components:
        for name in component.settings.connects:
            services.setdefault(name, Service(name=name))
    return services


def _links(experiment: Experiment) -> Iterator[Link]:
    components = experiment.list_components()
    names = {component.name for component in components}
    for component in components:
        group = component.group if isinstance(component, Process) else None
        group_connects = group.settings.connects if group else ()
        for service in component.settings.connects:
            if service not in group_connects:
                yield Link(kind="connects", source=component.name, target=service)
        for other, condition in component.settings.starts_after.items():
            if other in names:
                yield Link(
                    kind="starts-after", source=component.name, target=other, condition=condition
                )


# --- similar processes ---


def folded(whole: Topology, *, least: int = MIN_FOLDED_PROCESSES) -> Topology:
    """Return the topology with each set of at least ``least`` similar processes merged into one
    node.

    Processes are similar if they are in the same group or in no group, their names differ only in
    the number at the end, they have the same links, and they serve the same services.
    """
    nodes_by_signature: dict[object, list[Node]] = {}
    signatures = _signatures(whole)
    for node in whole.nodes:
        nodes_by_signature.setdefault(signatures[node.key], []).append(node)
    folded_nodes: dict[str, list[Node]] = {}
    # Maps the key of each node that is replaced to the key of the node that replaces it.
    replacements: dict[str, str] = {}
    for similar in nodes_by_signature.values():
        if len(similar) >= least:
            first = similar[0].key
            folded_nodes[first] = similar
            replacements.update({node.key: first for node in similar[1:]})
    if not replacements:
        return whole
    nodes: list[Node] = []
    for node in whole.nodes:
        if node.key in folded_nodes:
            processes = tuple(similar.key for similar in folded_nodes[node.key])
            nodes.append(replace(node, processes=processes))
        elif node.key not in replacements:
            nodes.append(node)
    links = [_with_replacements(link, replacements) for link in whole.links]
    services = [_with_replaced_owners(service, replacements) for service in whole.services]
    return replace(
        whole,
        services=tuple(services),
        members=tuple(name for name in whole.members if name not in replacements),
        nodes=tuple(nodes),
        links=tuple(dict.fromkeys(links)),
    )


def _with_replaced_owners(service: Service, replacements: Mapping[str, str]) -> Service:
    owners = [replacements.get(owner, owner) for owner in service.owners]
    return replace(service, owners=tuple(dict.fromkeys(owners)))


def _with_replacements(link: Link, replacements: Mapping[str, str]) -> Link:
    source = replacements.get(link.source, link.source)
    # The target of a `connects` link is a service, which must not be replaced even if a process has
    # the same name.
    if link.kind == "connects":
        return replace(link, source=source)
    return replace(link, source=source, target=replacements.get(link.target, link.target))


def _signatures(whole: Topology) -> dict[str, object]:
    """Return a mapping from node keys to signatures. Similar nodes have equal signatures."""
    links: dict[str, set[tuple[str, str, str, str]]] = {node.key: set() for node in whole.nodes}
    for link in whole.links:
        if link.source in links:
            links[link.source].add((link.kind, "from", link.target, link.condition))
        if link.target in links and link.kind == "starts-after":
            links[link.target].add((link.kind, "to", link.source, link.condition))
    served: dict[str, set[str]] = {node.key: set() for node in whole.nodes}
    for service in whole.services:
        for owner in service.owners:
            served.setdefault(owner, set()).add(service.name)
    signatures: dict[str, object] = {}
    for node in whole.nodes:
        numbered = _NUMBERED_NAME.fullmatch(node.key)
        if numbered is None:
            signatures[node.key] = node.key
        else:
            connections = (frozenset(links[node.key]), frozenset(served[node.key]))
            signatures[node.key] = (node.group, numbered[1], *connections)
    return signatures


# --- states ---


def tally(names: Iterable[str], states: Mapping[str, str]) -> dict[str, int]:
    """Count how many of the processes in ``names`` are in each state. Processes without a state are
    ignored.

    >>> tally(["a", "b", "c"], {"a": "running", "c": "running"})
    {'running': 2}
    """
    counts: dict[str, int] = {}
    for name in names:
        if name in states:
            counts[states[name]] = counts.get(states[name], 0) + 1
    return counts


def tallied(counts: Mapping[str, int], *, many: bool) -> str:
    """Return the states in ``counts`` as text, such as ``running``.

    If ``many`` is true, the text includes the counts, as in ``98 running, 2 pending``.
    """
    words = list(counts)
    if many:
        words = [f"{number} {state}" for state, number in counts.items()]
    return ", ".join(words)
