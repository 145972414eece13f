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
import math
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError, LaunchFailed, NotFound
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
    launching,
)
from symphony.plan.one_shots import finished_one_shots
from symphony.plan.policies import Policies, seconds_to_deadline
from symphony.status import ENDED, ReasonCode
from symphony.support.names import join_names
from symphony_kube import client_requests
from symphony_kube.api import error_messages
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import (
    REMOVED_UNIT,
    REPLACED_UNIT,
    UNIT,
    Scope,
)
from symphony_kube.api.resources import (
    is_managed,
    to_resource,
    with_run_label,
    with_run_name,
)
from symphony_kube.in_place import InPlace, find_in_place
from symphony_kube.lifecycle import attempts, delete
from symphony_kube.lifecycle.attempts import next_attempt, with_attempt, with_manifest
from symphony_kube.lifecycle.base_objects import BaseObjectsUpdate
from symphony_kube.lifecycle.create import Creation, NameTaken, in_parallel
from symphony_kube.lifecycle.description import (
    Description,
    DescriptionStore,
    NewDescription,
    as_stored,
)
from symphony_kube.lifecycle.requested_steps import stopped_now
from symphony_kube.lifecycle.requirements import check_requirements
from symphony_kube.lifecycle.supervisor import detached, in_cluster
from symphony_kube.lifecycle.supervisor.run import SupervisedRun, encode_run
from symphony_kube.lifecycle.supervisor.supervisor_record import Record, Round, RunGone
from symphony_kube.lifecycle.wait_deleted import STUCK_SECONDS
from symphony_kube.record.change_log import new_change
from symphony_kube.record.encoded_record import EncodedRecord, record_of_change
from symphony_kube.render.manifest import KubeManifest
from symphony_kube.render.pod_parts.deadline import with_new_deadline
from symphony_kube.render.roster import (
    Roster,
    Unit,
    is_supervised_to_the_end,
    roster_unit,
)
from symphony_kube.render.snapshot import LIVE_SETTINGS
from symphony_kube.service_drift import find_drift, with_drift
from symphony_kube.state.control_state import Attempt, encode_manifest
from symphony_kube.state.observe import ExperimentState, Observation
from symphony_kube.status import experiments
from symphony_kube.status.find_pod import list_removed_containers
from symphony_kube.user_requests.operation import Operation, request_replacements

if TYPE_CHECKING:
    from symphony.code.snapshot import CodeArchives
    from symphony_kube.api.client import Api

Object = Mapping[str, Any]

_UNFINISHED = "an earlier change of it was not completed"
_NO_DESCRIPTION = (
    "its description is not stored in the cluster, because an earlier version of symphony, kubectl "
    "or a user who may not create Secrets has launched it"
)

# Renders the new description. The services and the options of the running experiment are kept.
Describe = Callable[[Description | None], NewDescription]

SendCode = Callable[[Scope, "CodeArchives"], contextlib.AbstractContextManager[object]]


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


def diff(
    api: Api,
    scope: Scope,
    describe: Describe,
    start: Sequence[str] | None,
) -> Changes:
    """Return how a running experiment differs from a new description; see `Cluster.diff`."""
    running, reason = None, _NO_DESCRIPTION
    store = DescriptionStore(api, scope)
    try:
        running = store.read()
    except ApiError as exc:
        if exc.status != 403:
            raise
        reason = str(exc)
    found = _find_difference(api, scope, running, describe, start, reason)
    if isinstance(found, Changes) and _NO_DESCRIPTION in found.relaunch:
        # Another command may have stored the description and created the Pods in the meantime.
        running = store.read()
        if running is not None:
            found = _find_difference(api, scope, running, describe, start)
    return found if isinstance(found, Changes) else found.changes


def change(
    api: Api,
    scope: Scope,
    describe: Describe,
    send_code: SendCode,
    start: Sequence[str] | None,
) -> Difference:
    """Change a running experiment, and return what was changed; see `Cluster.up`.

    ``send_code`` returns a context in which large code is sent to the Pods that wait for it.
    """
    store = DescriptionStore(api, scope)
    with store.claimed() as running:
        found = _find_difference(api, scope, running, describe, start)
        if isinstance(found, Changes) or found.changes.relaunch:
            raise BackendError(
                f"experiment {scope.experiment!r} has finished or was launched again in the "
                "meantime; run the command again"
            )
        if not found.changes.is_empty or running.is_unfinished:
            try:
                with send_code(scope, found.new.archives):
                    _Application(api, scope, store, found).apply()
            except RunGone as exc:
                raise NotFound(f"experiment {scope.experiment!r} was deleted") from exc
    return found


def read_description(api: Api, scope: Scope) -> Description:
    """Return the description of a running experiment.

    Raises NotFound if the experiment does not exist, and BackendError if it has no description.
    """
    description = DescriptionStore(api, scope).read()
    if description is None:
        experiments.experiment_status(api, scope)
        raise BackendError(
            f"experiment {scope.experiment!r} cannot be changed while it is running: "
            f"{_NO_DESCRIPTION}; launch it again with force"
        )
    return description


# --- comparing ---


def _find_difference(
    api: Api,
    scope: Scope,
    running: Description | None,
    describe: Describe,
    start: Sequence[str] | None,
    reason: str = _NO_DESCRIPTION,
) -> Difference | Changes:
    """Return the difference, or the changes of an experiment that has to be launched.

    ``start`` contains the processes that are started if they have exited. ``reason`` is the reason
    why ``running`` is None, if it is.
    """
    new = describe(running)
    state, _ = experiments.observe_once(api, scope)
    if state.empty:
        try:
            experiments.current_status(api, scope, state)
        except NotFound:
            return launching(new.snapshot, "it does not exist")
        return launching(new.snapshot, "it has no Pods")
    now = api.now()
    observation = state.observe(now)
    if observation.deleting:
        raise BackendError(f"experiment {scope.experiment!r} is being deleted")
    status = observation.status
    ending = state.record.ending
    can_continue = any(item.reason_code is ReasonCode.STOPPED for item in status)
    if status.ended and (ending is not None or not can_continue):
        return launching(new.snapshot, "it has finished")
    if ending is not None:
        raise BackendError(
            f"experiment {scope.experiment!r} is being stopped: {ending.reason}; run the "
            "command again when it has finished"
        )
    if running is None:
        return replace(launching(new.snapshot, ""), relaunch=(reason,))
    changes = _compare(running, new, observation, start)
    drift = find_drift(api, scope, new.manifest, running.snapshot.services)
    changes = replace(changes, processes=with_drift(changes.processes, drift))
    in_place = find_in_place(api, scope, running, new, state, observation, changes)
    changes = replace(changes, processes=_with_whole_groups(changes.processes, in_place))
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
    obstacles = _obstacles(difference)
    if not changes.is_empty:
        obstacles += _supervisor_obstacles(api, scope, difference)
    return replace(difference, changes=replace(changes, relaunch=(*changes.relaunch, *obstacles)))


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


def _compare(
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
    policies = _present_policies(running)
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


def _with_whole_groups(
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


def _obstacles(difference: Difference) -> list[str]:
    """Return the reasons why the experiment cannot be changed while it is running."""
    new, changes = difference.new, difference.changes
    found = [*_deadline_obstacle(difference), *_job_set_obstacle(difference)]
    large = [
        name
        for name, body in new.manifest.objects_by_unit.items()
        if name in _units_with(changes, *STARTED_AGAIN)
        and len(encode_manifest(body)) > attempts.MAX_MANIFEST_CHARS
    ]
    if large:
        found.append(f"the manifest of {join_names(large)} is too large to be replaced")
    return found


def _job_set_obstacle(difference: Difference) -> list[str]:
    """Return why ranks in JobSets cannot be changed, if any change."""
    changed = _units_with(difference.changes, ADDED, REMOVED, *STARTED_AGAIN)
    rosters = (*difference.state.units, *difference.new.manifest.roster)
    names = {unit.job_set for unit in rosters if unit.job_set and unit.name in changed}
    if not names:
        return []
    return [f"the ranks of {join_names(sorted(names))} are in JobSets, which cannot be changed"]


def _deadline_obstacle(difference: Difference) -> list[str]:
    """Return why the deadline cannot be extended, if it cannot.

    The active deadline of a Pod cannot be extended.
    """
    deadline = difference.new.manifest.policies.deadline
    end = math.inf if deadline is None else difference.running.launched + deadline
    replaced = _units_with(difference.changes, REMOVED, *STARTED_AGAIN)
    replaced -= difference.in_place.units
    names = []
    for name, unit in difference.observation.unit_statuses.items():
        if name in replaced or unit.has_ended:
            continue
        # Kubernetes reports times in seconds.
        ends = [pod.created + pod.time_limit + 1 for pod in unit.pods if pod.time_limit]
        if ends and ends[-1] < end:
            names.append(name)
    if not names:
        return []
    return [
        f"Kubernetes stops {join_names(names, limit=4)} at the present deadline, which cannot be "
        "extended in a Pod; only an experiment that is launched with supervisor_image has no "
        "deadlines in its Pods"
    ]


def _supervisor_obstacles(api: Api, scope: Scope, difference: Difference) -> list[str]:
    """Return why no supervisor can take over the new description, if none can."""
    running = difference.running
    if in_cluster.exists(api, scope):
        run = _supervised_run(api, scope, difference)
        problem = in_cluster.size_problem(encode_run(run))
        if problem:
            return [f"its supervisor in the cluster cannot be changed: {problem}"]
        if not in_cluster.can_start_again(api, scope, difference.new.supervisor):
            return [
                "the Job of its supervisor in the cluster was deleted; set supervisor_image to "
                "create another one"
            ]
        return []
    if _is_supervised_elsewhere(difference) and not running.follows:
        return [
            f"its supervisor runs on the host {running.host} with an earlier version of symphony; "
            "run the command there"
        ]
    return []


def _is_supervised_elsewhere(difference: Difference) -> bool:
    """Return whether the supervisor of the experiment may be a process of another machine."""
    if difference.running.host == socket.gethostname():
        return False
    roster = difference.state.units
    policies = Policies.from_dict(difference.running.snapshot.policies)
    if is_supervised_to_the_end(roster, policies):
        return True
    missing = difference.observation.missing_units
    return any(unit.starts_after and unit.name in missing for unit in roster)


def _complete_bodies(difference: Difference) -> dict[str, dict[str, Any]]:
    """Return the Pods and Jobs of all units, with the identity of the run and of the change."""
    running, manifest = difference.running, difference.new.manifest
    first = roster_unit(manifest.roster)
    bodies = {}
    for name, body in manifest.objects_by_unit.items():
        complete = with_run_label(with_run_name(body, running.run_name), running.run_id)
        if name == first.name:
            complete = attempts.annotated(complete, difference.record.annotations())
        bodies[name] = dict(complete)
    return bodies


def _supervised_run(api: Api, scope: Scope, difference: Difference) -> SupervisedRun:
    """Return the new description of the run for its supervisor."""
    running, manifest = difference.running, difference.new.manifest
    return SupervisedRun(
        scope=replace(scope, run=running.run_id),
        roster=manifest.roster,
        units=_complete_bodies(difference),
        policies=manifest.policies,
        launched=running.launched,
        kubeconfig=api.kubeconfig,
        context=api.context,
        run_name=running.run_name,
        revision=running.revision + 1,
    )


def _needs_supervisor(manifest: KubeManifest, added: Collection[str]) -> bool:
    """Return whether decisions remain after the first objects of a change have been created."""
    if is_supervised_to_the_end(manifest.roster, manifest.policies):
        return True
    return any(unit.starts_after and unit.name in added for unit in manifest.roster)


def _units_with(changes: Changes, *actions: str) -> set[str]:
    return {item.group or item.name for item in changes.processes if item.action in actions}


# --- changing ---


class _Application:
    """The steps of one change."""

    def __init__(
        self,
        api: Api,
        scope: Scope,
        store: DescriptionStore,
        difference: Difference,
    ) -> None:
        self._api = api
        self._scope = scope
        self._store = store
        self._supervisor = difference.new.supervisor
        self._changes = difference.changes
        self._new = difference.new
        self._manifest = difference.new.manifest
        self._in_place = difference.in_place
        self._running = difference.running
        self._observation = difference.observation
        self._previous = difference.state.units
        self._revision = difference.running.revision + 1
        self._creation = Creation(
            api, scope, difference.running.run_id, self._new.manifest.overrides
        )
        self._base_objects = BaseObjectsUpdate(
            api, scope, difference.running, difference.new, self._creation
        )
        self._roster = {unit.name: unit for unit in self._manifest.roster}
        self._record = difference.record
        self._run = _supervised_run(api, scope, difference)
        self._in_cluster = in_cluster.exists(api, scope)
        self._bodies = self._run.units
        if self._in_cluster:
            # The supervisor alone applies the deadline, which can therefore be changed.
            self._bodies = {
                name: with_new_deadline(body, None) for name, body in self._bodies.items()
            }
            self._run = replace(self._run, units=self._bodies, kubeconfig=None, context=None)
        self._first = roster_unit(self._manifest.roster)
        self._directory = detached.directory_of(api, scope)
        self._was_supervised = self._directory.exists or _is_supervised_elsewhere(difference)

    def apply(self) -> None:
        """Make all steps. If one of them fails, the same command continues the change later."""
        existing = self._observation.unit_statuses
        restarted = _units_with(self._changes, *STARTED_AGAIN)
        restarted &= set(self._roster) - self._in_place.units
        absent = [name for name in self._bodies if name not in existing]
        self._check_with_server(restarted, absent)
        changed = {*restarted, *_units_with(self._changes, ADDED)}
        # The supervisor can already be starting a unit again that was lost.
        of_supervisor = [name for name in absent if self._is_created_by_supervisor(name, changed)]
        self._write_description()
        if absent:
            self._delete_remains()
        self._base_objects.put()
        if self._in_cluster:
            # The supervisor reads the description when it notices the new roster.
            in_cluster.hand_over(self._api, self._run, partial(self._new_record, changed))
        self._publish_roster(is_created=self._first.name not in of_supervisor)
        restarted |= self._in_place.restart(self._api, self._scope, self._bodies, self._revision)
        replaced = {
            name: self._bodies[name] for name in self._roster if name in restarted & set(existing)
        }
        stopping = self._running_to_stop(replaced)
        first_wave = self._stopped_now(stopping, self._observation)
        has_order = len(first_wave) < len(stopping)
        operation = request_replacements(
            self._api,
            self._scope,
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
        in_parallel(self._create_unit, created, threads=self._api.connections)
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
        return stopped_now(self._previous, observation, units, self._api.now())

    def _stop_in_order(self, operation: Operation, units: set[str]) -> None:
        """Stop units, each when its turn comes.

        Return when the stop of the last ones has been requested, except for removed units.
        """
        remaining = set(units)
        while True:
            state, _ = experiments.observe_once(self._api, self._scope)
            observation = state.observe(self._api.now())
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
        return name in _units_with(self._changes, *STARTED_AGAIN)

    def _check_with_server(self, restarted: Collection[str], absent: Collection[str]) -> None:
        """Have the server check the new objects before anything is changed."""
        check_requirements(self._api, [self._bodies[name] for name in {*restarted, *absent}])
        resources = []
        for name in {*restarted, *absent}:
            body = self._bodies[name]
            unit = self._observation.unit_statuses.get(name)
            if unit is not None:
                body = next_attempt(body, Attempt(number=unit.attempt.number + 1))
            resources.append(to_resource(body, self._scope.namespace))

        def check(resource: Any) -> None:
            try:
                self._creation.check(resource)
            except NameTaken as exc:
                found = exc.found
                if found is None or not is_managed(found, self._scope.experiment):
                    kind, name = resource.kind, resource.name
                    text = error_messages.name_taken(kind, name, self._scope, found)
                    raise BackendError(text) from exc
            except LaunchFailed as exc:
                # The objects that are replaced still use the quota.
                cause = exc.__cause__
                if not isinstance(cause, ApiError) or not error_messages.is_quota_exceeded(cause):
                    raise

        in_parallel(check, resources, threads=self._api.connections)

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
            previous_policies=_present_policies(self._running),
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
        if unit is not None and attempts.annotate(self._api, self._scope, unit, annotations):
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
            policies, launched=self._running.launched, now=self._api.now()
        )
        resource = to_resource(with_new_deadline(body, seconds), self._scope.namespace)
        self._creation.create(resource)

    @property
    def _round(self) -> int:
        """The number of times that the experiment has been restarted."""
        units = self._observation.unit_statuses.values()
        return max((unit.attempt.round for unit in units), default=0)

    # --- the supervisor ---

    def _let_supervisor_take_over(self, changed: set[str], absent: Collection[str]) -> None:
        """Return when a supervisor works from the new description, if decisions remain."""
        # A supervisor that is active also creates the units that have not changed.
        waiting = set(absent)
        if not self._in_cluster and not self._was_supervised:
            waiting &= changed
        is_needed = _needs_supervisor(self._manifest, waiting)
        if self._in_cluster:
            in_cluster.await_takeover(self._api, self._run, self._supervisor, is_needed=is_needed)
            return
        if not is_needed:
            with detached.stopped(self._directory):
                return
        record = self._new_record(changed, self._first_record())
        if self._supervisor.image is not None and not self._was_supervised:
            run = replace(self._run, kubeconfig=None, context=None)
            # A user who may not create its objects gets a supervisor on this machine.
            with contextlib.suppress(in_cluster.CannotRunInCluster):
                in_cluster.start(self._api, run, self._supervisor, self._creation, record)
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
        for ref in list_removed_containers(self._api, self._scope):
            if ref.process in self._processes:
                units.add(ref.unit)

        def is_deleted(labels: Mapping[str, str]) -> bool:
            return labels.get(REMOVED_UNIT) in units

        delete.delete_selected(self._api, self._scope, ("Job", "Pod"), is_deleted)

    def _remove(self) -> None:
        """Delete the services, and stop the units, that the new description does not contain.

        The objects of these units are kept, so that their logs can be read, unless a process of the
        new description has the same name.
        """
        self._base_objects.delete_services()
        state, _ = experiments.observe_once(self._api, self._scope)
        kept = self._kept_units(state.units)
        if kept and self._stop_units(state, kept):
            removal = partial(attempts.mark_removed, self._api, self._scope)
            for unit in kept:
                pods = state.objects.pods_of(unit.name)
                jobs = state.objects.jobs_of(unit.name)
                in_parallel(removal, [*pods, *jobs], threads=self._api.connections)
        delete.delete_selected(self._api, self._scope, ("Job", "Pod"), self._is_removed)

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
            client_requests.stop(
                self._api, self._scope, names, timeout=grace_seconds + STUCK_SECONDS
            )
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


def _present_policies(running: Description) -> Mapping[str, Any]:
    """Return the policies that apply until the change is complete."""
    if running.previous_policies is not None:
        return running.previous_policies
    return running.snapshot.policies
