"""Copies of an experiment from which the errors that other rules report have been removed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from symphony.model import Experiment
from symphony.model.document_path import REPLICAS, takes_addresses
from symphony.model.experiment.address_references import escape
from symphony.plan.findings import ERROR
from symphony.plan.resolve import check_experiment

if TYPE_CHECKING:
    from symphony.model import Process
    from symphony.model.document_path import DocumentPath

# Settings that refer to other parts of the experiment. A copy can lack these parts.
_CONNECTING_SETTINGS = (
    "configs",
    "connects",
    "starts_after",
    "binds",
    "exposes",
    "encrypted",
    "replicated",
    "ready",
    "healthy",
)
# Experiment options that a backend can refuse. Each secret is also treated as an option.
_EXPERIMENT_OPTIONS = (
    "start_dir",
    "preamble_cmds",
    "env",
    "env_file",
    "port_range",
    "images",
    "sbatch_options",
)


def repaired(valid: Experiment, *, image: str | None = None) -> Experiment:
    """Return a copy of ``valid``, a result of `without_reported_errors`, without connections.

    Each service is bound once, without a fixed port. No process connects to a service or waits for
    another process. Processes without an image get ``image``. Groups without processes are omitted.
    """
    data = valid.dump_dict()
    # A description without replicas only declares services for the processes that connect to them.
    described = data["processes"]
    data["processes"] = {
        name: described[name] for name in described if described[name].get(REPLICAS) != 0
    }
    bound: set[str] = set()
    for description in _descriptions(data):
        served = [*description.get("binds", ()), *description.get("exposes", ())]
        services = [name for name in served if name not in bound]
        bound.update(services)
        for setting in _CONNECTING_SETTINGS:
            description.pop(setting, None)
        if services:
            description["binds"] = dict.fromkeys(services)
        if image is not None and "processes" not in description:
            description.setdefault("container_image", image)
    return _loaded(valid, data)


def without_reported_errors(experiment: Experiment) -> Experiment:
    """Return a copy of an experiment from which the values have been removed that cause the errors
    that every backend reports.
    """
    data = experiment.dump_dict()
    # A copy can lack these processes, and the services whose addresses the values contain.
    data.pop("ends_with", None)
    data = _without_addresses(data, ())
    copy = _loaded(experiment, data)
    while True:
        paths = [finding.path for finding in check_experiment(copy) if finding.level == ERROR]
        removable = {path for path in paths if len(path) > 1}
        if not removable:
            return copy
        data = copy.dump_dict()
        # Remove a list's last elements first, because a removal changes the indexes of later
        # elements.
        for path in sorted(removable, key=_by_index, reverse=True):
            _remove(data, path)
        copy = _loaded(experiment, data)


def _without_addresses(value: Any, path: DocumentPath) -> Any:
    """Return the value at a path with references to addresses as text."""
    if isinstance(value, dict):
        return {key: _without_addresses(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_addresses(item, (*path, number)) for number, item in enumerate(value)]
    return escape(value) if isinstance(value, str) and takes_addresses(path) else value


def _by_index(path: DocumentPath) -> int:
    return path[-1] if isinstance(path[-1], int) else -1


def _remove(data: Any, path: DocumentPath) -> None:
    """Remove the value at a path.

    If there is no such value, the error is that it is missing. The process, or the other value that
    should contain it, is then removed, so that each call makes the data smaller.
    """
    parent: Any = None
    for key in path[:-1]:
        if isinstance(data, dict) and key not in data:
            return
        parent, data = data, data[key]
    last = path[-1]
    if isinstance(data, dict):
        if last in data:
            del data[last]
        elif parent is not None:
            del parent[path[-2]]
    elif isinstance(last, int):
        del data[last]


def each_member(experiment: Experiment) -> Iterator[tuple[str, Experiment]]:
    """Yield a pair for each group and for each process outside a group: its name, and a copy of the
    experiment that contains only this group or process.
    """
    data = experiment.dump_dict()
    for name, description in data["processes"].items():
        yield name, _loaded(experiment, {**data, "processes": {name: description}})


def only_member(part: Experiment, process: Process) -> Experiment:
    """Return a copy of a one-group experiment in which ``process`` is the group's only process."""
    data = part.dump_dict()
    (group,) = data["processes"].values()
    group["processes"] = {process.name: group["processes"][process.name]}
    return _loaded(part, data)


def minimal_experiment(
    experiment: Experiment, name: str, *, image: str | None, service: str | None = None
) -> Experiment:
    """Return an experiment with the same name as ``experiment`` and one process called ``name``.
    The process binds ``service`` if it is given.
    """
    description = _minimal_process(image)
    if service is not None:
        description["binds"] = service
    return _loaded(experiment, {"name": experiment.name, "processes": {name: description}})


def any_experiment(*, image: str | None) -> Experiment:
    """Return an experiment that every backend accepts, unless its options do not allow it."""
    return Experiment.load_dict({"name": "a", "processes": {"a": _minimal_process(image)}})


def each_experiment_option(
    experiment: Experiment, *, image: str | None
) -> Iterator[tuple[DocumentPath, Experiment]]:
    """Yield a pair for each experiment option that is set: the option's path, and an experiment
    that contains only this option and a minimal process.
    """
    data = experiment.dump_dict()
    first_process = experiment.list_all_processes()[0].name
    minimal = {"name": experiment.name, "processes": {first_process: _minimal_process(image)}}
    for key in _EXPERIMENT_OPTIONS:
        if key in data:
            yield (key,), _loaded(experiment, {**minimal, key: data[key]})
    for secret, path in data.get("secrets", {}).items():
        yield ("secrets", secret), _loaded(experiment, {**minimal, "secrets": {secret: path}})


def without_experiment_options(experiment: Experiment) -> Experiment:
    """Return a copy of an experiment with no experiment options and no variables from secrets."""
    data = experiment.dump_dict()
    data = {key: data[key] for key in ("name", "processes")}
    for description in _descriptions(data):
        description.pop("env_secrets", None)
    return _loaded(experiment, data)


def _minimal_process(image: str | None) -> dict[str, Any]:
    return {"command": "true", "container_image": image}


def _descriptions(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the descriptions of all groups and processes, each group before its members."""
    for description in data["processes"].values():
        yield description
        yield from description.get("processes", {}).values()


def _loaded(experiment: Experiment, data: dict[str, Any]) -> Experiment:
    loaded = Experiment.load_dict(data)
    loaded.base_dir = experiment.base_dir
    return loaded
