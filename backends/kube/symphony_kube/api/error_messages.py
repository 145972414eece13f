"""What a refused call means for a launch or a deletion, and how to mend it: one line. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from symphony.errors import BackendError, LaunchFailed
from symphony.names import join_names
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import Scope
from symphony_kube.api.resources import describe, experiment_of, plural_name

# What a Service, a Secret or a ConfigMap is needed for, in the words of the specification.
_NEEDED = {
    "Service": "services that are bound or exposed",
    "Secret": "secrets",
    "ConfigMap": "files that are mounted as configuration",
}
_LACKS_RIGHT = re.compile(r'cannot (\w+) resource "')


def is_trouble(exc: BackendError) -> bool:
    """Whether the server is away or not itself, or does not know the user: what was asked for may be right."""
    if isinstance(exc, LaunchFailed):
        return exc.trouble
    return not isinstance(exc, ApiError) or exc.status in (401, 429) or exc.status >= 500


def failed(text: str, exc: BackendError) -> LaunchFailed:
    """The error of a launch that ``exc`` broke off."""
    return LaunchFailed(text, trouble=is_trouble(exc))


def is_quota(exc: ApiError) -> bool:
    """Whether a quota is used up."""
    return exc.status == 403 and "exceeded quota" in exc.detail


def is_ending(exc: ApiError) -> bool:
    """Whether a namespace is on its way out."""
    return exc.status in (403, 409) and "being terminated" in exc.detail


def lacks_right(exc: BackendError) -> bool:
    """Whether the user may not do that."""
    return isinstance(exc, ApiError) and exc.status == 403 and bool(_LACKS_RIGHT.search(exc.detail))


def no_account(exc: ApiError) -> bool:
    """Whether a namespace is so new that its service account is not there yet."""
    return (exc.status == 403 and "error looking up service account" in exc.detail) or (
        exc.status >= 500 and "No API token found for service account" in exc.detail
    )


def cannot_create(
    kind: str, name: str, scope: Scope, exc: BackendError, *, verb: str = "create"
) -> str:
    """Why an object could not be created, and how to mend it."""
    where = "" if kind == "Namespace" else f" in namespace {scope.namespace!r}"
    if not isinstance(exc, ApiError):
        return f"cannot {verb} {describe(kind, name)}{where}: {exc}"
    mend = _mend(kind, scope, exc)
    return f"cannot {verb} {describe(kind, name)}{where}: {exc.detail}{f'; {mend}' if mend else ''}"


def taken(kind: str, name: str, scope: Scope, found: Mapping[str, Any] | None) -> str:
    """Why an object could not be created whose name another has: ``found``, or None where it may not be read."""
    text = f"cannot create {describe(kind, name)} in namespace {scope.namespace!r}"
    if found is None:
        return f"{text}: one of that name is there, and whose it is may not be read; choose another name"
    owner = experiment_of(found)
    if owner is None:
        return (
            f"{text}: one of that name is there; it is not symphony's and was left alone: choose another name, or "
            "delete it yourself"
        )
    return (
        f"{text}: one of that name belongs to experiment {owner!r}, which is left alone: in a shared namespace names "
        f"begin with the experiment's, and {scope.experiment!r} and {owner!r} begin alike; rename the experiment or "
        "what is in it"
    )


def unknown_fields(kind: str, name: str, scope: Scope, where: str, fields: Sequence[str]) -> str:
    """Why an object would not become what its user wrote: a server that does not know a field leaves it out."""
    return (
        f"cannot create {describe(kind, name)} in namespace {scope.namespace!r} as it is written: {where} has what the "
        f"server does not know and would leave out: {join_names(fields)}"
    )


def cannot(verb: str, what: str, scope: Scope, exc: BackendError) -> str:
    """Why something else could not be done, such as to list Pods."""
    if not isinstance(exc, ApiError):
        return f"cannot {verb} {what}: {exc}"
    mend = f"; {_ask_for(verb, what, scope)}" if lacks_right(exc) else ""
    return f"cannot {verb} {what} in namespace {scope.namespace!r}: {exc.detail}{mend}"


def _ask_for(verb: str, what: str, scope: Scope) -> str:
    return f"ask for the right to {verb} {what} in namespace {scope.namespace!r}, or choose another with namespace="


def _mend(kind: str, scope: Scope, exc: ApiError) -> str:
    if is_quota(exc):
        return "delete what is no longer needed there, ask for less, or have the quota raised"
    if is_ending(exc):
        return "wait until it is gone, or choose another name or namespace"
    if lacks_right(exc):
        return _missing_right(kind, scope)
    if no_account(exc):
        return "service accounts belong to a namespace: create it there, or choose a namespace that has it"
    if exc.status == 404 and scope.shared:
        return f"create namespace {scope.namespace!r}, or choose another with namespace="
    return {
        400: "see what pod_yml and container_yml put in",
        413: "it is too large: files belong on a volume",
    }.get(exc.status, "")


def _missing_right(kind: str, scope: Scope) -> str:
    if kind == "Namespace":
        return "share a namespace that you may use, with namespace="
    right = f"ask for the right to create {plural_name(kind)} in namespace {scope.namespace!r}"
    if kind == "Pod" and scope.shared:
        return f"{right}, or, if you may create Jobs, use jobs_only=True"
    if kind == "Pod":
        return f"{right}, or share one where you have it, with namespace="
    if kind in _NEEDED:
        return f"{right}: {_NEEDED[kind]} need it"
    return right
