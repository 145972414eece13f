"""Launching: everything of an experiment is created, or nothing is left of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from symphony.cluster.matching import experiment_exists
from symphony.errors import AlreadyExists, BackendError, LaunchFailed, NotFound
from symphony.status import ExperimentStatus
from symphony_kube.api import error_messages
from symphony_kube.api import labels as names
from symphony_kube.api.client import ACCEPT_METADATA_LIST
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import Scope
from symphony_kube.api.resources import (
    NAMESPACES,
    Resource,
    collection_path,
    describe,
    is_managed,
    items_of,
    labels,
    to_resource,
    with_run_label,
)
from symphony_kube.lifecycle import delete, start_order, wait_deleted
from symphony_kube.lifecycle.create import STRICT, Creation, NameTaken, in_parallel
from symphony_kube.render.manifest import KubeManifest
from symphony_kube.render.overrides import Override, unknown
from symphony_kube.status import experiments, observe
from symphony_kube.status.pod_status import parse_time

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

Object = dict[str, Any]

# Something of an experiment without Pods, younger than this, in seconds, is one that is just being launched.
BEGINNING = 60.0
# How long the service account of a new namespace is waited for, in seconds.
ACCOUNT = 10
# A namespace of which nobody cares, and in which most may do what they may do in a new one.
ANY_NAMESPACE = "default"


def launch(
    api: Api,
    manifest: KubeManifest,
    *,
    run_id: str,
    force: bool,
    on_change: Callable[[ExperimentStatus], None] | None = None,
) -> None:
    """Create the objects of an experiment, each marked with ``run_id``, all or nothing.

    Returns when all are created: those of processes that start after others in their time. A live experiment of
    that name is refused (`AlreadyExists`), unless ``force`` replaces it; one that has ended gives way. Raises
    `LaunchFailed` with the object, the server's reason and how to mend it; then nothing is left.
    """
    make_room(api, manifest.scope, force=force, jobs_only=_only_jobs(manifest))
    try:
        _attempt(api, manifest, run_id, on_change)
    except _Leftovers:
        # Objects without Pods, which the first look did not show.
        delete.delete(api, manifest.scope, jobs_only=_only_jobs(manifest))
        _attempt(api, manifest, run_id, on_change)
    except AlreadyExists:
        if not force:
            raise
        delete.delete(api, manifest.scope, jobs_only=_only_jobs(manifest))
        _attempt(api, manifest, run_id, on_change)


class _Leftovers(LaunchFailed):
    """What is left of an earlier launch is in the way."""


def _only_jobs(manifest: KubeManifest) -> bool:
    return all(unit.job for unit in manifest.roster)


# --- room ---


def make_room(api: Api, scope: Scope, *, force: bool, jobs_only: bool) -> None:
    """See that no experiment of that name is there: one look, and a deletion where one may be deleted."""
    if scope.shared:
        there = _shared_is_live(api, scope)
    else:
        there = _namespace_is_live(api, scope)
    if there is None:
        return
    if there and not force:
        raise experiment_exists(scope.experiment)
    delete.delete(api, scope, jobs_only=jobs_only)


def _shared_is_live(api: Api, scope: Scope) -> bool | None:
    """Whether an experiment lives in a shared namespace; None where there is no Pod of it."""
    path = collection_path("Pod", scope.namespace)
    try:
        pods = items_of(api.call("GET", path, query={"labelSelector": scope.selector}))
    except ApiError as exc:
        raise error_messages.failed(error_messages.cannot("list", "pods", scope, exc), exc) from exc
    if not pods:
        return None
    seen = observe.observe(scope.experiment, pods, now=time.time())
    return not seen.status.ended or _is_live(api, scope)


def _namespace_is_live(api: Api, scope: Scope) -> bool | None:
    """Whether an experiment lives in its namespace; None where there is none (any more)."""
    try:
        found = api.find(f"{NAMESPACES}/{scope.namespace}")
    except ApiError as exc:
        if exc.status != 403:
            text = error_messages.cannot_create(
                "Namespace", scope.namespace, scope, exc, verb="read"
            )
            raise error_messages.failed(text, exc) from exc
        return None  # who may not read it may perhaps create it
    if found is None:
        return None
    if not is_managed(found, scope.experiment):
        raise _foreign(scope)
    if "deletionTimestamp" in found["metadata"]:
        _wait_for_namespace(api, scope, found)
        return None
    return _is_live(api, scope, found)


def _foreign(scope: Scope) -> LaunchFailed:
    return LaunchFailed(
        f"namespace {scope.namespace!r} is there and is not symphony's: it was left alone; choose another name for "
        "the experiment, or share a namespace with namespace="
    )


def _wait_for_namespace(api: Api, scope: Scope, found: Object) -> None:
    query = {"fieldSelector": f"metadata.name={scope.namespace}"}
    if wait_deleted.until_gone(
        api, NAMESPACES, query, {found["metadata"]["uid"]}, timeout=delete.WHOLE
    ):
        raise LaunchFailed(
            f"namespace {scope.namespace!r} is being deleted, and still is after {delete.WHOLE:g} s: "
            f"{delete.conditions(api, scope)}; remove what holds it, or choose another name"
        )


def _is_live(api: Api, scope: Scope, anything: Object | None = None) -> bool:
    """Whether an experiment goes on, by its Pods and Jobs; without any, by the age of ``anything`` else of it."""
    try:
        status = experiments.describe(api, scope)
    except NotFound:
        status = None
    if status is not None and status.processes:
        return not status.ended
    return anything is not None and not _is_old(anything)


def _is_old(body: Object) -> bool:
    created = parse_time(body["metadata"].get("creationTimestamp"))
    return created is not None and time.time() - created > BEGINNING


# --- creating ---


def _attempt(
    api: Api,
    manifest: KubeManifest,
    run_id: str,
    on_change: Callable[[ExperimentStatus], None] | None,
) -> None:
    scope = manifest.scope
    creation = Creation(api, scope, run_id)
    try:
        _create(api, manifest, creation, run_id, on_change)
    except BaseException as exc:
        # Ctrl-C too takes the launch back
        why = _why(api, scope, exc)
        left = _take_back(api, scope, creation)
        if left:
            raise LaunchFailed(
                f"{why or 'the launch was broken off'}; what was created could not all be taken back, "
                f"in namespace {scope.namespace!r} there is left: {', '.join(left)}; delete {scope.experiment!r} "
                "when that is mended",
                trouble=isinstance(why, BackendError) and error_messages.is_trouble(why),
            ) from exc
        if why is None or why is exc:
            raise
        raise why from exc


def _why(api: Api, scope: Scope, exc: BaseException) -> BaseException | None:
    """The error to raise for what broke a launch off; None for what is not symphony's."""
    if isinstance(exc, NameTaken):
        return _taken(api, scope, exc)
    if isinstance(exc, (LaunchFailed, AlreadyExists)):
        return exc
    return error_messages.failed(str(exc), exc) if isinstance(exc, BackendError) else None


def _taken(api: Api, scope: Scope, exc: NameTaken) -> BackendError | AlreadyExists:
    """The error for a name that another object has."""
    taken = exc.item
    if exc.found is None or not is_managed(exc.found, scope.experiment):
        if taken.kind == "Namespace":
            return _foreign(scope)
        return LaunchFailed(error_messages.taken(taken.kind, taken.name, scope, exc.found))
    try:
        if not _is_old(exc.found) or _is_live(api, scope, exc.found):
            return experiment_exists(scope.experiment)
    except BackendError as trouble:
        text = f"{describe(taken.kind, taken.name)} is there already, and how it is cannot be told: {trouble}"
        return error_messages.failed(text, trouble)
    return _Leftovers(
        f"{describe(taken.kind, taken.name)} is left of an earlier launch of {scope.experiment!r}"
    )


def _take_back(api: Api, scope: Scope, creation: Creation) -> list[str]:
    """Delete what was created, and wait until it is gone; what is left is told."""
    try:
        left = creation.take_back()
        if not left:
            _see_gone(api, scope, creation)
    except BackendError as exc:
        return [f"what is not gone yet ({exc})"]
    return left


def _see_gone(api: Api, scope: Scope, creation: Creation) -> None:
    """Wait for what takes its time: a namespace, and the Pods of Jobs."""
    made = list(creation.made.values())
    for found, body in made:
        if found.kind == "Namespace":
            delete.finish_namespace(api, scope, body["metadata"]["uid"], at_once=True)
            return
    if any(found.kind == "Job" for found, _ in made):
        delete.end_pods(api, scope, creation.run_id)


def _create(
    api: Api,
    manifest: KubeManifest,
    creation: Creation,
    run_id: str,
    on_change: Callable[[ExperimentStatus], None] | None,
) -> None:
    scope = manifest.scope
    ground = [
        to_resource(with_run_label(body, run_id), scope.namespace) for body in manifest.ground
    ]
    units = [to_resource(with_run_label(body, run_id), scope.namespace) for body in manifest.units]
    by_name = {unit.name: made for unit, made in zip(manifest.roster, units, strict=True)}
    first = [by_name[unit.name] for unit in manifest.roster if not unit.starts_after]
    steps: list[Callable[[], object]] = []
    if not scope.shared:
        # Only one launch can create it.
        space = creation.create(ground.pop(0))
        steps.append(partial(_wait_for_account, api, scope, space))
    steps += [partial(creation.create, each) for each in ground]
    in_parallel(_do, steps, threads=api.connections, over=creation.over)
    # The first of them has the roster, without which the others cannot be told of.
    for each in first[:1]:
        made = creation.create(each)
        if scope.shared:
            _see_alone(api, scope, creation, each, made)
    creation.create_all(first[1:])
    start_order.run(api, scope, manifest.roster, by_name, creation, on_change)


def _do(step: Callable[[], object]) -> None:
    step()


def _wait_for_account(api: Api, scope: Scope, space: Object) -> None:
    """Wait until Pods are let into a new namespace: one watch of its service account.

    Before Kubernetes 1.21, which labels namespaces with their names, Pods also need the account's secret.
    """
    modern = "kubernetes.io/metadata.name" in labels(space)
    path = f"{NAMESPACES}/{scope.namespace}/serviceaccounts"
    try:
        events = api.watch(path, query={"fieldSelector": "metadata.name=default"}, seconds=ACCOUNT)
        for event in events:
            if event["type"] != "DELETED" and (modern or event["object"].get("secrets")):
                events.close()
                return
    except BackendError:
        return  # who may not watch it comes again as long as Pods are refused


def _see_alone(api: Api, scope: Scope, creation: Creation, first: Resource, mine: Object) -> None:
    """See that no other launch of that name created its first Pod or Job earlier, in a shared namespace.

    What there was when ours came to be is told by the server, at that very version: of two launches at the same time
    the later sees the earlier, and gives way. Times of creation tell it to the second, and not in order.
    """
    query = {
        "labelSelector": scope.selector,
        "resourceVersion": mine["metadata"]["resourceVersion"],
        "resourceVersionMatch": "Exact",
    }
    try:
        others = api.call("GET", first.collection, query=query, accept=ACCEPT_METADATA_LIST)
    except ApiError as exc:
        if exc.status != 403:
            raise
        return  # who may not list Jobs meets those of the same name when they are created
    for other in items_of(others):
        if (
            labels(other).get(names.RUN) != creation.run_id
            and "deletionTimestamp" not in other["metadata"]
        ):
            raise experiment_exists(scope.experiment)


# --- asking only ---


def check(api: Api, manifest: KubeManifest) -> None:
    """Have the API server check every object, and create nothing. Raises `LaunchFailed` for one that it refuses,
    and for a field in pod_yml or container_yml that it does not know.

    Where the namespace is not there yet, the others are checked in the namespace ``default``.
    """
    scope = manifest.scope
    namespace = scope.namespace if scope.shared else ANY_NAMESPACE
    todo: list[tuple[Object, list[Override]]] = [(body, []) for body in manifest.ground]
    for unit, body in zip(manifest.roster, manifest.units, strict=True):
        todo.append((body, [hatch for hatch in manifest.overrides if hatch.unit == unit.name]))
    in_parallel(partial(_check, api, scope, namespace), todo, threads=api.connections)


def _check(api: Api, scope: Scope, namespace: str, given: tuple[Object, list[Override]]) -> None:
    body, own = given
    kind, name = body["kind"], body["metadata"]["name"]
    # Names were checked before; an object that is there already must not be in the way.
    stand_in = f"symphony-check-{secrets.token_hex(6)}"
    meta = {**body["metadata"], "name": stand_in}
    if kind != "Namespace":
        meta["namespace"] = namespace
    asked = to_resource({**body, "metadata": meta}, namespace)
    there = Scope(experiment=scope.experiment, namespace=namespace, shared=scope.shared)
    try:
        answer = api.call(
            "POST", asked.collection, query={"dryRun": "All", **STRICT}, body=asked.data
        )
    except ApiError as exc:
        exc.detail = exc.detail.replace(stand_in, name)
        raise error_messages.failed(
            error_messages.cannot_create(kind, name, there, exc), exc
        ) from exc
    for hatch in own:
        dropped = unknown(hatch, answer)
        if dropped:
            raise LaunchFailed(
                error_messages.unknown_fields(kind, name, there, hatch.where, dropped)
            )
