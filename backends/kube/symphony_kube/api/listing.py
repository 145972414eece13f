"""List many objects in pages, and keep only what is needed of each.

A Pod takes up 7 kB in an answer of the server, and four times as much once it is parsed. The
objects of one page are reduced before the next page is requested, so that the memory of a command
depends on what it keeps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing(Generic[Kept]):
    """What was kept of the objects in a collection, in the order of the server.

    A watch from ``version`` reports all later changes.
    """

    items: list[Kept] = field(default_factory=list)
    version: str = ""


def without_managed_fields(item: Object) -> Object:
    """Remove from an object which program manages which of its fields, and return the object.

    This takes up half of a Pod. The times at which the programs changed the object stay, and the
    fields stay if the time of one of them is of interest.
    """
    metadata = item["metadata"]
    if READY not in (metadata.get("annotations") or ()):
        for entry in metadata.get("managedFields") or ():
            entry.pop("fieldsV1", None)
    return item


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
