"""Waiting until what was deleted is gone: by a list and a watch, with an end."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from symphony.errors import Unreachable
from symphony_kube.api.client import ACCEPT_METADATA, ACCEPT_METADATA_LIST
from symphony_kube.api.errors import ApiError
from symphony_kube.api.resources import items_of

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

Object = dict[str, Any]

# How long after its grace period something may still be there, in seconds, before it is stuck.
STUCK = 120.0
# Where the user may list and not watch.
LOOK_AGAIN = 0.5


def until_gone(
    api: Api,
    path: str,
    query: Mapping[str, str],
    uids: Collection[str],
    *,
    timeout: float | None = None,
) -> list[Object]:
    """Return when none of the objects is there any more, or with those that are stuck.

    ``path`` and ``query`` list them among others. ``timeout`` is in seconds beyond their grace periods, usually
    `STUCK`.
    """
    end = time.monotonic() + (STUCK if timeout is None else timeout)
    while True:
        answer = api.call("GET", path, query=query, accept=ACCEPT_METADATA_LIST)
        left = {
            item["metadata"]["uid"]: item
            for item in items_of(answer)
            if item["metadata"]["uid"] in uids
        }
        remaining = (
            end + max((grace(item) for item in left.values()), default=0.0) - time.monotonic()
        )
        if not left or remaining <= 0:
            return list(left.values())
        try:
            _follow(
                api,
                path,
                {**query, "resourceVersion": answer["metadata"]["resourceVersion"]},
                left,
                remaining,
            )
        except (ApiError, Unreachable):
            time.sleep(LOOK_AGAIN)
        if not left:
            return []


def _follow(
    api: Api, path: str, query: Mapping[str, str], left: dict[str, Object], seconds: float
) -> None:
    """Watch until all of ``left`` are gone, at most so long, and take out those that go."""
    events = api.watch(path, query=query, accept=ACCEPT_METADATA, seconds=max(1, int(seconds)))
    try:
        for event in events:
            if event["type"] == "DELETED":
                left.pop(event["object"]["metadata"]["uid"], None)
            if not left:
                return
    finally:
        events.close()


def grace(item: Object) -> float:
    """How long an object that is being deleted may take, in seconds."""
    return float(item["metadata"].get("deletionGracePeriodSeconds") or 0)


def stuck(items: Iterable[Object]) -> str:
    """Objects that do not go, with what holds them."""
    words = []
    for item in items:
        held = ", ".join(item["metadata"].get("finalizers") or ())
        words.append(f"{item['metadata']['name']!r}" + (f" (held by {held})" if held else ""))
    shown = ", ".join(words[:5])
    return f"{shown} and {len(words) - 5} more" if len(words) > 5 else shown
