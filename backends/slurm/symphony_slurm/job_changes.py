"""Changing an experiment in its job, whose resources remain the same. All functions are pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from symphony_slurm.render import JobOptions, time_limit_seconds, time_text, warning_seconds
from symphony_slurm.submit.resource_request import (
    Demand,
    Shape,
    in_rank_order,
    node_features,
    size,
    total_demand,
    units_of,
)
from symphony_slurm.submit.sbatch_options import changes_request

if TYPE_CHECKING:
    from symphony.plan.plan import Plan
    from symphony.supervised.processes.spec import ProcessSpec
    from symphony_slurm.job.placement import Placement


def requested(plan: Plan, shape: Shape, options: JobOptions) -> dict[str, Any]:
    """Return what a job requests, as a dictionary of JSON-serializable values.

    ``options`` are those of the cluster, and the others follow from the experiment. The times are
    in seconds; see `symphony_slurm.render.SlurmManifest`.
    """
    time_limit = time_limit_seconds(plan, options.time)
    return {
        "shape": shape.amounts(),
        "options": asdict(options),
        "sbatch_options": list(plan.sbatch_options),
        "features": list(shape.features),
        "time_limit": time_limit,
        "warning": warning_seconds(plan, time_limit),
    }


def place_again(
    plan: Plan, slots: Mapping[str, int], job: Mapping[str, Any]
) -> tuple[dict[str, int], list[str]]:
    """Divide the units of a changed experiment among the nodes of its job.

    Units that have running processes keep their nodes. ``slots`` maps the running processes to
    their slots, and ``job`` is the result of `requested`. Also return why the units do not fit.
    """
    shape = job["shape"]
    room = Demand(cpus=shape["cpus"], memory_mib=shape["memory_mib"], gpus=shape["gpus"])
    is_known = not changes_request([*job["sbatch_options"], *job["options"]["sbatch"]])
    loads = [Demand() for _ in range(shape["nodes"])]
    units = units_of(plan)
    demands = {name: total_demand(members) for name, members in units.items()}
    chosen: dict[str, int] = {}
    problems = []
    for name, members in units.items():
        present = {slots[process.name] for process in members if process.name in slots}
        if not present:
            continue
        if len(present) > 1:
            problems.append(f"the processes of {name!r} run on {len(present)} nodes")
        chosen[name] = min(present)
        loads[chosen[name]] += demands[name]
    added = [name for name in units if name not in chosen]
    for name in sorted(added, key=lambda name: size(demands[name]), reverse=True):
        chosen[name] = min(range(len(loads)), key=lambda index: size(loads[index]))
        loads[chosen[name]] += demands[name]
    if is_known:
        for number, load in enumerate(loads):
            if not _fits(load, room):
                node = "its node" if len(loads) == 1 else f"node {number + 1} of {len(loads)}"
                problems.append(
                    f"the processes on {node} would request {load}, but its job has {room} "
                    f"{'there' if len(loads) == 1 else 'on each'}"
                )
    result = {process.name: chosen[process.group or process.name] for process in plan}
    return in_rank_order(plan, result, added), problems


def _fits(load: Demand, room: Demand) -> bool:
    has_processors = load.cpus <= room.cpus + 1e-9 and load.gpus <= room.gpus
    return has_processors and load.memory_mib <= room.memory_mib


def other_requests(
    plan: Plan, job: Mapping[str, Any], options: JobOptions, nodes: int | None
) -> list[str]:
    """Return what a new job would request otherwise than the running one.

    ``job`` is the result of `requested`. ``options`` and ``nodes`` are those of this program. An
    option that it does not set remains as it is.
    """
    problems = []
    defaults = asdict(JobOptions())
    for name, value in asdict(options).items():
        old = _plain(job["options"][name])
        new = _plain(value)
        if new not in (_plain(defaults[name]), old):
            show = _shown_time if name == "time" else _shown
            problems.append(f"the option {name} of its job is {show(old)}, not {show(new)}")
    further = list(plan.sbatch_options)
    if further != job["sbatch_options"]:
        old_text, new_text = (
            shlex.join(words) or "none" for words in (job["sbatch_options"], further)
        )
        problems.append(f"the sbatch_options of its job are {old_text}, not {new_text}")
    count = job["shape"]["nodes"]
    if nodes is not None and nodes != count:
        problems.append(f"its job has {count} {'node' if count == 1 else 'nodes'}, not {nodes}")
    features = list(node_features(plan))
    if features != job["features"]:
        old_features = "&".join(job["features"]) or "any feature"
        new_features = "&".join(features) or "any feature"
        problems.append(f"its job has requested nodes with {old_features}, not {new_features}")
    return [*problems, *_other_times(plan, job)]


def _other_times(plan: Plan, job: Mapping[str, Any]) -> list[str]:
    """Return why the time limit of a job does not suit a changed experiment."""
    limit: int | None = job["time_limit"]
    if job["options"]["time"] is None and limit is not None:
        new_limit = time_limit_seconds(plan, None)
        if new_limit is None:
            return [f"its job ends after {time_text(limit)}, because it had a deadline"]
        if new_limit > limit:
            return [f"its job ends after {time_text(limit)}, not {time_text(new_limit)}"]
    warning = warning_seconds(plan, limit)
    if warning > job["warning"]:
        return [
            f"Slurm warns its job {job['warning']} s before the time limit, but the grace periods "
            f"of its processes need {warning} s"
        ]
    return []


def _plain(value: object) -> object:
    """Return a value of an option as JSON contains it."""
    return list(value) if isinstance(value, tuple) else value


def _shown(value: object) -> str:
    if value is None or value == []:
        return "not set"
    return " ".join(value) if isinstance(value, list) else repr(value)


def _shown_time(value: Any) -> str:
    if value is None:
        return "not set"
    return time_text(value) if value else "unlimited"


def choose_gpus(
    process: ProcessSpec,
    processes: Sequence[ProcessSpec],
    running: Mapping[str, Any],
    placement: Placement,
    slots: Mapping[str, int],
) -> list[str]:
    """Return the GPUs that a process gets in addition to those that it has.

    ``process.gpus`` is their number. ``processes`` are all processes with the GPUs that they have,
    and ``running`` is the manifest of the running experiment, of which removed processes release
    their GPUs only when they have exited. These GPUs are chosen last.
    """
    from symphony.supervised.processes.spec import GPU_VARIABLE

    slot = slots[process.name]
    used: set[str] = set()
    for other in processes:
        if slots[other.name] == slot:
            used.update(other.env.get(GPU_VARIABLE, "").split(","))
    leaving: set[str] = set()
    for item in running["processes"]:
        if running["slots"][item["name"]] == slot:
            leaving.update(item["env"].get(GPU_VARIABLE, "").split(","))
    free = [device for device in placement.nodes[slot].gpus if device not in used]
    free.sort(key=lambda device: device in leaving)
    return free[: process.gpus]
