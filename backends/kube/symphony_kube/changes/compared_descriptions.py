"""Compare a new description with that of a running experiment and with its present objects."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from symphony.plan.changes import (
    ADDED,
    REMOVED,
    RESTARTED,
    STARTED_AGAIN,
    UNCHANGED,
    UPDATED,
    Changes,
    ProcessChange,
    ProcessSnapshot,
    Snapshot,
    compare,
    idle_processes,
)
from symphony.plan.one_shots import finished_one_shots
from symphony.status import ENDED
from symphony_kube.lifecycle.description import Description, NewDescription, as_stored
from symphony_kube.render.snapshot import LIVE_SETTINGS
from symphony_kube.state.observe import Observation

if TYPE_CHECKING:
    from symphony_kube.changes.in_place import InPlace

_UNFINISHED = "an earlier change of it was not completed"


def compare_descriptions(
    running: Description,
    new: NewDescription,
    observation: Observation,
    start: Sequence[str] | None,
) -> Changes:
    """Compare the descriptions, and add what an unfinished change has not done yet."""
    present = _present_snapshot(running, observation)
    status, roster = observation.status, new.manifest.roster
    changes = compare(
        present,
        as_stored(new.snapshot),
        live_settings=LIVE_SETTINGS,
        unfinished=_outdated(running, observation),
        idle={
            **_without_pods(new, observation, running, start),
            **idle_processes(status, start),
        },
        ended=[process.name for process in status if process.state in ENDED],
        finished=finished_one_shots(status, [unit.starts_after for unit in roster]),
        scaled=start,
    )
    kinds = _changed_kinds(new, observation)
    processes = []
    for process in changes.processes:
        kind = kinds.get(process.group or process.name)
        if kind is not None and process.action in (UNCHANGED, UPDATED, *STARTED_AGAIN):
            process = replace(process, action=RESTARTED, reasons=(*process.reasons, kind))
        if process.action == UNCHANGED and process.name in running.pending:
            process = replace(process, action=UPDATED, reasons=(_UNFINISHED,))
        processes.append(process)
    return replace(changes, processes=tuple(processes))


def with_whole_groups(
    processes: Collection[ProcessChange], in_place: InPlace
) -> tuple[ProcessChange, ...]:
    """Restart all members of a group of which a member changes, because they share a Pod.

    Members that are restarted in place do not concern the others.
    """
    changed: dict[str, str] = {}
    for process in processes:
        if process.name in in_place.processes:
            continue
        if process.action in (ADDED, REMOVED, *STARTED_AGAIN) and process.group:
            changed.setdefault(process.group, process.name)
    result = []
    for process in processes:
        cause = changed.get(process.group or "")
        if cause is not None and process.action in (UNCHANGED, UPDATED):
            reason = f"{cause} in the same Pod changes"
            process = replace(process, action=RESTARTED, reasons=(*process.reasons, reason))
        result.append(process)
    return tuple(result)


def _without_pods(
    new: NewDescription,
    observation: Observation,
    running: Description,
    start: Collection[str] | None,
) -> dict[str, str]:
    """Return the processes whose Pods a user has deleted, with the reason why they do not run.

    A process that waits for others, or that an unfinished change adds, has no Pod yet. ``start``
    contains the processes that are considered; None means all.
    """
    found = {}
    for unit in new.manifest.roster:
        if unit.name in observation.missing_units and not unit.starts_after and not unit.job_set:
            for name in unit.processes:
                if name not in running.pending and (start is None or name in start):
                    found[name] = "its Pod does not exist"
    return found


def _changed_kinds(new: NewDescription, observation: Observation) -> dict[str, str]:
    """Return the units that become a Job instead of a Pod or the other way round, as words.

    A unit that becomes a rank in a JobSet, or is one no longer, has another setting.
    """
    changed = {}
    for unit in new.manifest.roster:
        status = observation.unit_statuses.get(unit.name)
        if status is None or not (status.pods or status.job) or unit.job_set:
            continue
        # A user who may not list Jobs sees their Pods.
        is_job = status.job is not None or bool(status.pods[-1].job)
        if is_job and not unit.job:
            changed[unit.name] = "its Pod no longer belongs to a Job"
        elif unit.job and not is_job:
            changed[unit.name] = "its Pod will belong to a Job"
    return changed


def _present_snapshot(running: Description, observation: Observation) -> Snapshot:
    """Return the snapshot without the processes that an unfinished change has not added yet, and
    with those that it has not removed yet.
    """
    existing = {process.name for process in observation.status}
    missing = _processes_without_objects(observation)
    processes = dict(running.snapshot.processes)
    for name, (action, group) in running.pending.items():
        if action == ADDED and (name not in existing or name in missing):
            processes.pop(name, None)
        elif action == REMOVED and name in existing:
            processes.setdefault(name, ProcessSnapshot(group=group, settings={}))
    policies = present_policies(running)
    return replace(running.snapshot, processes=processes, policies=policies)


def _processes_without_objects(observation: Observation) -> set[str]:
    created: set[str] = set()
    for unit in observation.unit_statuses.values():
        created.update(unit.containers)
    return {process.name for process in observation.status} - created


def _outdated(running: Description, observation: Observation) -> list[str]:
    """Return the processes that an unfinished change has not restarted yet."""
    names: list[str] = []
    for unit in observation.unit_statuses.values():
        if unit.attempt.revision < running.revision:
            names += unit.containers
    return [name for name in names if running.pending.get(name, ("",))[0] in STARTED_AGAIN]


def present_policies(running: Description) -> Mapping[str, Any]:
    """Return the policies that apply until the change is complete."""
    if running.previous_policies is not None:
        return running.previous_policies
    return running.snapshot.policies
