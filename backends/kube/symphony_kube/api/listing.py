"""List many objects in pages, and keep only what is needed of each.

A Pod takes up 7 kB in an answer of the server, and four times as much once it is parsed. The
objects of one page are reduced before the next page is requested, so that the memory of a command
depends on what it keeps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from symphony_kube.api.client import JSON, Api
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import READY
from symphony_kube.api.resources import items_of

if TYPE_CHECKING:
    from symphony_kube.api.client import Query

Object = dict[str, Any]
Kept = TypeVar("Kept")

# The number of objects in a page. A page of Pods takes up 40 MB while it is parsed.
PAGE_OBJECTS = 1000
# The status code of the server if it no longer has the version of the first page.
_GONE = 410
# The fields that are removed from the specification of a Pod, its containers and their statuses.
_UNUSED_OF_PODS = (
    "affinity",
    "dnsPolicy",
    "enableServiceLinks",
    "nodeSelector",
    "preemptionPolicy",
    "priority",
    "schedulerName",
    "securityContext",
    "serviceAccount",
    "serviceAccountName",
    "shareProcessNamespace",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
)
_UNUSED_OF_CONTAINERS = (
    "imagePullPolicy",
    "lifecycle",
    "securityContext",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "volumeMounts",
)
_UNUSED_OF_STATUSES = ("allocatedResources", "containerID", "resources", "user", "volumeMounts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[Kept]):
    """The kept parts of the objects in a collection, in the order of the server.

    A watch from ``version`` reports all later changes.
    """

    items: list[Kept] = field(default_factory=list)
    version: str = ""


def reduced(item: Object) -> Object:
    """Remove from an object what no command shows or decides by, and return the object.

    The fields that each program manages take up a third of a Pod. Only the time of the last change
    is of interest, except for a change of the annotation `READY`.
    """
    metadata = item["metadata"]
    managed = metadata.get("managedFields")
    if managed and READY not in (metadata.get("annotations") or ()):
        times = [entry["time"] for entry in managed if entry.get("time")]
        metadata["managedFields"] = [{"time": max(times)}] if times else []
    spec = item.get("spec") or {}
    if "containers" in spec:
        _remove(_UNUSED_OF_PODS, [spec])
        _remove(_UNUSED_OF_CONTAINERS, spec["containers"])
        _remove(_UNUSED_OF_CONTAINERS, spec.get("initContainers"))
        _remove(_UNUSED_OF_STATUSES, (item.get("status") or {}).get("containerStatuses"))
    return item


def _remove(keys: Iterable[str], parts: Iterable[Object] | None) -> None:
    for part in parts or ():
        for key in keys:
            part.pop(key, None)


def list_all(
    api: Api,
    path: str,
    keep: Callable[[Object], Kept],
    *,
    query: Query | None = None,
    accept: str = JSON,
    cancelled: threading.Event | None = None,
) -> Listing[Kept]:
    """List the objects of a collection, and return what ``keep`` returns for each of them.

    All objects are those of one version, although they are requested in pages. If the server no
    longer has this version, all of them are requested again at once. See `Api.call` for the other
    arguments and the errors.
    """
    kept: list[Kept] = []
    limit: int | None = PAGE_OBJECTS
    token: str | None = None
    while True:
        page_query = {**(query or {}), "limit": limit, "continue": token}
        try:
            answer = api.call("GET", path, query=page_query, accept=accept, cancelled=cancelled)
        except ApiError as exc:
            if exc.status != _GONE or token is None:
                raise
            kept.clear()
            limit = token = None
            continue
        kept.extend(keep(item) for item in items_of(answer))
        metadata = answer.get("metadata") or {}
        token = metadata.get("continue") or None
        if token is None:
            return Listing(items=kept, version=str(metadata.get("resourceVersion") or ""))
