"""Following logs: one watch for all processes, and a connection for each that writes.

The one who asks for lines decides everything: he hears of changes in Pods, of lines and of the ends of readers from
one queue. A reader is a thread that reads one log until it ends. Whether a process has ended is said by the same
observer as in `symphony_kube.status.experiments`; what it wrote last is read once more after that, for a server may end an answer
early.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from symphony.errors import SymphonyError, Unreachable
from symphony.open_files import raise_open_file_limit
from symphony.status import ENDED, LogLine
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import Scope
from symphony_kube.api.watch import LISTED, Change, Watcher
from symphony_kube.logs import lines as loglines
from symphony_kube.logs import read
from symphony_kube.logs.lines import Pieces, Seen
from symphony_kube.logs.read import Source
from symphony_kube.status import find_pod
from symphony_kube.status.observe import JOBS, PODS, PodObserver
from symphony_kube.status.permission_errors import missing_right
from symphony_kube.status.pod_status import ContainerRef, container_refs

if TYPE_CHECKING:
    from symphony_kube.api.client import Api, ResponseStream

# How many batches of lines may wait for who reads them; beyond that the readers wait.
WAITING = 256
# Each has a connection of its own: for more than so many the limit of open files is raised.
MANY = 200
# After a log ended of a process that still runs as far as is known: its end is told within a second or so.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
# A container whose Pod was deleted may still write for a moment, in seconds.
PARTING = 2.0
# When to look at all processes: soon after something changed, and otherwise now and then, in seconds.
SOON, TICK = 0.05, 0.5


@dataclass(slots=True, kw_only=True)
class _Track:
    """How far one process's log was read.

    By the uids of its Pods: ``restarts`` as they were at the last reading, ``rests`` those after which what there
    is was read whole, ``done`` those that will write no more.
    """

    name: str
    seen: Seen = field(default_factory=Seen)
    restarts: dict[str, int] = field(default_factory=dict)
    rests: dict[str, int] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)
    reader: _Reader | None = None
    pause: float = FIRST_PAUSE
    not_before: float = 0.0
    over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lines:
    """Lines that a reader brought; ``whole`` are they with their times."""

    name: str
    whole: list[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """A reader has come to its end; ``error`` is why it could not go on."""

    reader: _Reader
    error: SymphonyError | None = None

    @property
    def heals(self) -> bool:
        """Whether it may be gone when asked again: a connection that broke off, trouble of the server's own."""
        return isinstance(self.error, Unreachable) or (
            isinstance(self.error, ApiError) and self.error.status >= 429
        )


_Item = _Lines | _End | list[Change] | SymphonyError


def follow(
    api: Api,
    scope: Scope,
    processes: Sequence[str] | None,
    *,
    since: bytes | None = None,
    tail: int | None = None,
) -> Iterator[LogLine]:
    """The lines of processes so far, in the order of time, and then as they come, until all have ended."""
    with _Following(api, scope) as following:
        yield from following.lines(processes, since, tail)


class _Following:
    def __init__(self, api: Api, scope: Scope) -> None:
        self._api = api
        self._scope = scope
        self._watcher = Watcher(api, _paths(scope), scope.selector)
        self._observer = PodObserver(scope.experiment)
        self._with_jobs = False
        self._places: dict[str, list[ContainerRef]] = {}  # by the Pod's uid
        self._tracks: dict[str, _Track] = {}
        self._items: queue.Queue[_Item] = queue.Queue(maxsize=WAITING)
        self._closed = threading.Event()
        self._look_at = 0.0

    def __enter__(self) -> _Following:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._watcher.close()
        readers = [track.reader for track in self._tracks.values() if track.reader is not None]
        for reader in readers:
            reader.close()

    # --- the way through ---

    def lines(
        self, processes: Sequence[str] | None, since: bytes | None, tail: int | None
    ) -> Iterator[LogLine]:
        """First the lines so far, then those that come."""
        self._start()
        found = self._all_places()
        names = read.known(self._api, self._scope, processes, found)
        if len(names) > MANY:
            raise_open_file_limit()
        sources = {name: read.sources_of(found, name) for name in names}
        # For "none of the last lines" one is read all the same, to know where the next begins.
        asked = None if tail is None else max(1, tail)
        histories = read.gather(self._api, self._scope, sources, since, asked, unfinished=False)
        for name in names:
            self._tracks[name] = _begun(
                name, sources[name], histories[name], since, cut=tail is not None
            )
        if tail != 0:
            yield from read.merged(histories)
        del histories
        threading.Thread(target=self._relay, daemon=True, name="log-changes").start()
        self._look()
        while not all(track.over for track in self._tracks.values()):
            yield from self._next()

    def _next(self) -> Iterator[LogLine]:
        with contextlib.suppress(queue.Empty):
            item = self._items.get(timeout=max(0.01, self._look_at - time.monotonic()))
            if isinstance(item, _Lines):
                yield from (read.log_line(item.name, line) for line in item.whole)
            elif isinstance(item, _End):
                self._reader_ended(item)
            elif isinstance(item, SymphonyError):
                raise item
            else:
                self._changed(item)
        if time.monotonic() >= self._look_at:
            self._look()

    # --- what happens to Pods ---

    def _start(self) -> None:
        self._observer.replace(PODS, self._list())
        if self._observer.has_jobs or self._observer.empty:
            self._start_jobs()

    def _list(self) -> tuple[dict[str, Any], ...]:
        try:
            listed = self._watcher.start(PODS)
        except ApiError as exc:
            raise missing_right(
                exc, f"follow {self._scope.experiment!r}", "list and watch pods", self._scope
            ) from exc
        self._replace(listed)
        return listed

    def _start_jobs(self) -> None:
        self._with_jobs = True
        try:
            self._observer.replace(JOBS, self._watcher.start(JOBS, optional=True))
        except ApiError as exc:
            if exc.status != 403:  # Jobs may not be seen: what their Pods tell is all there is
                raise

    def _relay(self) -> None:
        """Put what the watcher tells into the queue of all that happens; a thread of its own."""
        while not self._watcher.closed:
            try:
                item: _Item = self._watcher.changes()
            except SymphonyError as exc:
                item = exc
            if item:
                self._put(item)
            if isinstance(item, SymphonyError):
                return

    def _changed(self, changes: list[Change]) -> None:
        for change in changes:
            if change.event == LISTED:
                self._observer.replace(change.kind, change.objects)
            else:
                self._observer.apply(change.kind, change.event, *change.objects)
            if change.kind == PODS:
                self._pods_changed(change)
        if self._observer.has_jobs and not self._with_jobs:
            self._start_jobs()
        self._look_at = min(self._look_at, time.monotonic() + SOON)

    def _pods_changed(self, change: Change) -> None:
        if change.event == LISTED:
            self._replace(change.objects)
            return
        for pod in change.objects:
            uid = pod["metadata"]["uid"]
            if change.event == "DELETED":
                self._places.pop(uid, None)
            else:
                self._places[uid] = list(container_refs(pod))

    def _replace(self, listed: Iterable[dict[str, Any]]) -> None:
        self._places = {
            pod["metadata"]["uid"]: list(container_refs(pod)) for pod in listed
        }

    def _all_places(self) -> list[ContainerRef]:
        return sorted(
            (place for places in self._places.values() for place in places),
            key=lambda place: place.created,
        )

    # --- who is to be read ---

    def _look(self) -> None:
        """See what has to be done now; again when something has changed, or after a while."""
        seen = self._observer.observe(time.time())
        ended = {process.name for process in seen.status if process.state in ENDED}
        there = {process.name for process in seen.status}
        by_name: dict[str, list[ContainerRef]] = {}
        for place in self._all_places():
            by_name.setdefault(place.process, []).append(place)
        for name, track in self._tracks.items():
            if not track.over:
                self._advance(
                    track, by_name.get(name, []), ended=name in ended or name not in there
                )
        self._look_at = time.monotonic() + TICK

    def _advance(self, track: _Track, places: list[ContainerRef], *, ended: bool) -> None:
        """Begin to read where a process writes, or has written what was not read; else see whether it is over."""
        if track.reader is not None:
            self._part(track.reader, places)
            return
        for place in places:
            if place.uid in track.done:
                continue
            final = place.finished or ended
            # Between two runs of a container there is what the one before wrote, to be read once.
            between = place.state != "running" and track.rests.get(place.uid) != place.restarts
            if place.has_log and (final or between or place.state == "running"):
                if time.monotonic() >= track.not_before:
                    self._read(track, place, final=final)
                return
            if not final:
                return
        track.over = ended

    def _part(self, reader: _Reader, places: list[ContainerRef]) -> None:
        """Take leave of a Pod that was deleted under a reader, which may wait for a node that is gone."""
        if any(place.uid == reader.place.uid for place in places):
            reader.missed = None
        elif reader.missed is None:
            reader.missed = time.monotonic()
        elif time.monotonic() > reader.missed + PARTING:
            reader.close()

    def _read(self, track: _Track, place: ContainerRef, *, final: bool) -> None:
        before = track.restarts.get(place.uid, 0)
        sources = [Source(place=place)]
        if place.restarts > before:  # it was restarted since: first what it wrote last before that
            sources.insert(0, Source(place=place, previous=True))
        track.restarts[place.uid] = place.restarts
        if place.state != "running":
            track.rests[place.uid] = place.restarts
        whole = final or place.state != "running"
        track.reader = _Reader(
            self._api, self._scope, track.seen, place, sources, self._put, final=final, whole=whole
        )
        track.reader.start()

    def _reader_ended(self, end: _End) -> None:
        track = self._tracks[end.reader.place.process]
        track.reader = None
        if end.error is not None:
            track.rests.pop(end.reader.place.uid, None)
            if not end.heals:
                raise end.error
        if end.reader.final and end.error is None:
            track.done.add(end.reader.place.uid)
        else:
            track.pause = FIRST_PAUSE if end.reader.brought else min(track.pause * 2, LONGEST_PAUSE)
            track.not_before = time.monotonic() + track.pause
        self._look_at = min(self._look_at, time.monotonic() + SOON)

    def _put(self, item: _Item) -> bool:
        """Put something into the queue, unless nobody wants it any more."""
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._items.put(item, timeout=0.2)
                return True
        return False


def _begun(
    name: str, sources: list[Source], lines: list[bytes], since: bytes | None, *, cut: bool
) -> _Track:
    """Where to go on with a process after its lines so far; ``cut`` says that earlier ones were left out."""
    floor = loglines.time_of(lines[0]) if cut and lines else since or b""
    track = _Track(name=name, seen=Seen(floor))
    track.seen.note(lines)
    for source in sources:
        track.restarts[source.place.uid] = source.place.restarts
        if source.place.finished:
            track.done.add(source.place.uid)
    return track


class _Reader:
    """Reads one container's log in a thread of its own: as it comes, or ``whole`` where the container has ended.

    ``final`` says that nothing will come after it.
    """

    def __init__(
        self,
        api: Api,
        scope: Scope,
        seen: Seen,
        place: ContainerRef,
        sources: list[Source],
        put: Callable[[_Item], bool],
        *,
        final: bool,
        whole: bool,
    ) -> None:
        self.place = place
        self.final = final
        self._whole = whole
        self.brought = False
        self.missed: float | None = None
        self._api = api
        self._scope = scope
        self._seen = seen
        self._sources = sources
        self._put = put
        self._closed = False
        self._answer: ResponseStream | None = None

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._run, daemon=True, name=f"log-{self.place.process}").start()

    def close(self) -> None:
        """End it, from any thread."""
        self._closed = True
        if self._answer is not None:
            self._answer.close()

    def _run(self) -> None:
        error: SymphonyError | None = None
        try:
            for source in self._sources:
                self._read(source)
        except ApiError as exc:
            if exc.status not in read.NO_LOG:
                doing = f"read the log of {self.place.process!r}"
                error = missing_right(exc, doing, "get pods/log", self._scope)
        except SymphonyError as exc:
            error = exc
        self._put(_End(reader=self, error=error))

    def _read(self, source: Source) -> None:
        unseen, pieces = self._seen.unseen(), Pieces()
        following = not (self._whole or source.previous)
        answer = read.open_log(
            self._api, self._scope, source, since=self._seen.where(), follow=following
        )
        self._answer = answer
        if self._closed:
            answer.close()
        for chunk in answer.chunks():
            if not self._bring(unseen.of(pieces.add(chunk))):
                answer.close()
                return
        # What a process that still runs has not finished yet comes again, whole.
        if not following:
            self._bring(unseen.of(pieces.last()))

    def _bring(self, lines: list[bytes]) -> bool:
        if not lines:
            return True
        self.brought = True
        self._seen.note(lines)
        return self._put(_Lines(name=self.place.process, whole=lines))


def _paths(scope: Scope) -> dict[str, str]:
    return {
        PODS: find_pod.pod_path(scope),
        JOBS: f"/apis/batch/v1/namespaces/{scope.namespace}/jobs",
    }
