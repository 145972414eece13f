"""The start dependencies of an experiment: which processes each process waits for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from symphony.model import ProcessGroup
from symphony.plan.findings import ERROR, Finding, finding_of, suggestion
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.model import Experiment, Process

# How many names at each end of a long cycle an error shows.
_SHOWN_NAMES = 3

# The start conditions of one process. Each key is the name of another process, and its value is the
# condition that the other process must meet.
Conditions = dict[str, str]


def start_dependencies(experiment: Experiment) -> dict[str, Conditions]:
    """Return a mapping from each process's name to its start conditions.

    A group is replaced by its members, whether the group waits for other processes or other
    processes wait for the group. Names that are not in the experiment are omitted.
    `check_start_order` reports them.
    """
    components = {component.name: component for component in experiment.list_components()}
    dependencies: dict[str, Conditions] = {
        process.name: {} for process in experiment.list_all_processes()
    }
    for member in experiment.list_members():
        for name, condition in member.settings.starts_after.items():
            if name not in components:
                continue
            for process in _processes_of(member):
                for other in _processes_of(components[name]):
                    dependencies[process.name][other.name] = condition
    return dependencies


def check_start_order(experiment: Experiment) -> Iterator[Finding]:
    """Check the start order, and yield its errors.

    A process or group must not wait for itself, for its own members or for an unknown name. If this
    rule is satisfied but the start order has a cycle, yield an error for the first cycle found.
    """
    names = {component.name: None for component in experiment.list_components()}
    is_valid = True
    for member in experiment.list_members():
        own_names = {member.name, *(process.name for process in _processes_of(member))}
        for name in member.settings.starts_after:
            if name in own_names:
                is_valid = False
                yield finding_of(
                    member,
                    "start-order",
                    f"starts after {name!r}, and cannot wait for itself or for its own members",
                    "remove it from starts_after",
                    below=("starts_after", name),
                )
            elif name not in names:
                is_valid = False
                yield finding_of(
                    member,
                    "start-order",
                    f"starts after {name!r}, which is not in the experiment",
                    _fix_for_unknown(experiment, name, names),
                    below=("starts_after", name),
                )
    # A process that waits for itself also forms a cycle, but the loop above has already reported
    # it.
    cycle = find_cycle(start_dependencies(experiment)) if is_valid else []
    if cycle:
        links = " waits for ".join(_shortened(cycle))
        yield Finding(
            rule="start-order",
            level=ERROR,
            problem=f"the start order is a cycle: {links}",
            hint="remove one of these conditions from starts_after",
            path=("processes",),
        )


def _fix_for_unknown(experiment: Experiment, name: str, names: Iterable[str]) -> str:
    """Return the fix for a name in ``starts_after`` that is not one of ``names``."""
    copies = experiment.replicas.get(name)
    if copies:
        # A file is loaded with the names of the copies, so a program has described the experiment.
        return f"pass the list of its replicas, or their names: {join_names(copies, limit=5)}"
    return suggestion(name, names) or f"processes and groups: {join_names(names)}"


def _shortened(cycle: Sequence[str]) -> list[str]:
    """Return the quoted names of a cycle. The middle of a long cycle is replaced by its length."""
    names = list(map(repr, cycle))
    if len(names) <= 2 * _SHOWN_NAMES + 1:
        return names
    omitted = len(names) - 2 * _SHOWN_NAMES
    return [*names[:_SHOWN_NAMES], f"{omitted} others, the last of which", *names[-_SHOWN_NAMES:]]


def find_cycle(dependencies: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the names along one cycle, with the first name repeated at the end.

    If there is no cycle, return an empty list.

    The search is iterative, because a chain of dependencies can be longer than the recursion limit.
    """
    finished: set[str] = set()
    for start in dependencies:
        if start in finished:
            continue
        # The path from `start` to the current process. Each key is a name on this path, and its
        # value is the name's position.
        positions: dict[str, int] = {start: 0}
        pending = [iter(dependencies[start])]
        while pending:
            following = next(pending[-1], None)
            if following is None:
                pending.pop()
                name, _ = positions.popitem()
                finished.add(name)
            elif following in positions:
                path = list(positions)
                return [*path[positions[following] :], following]
            elif following not in finished:
                positions[following] = len(positions)
                pending.append(iter(dependencies[following]))
    return []


def _processes_of(component: Process | ProcessGroup) -> list[Process]:
    if isinstance(component, ProcessGroup):
        return component.list_processes()
    return [component]
