"""When a new namespace lets Pods in."""

from __future__ import annotations

from kubetest.rawapi import RawApi


def wait_for_account(api: RawApi, namespace: str) -> None:
    """Wait until a new namespace has its default service account. Raises TimeoutError after 30 s."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts?fieldSelector=metadata.name=default"
    for event in api.watch(path, seconds=30):
        # until 1.24 a Pod also waits for the account's secret, which comes a moment later
        if "secrets" in event["object"] or _modern(api):
            return
    raise TimeoutError(f"namespace {namespace} has had no default service account for 30 s")


def _modern(api: RawApi) -> bool:
    version = api.call("GET", "/version")
    return (int(version["major"]), int(version["minor"].rstrip("+"))) >= (1, 24)
