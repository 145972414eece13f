"""The difference between a running experiment and a new description of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from symphony.errors import BackendError, NotFound
from symphony.plan.changes import Changes, launching
from symphony.status import ReasonCode
from symphony_kube.changes.change_obstacles import obstacles, supervisor_obstacles
from symphony_kube.changes.compared_descriptions import compare_descriptions, with_whole_groups
from symphony_kube.changes.in_place import InPlace, find_in_place
from symphony_kube.changes.service_drift import find_drift, with_drift
from symphony_kube.lifecycle.description import Description, NewDescription
from symphony_kube.record.change_log import new_change
from symphony_kube.record.encoded_record import EncodedRecord, record_of_change
from symphony_kube.state.observe import ExperimentState, Observation
from symphony_kube.status import experiments

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment

NO_DESCRIPTION = (
    "its description is not stored in the cluster, because an earlier version of symphony, kubectl "
    "or a user who may not create Secrets has launched it"
)
# Renders the new description. The services and the options of the running experiment are kept.
Describe = Callable[[Description | None], NewDescription]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference between a running experiment and a new description of it.

    ``in_place`` contains the processes that are restarted in place. ``time`` is the time of the
    comparison, in seconds since the epoch.
    """

    changes: Changes
    new: NewDescription
    in_place: InPlace
    running: Description
    state: ExperimentState
    observation: Observation
    time: float

    @property
    def made_changes(self) -> Changes:
        """The changes after they were made, with what was found out in the meantime."""
        return self.in_place.corrected(self.changes)

    def units_with(self, *actions: str) -> set[str]:
        """Return the units of the processes with one of these actions."""
        changed = [process for process in self.changes.processes if process.action in actions]
        return {process.group or process.name for process in changed}

    @property
    def record(self) -> EncodedRecord:
        """The new entries of the record."""
        manifest, revision = self.new.manifest, self.running.revision + 1
        changes = self.state.record.changes
        lines = self.changes.lines()
        if lines:
            changes = (*changes, new_change(revision, self.time, lines))
        return record_of_change(
            revision, manifest.roster, manifest.policies, manifest.parameters, changes
        )


def find_difference(
    experiment: KubeExperiment,
    running: Description | None,
    describe: Describe,
    start: Sequence[str] | None,
    reason: str = NO_DESCRIPTION,
) -> Difference | Changes:
    """Return the difference, or the changes of an experiment that has to be launched.

    ``start`` contains the processes that are started if they have exited. ``reason`` is the reason
    why ``running`` is None, if it is.
    """
    new = describe(running)
    state, _ = experiments.observe_once(experiment)
    if state.empty:
        try:
            experiments.current_status(experiment, state)
        except NotFound:
            return launching(new.snapshot, "it does not exist")
        return launching(new.snapshot, "it has no Pods")
    now = experiment.api.now()
    observation = state.observe(now)
    if observation.deleting:
        raise BackendError(f"experiment {experiment.name!r} is being deleted")
    status = observation.status
    ending = state.record.ending
    can_continue = any(item.reason_code is ReasonCode.STOPPED for item in status)
    if status.ended and (ending is not None or not can_continue):
        return launching(new.snapshot, "it has finished")
    if ending is not None:
        raise BackendError(
            f"experiment {experiment.name!r} is being stopped: {ending.reason}; run the "
            "command again when it has finished"
        )
    if running is None:
        return replace(launching(new.snapshot, ""), relaunch=(reason,))
    changes = compare_descriptions(running, new, observation, start)
    drift = find_drift(experiment, new.manifest, running.snapshot.services)
    changes = replace(changes, processes=with_drift(changes.processes, drift))
    in_place = find_in_place(experiment, running, new, state, observation, changes)
    changes = replace(changes, processes=with_whole_groups(changes.processes, in_place))
    changes = in_place.explained(changes)
    difference = Difference(
        changes=changes,
        new=new,
        in_place=in_place,
        running=running,
        state=state,
        observation=observation,
        time=now,
    )
    relaunch = [*changes.relaunch, *obstacles(difference)]
    if not changes.is_empty:
        relaunch += supervisor_obstacles(experiment, difference)
    return replace(difference, changes=replace(changes, relaunch=tuple(relaunch)))
