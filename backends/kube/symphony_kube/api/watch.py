"""Following lists of objects: one list and one watch for each kind, for as long as somebody wants to know.

A watch that ends or breaks off is taken up where it was; where the server no longer knows that place (410), the
list is asked for again.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from symphony.errors import SymphonyError, Unreachable
from symphony_kube.api.client import Api, ResponseStream, events
from symphony_kube.api.errors import ApiError

Object = dict[str, Any]

# How long a watch lasts before it is begun anew, in seconds: what a silent loss of the network costs at most.
LASTS = 120
# A server that ends a watch late is given so much longer, in seconds.
LATE = 15.0
# How long a server may be away, in seconds, and the pauses between tries.
OUTAGE_SECONDS = 60.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
# A watch from a place that is too old, or from the future of a server that lags behind.
NO_SUCH_PLACE = (410, 504)

LISTED = "LISTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What happened to objects of a kind: ADDED, MODIFIED or DELETED one, or LISTED all of them."""

    kind: str
    event: str
    objects: tuple[Object, ...]


Changes = queue.SimpleQueue["Change | SymphonyError | None"]


class Watcher:
    """Lists of objects by kind, and then all that changes in them.

    ``paths`` has the path of each kind in the API, ``selector`` chooses objects by label. Close it when done, from
    any thread. ``outage_seconds`` is how long the server may be away, in seconds.
    """

    def __init__(
        self,
        api: Api,
        paths: Mapping[str, str],
        selector: str,
        *,
        outage_seconds: float | None = None,
    ) -> None:
        self._api = api
        self._paths = paths
        self._selector = selector
        self._outage_seconds = OUTAGE_SECONDS if outage_seconds is None else outage_seconds
        self._changes: Changes = queue.SimpleQueue()
        self._feeds: list[_Feed] = []
        self._closed = False

    def __enter__(self) -> Watcher:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def start(self, kind: str, *, optional: bool = False) -> tuple[Object, ...]:
        """List the objects of a kind, and begin to watch them. Raises `ApiError` and `Unreachable`.

        ``optional`` is for a kind that may be listed and perhaps not watched: what was listed is then all there is.
        """
        feed = _Feed(
            self._api, kind, self._paths[kind], self._selector, self._changes, self._outage_seconds
        )
        feed.optional = optional
        objects = feed.list()
        self._feeds.append(feed)
        if not self._closed:
            threading.Thread(target=feed.run, daemon=True, name=f"watch-{kind}").start()
        return objects

    def changes(self, seconds: float | None = None) -> list[Change]:
        """What has changed, as soon as something has; nothing after so many seconds, or when it was closed.

        Raises `Unreachable` or `ApiError` where it can be followed no longer.
        """
        found: list[Change] = []
        with contextlib.suppress(queue.Empty):
            item = self._changes.get(timeout=seconds)
            while item is not None:
                if isinstance(item, SymphonyError):
                    raise item
                found.append(item)
                item = self._changes.get_nowait()
        return found

    def close(self) -> None:
        """End the watches; whoever waits for changes gets none."""
        self._closed = True
        self._changes.put(None)
        for feed in self._feeds:
            feed.close()


class _Feed:
    """The list and the watch of one kind; what it finds goes into a queue. It runs in a thread of its own."""

    def __init__(
        self, api: Api, kind: str, path: str, selector: str, changes: Changes, outage_seconds: float
    ) -> None:
        self._api = api
        self._kind = kind
        self._path = path
        self._selector = selector
        self._changes = changes
        self._outage_seconds = outage_seconds
        self._place: str | None = None
        self._answer: ResponseStream | None = None
        self._closed = threading.Event()
        self._last_heard = time.monotonic()
        self._pause = FIRST_PAUSE
        self.optional = False

    def list(self) -> tuple[Object, ...]:
        """The objects as they are now; the watch goes on from there."""
        answer = self._api.call("GET", self._path, query={"labelSelector": self._selector})
        self._last_heard = time.monotonic()  # the answer may have taken its time
        self._place = answer["metadata"]["resourceVersion"]
        return tuple(answer.get("items") or ())

    def run(self) -> None:
        """Watch again and again; an error that time does not heal is told, and ends it."""
        while not self._closed.is_set():
            try:
                if self._place is None:
                    self._put(LISTED, *self.list())
                self._watch(self._place or "")
            except SymphonyError as exc:
                if isinstance(exc, ApiError) and exc.status in NO_SUCH_PLACE:
                    self._place = None
                elif isinstance(exc, ApiError) and exc.status == 403 and self.optional:
                    return
                elif not _heals(exc) or time.monotonic() - self._last_heard > self._outage_seconds:
                    self._changes.put(exc)
                    return
            self._closed.wait(self._pause)
            self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def close(self) -> None:
        """End it, from any thread."""
        self._closed.set()
        if self._answer is not None:
            self._answer.close()

    def _watch(self, place: str) -> None:
        """Watch from a place on until the server ends it, and note how far it came."""
        query: dict[str, str | int | None] = {
            "labelSelector": self._selector,
            "resourceVersion": place,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": LASTS,
        }
        self._answer = self._api.open_stream(self._path, query=query, idle_timeout=LASTS + LATE)
        if self._closed.is_set():  # while it was opened
            self._answer.close()
        for event in events(self._answer):
            self._heard()
            self._place = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                self._put(event["type"], event["object"])
        self._last_heard = time.monotonic()

    def _heard(self) -> None:
        self._last_heard = time.monotonic()
        self._pause = FIRST_PAUSE

    def _put(self, event: str, *objects: Object) -> None:
        self._changes.put(Change(kind=self._kind, event=event, objects=objects))


def _heals(exc: SymphonyError) -> bool:
    """Whether it may be gone when asked again."""
    if isinstance(exc, ApiError):
        return exc.status == 429 or exc.status >= 500
    return isinstance(exc, Unreachable)
