"""Have the API server check an experiment's objects without creating them."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from symphony.errors import LaunchFailed
from symphony_kube.api import error_messages
from symphony_kube.api.errors import ApiError
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.labels import Scope
from symphony_kube.api.resources import to_resource
from symphony_kube.lifecycle.create import STRICT_QUERY, in_parallel, refusal
from symphony_kube.lifecycle.requirements import check_requirements
from symphony_kube.render.given_fields.overrides import Override, dropped_fields
from symphony_kube.render.manifest import KubeManifest
from symphony_kube.render.roster import units_by_object

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

Object = dict[str, Any]

# The objects of an experiment with its own namespace are checked in the default namespace, because
# the experiment's namespace may not exist yet. Most users have the same permissions in the default
# namespace as in a new namespace.
CHECK_NAMESPACE = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """An object to check, with the overrides that were merged into it."""

    body: Object
    overrides: tuple[Override, ...] = ()


def check_with_server(api: Api, manifest: KubeManifest) -> None:
    """Have the API server validate every object without creating it.

    Raises `LaunchFailed` if the server rejects an object, or if an override contains a field that
    the server does not know.
    """
    check_requirements(api, manifest.units)
    scope = manifest.scope
    _check(api, manifest, scope.namespace if scope.shared else CHECK_NAMESPACE)


def check_replacement(api: Api, manifest: KubeManifest) -> None:
    """Have the API server validate every object while an experiment of the same name is running.

    Refusals that the running experiment can cause, for example because of a quota, are ignored.
    Raises `LaunchFailed` if the server rejects an object for another reason.
    """
    _check(api, manifest, manifest.scope.namespace, can_ignore=_can_be_caused_by_running)


def _can_be_caused_by_running(exc: ApiError) -> bool:
    """Return whether a refusal can be caused by an experiment that will be deleted.

    It uses a part of the quota, and can have the only port or host name that is available. A
    webhook that cannot check objects without creating them is not a reason for a refusal either.
    """
    words = ("already", "does not support dry run")
    return error_messages.is_quota_exceeded(exc) or any(word in exc.detail for word in words)


def _check(
    api: Api,
    manifest: KubeManifest,
    namespace: str,
    *,
    can_ignore: Callable[[ApiError], bool] = lambda _: False,
) -> None:
    scope = manifest.scope
    candidates = [_Candidate(body=body) for body in manifest.base_objects]
    for units, body in zip(units_by_object(manifest.roster).values(), manifest.units, strict=True):
        names = {unit.name for unit in units}
        overrides = tuple(override for override in manifest.overrides if override.unit in names)
        candidates.append(_Candidate(body=body, overrides=overrides))
    check = partial(_check_object, KubeExperiment(api, scope), namespace, can_ignore)
    in_parallel(check, candidates, threads=api.connections)


def _check_object(
    experiment: KubeExperiment,
    namespace: str,
    can_ignore: Callable[[ApiError], bool],
    candidate: _Candidate,
) -> None:
    body = candidate.body
    kind, name = body["kind"], body["metadata"]["name"]
    # An existing object with the same name would cause an error, so the check uses another name.
    # The original names were validated when the objects were rendered.
    temporary_name = f"symphony-check-{secrets.token_hex(6)}"
    metadata = {**body["metadata"], "name": temporary_name}
    if kind != "Namespace":
        metadata["namespace"] = namespace
    resource = to_resource({**body, "metadata": metadata}, namespace)
    check_scope = Scope(
        experiment=experiment.name, namespace=namespace, shared=experiment.scope.shared
    )
    query = {"dryRun": "All", **STRICT_QUERY}
    try:
        answer = experiment.api.call("POST", resource.collection, query=query, body=resource.data)
    except ApiError as exc:
        if can_ignore(exc):
            return
        exc.detail = exc.detail.replace(temporary_name, name)
        named = to_resource(body, namespace)
        raise refusal(named, check_scope, exc, candidate.overrides) from exc
    dropped = {}
    for override in candidate.overrides:
        fields = dropped_fields(override, answer)
        if fields:
            dropped[override.description] = fields
    if dropped:
        raise LaunchFailed(error_messages.unknown_fields(kind, name, check_scope, dropped))
