"""A subset of an experiment: selected processes, and the processes that they need."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from symphony.errors import SpecError
from symphony.model.experiment.address_texts import referenced_services, services_for_all
from symphony.model.experiment.group import ProcessGroup
from symphony.model.experiment.process import Process
from symphony.support.names import join_names
from symphony.support.select_names import select_names

if TYPE_CHECKING:
    from symphony.model.experiment.experiment import Experiment


class _Member(NamedTuple):
    """A process with its name and the name of its group; see `symphony.support.select_names`."""

    name: str
    group: str | None

    @property
    def path(self) -> str:
        return f"{self.group}/{self.name}" if self.group else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The ``selected`` processes, and the other processes that they need, in declaration order.

    ``needed`` maps the name of each other process to the name of the process that needs it.
    """

    selected: tuple[str, ...]
    needed: Mapping[str, str]


def select(experiment: Experiment, names: Iterable[str]) -> Selection:
    """Return the processes that ``names`` select, and the processes that they need.

    A process needs the processes that bind the services that it or its group connects to, or whose
    addresses its values contain, and the processes that it or its group starts after. Raises
    `NotFound` if a name selects no process.
    """
    experiment.check_values()
    processes = experiment.list_all_processes()
    members = [_Member(process.name, _group_name(process)) for process in processes]
    selected = select_names(experiment.name, members, names)
    components = _processes_by_component(experiment)
    owners = _owners_of_services(experiment, components)
    needed_by_all = [
        other.name for service in services_for_all(experiment) for other in owners.get(service, ())
    ]
    needed: dict[str, str] = {}
    by_name = {process.name: process for process in processes}
    waiting = [process.name for process in processes if process.name in selected]
    while waiting:
        name = waiting.pop()
        for other in (*needed_by_all, *_needs_of(by_name[name], owners, components)):
            if other not in selected and other not in needed:
                needed[other] = name
                waiting.append(other)
    return Selection(
        selected=tuple(process.name for process in processes if process.name in selected),
        needed={
            process.name: needed[process.name] for process in processes if process.name in needed
        },
    )


def subset(experiment: Experiment, names: Iterable[str]) -> Experiment:
    """Return a copy of an experiment with only the processes that `select` finds.

    Raises `NotFound` if a name selects no process, and `SpecError` if the experiment ends with a
    process that is not in the subset.
    """
    selection = select(experiment, names)
    kept = {*selection.selected, *selection.needed}
    _check_ends_with(experiment, kept)
    result = copy.deepcopy(experiment)
    for member in result.list_members():
        if isinstance(member, ProcessGroup):
            for process in member.list_processes():
                if process.name not in kept:
                    member._remove(process)
            is_kept = bool(member.list_processes())
        else:
            is_kept = member.name in kept
        if not is_kept:
            result._remove(member)
    remaining = {component.name for component in result.list_components()}
    replicas = {}
    for name, copies in result.replicas.items():
        replicas[name] = [copy_name for copy_name in copies if copy_name in remaining]
    result.replicas = replicas
    return result


def _check_ends_with(experiment: Experiment, kept: set[str]) -> None:
    components = _processes_by_component(experiment)
    left_out = [
        process.name
        for name in experiment.ends_with_components()
        for process in components.get(name, ())
        if process.name not in kept
    ]
    if left_out:
        raise SpecError(
            f"the experiment ends with {join_names(left_out)}, which is not selected; select it "
            "too, or change ends_with (--ends-with NAME)",
            path=("ends_with",),
        )


def _group_name(process: Process) -> str | None:
    return None if process.group is None else process.group.name


def _owners_of_services(
    experiment: Experiment, components: Mapping[str, Sequence[Process]]
) -> dict[str, list[Process]]:
    """Return a mapping from each service to the processes that can serve it."""
    owners: dict[str, list[Process]] = {}
    for component in experiment.list_components():
        settings = component.settings
        for service in dict.fromkeys([*settings.binds, *settings.exposes]):
            owners.setdefault(service, []).extend(components[component.name])
    return owners


def _needs_of(
    process: Process,
    owners: Mapping[str, Sequence[Process]],
    components: Mapping[str, Sequence[Process]],
) -> list[str]:
    """Return the names of the processes that a process needs directly.

    A component that does not exist is ignored. The plan reports its name.
    """
    needed: list[str] = []
    for component in (process, process.group):
        if component is None:
            continue
        for service in (*component.settings.connects, *referenced_services(component)):
            servers = [other.name for other in owners.get(service, ())]
            # A member of the group that binds the service may serve it itself.
            if process.name not in servers:
                needed += servers
        for name in component.settings.starts_after:
            needed += [other.name for other in components.get(name, ())]
    return needed


def _processes_by_component(experiment: Experiment) -> dict[str, list[Process]]:
    """Return the members of each group, and each process by its own name."""
    found: dict[str, list[Process]] = {}
    for component in experiment.list_components():
        if isinstance(component, ProcessGroup):
            found[component.name] = component.list_processes()
        else:
            found[component.name] = [component]
    return found
