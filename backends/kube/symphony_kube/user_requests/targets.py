"""Select the processes that a request concerns, and check whether it can be made."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from symphony.cluster.matching import select_processes
from symphony.errors import BackendError, SpecError
from symphony.plan.one_shots import finished_one_shots, in_whole_groups
from symphony.status import ENDED, ReasonCode, State
from symphony.support.names import join_names
from symphony_kube.lifecycle.supervisor import detached, in_cluster
from symphony_kube.render.roster import Roster, Unit, ranks_of_job_sets, units_of_ranks
from symphony_kube.state.observe import Observation
from symphony_kube.state.unit_status import UnitStatus
from symphony_kube.status import experiments

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment


@dataclass(kw_only=True)
class RequestTarget:
    """The processes that a command selects, and their units.

    ``all_units`` contains the units of the whole experiment. ``is_ending`` is true if the
    experiment was stopped for good, or has come to its end.
    """

    all_units: Roster
    observation: Observation
    names: list[str]
    units: list[Unit] = field(default_factory=list)
    is_ending: bool = False

    @property
    def existing(self) -> dict[str, UnitStatus]:
        """The states of the selected units that exist."""
        statuses = self.observation.unit_statuses
        return {unit.name: statuses[unit.name] for unit in self.units if unit.name in statuses}

    @property
    def in_job_sets(self) -> set[str]:
        """The names of the selected units that are ranks in JobSets."""
        return {unit.name for unit in self.units if unit.job_set}

    @property
    def missing(self) -> list[Unit]:
        """The selected units that have not been created yet."""
        return [unit for unit in self.units if unit.name in self.observation.missing_units]


def find_target(
    experiment: KubeExperiment, processes: Sequence[str] | None, action: str
) -> RequestTarget:
    """Return the selected processes. Raises `SpecError` if a part of a group is selected."""
    state, _ = experiments.observe_once(experiment)
    experiments.current_status(experiment, state)
    observation = state.observe(experiment.api.now())
    if observation.deleting:
        raise BackendError(f"experiment {experiment.name!r} is being deleted")
    found = select_processes(observation.status, processes)
    if processes is None and action != "stopped":
        conditions = [unit.starts_after for unit in state.units]
        finished = finished_one_shots(observation.status, conditions)
        kept = in_whole_groups(finished, observation.status)
        found = [process for process in found if process.name not in kept]
    names = _with_other_ranks([process.name for process in found], state.units)
    target = RequestTarget(
        all_units=state.units,
        observation=observation,
        names=names,
        is_ending=state.record.ending is not None,
    )
    selected = set(names)
    for unit in target.all_units:
        chosen = selected.intersection(unit.processes)
        if not chosen:
            continue
        if len(chosen) < len(unit.processes):
            raise SpecError(
                f"the processes of group {unit.name!r} share a Pod on Kubernetes, so they can only "
                f"be {action} together: name the group {unit.name!r}"
            )
        target.units.append(unit)
    return target


def _with_other_ranks(names: Sequence[str], roster: Roster) -> list[str]:
    """Return the names of processes, with the other ranks of their units."""
    selected = dict.fromkeys(names)
    for ranks in (*units_of_ranks(roster).values(), *ranks_of_job_sets(roster).values()):
        unit = [rank.name for rank in ranks]
        if not selected.keys().isdisjoint(unit):
            selected.update(dict.fromkeys(unit))
    return list(selected)


def find_gone(experiment: KubeExperiment, target: RequestTarget, *, is_named: bool) -> list[str]:
    """Return the selected units without Pods that the supervisor starts again.

    If ``is_named`` is true, raise `BackendError` for units whose Pods were deleted and that no
    supervisor starts again. Their manifests were deleted with them.
    """
    awaited, lost = [], []
    for unit in target.missing:
        states = [target.observation.containers[process] for process in unit.processes]
        is_lost = any(state.state is State.UNKNOWN for state in states)
        is_created_later = unit.starts_after or unit.rank_of or unit.job_set
        if any(state.cause.code is ReasonCode.DISRUPTED for state in states):
            awaited.append(unit.name)
        elif is_lost or not is_created_later:
            lost.append(unit.name)
    if awaited and not has_supervisor(experiment):
        lost += awaited
        awaited = []
    if lost and is_named:
        raise BackendError(
            f"{join_names(lost, limit=3)} cannot be started, because the Pod was deleted; "
            "'symphony up' with the file of the experiment creates it again"
        )
    return awaited


def has_supervisor(experiment: KubeExperiment) -> bool:
    """Return whether a supervisor of the experiment exists, here or in the cluster."""
    return detached.directory_of(experiment).exists or in_cluster.exists(experiment)


def refuse_ranks_of_job_sets(names: Collection[str]) -> None:
    """Raise `BackendError` if there are ranks in JobSets among the units to start."""
    if names:
        raise BackendError(
            f"{join_names(sorted(names), limit=3)} cannot be started by symphony, because only the "
            "controller of a JobSet starts its ranks: launch the experiment again, or name the "
            "other processes"
        )


def check_waiting(target: RequestTarget) -> None:
    """Raise `BackendError` if a unit that has not been created would start although it is to be
    stopped.
    """
    if target.is_ending:
        # No process starts any more.
        return
    selected = set(target.names)
    states = {process.name: process.state for process in target.observation.status}
    for unit in target.missing:
        if all(states[name] in ENDED for name in unit.processes):
            # Its Pod was deleted.
            continue
        if not selected.intersection(unit.starts_after):
            raise BackendError(
                f"{unit.name!r} has not started yet and cannot be stopped alone: it waits for "
                f"{join_names(unit.starts_after)}; stop these, too"
            )


def check_not_finished(target: RequestTarget) -> None:
    """Raise `BackendError` if no process of the experiment can be started again."""
    status = target.observation.status
    can_continue = any(item.reason_code is ReasonCode.STOPPED for item in status)
    if target.is_ending or (status.ended and not can_continue):
        raise BackendError(
            f"experiment {status.name!r} has finished; launch it again to run its processes"
        )
