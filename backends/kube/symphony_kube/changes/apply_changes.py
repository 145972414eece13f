"""Change a running experiment: compare it with a new description, and change what differs.

The steps are made in this order: the new description is stored with the processes that the change
concerns, the objects of files and services are created or updated, the roster is replaced, the
restarts are requested, new units are created, the supervisor takes over the new description, and
the changed and removed units are stopped, wave by wave. The Pods of removed units are kept because
of their logs. Each step can be repeated, so a command that is interrupted is continued by the same
command or by one with another description.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError, LaunchFailed, NotFound
from symphony.plan.changes import ADDED, STARTED_AGAIN, UNCHANGED, Changes
from symphony.plan.policies import seconds_to_deadline
from symphony_kube import client_requests
from symphony_kube.api import error_messages
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import REMOVED_UNIT, REPLACED_UNIT, UNIT, Scope
from symphony_kube.api.resources import is_managed, to_resource
from symphony_kube.changes.base_objects import BaseObjectsUpdate
from symphony_kube.changes.compared_descriptions import present_policies
from symphony_kube.changes.difference import NO_DESCRIPTION, Describe, Difference, find_difference
from symphony_kube.changes.new_supervision import (
    is_supervised_elsewhere,
    needs_supervisor,
    supervised_run,
)
from symphony_kube.lifecycle import attempts, delete
from symphony_kube.lifecycle.attempts import next_attempt, with_attempt, with_manifest
from symphony_kube.lifecycle.create import Creation, NameTaken, in_parallel
from symphony_kube.lifecycle.description import Description, DescriptionStore
from symphony_kube.lifecycle.requested_steps import stopped_now
from symphony_kube.lifecycle.requirements import check_requirements
from symphony_kube.lifecycle.supervisor import detached, in_cluster
from symphony_kube.lifecycle.supervisor.supervisor_record import Record, Round, RunGone
from symphony_kube.lifecycle.wait_deleted import STUCK_SECONDS
from symphony_kube.render.pod_parts.deadline import with_new_deadline
from symphony_kube.render.roster import Roster, Unit, roster_unit
from symphony_kube.state.control_state import Attempt
from symphony_kube.state.observe import ExperimentState, Observation
from symphony_kube.status import experiments
from symphony_kube.status.find_pod import list_removed_containers
from symphony_kube.user_requests.operation import Operation, request_replacements

if TYPE_CHECKING:
    from symphony.code.snapshot import CodeArchives
    from symphony_kube.api.kube_experiment import KubeExperiment

Object = Mapping[str, Any]
SendCode = Callable[[Scope, "CodeArchives"], contextlib.AbstractContextManager[object]]


def diff(
    experiment: KubeExperiment,
    describe: Describe,
    start: Sequence[str] | None,
) -> Changes:
    """Return how a running experiment differs from a new description; see `Cluster.diff`."""
    running, reason = None, NO_DESCRIPTION
    store = DescriptionStore(experiment)
    try:
        running = store.read()
    except ApiError as exc:
        if exc.status != 403:
            raise
        reason = str(exc)
    found = find_difference(experiment, running, describe, start, reason)
    if isinstance(found, Changes) and NO_DESCRIPTION in found.relaunch:
        # Another command may have stored the description and created the Pods in the meantime.
        running = store.read()
        if running is not None:
            found = find_difference(experiment, running, describe, start)
    return found if isinstance(found, Changes) else found.changes


def change(
    experiment: KubeExperiment,
    describe: Describe,
    send_code: SendCode,
    start: Sequence[str] | None,
) -> Difference:
    """Change a running experiment, and return what was changed; see `Cluster.up`.

    ``send_code`` returns a context in which large code is sent to the Pods that wait for it.
    """
    store = DescriptionStore(experiment)
    with store.claimed() as running:
        found = find_difference(experiment, running, describe, start)
        if isinstance(found, Changes) or found.changes.relaunch:
            raise BackendError(
                f"experiment {experiment.name!r} has finished or was launched again in the "
                "meantime; run the command again"
            )
        if not found.changes.is_empty or running.is_unfinished:
            try:
                with send_code(experiment.scope, found.new.archives):
                    _Application(experiment, store, found).apply()
            except RunGone as exc:
                raise NotFound(f"experiment {experiment.name!r} was deleted") from exc
    return found


def read_description(experiment: KubeExperiment) -> Description:
    """Return the description of a running experiment.

    Raises NotFound if the experiment does not exist, and BackendError if it has no description.
    """
    description = DescriptionStore(experiment).read()
    if description is None:
        experiments.experiment_status(experiment)
        raise BackendError(
            f"experiment {experiment.name!r} cannot be changed while it is running: "
            f"{NO_DESCRIPTION}; launch it again with force"
        )
    return description


class _Application:
    """The steps of one change."""

    def __init__(
        self,
        experiment: KubeExperiment,
        store: DescriptionStore,
        difference: Difference,
    ) -> None:
        self._experiment = experiment
        self._store = store
        self._supervisor = difference.new.supervisor
        self._difference = difference
        self._changes = difference.changes
        self._new = difference.new
        self._manifest = difference.new.manifest
        self._in_place = difference.in_place
        self._running = difference.running
        self._observation = difference.observation
        self._previous = difference.state.units
        self._revision = difference.running.revision + 1
        self._creation = Creation(
            experiment, difference.running.run_id, self._new.manifest.overrides
        )
        self._base_objects = BaseObjectsUpdate(
            experiment, difference.running, difference.new, self._creation
        )
        self._roster = {unit.name: unit for unit in self._manifest.roster}
        self._record = difference.record
        self._run = supervised_run(experiment, difference)
        self._in_cluster = in_cluster.exists(experiment)
        self._bodies = self._run.units
        if self._in_cluster:
            # The supervisor alone applies the deadline, which can therefore be changed.
            self._bodies = {
                name: with_new_deadline(body, None) for name, body in self._bodies.items()
            }
            self._run = replace(self._run, units=self._bodies, kubeconfig=None, context=None)
        self._first = roster_unit(self._manifest.roster)
        self._directory = detached.directory_of(experiment)
        self._was_supervised = self._directory.exists or is_supervised_elsewhere(difference)

    def apply(self) -> None:
        """Make all steps. If one of them fails, the same command continues the change later."""
        existing = self._observation.unit_statuses
        restarted = self._difference.units_with(*STARTED_AGAIN)
        restarted &= set(self._roster) - self._in_place.units
        absent = [name for name in self._bodies if name not in existing]
        self._check_with_server(restarted, absent)
        changed = {*restarted, *self._difference.units_with(ADDED)}
        # The supervisor can already be starting a unit again that was lost.
        of_supervisor = [name for name in absent if self._is_created_by_supervisor(name, changed)]
        self._write_description()
        if absent:
            self._delete_remains()
        self._base_objects.put()
        if self._in_cluster:
            # The supervisor reads the description when it notices the new roster.
            in_cluster.hand_over(
                self._experiment.api, self._run, partial(self._new_record, changed)
            )
        self._publish_roster(is_created=self._first.name not in of_supervisor)
        restarted |= self._in_place.restart(self._experiment, self._bodies, self._revision)
        replaced = {
            name: self._bodies[name] for name in self._roster if name in restarted & set(existing)
        }
        stopping = self._running_to_stop(replaced)
        first_wave = self._stopped_now(stopping, self._observation)
        has_order = len(first_wave) < len(stopping)
        operation = request_replacements(
            self._experiment,
            self._observation,
            self._manifest.roster,
            replaced,
            self._revision,
            stops=not has_order,
        )
        self._store.check_claim()
        # The supervisor creates ranks when the present ranks of their unit have been stopped.
        created = [
            name
            for name in absent
            if name in changed
            and name not in of_supervisor
            and not self._roster[name].starts_after
            and not self._roster[name].rank_of
        ]
        in_parallel(self._create_unit, created, threads=self._experiment.api.connections)
        operation.await_created(created)
        operation.await_supervisor(of_supervisor)
        # A supervisor that found no object of a unit without conditions would create it.
        self._store.check_claim()
        self._let_supervisor_take_over(changed, absent)
        self._store.check_claim()
        if has_order:
            self._stop_in_order(operation, stopping)
        self._remove()
        operation.run()
        self._base_objects.delete_unused_files()
        self._store.write(replace(self._description(), pending={}, previous_policies=None))

    def _running_to_stop(self, replaced: Collection[str]) -> set[str]:
        """Return the replaced and the removed units that are running."""
        stopped = {*replaced, *(unit.name for unit in self._kept_units(self._previous))}
        statuses = self._observation.unit_statuses
        return {name for name in stopped & statuses.keys() if not statuses[name].has_ended}

    def _stopped_now(self, units: Collection[str], observation: Observation) -> list[str]:
        """Return which of ``units`` are stopped first, in the order in which they were started."""
        return stopped_now(self._previous, observation, units, self._experiment.api.now())

    def _stop_in_order(self, operation: Operation, units: set[str]) -> None:
        """Stop units, each when its turn comes.

        Return when the stop of the last ones has been requested, except for removed units.
        """
        remaining = set(units)
        while True:
            state, _ = experiments.observe_once(self._experiment)
            observation = state.observe(self._experiment.api.now())
            statuses = observation.unit_statuses
            remaining &= {name for name, status in statuses.items() if not status.has_ended}
            wave = self._stopped_now(remaining, observation)
            stopping = operation.request_wave(wave, statuses)
            # If a node does not respond in time, the others do not wait for it.
            remaining.difference_update(wave)
            if not wave or not remaining:
                return
            removed = [unit for unit in self._kept_units(state.units) if unit.name in wave]
            if removed:
                self._stop_units(state, removed)
            pods = [pod for name in stopping for pod in statuses[name].pods]
            grace_seconds = max((pod.grace_seconds for pod in pods), default=0.0)
            operation.await_wave(stopping, grace_seconds + STUCK_SECONDS)

    def _is_created_by_supervisor(self, name: str, changed: Collection[str]) -> bool:
        """Return whether the supervisor starts a unit again whose Pod was deleted."""
        unit = self._roster[name]
        if name not in changed or not unit.replaced_if_lost or unit.starts_after or unit.rank_of:
            return False
        return name in self._difference.units_with(*STARTED_AGAIN)

    def _check_with_server(self, restarted: Collection[str], absent: Collection[str]) -> None:
        """Have the server check the new objects before anything is changed."""
        bodies = {name: self._bodies[name] for name in {*restarted, *absent}}
        check_requirements(self._experiment.api, list(bodies.values()))
        resources = []
        for name, body in bodies.items():
            unit = self._observation.unit_statuses.get(name)
            if unit is not None:
                body = next_attempt(body, Attempt(number=unit.attempt.number + 1))
            resources.append(to_resource(body, self._experiment.namespace))

        def check(resource: Any) -> None:
            try:
                self._creation.check(resource)
            except NameTaken as exc:
                found = exc.found
                if found is None or not is_managed(found, self._experiment.name):
                    kind, name = resource.kind, resource.name
                    text = error_messages.name_taken(kind, name, self._experiment.scope, found)
                    raise BackendError(text) from exc
            except LaunchFailed as exc:
                # The objects that are replaced still use the quota.
                cause = exc.__cause__
                if not isinstance(cause, ApiError) or not error_messages.is_quota_exceeded(cause):
                    raise

        in_parallel(check, resources, threads=self._experiment.api.connections)

    def _description(self) -> Description:
        pending = {
            process.name: (process.action, process.group)
            for process in self._changes.processes
            if process.action != UNCHANGED
        }
        return replace(
            self._running,
            snapshot=self._new.snapshot,
            record={**self._running.record, **self._new.record},
            host=socket.gethostname(),
            revision=self._revision,
            pending=pending,
            previous_policies=present_policies(self._running),
            jobs_only=self._new.jobs_only,
            options=self._new.options,
            follows=True,
        )

    def _write_description(self) -> None:
        self._store.write(self._description(), self._record)

    # --- units ---

    def _publish_roster(self, *, is_created: bool) -> None:
        """Store the new roster in an object that exists, or create the first unit with it if
        ``is_created`` is true.
        """
        unit = self._observation.unit_statuses.get(self._first.name)
        annotations = self._record.annotations()
        if unit is not None and attempts.annotate(self._experiment, unit, annotations):
            return
        if is_created:
            self._create_unit(self._first.name)

    def _create_unit(self, name: str) -> None:
        body = with_attempt(
            with_manifest(self._bodies[name]),
            Attempt(round=self._round, revision=self._revision),
        )
        policies = self._manifest.policies
        seconds = seconds_to_deadline(
            policies, launched=self._running.launched, now=self._experiment.api.now()
        )
        resource = to_resource(with_new_deadline(body, seconds), self._experiment.namespace)
        self._creation.create(resource)

    @property
    def _round(self) -> int:
        """The number of times that the experiment has been restarted."""
        units = self._observation.unit_statuses.values()
        return max((unit.attempt.round for unit in units), default=0)

    # --- the supervisor ---

    def _let_supervisor_take_over(self, changed: set[str], absent: Collection[str]) -> None:
        """Return when a supervisor works from the new description, if decisions remain."""
        api = self._experiment.api
        # A supervisor that is active also creates the units that have not changed.
        waiting = set(absent)
        if not self._in_cluster and not self._was_supervised:
            waiting &= changed
        is_needed = needs_supervisor(self._manifest, waiting)
        if self._in_cluster:
            in_cluster.await_takeover(api, self._run, self._supervisor, is_needed=is_needed)
            return
        if not is_needed:
            with detached.stopped(self._directory):
                return
        record = self._new_record(changed, self._first_record())
        if self._supervisor.image is not None and not self._was_supervised:
            run = replace(self._run, kubeconfig=None, context=None)
            # A user who may not create its objects gets a supervisor on this machine.
            with contextlib.suppress(in_cluster.CannotRunInCluster):
                in_cluster.start(api, run, self._supervisor, self._creation, record)
                return
        detached.replace(self._directory, self._run, record)

    def _first_record(self) -> Record:
        """Return the record of the supervisor on this machine, or that of a new supervisor."""
        if self._directory.exists:
            return self._directory.read()
        created = set(self._observation.missing_units)
        if self._was_supervised:
            # Only the supervisor on the other machine knows which units have been created there.
            created -= {unit.name for unit in self._roster.values() if unit.starts_after}
        return Record(created=frozenset(created), round=Round(number=self._round))

    def _new_record(self, changed: set[str], present: Record) -> Record:
        """Return the record with which a supervisor continues after the change."""
        created = (present.created - changed) & set(self._roster)
        return replace(present, created=frozenset(created), problems={})

    # --- removal ---

    def _delete_remains(self) -> None:
        """Delete the kept objects of removed units that the new description contains again."""
        units = set(self._roster)
        for ref in list_removed_containers(self._experiment):
            if ref.process in self._processes:
                units.add(ref.unit)

        def is_deleted(labels: Mapping[str, str]) -> bool:
            return labels.get(REMOVED_UNIT) in units

        delete.delete_selected(self._experiment, ("Job", "Pod"), is_deleted)

    def _remove(self) -> None:
        """Delete the services, and stop the units, that the new description does not contain.

        The objects of these units are kept, so that their logs can be read, unless a process of the
        new description has the same name.
        """
        self._base_objects.delete_services()
        state, _ = experiments.observe_once(self._experiment)
        kept = self._kept_units(state.units)
        if kept and self._stop_units(state, kept):
            removal = partial(attempts.mark_removed, self._experiment)
            for unit in kept:
                pods = state.objects.pods_of(unit.name)
                jobs = state.objects.jobs_of(unit.name)
                in_parallel(removal, [*pods, *jobs], threads=self._experiment.api.connections)
        delete.delete_selected(self._experiment, ("Job", "Pod"), self._is_removed)

    def _kept_units(self, units: Roster) -> list[Unit]:
        """Return the removed units among ``units`` whose objects are kept because of their logs."""
        processes = self._processes
        return [
            unit
            for unit in units
            if unit.name not in self._roster and not processes.intersection(unit.processes)
        ]

    def _stop_units(self, state: ExperimentState, units: Collection[Unit]) -> bool:
        """Stop units. Return False if their nodes do not respond in time."""
        pods = [pod for unit in units for pod in state.objects.pods_of(unit.name)]
        grace_seconds = max((pod.grace_seconds for pod in pods), default=0.0)
        names = [process for unit in units for process in unit.processes]
        try:
            client_requests.stop(self._experiment, names, timeout=grace_seconds + STUCK_SECONDS)
        except TimeoutError:
            return False
        return True

    @property
    def _processes(self) -> set[str]:
        """The names of all processes of the new description."""
        return {process for unit in self._roster.values() for process in unit.processes}

    def _is_removed(self, labels: Mapping[str, str]) -> bool:
        unit = labels.get(UNIT) or labels.get(REPLACED_UNIT)
        return unit is not None and unit not in self._roster
