"""The description of a running experiment with other numbers of replicas."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.cluster.described import debug_sessions
from symphony.errors import BackendError, SpecError, SymphonyError
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.model import Experiment
    from symphony.model.document.scaling import Source

_POLICIES = ("ends_with", "on_failure", "deadline", "record_usage", "resume")


def scaled_experiment(record: Mapping[str, Any], counts: Mapping[str, int | str]) -> Experiment:
    """Return an experiment with other numbers of replicas.

    ``record`` describes the launch; see `symphony.archive.run_record.launch_record`.
    For ``counts``, see `symphony.model.document.scaling.Source.scaled`. Rules for the end of the
    experiment that the launch has replaced are kept. Raises SpecError if the experiment has no
    replicas or if it was changed after it was loaded from its file.
    """
    from symphony.model.document.scaling import Source
    from symphony.model.experiment.given_options import GivenOptions

    name, definition = record["experiment"], record["definition"]
    if record.get("source") is None:
        raise SpecError(
            f"experiment {name!r} was described by a program, so symphony does not know how to "
            "create more of its processes; change the number in the program, and run 'up' with it"
        )
    debugged = debug_sessions(definition)
    if debugged:
        names = join_names(debugged)
        raise SpecError(
            f"experiment {name!r} cannot be scaled while {names} is under a debugger; leave "
            f"symphony debug, or run symphony restart {name} {names}"
        )
    source = Source.from_dict(record["source"])
    try:
        present = _load(source)
    except SymphonyError as exc:
        raise BackendError(f"the record of experiment {name!r} cannot be read: {exc}") from exc
    if _without_policies(present.dump_dict()) != _without_policies(definition):
        raise SpecError(
            f"experiment {name!r} was changed by a program after it was loaded from a file; change "
            "the number of replicas in the file, and run 'up' with it"
        )
    experiment = _load(source.scaled(counts))
    experiment.base_dir = Path(record["base_directory"])
    experiment.file = record.get("file")
    experiment.ends_with = _with_origins(definition.get("ends_with") or [], present)
    experiment.on_failure = definition.get("on_failure")
    experiment.deadline = definition.get("deadline")
    experiment.record_usage = definition.get("record_usage")
    experiment.resume = definition.get("resume")
    experiment.given = GivenOptions.from_dict(record.get("given"))
    return experiment


def replica_names(experiment: Experiment, names: Iterable[str]) -> list[str]:
    """Return the processes that are replicas of processes or groups, or belong to such replicas.

    ``names`` contains the names of the replicated processes and groups.
    """
    replicas: set[str] = set()
    for name in names:
        replicas.update(experiment.replicas.get(name, ()))
    found = []
    for process in experiment.list_all_processes():
        group = process.group
        if process.name in replicas or (group is not None and group.name in replicas):
            found.append(process.name)
    return found


def _load(source: Source) -> Experiment:
    from symphony.model import Experiment

    return Experiment.load_dict(source.document, parameters=source.parameters)


def _without_policies(definition: Mapping[str, Any]) -> Any:
    rest = {key: value for key, value in definition.items() if key not in _POLICIES}
    # A definition that was stored as JSON contains lists instead of tuples.
    return json.loads(json.dumps(rest))


def _with_origins(names: Sequence[str], experiment: Experiment) -> list[str]:
    """Return names with all copies of a process or group replaced by its name in the file."""
    origins: dict[str, str] = {}
    for origin, copies in experiment.replicas.items():
        if set(copies) <= set(names):
            origins.update(dict.fromkeys(copies, origin))
    return list(dict.fromkeys(origins.get(name, name) for name in names))


__all__ = ["replica_names", "scaled_experiment"]
