"""The names of experiments, processes and services that shell completion offers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from symphony.commandline.commands.lookup.resolve_names import EXPERIMENT, resolve_experiment
from symphony.commandline.commands.lookup.this_directory import LaunchedHere
from symphony.commandline.exit_codes import UsageError
from symphony.commandline.parsing import completion_cache

if TYPE_CHECKING:
    from symphony.commandline.parsing.dispatch import CommandLine
    from symphony.plan.topology import Service

FindNames = Callable[["CommandLine", str], Iterable[str]]


def complete_names(
    line: CommandLine, action: argparse.Action, given: Sequence[str]
) -> Iterable[str] | None:
    """Return the names that ``action`` accepts, or None if it does not take a name.

    ``given`` contains the arguments that precede ``action``. The first of them is the experiment,
    unless ``action`` itself accepts an experiment. If it is not, the names are those of the
    experiment that was launched from the working directory. The result is empty if the names cannot
    be determined, for example because the cluster cannot be reached.
    """
    from symphony.errors import SymphonyError

    find = _FINDERS.get(f"{action.metavar} {action.dest}") or _FINDERS.get(str(action.metavar))
    if find is None:
        return None
    experiment = None if find is _experiments or not given else given[0]
    # The cluster of the command line is the one with this experiment.
    line.args.experiment = experiment
    try:
        if find is _experiments and _takes_parts(line, action):
            parts = _names_of_default(line, _selectable_names)
            return [*_find_names(line, find, ""), *parts]
        if find is _experiments:
            return _find_names(line, find, "")
        found = [] if experiment is None else _find_names(line, find, experiment)
        return found or _names_of_default(line, find, after=given)
    except (SymphonyError, OSError):
        return []


def _find_names(line: CommandLine, find: FindNames, experiment: str) -> list[str]:
    """Return the names that ``find`` returns, or those of its latest call if they are cached."""
    from symphony.errors import NotFound

    try:
        location = _cluster_location(line)
        if location is None:
            return list(find(line, experiment))
        key = [*location, find.__name__, experiment]
        return completion_cache.cached_names(key, lambda: find(line, experiment))
    except (NotFound, UsageError):
        return []


def _takes_parts(line: CommandLine, action: argparse.Action) -> bool:
    """Return whether the first argument of a command can be a process instead of an experiment."""
    parser = line.find_subparser(str(line.args.verb))
    if parser is None or action.dest != EXPERIMENT:
        return False
    return any(other.metavar == "PROCESS" for other in parser._actions)


def _names_of_default(
    line: CommandLine, find: FindNames, *, after: Sequence[str] = ()
) -> list[str]:
    """Return the names for the experiment that was launched from the working directory.

    The result is empty if one of the arguments ``after`` which the names are typed is not a part of
    this experiment, or if the selected backend is slow to respond.
    """
    info = line.backend_info
    if line.has_custom_cluster or info is None or info.experiments is None:
        return []
    found = LaunchedHere(line.selected_cluster, only_selected=line.names_backend).find()
    if found is None:
        return []
    line.cluster, status = found
    if after and not set(after) <= set(_selectable_names(line, status.name)):
        return []
    return list(find(line, status.name))


def _cluster_location(line: CommandLine) -> list[object] | None:
    """Return values that identify the cluster, or None if the cluster's names are not cached.

    Names are cached only if the backend declares a function that returns these values. Backends
    that are slow to respond declare such a function. Names are not cached if a subclass of
    `CommandLine` creates the cluster, because the location of such a cluster is unknown.
    """
    info = line.backend_info
    if info is None or info.place is None or line.has_custom_cluster:
        return None
    from symphony.cluster.entry_points import load_attribute

    option_names = [option.name for option in info.options if option.where]
    configured = line.configuration.options_for(info.name, option_names)
    find_location = load_attribute(info.place)
    return [info.name, find_location({**configured, **line.backend_options})]


def _experiments(line: CommandLine, _experiment: str) -> Iterable[str]:
    names = line.selected_cluster.list_experiments()
    if line.names_backend:
        return names
    from symphony.commandline.commands.lookup.find_backend import quick_names

    others = quick_names(line.selected_cluster).values()
    return dict.fromkeys([*names, *(name for known in others for name in known)])


def _processes(line: CommandLine, experiment: str) -> list[str]:
    return [process.path for process in resolve_experiment(line.cluster, experiment, exact=True)]


def _selectable_names(line: CommandLine, experiment: str) -> list[str]:
    status = resolve_experiment(line.cluster, experiment, exact=True)
    groups = {process.group for process in status if process.group is not None}
    paths = [process.path for process in status]
    return [*paths, *sorted(groups), *_replicated_names([*paths, *groups])]


def _replicated_names(names: Iterable[str]) -> list[str]:
    """Return the names that stand for several copies, such as ``agent`` for ``agent-0`` and
    ``agent-1``.
    """
    counts: dict[str, int] = {}
    for name in names:
        base, hyphen, number = name.rpartition("-")
        if hyphen and number.isdecimal():
            counts[base] = counts.get(base, 0) + 1
    return [base for base, count in counts.items() if count > 1]


def _experiment_services(line: CommandLine, experiment: str) -> Sequence[Service]:
    name = resolve_experiment(line.cluster, experiment, exact=True).name
    return line.cluster.describe_topology(name).services


def _exposed_services(line: CommandLine, experiment: str) -> list[str]:
    return [service.name for service in _experiment_services(line, experiment) if service.exposed]


def _forward_targets(line: CommandLine, experiment: str) -> list[str]:
    services = [service.name for service in _experiment_services(line, experiment)]
    return [*_processes(line, experiment), *services]


def _copy_prefixes(line: CommandLine, experiment: str) -> list[str]:
    return [f"{path}:" for path in _processes(line, experiment)]


# Maps metavars of arguments to the functions that find names. A key that consists of a metavar, a
# space and an argument's destination applies only to that argument, and takes precedence.
_FINDERS: Mapping[str, FindNames] = {
    "EXPERIMENT": _experiments,
    "FILE|EXPERIMENT": _experiments,
    "EXPERIMENT|PATTERN": _experiments,
    "PROCESS": _processes,
    "NAME names": _selectable_names,
    "PROCESS processes": _selectable_names,
    "PROCESS target": _forward_targets,
    "SERVICE": _exposed_services,
    "SOURCE": _copy_prefixes,
    "TARGET": _copy_prefixes,
}
