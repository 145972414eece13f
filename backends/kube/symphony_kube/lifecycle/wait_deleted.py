"""Use list calls and watches to wait, up to a time limit, for deleted objects to disappear."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from symphony.errors import Unreachable
from symphony.support.causes import group_by_cause
from symphony_kube.api.client import ACCEPT_METADATA, ACCEPT_METADATA_LIST
from symphony_kube.api.errors import ApiError
from symphony_kube.api.listing import list_all

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

Object = dict[str, Any]

# How long an object can exist after its grace period before it is reported as stuck.
STUCK_SECONDS = 120.0
# The pause between list calls if the objects cannot be watched.
LIST_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """A deleted object that still exists.

    ``grace_seconds`` is its grace period, or 0 if it has none. ``finalizers`` names what blocks its
    deletion.
    """

    name: str
    uid: str
    grace_seconds: float = 0.0
    finalizers: str = ""


def until_gone(
    api: Api,
    path: str,
    query: Mapping[str, str],
    uids: Collection[str],
    *,
    timeout: float | None = None,
) -> list[Remaining]:
    """Wait until no object with one of the ``uids`` exists or the time limit is reached.

    Return the objects that still exist.

    ``path`` and ``query`` select a list that contains these objects. ``timeout`` is the number of
    seconds to wait in addition to the objects' longest grace period. The default is
    `STUCK_SECONDS`.
    """
    deadline = time.monotonic() + (STUCK_SECONDS if timeout is None else timeout)
    while True:
        listing = list_all(api, path, _remaining, query=query, accept=ACCEPT_METADATA_LIST)
        remaining = {item.uid: item for item in listing.items if item.uid in uids}
        longest_grace = max((item.grace_seconds for item in remaining.values()), default=0.0)
        seconds_left = deadline + longest_grace - time.monotonic()
        if not remaining or seconds_left <= 0:
            return list(remaining.values())
        watch_query = {**query, "resourceVersion": listing.version}
        try:
            _watch_deletions(api, path, watch_query, remaining, seconds_left)
        except (ApiError, Unreachable):
            time.sleep(LIST_PAUSE_SECONDS)
        if not remaining:
            return []


def _watch_deletions(
    api: Api,
    path: str,
    query: Mapping[str, str],
    remaining: dict[str, Remaining],
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


def _remaining(item: Object) -> Remaining:
    metadata = item["metadata"]
    return Remaining(
        name=metadata["name"],
        uid=metadata["uid"],
        grace_seconds=float(metadata.get("deletionGracePeriodSeconds") or 0),
        finalizers=", ".join(metadata.get("finalizers") or ()),
    )


def describe_stuck(items: Iterable[Remaining]) -> str:
    """Return the names of stuck objects, with the finalizers that block their deletion."""
    words = []
    for group in group_by_cause((repr(item.name), item.finalizers) for item in items):
        words.append(f"{group} (held by {group.cause})" if group.cause else str(group))
    return ", ".join(words)
