"""Messages for rejected calls. Each message is one line that states the cause and, if one is known,
a fix. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from symphony.errors import BackendError, LaunchFailed
from symphony.support.names import join_names
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import Scope
from symphony_kube.api.resources import describe, experiment_of, plural_name

# For each kind of object, a phrase that describes the settings that require it.
_NEEDED_FOR = {
    "Service": "services that are bound or exposed",
    "Secret": "secrets",
    "ConfigMap": "files that are mounted as configuration",
}
SECURITY_HINT = "set the option security to restricted"
# The option ``security`` sets these fields.
_SECURITY_FIELDS = (
    "allowPrivilegeEscalation",
    "unrestricted capabilities",
    "runAsNonRoot",
    "seccompProfile",
)
_FORBIDDEN = re.compile(r'cannot (\w+) resource "')


def is_trouble(exc: BackendError) -> bool:
    """Return whether the server, the connection or the credentials caused the error. If so, the
    request itself may be valid.
    """
    if isinstance(exc, LaunchFailed):
        return exc.trouble
    return not isinstance(exc, ApiError) or exc.status in (401, 429) or exc.status >= 500


def launch_failed(text: str, exc: BackendError) -> LaunchFailed:
    """Return the error for a launch that failed because of ``exc``."""
    return LaunchFailed(text, trouble=is_trouble(exc))


def is_quota_exceeded(exc: ApiError) -> bool:
    """Return whether the call failed because it would exceed a resource quota."""
    return exc.status == 403 and "exceeded quota" in exc.detail


def is_amount_missing(exc: ApiError) -> bool:
    """Return whether a Pod was refused because a resource quota requires amounts of resources."""
    return exc.status == 403 and "failed quota" in exc.detail and "must specify" in exc.detail


def is_terminating(exc: ApiError) -> bool:
    """Return whether the call failed because the namespace is being deleted."""
    return exc.status in (403, 409) and "being terminated" in exc.detail


def is_forbidden(exc: BackendError) -> bool:
    """Return whether the call failed because the user does not have permission to make it."""
    if not isinstance(exc, ApiError) or exc.status != 403:
        return False
    return bool(_FORBIDDEN.search(exc.detail))


def violates_pod_security(text: str) -> bool:
    """Return whether Pod security admission has refused a Pod that the option ``security`` would
    change.
    """
    return "violates PodSecurity" in text and any(field in text for field in _SECURITY_FIELDS)


def lacks_service_account(exc: ApiError) -> bool:
    """Return whether a Pod was rejected because its service account does not exist.

    The service account in a new namespace is created shortly after the namespace.
    """
    if exc.status == 403:
        return "error looking up service account" in exc.detail
    return exc.status >= 500 and "No API token found for service account" in exc.detail


def cannot_create(
    kind: str, name: str, scope: Scope, exc: BackendError, *, verb: str = "create"
) -> str:
    """Return why an object could not be created, and how to fix the problem."""
    what = f"cannot {verb} {describe(kind, name)}"
    if kind != "Namespace":
        what += f" in namespace {scope.namespace!r}"
    if not isinstance(exc, ApiError):
        return f"{what}: {exc}"
    hint = _hint(kind, scope, exc)
    return f"{what}: {exc.detail}; {hint}" if hint else f"{what}: {exc.detail}"


def name_taken(kind: str, name: str, scope: Scope, found: Mapping[str, Any] | None) -> str:
    """Return the message for an object that could not be created because its name is taken.

    ``found`` is the existing object with this name, or None if the user is not allowed to read it.
    """
    text = f"cannot create {describe(kind, name)} in namespace {scope.namespace!r}"
    if found is None:
        return f"{text}: the name is taken, and you may not read its owner; choose another name"
    owner = experiment_of(found)
    if owner is None:
        return (
            f"{text}: an object with that name exists and was not created by symphony, so it is "
            "left alone; choose another name, or delete it yourself"
        )
    return (
        f"{text}: the name is taken by experiment {owner!r}, which is left alone: in a shared "
        f"namespace object names begin with the name of the experiment, and {scope.experiment!r} "
        f"and {owner!r} begin alike; rename the experiment, or the process, group or service"
    )


def unknown_fields(kind: str, name: str, scope: Scope, fields: Mapping[str, Sequence[str]]) -> str:
    """Return the message for fields that the server does not know.

    ``fields`` maps what has set them, such as ``container_yml of process 'db'``, to their paths.
    """
    parts = [
        f"{where} has fields that the server does not know: {join_names(paths)}"
        for where, paths in fields.items()
    ]
    return (
        f"cannot create {describe(kind, name)} in namespace {scope.namespace!r} as written: "
        f"{'; '.join(parts)}"
    )


def cannot(verb: str, what: str, scope: Scope, exc: BackendError) -> str:
    """Return why a call that creates no object, such as listing Pods, failed."""
    if not isinstance(exc, ApiError):
        return f"cannot {verb} {what}: {exc}"
    text = f"cannot {verb} {what} in namespace {scope.namespace!r}: {exc.detail}"
    if not is_forbidden(exc):
        return text
    return (
        f"{text}; ask for the right to {verb} {what} in namespace {scope.namespace!r}, or choose "
        "another with namespace="
    )


def _hint(kind: str, scope: Scope, exc: ApiError) -> str:
    """Return advice for an object that could not be created, or ``""`` if there is none."""
    if is_quota_exceeded(exc):
        return "delete objects that are no longer needed, request less, or ask for a higher quota"
    if is_amount_missing(exc):
        return "set resource_request and resource_limit of each process"
    if is_terminating(exc):
        return "wait until it is deleted, or choose another name or namespace"
    if is_forbidden(exc):
        return _missing_right(kind, scope)
    if violates_pod_security(exc.detail):
        return SECURITY_HINT
    if lacks_service_account(exc):
        return (
            "service accounts belong to a namespace: create it there, or choose a namespace that "
            "has it"
        )
    if exc.status == 404 and scope.shared:
        return f"create namespace {scope.namespace!r}, or choose another with namespace="
    if exc.status == 400:
        return "check pod_yml and container_yml"
    if exc.status == 413:
        return "it is too large: put files on a volume"
    return ""


def _missing_right(kind: str, scope: Scope) -> str:
    if kind == "Namespace":
        return "use a shared namespace to which you have access, with namespace="
    right = f"ask for the right to create {plural_name(kind)} in namespace {scope.namespace!r}"
    if kind == "Pod" and scope.shared:
        return f"{right}, or use jobs_only=True if you may create Jobs"
    if kind == "Pod":
        return f"{right}, or use a shared namespace in which you have it, with namespace="
    if kind in _NEEDED_FOR:
        return f"{right}: {_NEEDED_FOR[kind]} need it"
    return right
