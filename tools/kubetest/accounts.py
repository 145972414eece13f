"""Wait until a change to service accounts, permissions or quotas takes effect.

This happens some time after the API server accepts the change.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kubetest.rawapi import ApiError, RawApi

if TYPE_CHECKING:
    from kubetest.rawapi import Object

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
# The error messages for a Pod whose service account does not exist yet or has no secret yet.
_NO_ACCOUNT = ("error looking up service account", "No API token found for service account")


def wait_for_account(api: RawApi, namespace: str, name: str = "default") -> None:
    """Wait until the API server admits Pods that use a new service account, such as the default
    account of a new namespace.

    Raises TimeoutError if there is no such account after 30 s, or if the API server does not admit
    Pods within another 30 s.
    """
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts?fieldSelector=metadata.name={name}"
    for event in api.watch(path, seconds=30):
        # Before Kubernetes 1.24, every account also has a secret, which is created later and which
        # a Pod may need.
        if "secrets" in event["object"] or _has_token_requests(api):
            break
    else:
        raise TimeoutError(f"namespace {namespace} has had no service account {name} for 30 s")
    _until(lambda: _admits_pods(api, namespace, name), f"Pods of service account {name}")


def wait_for_right(api: RawApi, namespace: str, account: str, rule: Object) -> None:
    """Wait until a service account has the first permission that `rule` grants.

    `rule` is a rule of a new Role that is bound to the account.

    Raises TimeoutError if this takes longer than 30 s.
    """
    resource, _, part = rule["resources"][0].partition("/")
    asked = {
        "namespace": namespace,
        "verb": rule["verbs"][0],
        "group": rule["apiGroups"][0],
        "resource": resource,
        "subresource": part,
        "name": next(iter(rule.get("resourceNames", [])), ""),
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{namespace}:{account}",
            "resourceAttributes": asked,
        },
    }
    _until(
        lambda: bool(api.call("POST", REVIEWS, review)["status"].get("allowed")),
        f"the rights of {account}",
    )


def wait_for_quota(api: RawApi, namespace: str, name: str) -> None:
    """Wait until a new quota that forbids PodTemplates is enforced.

    Raises TimeoutError if this takes longer than 30 s.
    """
    _until(lambda: _is_enforced(api, namespace, name), f"quota {name}")


def _until(holds: Callable[[], bool], what: str) -> None:
    """Call `holds` repeatedly, with growing pauses, until it returns true.

    Polling is necessary because the API server sends no event when a change takes effect.
    """
    deadline = time.monotonic() + 30
    pause_seconds = 0.02
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited for {what} for 30 s")
        time.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 1.5, 0.5)


def _admits_pods(api: RawApi, namespace: str, account: str) -> bool:
    spec = {"serviceAccountName": account, "containers": [{"name": "probe", "image": "none"}]}
    try:
        api.call(
            "POST",
            f"/api/v1/namespaces/{namespace}/pods?dryRun=All",
            {"metadata": {"name": "probe"}, "spec": spec},
        )
    except ApiError as exc:
        return not any(word in str(exc) for word in _NO_ACCOUNT)
    return True


def _is_enforced(api: RawApi, namespace: str, quota: str) -> bool:
    spec = {"containers": [{"name": "probe", "image": "none"}]}
    try:
        api.call(
            "POST",
            f"/api/v1/namespaces/{namespace}/podtemplates?dryRun=All",
            {"metadata": {"name": "probe"}, "template": {"spec": spec}},
        )
    except ApiError as exc:
        return f"exceeded quota: {quota}" in str(exc)
    return False


def _has_token_requests(api: RawApi) -> bool:
    version = api.call("GET", "/version")
    return (int(version["major"]), int(version["minor"].rstrip("+"))) >= (1, 24)
