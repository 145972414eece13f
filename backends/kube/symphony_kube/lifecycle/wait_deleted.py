"""Use list calls and watches to wait, up to a time limit, for deleted objects to disappear."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from symphony.errors import Unreachable
from symphony.support.causes import group_by_cause
from symphony_kube.api.client import ACCEPT_METADATA, ACCEPT_METADATA_LIST
from symphony_kube.api.errors import ApiError
from symphony_kube.api.resources import items_of

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

Object = dict[str, Any]

# How long an object can exist after its grace period before it is reported as stuck.
STUCK_SECONDS = 120.0
# The pause between list calls if the objects cannot be watched.
LIST_PAUSE_SECONDS = 0.5


def until_gone(
    api: Api,
    path: str,
    query: Mapping[str, str],
    uids: Collection[str],
    *,
    timeout: float | None = None,
) -> list[Object]:
    """Wait until no object with one of the ``uids`` exists or the time limit is reached.

    Return the objects that still exist.

    ``path`` and ``query`` select a list that contains these objects. ``timeout`` is the number of
    seconds to wait in addition to the objects' longest grace period. The default is
    `STUCK_SECONDS`.
    """
    deadline = time.monotonic() + (STUCK_SECONDS if timeout is None else timeout)
    while True:
        answer = api.call("GET", path, query=query, accept=ACCEPT_METADATA_LIST)
        remaining = {
            item["metadata"]["uid"]: item
            for item in items_of(answer)
            if item["metadata"]["uid"] in uids
        }
        longest_grace = max((grace_seconds(item) for item in remaining.values()), default=0.0)
        seconds_left = deadline + longest_grace - time.monotonic()
        if not remaining or seconds_left <= 0:
            return list(remaining.values())
        version = answer["metadata"]["resourceVersion"]
        try:
            _watch_deletions(
                api, path, {**query, "resourceVersion": version}, remaining, seconds_left
            )
        except (ApiError, Unreachable):
            time.sleep(LIST_PAUSE_SECONDS)
        if not remaining:
            return []


def _watch_deletions(
    api: Api,
    path: str,
    query: Mapping[str, str],
    remaining: dict[str, Object],
    seconds: float,
) -> None:
    """Watch for up to ``seconds`` seconds, and remove deleted objects from ``remaining``."""
    events = api.watch(path, query=query, accept=ACCEPT_METADATA, seconds=max(1, int(seconds)))
    try:
        for event in events:
            if event["type"] == "DELETED":
                remaining.pop(event["object"]["metadata"]["uid"], None)
            if not remaining:
                return
    finally:
        events.close()


def grace_seconds(item: Object) -> float:
    """Return the grace period of an object that is being deleted, in seconds, or 0 if there is
    none.
    """
    return float(item["metadata"].get("deletionGracePeriodSeconds") or 0)


def describe_stuck(items: Iterable[Object]) -> str:
    """Return the names of stuck objects, with the finalizers that block their deletion."""
    holders = []
    for item in items:
        finalizers = item["metadata"].get("finalizers") or ()
        holders.append((repr(item["metadata"]["name"]), ", ".join(finalizers)))
    words = []
    for group in group_by_cause(holders):
        words.append(f"{group} (held by {group.cause})" if group.cause else str(group))
    return ", ".join(words)
