"""Copies of an experiment without the mistakes that rules of their own tell of, so that others can show. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from symphony.model import Experiment
from symphony.model.document_path import Place

_JOINING = ("connects", "starts_after", "binds", "exposes", "encrypted", "ready")


# What is said of an experiment as a whole and may be wrong by itself; each secret is told by itself too.
WHOLE = ("start_dir", "preamble_cmds", "env", "port_range", "images")


def mended(experiment: Experiment, *, image: str | None = None) -> Experiment:
    """The experiment with each service bound once on no port of its own, and nothing that waits or connects.

    ``image`` is for processes that have none. Groups without processes are left out.
    """
    data = experiment.dump_dict()
    seen: set[str] = set()
    members: dict[str, Any] = {}
    for name, member in data["processes"].items():
        inner = member.get("processes")
        if inner is not None and not inner:
            continue
        members[name] = _mended(member, seen)
        for key, process in (inner or {}).items():
            members[name]["processes"][key] = _mended(process, seen)
        for process in members[name].get("processes", {name: members[name]}).values():
            if image is not None:
                process.setdefault("container_image", image)
    return _loaded(experiment, {**data, "processes": members})


def each_alone(experiment: Experiment) -> Iterator[tuple[str, Experiment]]:
    """The parts that are placed by themselves, each as an experiment of its own, by name."""
    data = experiment.dump_dict()
    for name, member in data["processes"].items():
        yield name, _loaded(experiment, {**data, "processes": {name: member}})


def bare(
    experiment: Experiment, name: str, *, image: str | None, service: str | None = None
) -> Experiment:
    """An experiment of that name with one process that has a name, perhaps a service, and nothing else."""
    process: dict[str, Any] = {"command": "true", "container_image": image}
    if service is not None:
        process["binds"] = service
    return _loaded(experiment, {"name": experiment.name, "processes": {name: process}})


def parts_of_whole(
    experiment: Experiment, name: str, *, image: str | None
) -> Iterator[tuple[Place, Experiment]]:
    """Each thing that is said of the experiment as a whole, by its place, with one process that does nothing."""
    data = experiment.dump_dict()
    least = {
        "name": experiment.name,
        "processes": {name: {"command": "true", "container_image": image}},
    }
    for key in WHOLE:
        if key in data:
            yield (key,), _loaded(experiment, {**least, key: data[key]})
    for secret, path in data.get("secrets", {}).items():
        yield ("secrets", secret), _loaded(experiment, {**least, "secrets": {secret: path}})


def without_whole(experiment: Experiment) -> Experiment:
    """The experiment without what is said of it as a whole, and without the secrets that variables hold."""
    data = experiment.dump_dict()
    kept = {key: data[key] for key in ("name", "processes")}
    for member in kept["processes"].values():
        for component in (member, *member.get("processes", {}).values()):
            component.pop("env_secrets", None)
    return _loaded(experiment, kept)


def _mended(component: dict[str, Any], seen: set[str]) -> dict[str, Any]:
    found = {key: value for key, value in component.items() if key not in _JOINING}
    own = [
        name for key in ("binds", "exposes") for name in component.get(key, ()) if name not in seen
    ]
    seen.update(own)
    if own:
        found["binds"] = dict.fromkeys(own)
    return found


def _loaded(experiment: Experiment, data: dict[str, Any]) -> Experiment:
    loaded = Experiment.load_dict(data)
    loaded.base_dir = experiment.base_dir
    return loaded
