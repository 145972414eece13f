"""The namespaces of tests, which are used again if a test has left nothing unusual behind.

When Kubernetes deletes a namespace, it lists all kinds of objects, and deletes the objects of each
kind. This takes several times as much CPU time as deleting what most tests leave behind.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from kubetest.accounts import wait_for_account
from kubetest.rawapi import ApiError

if TYPE_CHECKING:
    from kubetest.rawapi import Object, RawApi

# The collections whose objects are deleted before the next test. The field selectors exclude the
# objects that every namespace contains.
_LEFTOVERS = {
    "api/v1/namespaces/{}/secrets": "type!=kubernetes.io/service-account-token",
    "api/v1/namespaces/{}/configmaps": "metadata.name!=kube-root-ca.crt",
    "api/v1/namespaces/{}/events": "",
}
# A namespace that contains such an object is not used again. Controllers would create further
# objects after a Job was deleted, and the API server notices some time later that the others, which
# grant or restrict rights, were deleted.
_UNUSUAL = {
    "apis/batch/v1/namespaces/{}/jobs": "",
    "apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles": "",
    "api/v1/namespaces/{}/serviceaccounts": "metadata.name!=default",
    "api/v1/namespaces/{}/resourcequotas": "",
    "api/v1/namespaces/{}/persistentvolumeclaims": "",
}


class Namespaces:
    """The namespaces that the tests of one process use. Several threads can share the object.

    The names of the namespaces begin with ``prefix``.
    """

    def __init__(self, api: RawApi, prefix: str) -> None:
        self._api = api
        self._prefix = prefix
        self._free: list[Object] = []
        self._taken: dict[str, Object] = {}

    def take(self) -> str:
        """Return the name of an empty namespace."""
        try:
            namespace = self._free.pop()
        except IndexError:
            namespace = self._create()
        name: str = namespace["metadata"]["name"]
        self._taken[name] = namespace
        return name

    def give_back(self, name: str, *, may_be_used_again: bool) -> None:
        """Delete the objects that a test has left in a namespace, or the namespace itself."""
        namespace = self._taken.pop(name)
        if may_be_used_again and self._is_usual(namespace):
            self._empty(name)
            self._free.append(namespace)
        else:
            remove_namespace(self._api, name)

    def close(self) -> None:
        """Delete the namespaces."""
        for namespace in (*self._free, *self._taken.values()):
            remove_namespace(self._api, namespace["metadata"]["name"])
        self._free.clear()
        self._taken.clear()

    def _create(self) -> Object:
        name = f"{self._prefix}{secrets.token_hex(3)}"
        self._api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        try:
            wait_for_account(self._api, name)
            return self._api.call("GET", f"/api/v1/namespaces/{name}")
        except BaseException:
            remove_namespace(self._api, name)
            raise

    def _is_usual(self, namespace: Object) -> bool:
        """Return whether a namespace is unchanged and contains no unusual object."""
        name = namespace["metadata"]["name"]
        found = self._api.find(f"/api/v1/namespaces/{name}")
        if found is None:
            return False
        version = found["metadata"]["resourceVersion"]
        if version != namespace["metadata"]["resourceVersion"]:
            return False
        return not any(self._list(path, name, fields) for path, fields in _UNUSUAL.items())

    def _empty(self, name: str) -> None:
        delete_pods(self._api, name)
        # Kubernetes 1.20 cannot delete all Services with one request.
        for service in self._list("api/v1/namespaces/{}/services", name):
            path = f"/api/v1/namespaces/{name}/services/{service['metadata']['name']}"
            self._api.call("DELETE", path)
        for collection, fields in _LEFTOVERS.items():
            self._api.call("DELETE", _path(collection, name, fields))

    def _list(self, collection: str, name: str, fields: str = "") -> list[Object]:
        items: list[Object] = self._api.call("GET", _path(collection, name, fields))["items"]
        return items


def remove_namespace(api: RawApi, name: str) -> None:
    """Delete a namespace and, without a grace period, its Pods.

    Do nothing if the namespace does not exist.
    """
    try:
        delete_pods(api, name)
        api.call("DELETE", f"/api/v1/namespaces/{name}")
    except ApiError as exc:
        if exc.status != 404:
            raise


def delete_pods(api: RawApi, name: str) -> None:
    """Delete all Pods in a namespace without a grace period."""
    api.call("DELETE", f"/api/v1/namespaces/{name}/pods", {"gracePeriodSeconds": 0})


def _path(collection: str, name: str, fields: str) -> str:
    query = f"?fieldSelector={fields}" if fields else ""
    return f"/{collection.format(name)}{query}"
