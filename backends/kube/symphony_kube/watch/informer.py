"""Follow the objects of several kinds with one list call and one watch for each kind.

If a watch ends or its connection is lost, a new watch continues from the last resource version. If
the server no longer has this version (410), the objects are listed again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any

from symphony.errors import SymphonyError, Unreachable
from symphony_kube.api.client import (
    ACCEPT_METADATA,
    ACCEPT_METADATA_LIST,
    JSON,
    WATCH_END_TOLERANCE_SECONDS,
    Api,
    ResponseStream,
    watch_events,
)
from symphony_kube.api.errors import ApiError
from symphony_kube.api.listing import list_all, reduced

Object = dict[str, Any]

# The duration of one watch, in seconds. If the network connection is lost without an error, changes
# can be delayed by up to this time plus `WATCH_END_TOLERANCE_SECONDS`.
WATCH_SECONDS = 120
# The first and the longest pause between watches, in seconds. The pause doubles after each watch
# without events.
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
# The status codes for a resource version that is too old (410), or that is too new for a server
# whose data lags behind (504).
VERSION_NOT_AVAILABLE = (410, 504)

LISTED = "LISTED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change to one or more objects of one kind.

    ADDED, MODIFIED and DELETED events contain one object. A LISTED event, which follows a new list
    call, contains all objects of the kind.
    """

    kind: str
    event: str
    objects: tuple[Object, ...]


class Informer:
    """A list and a watch of the objects of each of several kinds.

    ``paths`` maps each kind to its API path. ``selector`` is a label selector. ``queries`` contains
    the query parameters of kinds to which this selector does not apply. Only the metadata of the
    objects of the kinds in ``metadata_only`` is read. ``outage_seconds`` is how long the server can
    be unreachable before the informer fails, which is by default the limit of ``api`` for calls.
    Without ``follow``, objects are only listed.

    ``changed`` is a condition that is notified of each change, and its lock protects the changes.
    Close the informer when it is no longer needed. Any thread can close it.
    """

    def __init__(
        self,
        api: Api,
        paths: Mapping[str, str],
        selector: str,
        *,
        queries: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
        metadata_only: Collection[str] = (),
        outage_seconds: float | None = None,
        follow: bool = True,
    ) -> None:
        self._api = api
        self._paths = paths
        self._selector = selector
        self._queries = queries
        self._metadata_only = metadata_only
        self._follow = follow
        if outage_seconds is None:
            outage_seconds = api.timeouts.outage
        self._outage_seconds = outage_seconds
        self._feeds: dict[str, _Feed] = {}
        self._pending: list[Change] = []
        self._error: SymphonyError | None = None
        self._closed = False
        self.changed = threading.Condition()

    def __enter__(self) -> Informer:
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
        """True if the informer is closed."""
        return self._closed

    @property
    def error(self) -> SymphonyError | None:
        """Why a watch could not be continued, or None."""
        return self._error

    @property
    def has_changes(self) -> bool:
        """True if `take` would return changes or raise an error."""
        return bool(self._pending) or self._error is not None

    @property
    def silent_seconds(self) -> float:
        """For how long the informer has been trying to continue a watch that was lost, or 0."""
        return max((feed.silent_seconds for feed in list(self._feeds.values())), default=0.0)

    def start(
        self, kind: str, *, optional: bool = False, poll_seconds: float | None = None
    ) -> tuple[Object, ...]:
        """List the objects of a kind and start watching them, or list them again.

        The objects are returned, and are also the next LISTED change of this kind. Changes that
        they already contain are not reported.

        If ``optional`` is set and the user is allowed to list objects of the kind but not to watch
        them, no error is raised. The objects are then listed again every ``poll_seconds`` seconds.
        If ``poll_seconds`` is None, changes to them are not reported. Raises `ApiError` or
        `Unreachable` if the objects cannot be listed.
        """
        feed = self._feeds.get(kind)
        if feed is not None:
            return feed.list_again()
        feed = _Feed(
            self._api,
            kind,
            self._paths[kind],
            self._queries.get(kind, {"labelSelector": self._selector}),
            self.changed,
            self._put,
            metadata_only=kind in self._metadata_only,
            outage_seconds=self._outage_seconds,
            optional=optional,
            poll_seconds=poll_seconds,
        )
        objects = feed.list()
        with self.changed:
            self._feeds[kind] = feed
        if self._follow and not self._closed:
            threading.Thread(target=feed.run, daemon=True, name=f"watch-{kind}").start()
        return objects

    def take(self) -> list[Change]:
        """Return the changes that have arrived since the previous call.

        Raises `Unreachable` or `ApiError` if a watch cannot be continued.
        """
        with self.changed:
            if self._error is not None:
                raise self._error
            taken, self._pending = self._pending, []
        return taken

    def changes(self, seconds: float | None = None) -> list[Change]:
        """Wait for changes and return them.

        Return an empty list if nothing changes within ``seconds`` seconds, or if the informer is
        closed. Raises `Unreachable` or `ApiError` if a watch cannot be continued.
        """
        with self.changed:
            self.changed.wait_for(lambda: self.has_changes or self._closed, seconds)
            return self.take()

    def close(self) -> None:
        """End the watches. A thread that is waiting in `changes` then receives an empty list."""
        self._closed = True
        for feed in list(self._feeds.values()):
            feed.close()
        with self.changed:
            self.changed.notify_all()

    def _put(self, item: Change | SymphonyError) -> None:
        with self.changed:
            if isinstance(item, SymphonyError):
                self._error = item
            else:
                self._pending.append(item)
            self.changed.notify_all()


class _Feed:
    """The list and watch calls for one kind.

    Each feed runs in its own thread and passes changes to ``put``. ``lock`` is held while it does.
    """

    def __init__(
        self,
        api: Api,
        kind: str,
        path: str,
        query: Mapping[str, str],
        lock: threading.Condition,
        put: Callable[[Change | SymphonyError], None],
        *,
        metadata_only: bool,
        outage_seconds: float,
        optional: bool,
        poll_seconds: float | None,
    ) -> None:
        self._api = api
        self._kind = kind
        self._path = path
        self._query = query
        self._lock = lock
        self._put = put
        self._list_accept = ACCEPT_METADATA_LIST if metadata_only else JSON
        self._watch_accept = ACCEPT_METADATA if metadata_only else JSON
        self._outage_seconds = outage_seconds
        self._optional = optional
        self._poll_seconds = poll_seconds
        self._version: str | None = None
        # The version of the latest list, and the changes since a list call that has not ended yet.
        self._listed_version: str | None = None
        self._during_list: list[Change] | None = None
        self._stream: ResponseStream | None = None
        self._closed = threading.Event()
        self._last_response = time.monotonic()
        self._pause_seconds = FIRST_PAUSE_SECONDS
        # When the feed began to open a watch that is not open yet.
        self._opening_since: float | None = None

    @property
    def silent_seconds(self) -> float:
        """For how long the feed has been trying to open a watch, or 0 if a watch is open."""
        since = self._opening_since
        return 0.0 if since is None else time.monotonic() - since

    def list(self) -> tuple[Object, ...]:
        """Return the current objects. The next watch starts at this list's resource version."""
        version, objects = self._call_list()
        with self._lock:
            self._version = self._listed_version = version
            self._put(Change(kind=self._kind, event=LISTED, objects=objects))
        return objects

    def list_again(self) -> tuple[Object, ...]:
        """Return the current objects. The watch continues, but omits what they already contain."""
        with self._lock:
            self._during_list = []
        try:
            version, objects = self._call_list()
            with self._lock:
                if is_newer(version, self._listed_version):
                    self._listed_version = version
                    self._put(Change(kind=self._kind, event=LISTED, objects=objects))
                    # These changes may have been applied already, but are newer than the list.
                    for change in self._during_list:
                        self._put_unless_listed(change)
        finally:
            with self._lock:
                self._during_list = None
        return objects

    def _call_list(self) -> tuple[str, tuple[Object, ...]]:
        """Return the resource version of the current objects, and the objects."""
        listing = list_all(
            self._api,
            self._path,
            reduced,
            query=self._query,
            accept=self._list_accept,
            cancelled=self._closed,
        )
        # The time is taken after the call, because the call can take a long time.
        self._last_response = time.monotonic()
        return listing.version, tuple(listing.items)

    def run(self) -> None:
        """Watch until the feed is closed.

        If an error is permanent or an outage lasts too long, put the error into the queue and stop.
        If the user is not allowed to watch an optional kind, list the objects at intervals, or stop
        without an error.
        """
        while not self._closed.is_set():
            if self._opening_since is None:
                self._opening_since = time.monotonic()
            try:
                if self._version is None:
                    self.list()
                self._watch(self._version or "")
            except SymphonyError as exc:
                if isinstance(exc, ApiError) and exc.status in VERSION_NOT_AVAILABLE:
                    self._version = None
                elif isinstance(exc, ApiError) and exc.status == 403 and self._optional:
                    self._opening_since = None
                    if self._poll_seconds is None:
                        return
                    self._closed.wait(self._poll_seconds)
                    self._version = None
                elif not _is_temporary(exc) or self._outage_is_too_long():
                    self._put(exc)
                    return
            self._closed.wait(self._pause_seconds)
            self._pause_seconds = min(self._pause_seconds * 2, LONGEST_PAUSE_SECONDS)

    def close(self) -> None:
        """End the watch. Any thread can call this method."""
        self._closed.set()
        if self._stream is not None:
            self._stream.close()

    def _outage_is_too_long(self) -> bool:
        """Return whether the server has been unreachable for too long."""
        return time.monotonic() - self._last_response > self._outage_seconds

    def _watch(self, version: str) -> None:
        """Watch for changes since a resource version until the server ends the watch."""
        query: dict[str, str | int | None] = {
            **self._query,
            "resourceVersion": version,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": WATCH_SECONDS,
        }
        self._stream = self._api.open_stream(
            self._path,
            query=query,
            accept=self._watch_accept,
            idle_timeout=WATCH_SECONDS + WATCH_END_TOLERANCE_SECONDS,
            cancelled=self._closed,
        )
        self._opening_since = None
        # If `close` ran while the stream was being opened, it could not close the stream.
        if self._closed.is_set():
            self._stream.close()
        for event in watch_events(self._stream):
            self._last_response = time.monotonic()
            self._pause_seconds = FIRST_PAUSE_SECONDS
            self._version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                self._put_change(event["type"], reduced(event["object"]))
        self._last_response = time.monotonic()

    def _put_change(self, event: str, changed: Object) -> None:
        change = Change(kind=self._kind, event=event, objects=(changed,))
        with self._lock:
            if self._during_list is not None:
                self._during_list.append(change)
            self._put_unless_listed(change)

    def _put_unless_listed(self, change: Change) -> None:
        """Report a change, unless the latest list contains it. A deletion does no harm."""
        version = change.objects[0]["metadata"]["resourceVersion"]
        if change.event == "DELETED" or is_newer(version, self._listed_version):
            self._put(change)


def is_newer(version: str, other: str | None) -> bool:
    """Return whether a resource version is newer than another one of the same kind.

    Versions that are not numbers cannot be compared, so that each of them may be newer.
    """
    if other is None or not version.isdecimal() or not other.isdecimal():
        return True
    return int(version) > int(other)


def _is_temporary(exc: SymphonyError) -> bool:
    """Return whether a failed call may succeed if it is retried."""
    if isinstance(exc, ApiError):
        return exc.status == 429 or exc.status >= 500
    return isinstance(exc, Unreachable)
