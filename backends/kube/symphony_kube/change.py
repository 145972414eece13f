"""Change a running experiment: compare it with a new description, and change what differs.

The steps are made in this order: the new description is stored with the processes that the change
concerns, the objects of files and services are created or updated, the roster is replaced, the
restarts are requested, new units are created, a new supervisor takes over, and removed units are
deleted. Each step can be repeated, so a command that is interrupted is continued by the same
command or by one with another description.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError, LaunchFailed, NotFound
from symphony.names import join_names
from symphony.plan.changes import (
    ADDED,
    REMOVED,
    RESTARTED,
    UNCHANGED,
    UPDATED,
    Changes,
    ProcessChange,
    ProcessSnapshot,
    Snapshot,
    compare,
    launching,
)
from symphony.plan.policies import seconds_to_deadline
from symphony.status import ReasonCode
from symphony_kube import control
from symphony_kube.api import error_messages
from symphony_kube.api.client import ACCEPT_METADATA, MERGE_PATCH
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import KEYS, POLICIES, REPLACED_UNIT, ROSTER, SERVICE, UNIT, Scope
from symphony_kube.api.resources import (
    collection_path,
    is_managed,
    items_of,
    labels_of,
    to_resource,
    with_run_label,
    with_run_name,
)
from symphony_kube.lifecycle import attempts, delete
from symphony_kube.lifecycle.attempts import next_attempt, with_attempt, with_manifest
from symphony_kube.lifecycle.create import Creation, NameTaken, delete_uid, in_parallel
from symphony_kube.lifecycle.description import (
    Description,
    DescriptionStore,
    NewDescription,
    as_stored,
)
from symphony_kube.lifecycle.supervisor import detached, in_cluster
from symphony_kube.lifecycle.supervisor.record import Record, Round
from symphony_kube.lifecycle.supervisor.run import SupervisedRun
from symphony_kube.render.deadline import with_deadline
from symphony_kube.render.manifest import KubeManifest
from symphony_kube.render.roster import (
    encode_roster,
    is_supervised_to_the_end,
    roster_unit,
    with_revision,
)
from symphony_kube.render.snapshot import LIVE_SETTINGS
from symphony_kube.status import experiments
from symphony_kube.status.control_state import Attempt, encode_manifest
from symphony_kube.status.observe import Observation, PodObserver
from symphony_kube.status.permission_errors import missing_right

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

Object = Mapping[str, Any]

_UNFINISHED = "an earlier change of it was not completed"
_NO_DESCRIPTION = (
    "its description is not stored in the cluster, because an earlier version of symphony, kubectl "
    "or a user who may not create Secrets has launched it"
)
# The fields of a Service that symphony sets and that can change.
_SERVICE_FIELDS = ("type", "selector", "ports")


# Renders the new description. Services keep the ports in the given mapping.
Describe = Callable[[Mapping[str, int]], NewDescription]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The difference between a running experiment and a new description of it."""

    changes: Changes
    new: NewDescription
    running: Description
    observer: PodObserver
    observation: Observation


def diff(api: Api, scope: Scope, describe: Describe) -> Changes:
    """Return how a running experiment differs from a new description; see `Cluster.diff`."""
    running, reason = None, _NO_DESCRIPTION
    try:
        running = DescriptionStore(api, scope).read()
    except ApiError as exc:
        if exc.status != 403:
            raise
        reason = str(exc)
    found = _find_difference(api, scope, running, describe, reason)
    return found if isinstance(found, Changes) else found.changes


def change(api: Api, scope: Scope, describe: Describe) -> Difference:
    """Change a running experiment, and return what was changed; see `Cluster.up`."""
    store = DescriptionStore(api, scope)
    with store.claimed() as running:
        found = _find_difference(api, scope, running, describe)
        if isinstance(found, Changes) or found.changes.relaunch:
            raise BackendError(
                f"experiment {scope.experiment!r} has finished or was launched again in the "
                "meantime; run the command again"
            )
        if not found.changes.is_empty or running.pending:
            _Application(api, scope, store, found).apply()
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
    reason: str = _NO_DESCRIPTION,
) -> Difference | Changes:
    """Return the difference, or the changes of an experiment that has to be launched.

    ``reason`` is the reason why ``running`` is None, if it is.
    """
    new = describe({} if running is None else _ports(running.snapshot))
    observer, _ = experiments.observe_once(api, scope)
    if observer.empty:
        try:
            experiments.status_without_objects(api, scope)
        except NotFound:
            return launching(new.snapshot, "it does not exist")
        return launching(new.snapshot, "it has no Pods")
    observation = observer.observe(time.time())
    if observation.deleting:
        raise BackendError(f"experiment {scope.experiment!r} is being deleted")
    status = observation.status
    if status.ended and not any(item.reason_code is ReasonCode.STOPPED for item in status):
        return launching(new.snapshot, "it has finished")
    if running is None:
        return replace(launching(new.snapshot, ""), relaunch=(reason,))
    changes = _compare(running, new, observation)
    obstacles = _obstacles(running, new, observer, changes)
    if not changes.is_empty:
        obstacles += _supervisor_obstacle(api, scope, running, new, observer, observation, changes)
    changes = replace(changes, relaunch=(*changes.relaunch, *obstacles))
    return Difference(
        changes=changes, new=new, running=running, observer=observer, observation=observation
    )


def _ports(snapshot: Snapshot) -> dict[str, int]:
    """Return the ports of the services of a running experiment."""
    return {
        name: int(str(address[0]).rpartition(":")[2]) for name, address in snapshot.services.items()
    }


def _compare(running: Description, new: NewDescription, observation: Observation) -> Changes:
    """Compare the descriptions, and add what an unfinished change has not done yet."""
    present = _present_snapshot(running, observation)
    changes = compare(
        present,
        as_stored(new.snapshot),
        live_settings=LIVE_SETTINGS,
        unfinished=_outdated(running, observation),
    )
    processes = []
    for process in changes.processes:
        if process.action == UNCHANGED and process.name in running.pending:
            process = replace(process, action=UPDATED, reasons=(_UNFINISHED,))
        processes.append(process)
    return replace(changes, processes=_with_whole_groups(processes))


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
    return replace(running.snapshot, processes=processes)


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
    return [name for name in names if running.pending.get(name, ("",))[0] == RESTARTED]


def _with_whole_groups(processes: Collection[ProcessChange]) -> tuple[ProcessChange, ...]:
    """Restart all members of a group of which a member changes, because they share a Pod."""
    changed: dict[str, str] = {}
    for process in processes:
        if process.action in (ADDED, REMOVED, RESTARTED) and process.group:
            changed.setdefault(process.group, process.name)
    result = []
    for process in processes:
        cause = changed.get(process.group or "")
        if cause is not None and process.action in (UNCHANGED, UPDATED):
            reason = f"{cause} in the same Pod changes"
            process = replace(process, action=RESTARTED, reasons=(*process.reasons, reason))
        result.append(process)
    return tuple(result)


def _obstacles(
    running: Description, new: NewDescription, observer: PodObserver, changes: Changes
) -> list[str]:
    """Return the reasons why the experiment cannot be changed while it is running."""
    found = [
        f"{policy.text}, and the rules for the end of an experiment cannot be changed on Kubernetes"
        for policy in changes.policies
    ]
    if running.jobs_only != new.jobs_only:
        found.append("jobs_only has changed")
    old_units = {unit.name: unit for unit in observer.units}
    for unit in new.manifest.roster:
        old = old_units.get(unit.name)
        if old is not None and old.job != unit.job:
            kinds = ("a Pod", "a Job") if unit.job else ("a Job", "a Pod")
            found.append(f"{unit.name!r} would become {kinds[1]} instead of {kinds[0]}")
    if _encryption_keys(running.snapshot) != _encryption_keys(new.snapshot):
        found.append("other keys of encrypted services are needed")
    large = [
        unit.name
        for unit, body in zip(new.manifest.roster, new.manifest.units, strict=True)
        if unit.name in _units_with(changes, RESTARTED)
        and len(encode_manifest(body)) > attempts.MAX_MANIFEST_CHARS
    ]
    if large:
        found.append(f"the manifest of {join_names(large)} is too large to be replaced")
    return found


def _encryption_keys(snapshot: Snapshot) -> set[str]:
    keys: set[str] = set()
    for process in snapshot.processes.values():
        keys.update(process.settings.get("encrypted", ()))
    return keys


def _supervisor_obstacle(
    api: Api,
    scope: Scope,
    running: Description,
    new: NewDescription,
    observer: PodObserver,
    observation: Observation,
    changes: Changes,
) -> list[str]:
    """Return why the supervisor cannot take over the new description."""
    roster = observer.units
    is_active = is_supervised_to_the_end(roster, new.manifest.policies) or any(
        unit.starts_after and unit.name in observation.missing_units for unit in roster
    )
    if not is_active and not _needs_supervisor(new.manifest, _units_with(changes, ADDED)):
        return []
    name = scope.object_name(in_cluster.NAME)
    try:
        secret = api.find(f"{collection_path('Secret', scope.namespace)}/{name}")
    except ApiError as exc:
        if exc.status != 403:
            raise
        secret = None
    if secret is not None:
        return ["its supervisor runs in the cluster and cannot take over another description"]
    here = socket.gethostname()
    if is_active and running.host != here:
        return [f"its supervisor runs on the host {running.host}; run the command there"]
    return []


def _needs_supervisor(manifest: KubeManifest, added: Collection[str]) -> bool:
    """Return whether decisions remain after the first objects of a change have been created."""
    if is_supervised_to_the_end(manifest.roster, manifest.policies):
        return True
    return any(unit.starts_after and unit.name in added for unit in manifest.roster)


def _units_with(changes: Changes, action: str) -> set[str]:
    return {item.group or item.name for item in changes.processes if item.action == action}


# --- changing ---


class _Application:
    """The steps of one change."""

    def __init__(
        self, api: Api, scope: Scope, store: DescriptionStore, difference: Difference
    ) -> None:
        self._api = api
        self._scope = scope
        self._store = store
        self._changes = difference.changes
        self._new = difference.new
        self._manifest = difference.new.manifest
        self._running = difference.running
        self._observation = difference.observation
        self._revision = difference.running.revision + 1
        self._creation = Creation(api, scope, difference.running.run_id)
        self._roster = {unit.name: unit for unit in self._manifest.roster}
        self._bodies = self._prepare_bodies()
        self._directory = detached.directory_of(api, scope)

    def _prepare_bodies(self) -> dict[str, dict[str, Any]]:
        """Return the Pods and Jobs of all units, with the identity of the run."""
        bodies = {}
        first = roster_unit(self._manifest.roster)
        roster = with_revision(encode_roster(self._manifest.roster), self._revision)
        for unit, body in zip(self._manifest.roster, self._manifest.units, strict=True):
            complete = with_run_name(body, self._running.run_name)
            complete = with_run_label(complete, self._running.run_id)
            if unit.name == first.name:
                complete = attempts.annotated(complete, {ROSTER: roster})
            bodies[unit.name] = dict(complete)
        self._first, self._roster_text = first, roster
        return bodies

    def apply(self) -> None:
        """Make all steps. If one of them fails, the same command continues the change later."""
        existing = self._observation.unit_statuses
        restarted = _units_with(self._changes, RESTARTED)
        restarted &= set(self._roster)
        absent = [name for name in self._roster if name not in existing]
        self._check_with_server(restarted, absent)
        self._write_description()
        self._put_base_objects()
        self._publish_roster()
        replaced = {
            name: self._bodies[name] for name in self._roster if name in restarted & set(existing)
        }
        operation = control.request_replacements(
            self._api,
            self._scope,
            self._observation,
            self._manifest.roster,
            replaced,
            self._revision,
        )
        changed = {*restarted, *_units_with(self._changes, ADDED)}
        self._store.check_claim()
        # Units that a user has deleted are created again only if they have changed.
        created = [
            name for name in absent if name in changed and not self._roster[name].starts_after
        ]
        in_parallel(self._create_unit, created, threads=self._api.connections)
        operation.await_created(created)
        # A supervisor that found no object of a unit without conditions would create it.
        self._store.check_claim()
        self._replace_supervisor(changed, absent)
        self._store.check_claim()
        self._remove()
        operation.run()
        self._store.write(replace(self._description(), pending={}))

    def _check_with_server(self, restarted: Collection[str], absent: Collection[str]) -> None:
        """Have the server check the new objects before anything is changed."""
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
        )

    def _write_description(self) -> None:
        self._store.write(self._description())

    # --- files and services ---

    def _put_base_objects(self) -> None:
        """Create or update the Services, and the Secrets and ConfigMaps of files."""
        keys = self._scope.object_name(KEYS, "Secret")
        old, new = self._running.snapshot, self._new.snapshot
        files_differ = old.secrets != new.secrets or _files(old) != _files(new)
        # The files can have been stored in part by a change that was not completed.
        puts_files = files_differ or bool(self._running.pending)
        bodies = []
        for body in self._manifest.base_objects:
            kind, name = body["kind"], body["metadata"]["name"]
            if kind == "Service" or (kind != "Namespace" and puts_files and name != keys):
                bodies.append(with_run_label(body, self._running.run_id))
        in_parallel(self._put, bodies, threads=self._api.connections)

    def _put(self, body: Object) -> None:
        resource = to_resource(body, self._scope.namespace)
        try:
            self._creation.create(resource)
            return
        except NameTaken as exc:
            if exc.found is None or not is_managed(exc.found, self._scope.experiment):
                text = error_messages.name_taken(
                    resource.kind, resource.name, self._scope, exc.found
                )
                raise BackendError(text) from exc
            patch = _patch_of(body, exc.found)
        if patch is None:
            return
        try:
            self._api.call(
                "PATCH",
                resource.path,
                body=patch,
                content_type=MERGE_PATCH,
                accept=ACCEPT_METADATA,
            )
        except ApiError as exc:
            right = f"patch {resource.kind.lower()}s"
            raise missing_right(exc, f"change {resource}", right, self._scope) from exc

    # --- units ---

    def _publish_roster(self) -> None:
        """Store the new roster in an object that exists, or create the first unit with it."""
        unit = self._observation.unit_statuses.get(self._first.name)
        annotations = {ROSTER: self._roster_text}
        if self._manifest.policies.names:
            annotations[POLICIES] = json.dumps(self._manifest.policies.to_dict())
        if unit is None or not attempts.annotate(self._api, self._scope, unit, annotations):
            self._create_unit(self._first.name)

    def _create_unit(self, name: str) -> None:
        body = with_attempt(
            with_manifest(self._bodies[name]),
            Attempt(round=self._round, revision=self._revision),
        )
        policies = self._manifest.policies
        seconds = seconds_to_deadline(policies, launched=self._running.launched, now=time.time())
        resource = to_resource(with_deadline(body, seconds), self._scope.namespace)
        self._creation.create(resource)

    @property
    def _round(self) -> int:
        """The number of times that the experiment has been restarted."""
        units = self._observation.unit_statuses.values()
        return max((unit.attempt.round for unit in units), default=0)

    # --- the supervisor ---

    def _replace_supervisor(self, changed: Collection[str], absent: Collection[str]) -> None:
        """Let a supervisor with the new description take over."""
        directory = self._directory
        # A supervisor that is active also creates the units that have not changed.
        waiting = set(absent) if directory.exists else set(absent) & set(changed)
        if not _needs_supervisor(self._manifest, waiting):
            with detached.stopped(directory):
                return
        is_active = directory.exists
        old = directory.read() if is_active else Record(round=Round(number=self._round))
        created = old.created if is_active else set(self._observation.missing_units)
        created -= set(changed)
        created = {name for name in created if name in self._roster}
        run = SupervisedRun(
            scope=replace(self._scope, run=self._running.run_id),
            roster=self._manifest.roster,
            units=self._bodies,
            policies=self._manifest.policies,
            launched=self._running.launched,
            kubeconfig=self._api.kubeconfig,
            context=self._api.context,
        )
        detached.replace(directory, run, replace(old, created=frozenset(created), problems={}))

    # --- removal ---

    def _remove(self) -> None:
        """Delete the services and units that the new description does not contain."""
        services = {
            body["metadata"]["name"]
            for body in self._manifest.base_objects
            if body["kind"] == "Service"
        }
        for item in self._list("Service"):
            metadata = item["metadata"]
            if SERVICE in labels_of(item) and metadata["name"] not in services:
                path = f"{collection_path('Service', self._scope.namespace)}/{metadata['name']}"
                delete_uid(self._api, path, metadata["uid"])
        delete.delete_units(self._api, self._scope, self._is_removed)

    def _is_removed(self, labels: Mapping[str, str]) -> bool:
        unit = labels.get(UNIT) or labels.get(REPLACED_UNIT)
        return unit is not None and unit not in self._roster

    def _list(self, kind: str) -> list[dict[str, Any]]:
        path = collection_path(kind, self._scope.namespace)
        try:
            return items_of(
                self._api.call("GET", path, query={"labelSelector": self._scope.selector})
            )
        except ApiError as exc:
            right = f"list {kind.lower()}s"
            action = f"change experiment {self._scope.experiment!r}"
            raise missing_right(exc, action, right, self._scope) from exc


def _files(snapshot: Snapshot) -> dict[str, Any]:
    return {name: process.settings.get("files") for name, process in snapshot.processes.items()}


def _patch_of(body: Object, found: Object) -> dict[str, Any] | None:
    """Return the patch that makes an object equal to ``body``, or None if it is equal."""
    if body["kind"] == "Service":
        spec = {key: body["spec"][key] for key in _SERVICE_FIELDS}
        ports = [
            {key: port.get(key) for key in ("name", "port", "targetPort")}
            for port in found["spec"].get("ports") or ()
        ]
        present = {**found["spec"], "ports": ports}
        if all(present.get(key) == value for key, value in spec.items()):
            return None
        labels = {UNIT: body["metadata"]["labels"][UNIT]}
        return {"metadata": {"labels": labels}, "spec": spec}
    patch: dict[str, Any] = {}
    for key in ("data", "binaryData"):
        content, present = body.get(key) or {}, found.get(key) or {}
        if content != present:
            patch[key] = {**dict.fromkeys(present), **content}
    return patch or None
