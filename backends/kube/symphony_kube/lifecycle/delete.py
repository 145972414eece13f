"""Delete all of an experiment's objects, and no others, and wait until they are gone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError
from symphony_kube.api import error_messages
from symphony_kube.api.client import ACCEPT_METADATA_LIST
from symphony_kube.api.errors import ApiError
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.labels import DESCRIPTION, ENVIRONMENT, KEYS, RUN, SECRETS, USAGE, Scope
from symphony_kube.api.listing import list_all
from symphony_kube.api.resources import (
    KINDS,
    NAMESPACES,
    collection_path,
    describe,
    is_in_scope,
    labels_of,
    plural_name,
    run_of,
)
from symphony_kube.lifecycle import wait_deleted
from symphony_kube.lifecycle.create import KILL_GRACE_SECONDS, delete_uid, in_parallel
from symphony_kube.lifecycle.description import DescriptionStore
from symphony_kube.lifecycle.queued_groups import group_of, release_groups
from symphony_kube.lifecycle.requested_steps import stopped_now
from symphony_kube.lifecycle.rights import may
from symphony_kube.lifecycle.supervisor import detached, in_cluster
from symphony_kube.lifecycle.wait_deleted import Remaining
from symphony_kube.state.unit_status import UnitStatus
from symphony_kube.status import experiments

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

Object = dict[str, Any]
# Returns a context manager that keeps the record of an experiment that is deleted in its block.
Keeping = Callable[[KubeExperiment], contextlib.AbstractContextManager[None]]

# How long to wait for a namespace to disappear after its Pods have disappeared.
NAMESPACE_SECONDS = 120.0
# How often to check whether Kubernetes can list what a namespace contains.
DISCOVERY_SECONDS = 2.0
# The maximum number of deletion rounds. A launcher that is still running can create more objects
# during the deletion.
MAX_ROUNDS = 3
# This timeout is long because the server deletes the Pods in the namespace one after another before
# it answers.
DELETE_PODS_TIMEOUT_SECONDS = 60.0
# How long to wait after a Pod's grace period before its phase is checked.
LATE_POD_SECONDS = 2.0
# These are field selectors. A Pod's phase is Succeeded or Failed if all its containers have exited,
# and Pending if none of them has started.
NOT_FINISHED = "status.phase!=Succeeded,status.phase!=Failed"
NOT_RUNNING = "status.phase!=Running,status.phase!=Unknown"
# The names of objects that do not depend on the experiment.
_NAMES = {"Secret": (SECRETS, KEYS, DESCRIPTION, USAGE), "ConfigMap": (ENVIRONMENT,)}


def keep_nothing(_: KubeExperiment) -> contextlib.AbstractContextManager[None]:
    """Keep no record of a deleted experiment."""
    return contextlib.nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionTarget:
    """An object to delete. ``of_job`` is True for a Pod that belongs to a Job.

    ``group`` is the name of the group of Pods that a queue manages, or ``""``.
    """

    kind: str
    name: str
    uid: str
    of_job: bool = False
    group: str = ""

    @property
    def owners(self) -> int:
        """The number of owners, such as a Job and a JobSet, that are deleted before the object."""
        if self.of_job:
            return 2
        return 1 if self.kind == "Job" else 0


def delete(
    experiment: KubeExperiment,
    *,
    jobs_only: bool,
    keeping: Keeping = keep_nothing,
    in_order: bool = True,
    at_once: bool = False,
) -> None:
    """Stop an experiment's supervisor, delete the experiment's objects, and return when they are
    gone.

    An experiment that does not exist is not an error. If ``scope`` is limited to a run, the objects
    and the supervisor of another run are not changed, although they can have the same names and
    appear at any time. With ``jobs_only``, kinds other than Jobs and
    Pods are skipped if the user is not allowed to list them. ``keeping`` returns a context manager
    in which the objects are deleted, and which keeps the record of the run. With ``in_order``, the
    Pods are stopped in the reverse of the start order. With ``at_once``, all of them have the
    shortest grace period. Raises `BackendError` if an object cannot be listed or
    deleted, or still exists after a time limit.
    """
    # The supervisor must not create objects during the deletion.
    directory = detached.directory_of(experiment)
    with detached.stopped(directory, experiment.scope.run), keeping(experiment):
        DescriptionStore(experiment).mark_deleting()
        _delete_objects(
            experiment, jobs_only=jobs_only, in_order=in_order and not at_once, at_once=at_once
        )


def _delete_objects(
    experiment: KubeExperiment, *, jobs_only: bool, in_order: bool, at_once: bool
) -> None:
    if experiment.scope.shared:
        in_cluster.delete(experiment)
        if in_order:
            _delete_first_waves(experiment)
        _delete_from_shared_namespace(experiment, jobs_only=jobs_only, at_once=at_once)
        return
    try:
        found = experiment.api.find(f"{NAMESPACES}/{experiment.namespace}")
    except ApiError as exc:
        raise _cannot("read", "namespaces", experiment.scope, exc) from exc
    if found is None or not is_in_scope(found, experiment.scope):
        return
    # Another launch can create a namespace with the same name at any time.
    experiment = experiment.of_run(run_of(found))
    if in_order and "deletionTimestamp" not in found["metadata"]:
        in_cluster.delete(experiment)
        _delete_first_waves(experiment)
    _delete_namespace(experiment, found["metadata"]["uid"], at_once=at_once)


def _delete_first_waves(experiment: KubeExperiment) -> None:
    """Delete the running Pods in the waves in which they are stopped, except for the last wave.

    If the order is not known, for example because the user may not list an object, nothing is
    deleted.
    """
    try:
        state, _ = experiments.observe_once(experiment)
    except BackendError:
        return
    if not any(unit.starts_after for unit in state.units):
        return
    observation = state.observe(experiment.api.now())
    remaining = {}
    for name, unit in observation.unit_statuses.items():
        is_placed = any(pod.node for pod in unit.pods)
        if is_placed and not unit.has_ended:
            remaining[name] = unit
    groups: dict[str, str] | None = None
    while remaining:
        wave = stopped_now(state.units, observation, remaining, experiment.api.now())
        if not wave or len(wave) == len(remaining):
            return
        if groups is None:
            path = collection_path("Pod", experiment.namespace)
            groups = {pod.uid: pod.group for pod in _pods(experiment.api, path, {})}
        targets = _targets_of([remaining.pop(name) for name in wave], groups)
        _delete_targets(experiment, targets)


def _targets_of(units: Iterable[UnitStatus], groups: Mapping[str, str]) -> list[DeletionTarget]:
    """Return the Pods, Jobs and JobSets of units. ``groups`` maps the UIDs of Pods to groups."""
    targets = {}
    for unit in units:
        for pod in unit.pods:
            targets[pod.uid] = DeletionTarget(
                kind="Pod",
                name=pod.name,
                uid=pod.uid,
                of_job=bool(pod.job),
                group=groups.get(pod.uid, ""),
            )
        if unit.job is not None:
            job = unit.job
            targets[job.uid] = DeletionTarget(kind=job.kind, name=job.name, uid=job.uid)
    return list(targets.values())


# --- a namespace for one experiment ---


def _delete_namespace(experiment: KubeExperiment, uid: str, *, at_once: bool) -> None:
    """Delete a namespace and all objects in it."""
    try:
        is_deleted = delete_uid(experiment.api, f"{NAMESPACES}/{experiment.namespace}", uid)
    except ApiError as exc:
        raise _cannot(
            "delete", f"namespace {experiment.namespace!r}", experiment.scope, exc
        ) from exc
    if not is_deleted:
        found = experiment.api.find(f"{NAMESPACES}/{experiment.namespace}")
        if found is None or found["metadata"]["uid"] != uid:
            return
    finish_namespace(experiment, uid, immediately=at_once)


def finish_namespace(experiment: KubeExperiment, uid: str, *, immediately: bool = False) -> None:
    """Wait until a namespace that is being deleted is gone.

    If ``immediately`` is set, the Pods in the namespace are killed without a grace period. If the
    scope is limited to a run, only its Pods are, because another launch can create a namespace with
    the same name as soon as this one is gone. Raises `BackendError` if the Pods do not terminate,
    if the namespace still exists `NAMESPACE_SECONDS` seconds after the Pods are gone, or if
    Kubernetes cannot find out what the namespace contains.
    """
    query = {"labelSelector": f"{RUN}={experiment.scope.run}"} if experiment.scope.run else {}
    _delete_pods(experiment, query, immediately=immediately)
    path = collection_path("Pod", experiment.namespace)
    pods = _pods(experiment.api, path, query)
    release_groups(experiment, {pod.uid: pod.group for pod in pods})
    stuck_pods = wait_for_pods(experiment.api, path, query, {pod.uid for pod in pods})
    if stuck_pods:
        cause = f"pods {wait_deleted.describe_stuck(stuck_pods)} do not terminate"
    else:
        cause = _wait_for_namespace(experiment, uid)
    if not cause:
        return
    raise BackendError(
        f"namespace {experiment.namespace!r} is being deleted, but it is still there: {cause}; "
        "remove what holds it, then delete again"
    )


def _wait_for_namespace(experiment: KubeExperiment, uid: str) -> str:
    """Wait until a namespace without Pods is gone. Return why it remains, or ``""`` if it is gone.

    Kubernetes keeps all namespaces while an API of another program does not answer. This can take
    any time, so it is reported as soon as it has been seen twice.
    """
    query = {"fieldSelector": f"metadata.name={experiment.namespace}"}
    deadline = time.monotonic() + NAMESPACE_SECONDS
    failures = 0
    while True:
        seconds = max(0.0, min(DISCOVERY_SECONDS, deadline - time.monotonic()))
        if not wait_deleted.until_gone(experiment.api, NAMESPACES, query, {uid}, timeout=seconds):
            return ""
        failure = _discovery_failure(experiment)
        failures = failures + 1 if failure else 0
        if failures > 1:
            return (
                "its Pods are gone, but Kubernetes cannot list what else it contains, because an "
                f"API of another program does not answer: {failure}; 'kubectl get apiservices' "
                "shows the API"
            )
        if time.monotonic() >= deadline:
            return why_namespace_remains(experiment)


def _discovery_failure(experiment: KubeExperiment) -> str:
    """Return the message about the APIs that Kubernetes cannot list, or ``""``."""
    for condition in _namespace_conditions(experiment):
        if condition.get("type") == "NamespaceDeletionDiscoveryFailure":
            return str(condition.get("message") or "no reason given")
    return ""


def _namespace_conditions(experiment: KubeExperiment) -> list[Object]:
    """Return the conditions of a namespace that are true."""
    found = experiment.api.find(f"{NAMESPACES}/{experiment.namespace}") or {}
    conditions = found.get("status", {}).get("conditions") or ()
    return [condition for condition in conditions if condition["status"] == "True"]


def _delete_pods(
    experiment: KubeExperiment, query: Mapping[str, str], *, immediately: bool
) -> None:
    """Delete the selected Pods in a namespace that is being deleted.

    Without this call, Kubernetes would delete the Pods some seconds later and would rarely check
    whether they are gone. It deletes the Pods that ``query`` does not select.
    """
    try:
        # The answer contains all deleted Pods.
        experiment.api.call_without_answer(
            "DELETE",
            collection_path("Pod", experiment.namespace),
            query=query,
            body={"gracePeriodSeconds": KILL_GRACE_SECONDS} if immediately else {},
            accept=ACCEPT_METADATA_LIST,
            timeout=DELETE_PODS_TIMEOUT_SECONDS,
        )
    except ApiError:
        # The user may not be allowed to delete Pods. In this case, Kubernetes deletes them later.
        return


def _pods(api: Api, path: str, query: Mapping[str, str]) -> list[DeletionTarget]:
    try:
        return list_all(api, path, _pod_target, query=query, accept=ACCEPT_METADATA_LIST).items
    except ApiError:
        return []


def why_namespace_remains(experiment: KubeExperiment) -> str:
    """Return why a namespace still exists, according to Kubernetes."""
    messages = [item.get("message", "") for item in _namespace_conditions(experiment)]
    return "; ".join(message for message in messages if message) or "Kubernetes gives no reason"


def wait_for_pods(
    api: Api, path: str, query: Mapping[str, str], uids: Collection[str]
) -> list[Remaining]:
    """Wait until deleted Pods are gone, and return the Pods that are stuck.

    After a Pod's containers have exited, the kubelet can take ten seconds to remove the Pod, or
    half a minute if it was about to start a container. To avoid this delay, this function removes a
    Pod immediately if all its containers have exited, or if none of them had started when the grace
    period ended.
    """
    began = time.monotonic()
    not_finished_query = {**query, "fieldSelector": NOT_FINISHED}
    not_running_query = {**query, "fieldSelector": NOT_RUNNING}
    while True:
        wait_deleted.until_gone(api, path, not_finished_query, uids, timeout=LATE_POD_SECONDS)
        listing = list_all(
            api, path, _pod_target, query=not_running_query, accept=ACCEPT_METADATA_LIST
        )
        _remove_immediately(api, path, [pod for pod in listing.items if pod.uid in uids])
        remaining = wait_deleted.until_gone(api, path, query, uids, timeout=LATE_POD_SECONDS)
        if not remaining:
            return []
        longest_grace = max(item.grace_seconds for item in remaining)
        if time.monotonic() > began + wait_deleted.STUCK_SECONDS + longest_grace:
            return remaining


def _remove_immediately(api: Api, path: str, pods: Iterable[DeletionTarget]) -> None:
    def remove(pod: DeletionTarget) -> None:
        try:
            delete_uid(api, f"{path}/{pod.name}", pod.uid, grace_seconds=0)
        except ApiError as exc:
            if exc.status != 403:
                raise

    in_parallel(remove, pods, threads=api.connections)


# --- a shared namespace ---


def _delete_from_shared_namespace(
    experiment: KubeExperiment, *, jobs_only: bool, at_once: bool
) -> None:
    for _ in range(MAX_ROUNDS):
        targets = _targets(experiment, jobs_only=jobs_only)
        if not targets:
            return
        _delete_targets(experiment, targets, grace_seconds=KILL_GRACE_SECONDS if at_once else None)
    raise BackendError(
        f"experiment {experiment.name!r} is being created while it is deleted: stop its "
        "launcher first"
    )


def _delete_targets(
    experiment: KubeExperiment,
    targets: Iterable[DeletionTarget],
    *,
    grace_seconds: int | None = None,
) -> None:
    """Delete objects, identified by UID, and wait until they are gone.

    ``grace_seconds`` overrides the grace period of each object.
    """
    targets = list(targets)

    def remove(target: DeletionTarget) -> None:
        path = f"{collection_path(target.kind, experiment.namespace)}/{target.name}"
        try:
            delete_uid(experiment.api, path, target.uid, grace_seconds=grace_seconds)
        except ApiError as exc:
            # If the user is not allowed to delete Pods, ignore the error, because Kubernetes
            # deletes the Pods of a deleted Job itself.
            if target.of_job and exc.status == 403:
                return
            what = describe(target.kind, target.name)
            raise _cannot("delete", what, experiment.scope, exc) from exc

    # A JobSet replaces its deleted Jobs, and a Job its deleted Pods, so these are deleted last.
    for owners in (0, 1, 2):
        step = [target for target in targets if target.owners == owners]
        in_parallel(remove, step, threads=experiment.api.connections)
    release_groups(experiment, {target.uid: target.group for target in targets})
    uids_by_kind: dict[str, set[str]] = {}
    for target in targets:
        uids_by_kind.setdefault(target.kind, set()).add(target.uid)
    for kind, uids in uids_by_kind.items():
        _wait(experiment, kind, uids)


def delete_selected(
    experiment: KubeExperiment,
    kinds: Iterable[str],
    selects: Callable[[Mapping[str, str]], bool],
) -> None:
    """Delete the objects of some kinds whose labels ``selects`` selects, and wait until they are
    gone.
    """
    targets = []
    for kind in kinds:
        for item in _list(experiment, kind, jobs_only=True) or ():
            if selects(labels_of(item)):
                targets.append(_target(kind, item))
    _delete_targets(experiment, targets)


def end_pods_of_run(experiment: KubeExperiment, run_id: str) -> None:
    """Delete the Pods that a launch's deleted Jobs have left behind, and wait until they are
    gone.
    """
    path = collection_path("Pod", experiment.namespace)
    query = {"labelSelector": f"{experiment.selector},{RUN}={run_id}"}
    targets = list_all(
        experiment.api, path, _pod_target, query=query, accept=ACCEPT_METADATA_LIST
    ).items
    _delete_targets(experiment, targets, grace_seconds=KILL_GRACE_SECONDS)


def find_runs(experiment: KubeExperiment) -> set[str]:
    """Return the labels of the runs to which an experiment's objects belong.

    Kinds that the user may not list are omitted.
    """

    def list_runs(kind: str) -> list[str]:
        path, query = (
            collection_path(kind, experiment.namespace),
            {"labelSelector": experiment.selector},
        )
        try:
            return list_all(
                experiment.api, path, run_of, query=query, accept=ACCEPT_METADATA_LIST
            ).items
        except ApiError as exc:
            if exc.status not in (403, 404):
                raise
            return []

    lists = in_parallel(list_runs, list(KINDS), threads=experiment.api.connections)
    return {run for runs in lists for run in runs}


def _wait(experiment: KubeExperiment, kind: str, uids: set[str]) -> None:
    """Wait until objects of a kind are gone. Raises `BackendError` if any of them are stuck."""
    wait = wait_for_pods if kind == "Pod" else wait_deleted.until_gone
    path = collection_path(kind, experiment.namespace)
    try:
        stuck = wait(experiment.api, path, {"labelSelector": experiment.selector}, uids)
    except ApiError as exc:
        # If the user is not allowed to list Jobs, waiting for their Pods is sufficient.
        if exc.status == 403:
            return
        raise
    if stuck:
        raise BackendError(
            f"experiment {experiment.name!r} is being deleted, but {plural_name(kind)} are "
            f"still there: {wait_deleted.describe_stuck(stuck)}; remove what holds them, then "
            "delete again"
        )


def _targets(experiment: KubeExperiment, *, jobs_only: bool) -> list[DeletionTarget]:
    """Return an experiment's objects.

    If the user is not allowed to list Jobs, the result contains the Jobs to which the Pods belong.
    Other kinds that the user is not allowed to list are omitted if listing them can be skipped.
    """
    lists = in_parallel(
        lambda kind: _list(experiment, kind, jobs_only=jobs_only),
        list(KINDS),
        threads=experiment.api.connections,
    )
    by_kind = dict(zip(KINDS, lists, strict=True))
    jobs = by_kind.pop("Job")
    pods = by_kind.pop("Pod") or []
    targets = [_target("Pod", pod) for pod in pods]
    if jobs is None:
        targets += _jobs_of_pods(pods)
    else:
        targets += [_target("Job", job) for job in jobs]
    for kind, items in by_kind.items():
        targets += [_target(kind, item) for item in items or ()]
    return targets


def _list(experiment: KubeExperiment, kind: str, *, jobs_only: bool) -> list[Object] | None:
    """Return the objects of one kind that belong to an experiment.

    Return None if the user is not allowed to list them and the listing can be skipped.
    """
    path = collection_path(kind, experiment.namespace)
    query = {"labelSelector": experiment.selector}
    try:
        return list_all(
            experiment.api, path, _identity, query=query, accept=ACCEPT_METADATA_LIST
        ).items
    except ApiError as exc:
        if exc.status == 404 and kind == "JobSet":
            # The cluster does not know JobSets.
            return []
        if exc.status == 403 and _can_be_skipped(experiment, kind, jobs_only=jobs_only):
            return None
        found = _find_by_name(experiment, kind) if exc.status == 403 else None
        if found is None:
            raise _cannot("list", plural_name(kind), experiment.scope, exc) from exc
        return found


def _find_by_name(experiment: KubeExperiment, kind: str) -> list[Object] | None:
    """Return the Secrets or ConfigMaps of an experiment for a user who may not list them.

    Their names are known, or are those of volumes of the experiment's Pods. Return None for other
    kinds, and if the user may not read these objects either.
    """
    names = {experiment.scope.object_name(name, kind) for name in _NAMES.get(kind, ())}
    if not names:
        return None
    found = []
    try:
        path = collection_path("Pod", experiment.namespace)
        listing = list_all(
            experiment.api, path, _volumes, query={"labelSelector": experiment.selector}
        )
        for volumes in listing.items:
            for volume in volumes:
                source = volume.get("secret" if kind == "Secret" else "configMap") or {}
                names.add(source.get("secretName" if kind == "Secret" else "name") or "")
        for name in sorted(names - {""}):
            body = experiment.api.find(f"{collection_path(kind, experiment.namespace)}/{name}")
            if body is not None and is_in_scope(body, experiment.scope):
                found.append(body)
    except ApiError as exc:
        if exc.status != 403:
            raise
        return None
    return found


def _can_be_skipped(experiment: KubeExperiment, kind: str, *, jobs_only: bool) -> bool:
    """Return whether listing the objects of a kind before the deletion can be skipped.

    This is the case if the user is assumed to have created no such objects, or if they can be
    deleted without being listed.
    """
    if kind == "Job":
        # Jobs need not be listed, because they are named in the owner references of their Pods.
        return True
    if kind == "Pod":
        return False
    return jobs_only or not may(experiment, "create", kind)


def _identity(item: Object) -> Object:
    """Return an object with the metadata that decide how it is deleted, and nothing else."""
    keys = ("name", "uid", "labels", "ownerReferences")
    metadata = item["metadata"]
    return {"metadata": {key: metadata[key] for key in keys if key in metadata}}


def _volumes(pod: Object) -> list[Object]:
    return pod["spec"].get("volumes") or []


def _pod_target(pod: Object) -> DeletionTarget:
    return _target("Pod", pod)


def _target(kind: str, item: Object) -> DeletionTarget:
    return DeletionTarget(
        kind=kind,
        name=item["metadata"]["name"],
        uid=item["metadata"]["uid"],
        of_job=kind == "Pod" and _job_owner(item) is not None,
        group=group_of(item),
    )


def _jobs_of_pods(pods: Iterable[Object]) -> list[DeletionTarget]:
    """Return the Jobs that own the Pods, for a user who is not allowed to list Jobs."""
    names: dict[str, str] = {}
    for pod in pods:
        owner = _job_owner(pod)
        if owner is not None:
            names[owner["uid"]] = owner["name"]
    return [DeletionTarget(kind="Job", name=name, uid=uid) for uid, name in names.items()]


def _job_owner(pod: Object) -> Object | None:
    """Return a Pod's owner reference to its Job, or None if the Pod does not belong to a Job."""
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner.get("kind") == "Job":
            return dict(owner)
    return None


def _cannot(verb: str, what: str, scope: Scope, exc: ApiError) -> BackendError:
    return BackendError(
        f"experiment {scope.experiment!r}: {error_messages.cannot(verb, what, scope, exc)}"
    )
