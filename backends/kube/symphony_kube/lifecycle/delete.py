"""Deleting an experiment: all of it, nothing else, and waiting until it is gone."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError
from symphony_kube.api import error_messages, labels
from symphony_kube.api.client import ACCEPT_METADATA_LIST
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import Scope
from symphony_kube.api.resources import (
    KINDS,
    NAMESPACES,
    collection_path,
    describe,
    is_managed,
    items_of,
    plural_name,
)
from symphony_kube.lifecycle import wait_deleted
from symphony_kube.lifecycle.create import delete_uid, in_parallel

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

Object = dict[str, Any]

# How long a namespace may take beyond its Pods, in seconds.
WHOLE = 120.0
# A launcher may still create what it had begun to; then there is something left to delete.
ROUNDS = 3
# The server deletes many Pods one after the other, and answers then.
MANY_PODS = 60.0
# A Pod that is still there so long after its grace period, in seconds, is late.
LATE = 2.0
NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
NOT_RUNNING = "status.phase!=Running,status.phase!=Unknown"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An object to be deleted. ``of_job`` is a Pod that goes with its Job."""

    kind: str
    name: str
    uid: str
    of_job: bool = False


def delete(api: Api, scope: Scope, *, jobs_only: bool) -> None:
    """Delete the objects of an experiment, and return when they are gone. One that is not there is no error.

    ``jobs_only`` says that the user may be one who can list nothing but Pods. Raises `BackendError`.
    """
    if scope.shared:
        _delete_objects(api, scope, jobs_only=jobs_only)
        return
    try:
        found = api.find(f"{NAMESPACES}/{scope.namespace}")
    except ApiError as exc:
        raise _refused("read", "namespaces", scope, exc) from exc
    if found is not None and is_managed(found, scope.experiment):
        delete_namespace(api, scope, found["metadata"]["uid"])


def delete_namespace(api: Api, scope: Scope, uid: str, *, at_once: bool = False) -> None:
    """Delete a namespace of ours with all that is in it; ``at_once`` without a grace period."""
    try:
        delete_uid(api, f"{NAMESPACES}/{scope.namespace}", uid)
    except ApiError as exc:
        raise _refused("delete", f"namespace {scope.namespace!r}", scope, exc) from exc
    finish_namespace(api, scope, uid, at_once=at_once)


def finish_namespace(api: Api, scope: Scope, uid: str, *, at_once: bool = False) -> None:
    """Wait until a namespace that was deleted is gone. Raises `BackendError` where something holds it."""
    _delete_pods(api, scope, at_once=at_once)
    pods = pods_gone(api, *_all_pods(api, scope))
    query = {"fieldSelector": f"metadata.name={scope.namespace}"}
    if not pods and not wait_deleted.until_gone(api, NAMESPACES, query, {uid}, timeout=WHOLE):
        return
    why = f"pods {wait_deleted.stuck(pods)} do not end" if pods else conditions(api, scope)
    raise BackendError(
        f"namespace {scope.namespace!r} is being deleted, but it is still there: {why}; remove what holds it, "
        "then delete again"
    )


def _delete_pods(api: Api, scope: Scope, *, at_once: bool) -> None:
    """Begin with the Pods now: Kubernetes does so after some seconds, and looks whether they ended even later."""
    body = {"gracePeriodSeconds": 0} if at_once else {}
    try:
        api.call(
            "DELETE",
            collection_path("Pod", scope.namespace),
            body=body,
            accept=ACCEPT_METADATA_LIST,
            timeout=MANY_PODS,
        )
    except ApiError:
        return  # without that right it takes longer


def _all_pods(api: Api, scope: Scope) -> tuple[str, dict[str, str], set[str]]:
    path = collection_path("Pod", scope.namespace)
    try:
        found = items_of(api.call("GET", path, accept=ACCEPT_METADATA_LIST))
    except ApiError:
        found = []
    return path, {}, {item["metadata"]["uid"] for item in found}


def conditions(api: Api, scope: Scope) -> str:
    """Why a namespace does not go, in Kubernetes' words."""
    found = api.find(f"{NAMESPACES}/{scope.namespace}") or {}
    told = found.get("status", {}).get("conditions") or ()
    words = [item.get("message", "") for item in told if item["status"] == "True"]
    return "; ".join(word for word in words if word) or "Kubernetes does not say why"


def pods_gone(api: Api, path: str, query: Mapping[str, str], uids: Collection[str]) -> list[Object]:
    """Return when Pods that were deleted are gone, or with those that are stuck.

    A kubelet that has ended a Pod may take ten seconds more to say goodbye, and half a minute where it was about to
    start one. That is not waited for where all containers have ended, or none had started when its time was over.
    """
    began = time.monotonic()
    while True:
        wait_deleted.until_gone(
            api, path, {**query, "fieldSelector": NOT_ENDED}, uids, timeout=LATE
        )
        over = items_of(
            api.call(
                "GET",
                path,
                query={**query, "fieldSelector": NOT_RUNNING},
                accept=ACCEPT_METADATA_LIST,
            )
        )
        _remove_at_once(api, path, [item for item in over if item["metadata"]["uid"] in uids])
        left = wait_deleted.until_gone(api, path, query, uids, timeout=LATE)
        if not left or time.monotonic() > began + wait_deleted.STUCK + max(
            map(wait_deleted.grace, left)
        ):
            return left


def _remove_at_once(api: Api, path: str, items: Iterable[Object]) -> None:
    def remove(item: Object) -> None:
        try:
            delete_uid(api, f"{path}/{item['metadata']['name']}", item["metadata"]["uid"])
        except ApiError as exc:
            if exc.status != 403:
                raise

    in_parallel(remove, items, threads=api.connections)


# --- a shared namespace ---


def _delete_objects(api: Api, scope: Scope, *, jobs_only: bool) -> None:
    for _ in range(ROUNDS):
        targets = _targets(api, scope, jobs_only=jobs_only)
        if not targets:
            return
        delete_targets(api, scope, targets)
    raise BackendError(
        f"experiment {scope.experiment!r} is created anew as it is deleted: end its launcher first"
    )


def delete_targets(
    api: Api, scope: Scope, targets: Iterable[Target], *, at_once: bool = False
) -> None:
    """Delete objects by uid, and wait until they are gone."""
    by_kind: dict[str, list[Target]] = {}
    for target in targets:
        by_kind.setdefault(target.kind, []).append(target)
    everything = [target for found in by_kind.values() for target in found]

    def remove(target: Target) -> None:
        path = f"{collection_path(target.kind, scope.namespace)}/{target.name}"
        try:
            delete_uid(api, path, target.uid, at_once=at_once)
        except ApiError as exc:
            if not (target.of_job and exc.status == 403):  # it goes with its Job
                raise _refused("delete", describe(target.kind, target.name), scope, exc) from exc

    # Jobs before their Pods, or they would make new ones.
    for of_job in (False, True):
        in_parallel(
            remove,
            [target for target in everything if target.of_job is of_job],
            threads=api.connections,
        )
    for kind, found in by_kind.items():
        _wait(api, scope, kind, {target.uid for target in found})


def end_pods(api: Api, scope: Scope, run_id: str) -> None:
    """End the Pods of the Jobs of one launch, which were deleted, and wait until they are gone."""
    path = collection_path("Pod", scope.namespace)
    query = {"labelSelector": f"{scope.selector},{labels.RUN}={run_id}"}
    pods = items_of(api.call("GET", path, query=query, accept=ACCEPT_METADATA_LIST))
    delete_targets(api, scope, [_target("Pod", pod) for pod in pods], at_once=True)


def _wait(api: Api, scope: Scope, kind: str, uids: set[str]) -> None:
    try:
        wait = pods_gone if kind == "Pod" else wait_deleted.until_gone
        left = wait(
            api, collection_path(kind, scope.namespace), {"labelSelector": scope.selector}, uids
        )
    except ApiError as exc:
        if exc.status == 403:  # Jobs that may not be listed: their Pods tell
            return
        raise
    if left:
        raise BackendError(
            f"experiment {scope.experiment!r} is being deleted, but {plural_name(kind)} are still there: "
            f"{wait_deleted.stuck(left)}; remove what holds them, then delete again"
        )


def _targets(api: Api, scope: Scope, *, jobs_only: bool) -> list[Target]:
    """The objects of an experiment, as far as this user may have made them."""
    found = in_parallel(
        lambda kind: _list(api, scope, kind, jobs_only=jobs_only),
        list(KINDS),
        threads=api.connections,
    )
    by_kind = dict(zip(KINDS, found, strict=True))
    jobs = by_kind.pop("Job")
    pods = by_kind.pop("Pod") or []
    targets = [_target("Pod", item) for item in pods]
    targets += _owners(pods) if jobs is None else [_target("Job", item) for item in jobs]
    return targets + [
        _target(kind, item) for kind, items in by_kind.items() for item in items or ()
    ]


def _list(api: Api, scope: Scope, kind: str, *, jobs_only: bool) -> list[Object] | None:
    """The objects of a kind; None where this user may not list them, and could not have made them."""
    path = collection_path(kind, scope.namespace)
    try:
        answer = api.call(
            "GET", path, query={"labelSelector": scope.selector}, accept=ACCEPT_METADATA_LIST
        )
    except ApiError as exc:
        allowed_without = kind == "Job" or (
            kind != "Pod" and (jobs_only or not _may_create(api, scope, kind))
        )
        if exc.status == 403 and allowed_without:
            return None
        raise _refused("list", plural_name(kind), scope, exc) from exc
    return items_of(answer)


def _may_create(api: Api, scope: Scope, kind: str) -> bool:
    asked = {"namespace": scope.namespace, "verb": "create", "resource": plural_name(kind)}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    try:
        return bool(api.call("POST", REVIEWS, body=body)["status"].get("allowed"))
    except ApiError:
        return False


def _target(kind: str, item: Object) -> Target:
    meta = item["metadata"]
    return Target(
        kind=kind, name=meta["name"], uid=meta["uid"], of_job=kind == "Pod" and bool(_job_of(item))
    )


def _owners(pods: Iterable[Object]) -> list[Target]:
    """The Jobs of Pods, for a user who may not list Jobs."""
    found = {owner["uid"]: owner for owner in map(_job_of, pods) if owner}
    return [Target(kind="Job", name=owner["name"], uid=uid) for uid, owner in found.items()]


def _job_of(pod: Object) -> Object | None:
    owners = pod["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("kind") == "Job"), None)


def _refused(verb: str, what: str, scope: Scope, exc: ApiError) -> BackendError:
    return BackendError(
        f"experiment {scope.experiment!r}: {error_messages.cannot(verb, what, scope, exc)}"
    )
