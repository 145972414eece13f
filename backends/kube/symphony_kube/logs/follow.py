"""Follow logs with one watch for the Pods, one for the Jobs, if any, and one connection for each
running process.

The caller's thread handles all events from one queue: changes to Pods and Jobs, new lines, and
readers that have finished. A reader is a thread that reads one log to its end. The experiment's
status determines whether a process has exited. The log of an exited process is read once more,
because a server may end a response early.
"""

from __future__ import annotations

import contextlib
import heapq
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from symphony.cluster.matching import find_names
from symphony.errors import NotFound, SymphonyError, Unreachable
from symphony.events import EXIT_KINDS, EventKind, ExperimentEvent, select_events
from symphony.status import ENDED, ExperimentStatus, LogLine
from symphony.support.open_file_limit import raise_open_file_limit
from symphony_kube.api.errors import ApiError
from symphony_kube.logs.history import merge_histories, read_histories, to_log_line
from symphony_kube.logs.lines import LineAssembler, LogPosition, line_time
from symphony_kube.logs.sources import (
    NO_LOG_STATUSES,
    LogSource,
    log_error,
    open_log,
    resolve_names,
    sources_of,
)
from symphony_kube.state.pod_status import ContainerRef
from symphony_kube.status.find_pod import list_removed_containers
from symphony_kube.watch.experiment_events import EventStream
from symphony_kube.watch.observations import ObservationStream

if TYPE_CHECKING:
    from symphony_kube.api.client import ResponseStream
    from symphony_kube.api.kube_experiment import KubeExperiment
    from symphony_kube.state.observe import Observation

# How many events can wait in the queue for the caller. Readers wait while the queue is full.
MAX_QUEUED_EVENTS = 256
# Each process needs a connection. If there are more processes than this, the limit on open file
# descriptors is raised.
MANY_PROCESSES = 200
# The shortest and the longest pause before the log of a process that has not exited is read again.
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 8.0
# How long a reader can continue to receive a container's last lines after the Pod was deleted or
# the container was restarted.
OUTDATED_SECONDS = 2.0
# How often the log of the previous execution is requested, and the pause between two requests. When
# a container has just been restarted, its node may not have the log yet.
PREVIOUS_TRIES, PREVIOUS_PAUSE_SECONDS = 3, 0.5
# How soon all processes are checked after a change, and how often they are checked otherwise.
CHECK_SOON_SECONDS, CHECK_INTERVAL_SECONDS = 0.05, 0.5
_PUT_TIMEOUT_SECONDS = 0.2
# An execution of a process begins with these events.
_BEFORE_OUTPUT = frozenset({EventKind.LAUNCHED, EventKind.WAITING, EventKind.STARTED})


def follow_logs(
    experiment: KubeExperiment,
    processes: Sequence[str] | None,
    *,
    since: bytes | None = None,
    tail: int | None = None,
    events: bool = False,
) -> Iterator[LogLine | ExperimentEvent]:
    """Yield the log lines of processes until all of them have exited.

    The existing lines come first, sorted by time. With ``events``, the events of these processes
    are yielded between the lines. With ``tail``, only new events are included.
    """
    with _LogFollower(experiment, events=events) as follower:
        yield from follower.lines(processes, since, tail)


@dataclass(slots=True, kw_only=True)
class _ProcessLog:
    """The progress of reading one process's log.

    ``restarts`` maps each Pod's UID to the container's restart count at the time when the log was
    last read. ``read_to_end`` maps each Pod's UID to the container's restart count at the time when
    the log was last read to the end. ``finished_pods`` contains the UIDs of Pods that have no more
    lines to read. ``ended`` is true if the process has exited and will not be restarted.
    """

    name: str
    position: LogPosition
    restarts: dict[str, int] = field(default_factory=dict)
    read_to_end: dict[str, int] = field(default_factory=dict)
    finished_pods: set[str] = field(default_factory=set)
    reader: _LogReader | None = None
    pause: float = FIRST_PAUSE_SECONDS
    next_read_at: float = 0.0
    finished: bool = False
    ended: bool = False

    @property
    def is_read(self) -> bool:
        """True if there are no more lines of the executions of the process that have ended."""
        return self.finished or (self.reader is None and not self.ended)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NewLines:
    """New lines, with timestamps, that a reader has received."""

    process: str
    lines: list[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReaderFinished:
    """An event that reports that a reader has reached the end of its log or failed with
    ``error``.
    """

    reader: _LogReader
    error: SymphonyError | None = None

    @property
    def is_temporary(self) -> bool:
        """True if the error may be temporary, such as a lost connection or a server problem."""
        if isinstance(self.error, ApiError):
            return self.error.status >= 429
        return isinstance(self.error, Unreachable)


class _ObjectsChanged:
    """An event that reports changes to Pods or Jobs."""


_OBJECTS_CHANGED = _ObjectsChanged()
_QueuedEvent = _NewLines | _ReaderFinished | _ObjectsChanged | SymphonyError


class _LogFollower:
    """A follower of an experiment's logs. Most of its methods run in the caller's thread."""

    def __init__(self, experiment: KubeExperiment, *, events: bool) -> None:
        self._experiment = experiment
        # The events that have not been yielded yet, in the order in which they happened.
        self._held: list[ExperimentEvent] = []
        self._event_stream = EventStream(experiment) if events else None
        self._stream = ObservationStream(experiment)
        if self._event_stream is not None:
            self._stream = self._event_stream.stream
        self._logs: dict[str, _ProcessLog] = {}
        # The processes that the caller has selected, which a change can add to.
        self._selected: Sequence[str] | None = None
        self._events: queue.Queue[_QueuedEvent] = queue.Queue(maxsize=MAX_QUEUED_EVENTS)
        self._closed = threading.Event()
        self._next_check = 0.0

    def __enter__(self) -> _LogFollower:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._stream.close()
        for log in self._logs.values():
            if log.reader is not None:
                log.reader.close()

    def lines(
        self, processes: Sequence[str] | None, since: bytes | None, tail: int | None
    ) -> Iterator[LogLine | ExperimentEvent]:
        """Yield the existing lines, and then new lines until all processes have exited."""
        self._selected = processes
        if self._event_stream is None:
            self._stream.start()
        else:
            self._event_stream.start()
        # The lines before the exits in this status are read below.
        observation = self._stream.observe()
        refs = self._stream.container_refs
        if not {ref.process for ref in refs}.issuperset(processes or ()):
            refs += list_removed_containers(self._experiment)
        names = resolve_names(self._experiment, processes, refs)
        if len(names) > MANY_PROCESSES:
            raise_open_file_limit()
        sources = {name: sources_of(refs, name) for name in names}
        # Even with a tail of 0, the last line is needed, because new lines begin after it.
        min_tail = None if tail is None else max(1, tail)
        histories = read_histories(
            self._experiment, sources, since, min_tail, with_incomplete=False
        )
        for name in names:
            self._logs[name] = _start_log(
                name, sources[name], histories[name], since, is_tail=tail is not None
            )
        self._hold_events(observation)
        earlier = [] if tail is not None else self._held
        self._held = []
        if tail != 0:
            lines: Iterable[LogLine | ExperimentEvent] = merge_histories(histories)
            yield from heapq.merge(lines, earlier, key=_order)
        del histories  # The histories can be large, and following the logs can take days.

        threading.Thread(target=self._relay_changes, daemon=True, name="log-changes").start()
        self._check_processes()
        while not all(log.finished for log in self._logs.values()):
            yield from self._next_lines()
            yield from self._released_events()
        yield from self._held

    def _hold_events(self, observation: Observation) -> None:
        """Add the new events, which can be held until lines have been read."""
        if self._event_stream is None:
            return
        is_complete = all(process.name in self._logs for process in observation.status)
        events = self._event_stream.take(observation, self._experiment.api.now())
        self._held += select_events(events, None if is_complete else self._logs, None)

    def _released_events(self) -> Iterator[ExperimentEvent]:
        """Yield the events that can be shown now.

        The exit of a process, and its later events, are held until all lines before the exit have
        been read.
        """
        held: list[ExperimentEvent] = []
        waiting: set[str] = set()
        for event in self._held:
            log = None if event.process is None else self._logs.get(event.process)
            is_exit = event.kind in EXIT_KINDS
            if log is not None and (log.name in waiting or (is_exit and not log.is_read)):
                waiting.add(log.name)
                held.append(event)
            else:
                yield event
        self._held = held

    def _next_lines(self) -> Iterator[LogLine]:
        """Handle the next event, and yield its lines, if any. Check the processes if a check is
        due.
        """
        timeout = max(0.01, self._next_check - time.monotonic())
        with contextlib.suppress(queue.Empty):
            event = self._events.get(timeout=timeout)
            if isinstance(event, _NewLines):
                for line in event.lines:
                    yield to_log_line(event.process, line)
            elif isinstance(event, _ReaderFinished):
                self._reader_finished(event)
            elif isinstance(event, SymphonyError):
                raise event
            else:
                self._check_soon()
        if time.monotonic() >= self._next_check:
            self._check_processes()

    def _relay_changes(self) -> None:
        """Report changes to Pods and Jobs in the queue. This method runs in a separate thread."""
        try:
            while self._stream.wait():
                self._put(_OBJECTS_CHANGED)
        except SymphonyError as exc:
            self._put(exc)

    def _put(self, event: _QueuedEvent) -> bool:
        """Put an event into the queue. Return False if the follower has been closed."""
        while not self._closed.is_set():
            with contextlib.suppress(queue.Full):
                self._events.put(event, timeout=_PUT_TIMEOUT_SECONDS)
                return True
        return False

    # --- deciding which logs to read ---

    def _check_soon(self) -> None:
        self._next_check = min(self._next_check, time.monotonic() + CHECK_SOON_SECONDS)

    def _check_processes(self) -> None:
        """Start the readers that are needed, and determine which processes have finished."""
        observation = self._stream.observe()
        status = observation.status
        self._add_new_logs(status)
        self._hold_events(observation)
        running = {process.name for process in status if process.state not in ENDED}
        refs_by_process: dict[str, list[ContainerRef]] = {}
        for ref in self._stream.container_refs:
            refs_by_process.setdefault(ref.process, []).append(ref)
        for name, log in self._logs.items():
            log.ended = name not in running
            if log.ended and log.finished:
                continue
            # A process that has finished can be started again, for example with its unit.
            log.finished = False
            refs = refs_by_process.get(name, [])
            if log.reader is not None:
                _close_if_outdated(log.reader, refs)
            else:
                self._read_or_finish(log, refs, ended=log.ended)
        self._next_check = time.monotonic() + CHECK_INTERVAL_SECONDS

    def _add_new_logs(self, status: ExperimentStatus) -> None:
        """Begin to read the logs of processes that a change has added to the selection."""
        # The selected processes can have been removed.
        with contextlib.suppress(NotFound):
            for name in find_names(status, self._selected):
                if name not in self._logs:
                    self._logs[name] = _ProcessLog(name=name, position=LogPosition(b""))

    def _read_or_finish(self, log: _ProcessLog, refs: list[ContainerRef], *, ended: bool) -> None:
        """Start to read the oldest log that may have unread lines.

        If there is no such log and the process has finished, mark its log as finished.
        """
        for ref in refs:
            if ref.uid in log.finished_pods:
                continue
            is_final = ref.finished or ended
            is_running = ref.state == "running"
            # While a container is waiting to be restarted, its latest log is read to the end once.
            between_restarts = not is_running and log.read_to_end.get(ref.uid) != ref.restarts
            if ref.has_log and (is_final or is_running or between_restarts):
                if time.monotonic() >= log.next_read_at:
                    self._start_reader(log, ref, is_final=is_final)
                return
            if not is_final:
                return
        log.finished = ended

    def _start_reader(self, log: _ProcessLog, ref: ContainerRef, *, is_final: bool) -> None:
        sources = [LogSource(ref=ref)]
        if ref.restarts > log.restarts.get(ref.uid, 0):
            # The container has been restarted, so its previous log may contain unread lines.
            sources.insert(0, LogSource(ref=ref, previous=True))
        log.restarts[ref.uid] = ref.restarts
        is_running = ref.state == "running"
        if not is_running:
            log.read_to_end[ref.uid] = ref.restarts
        log.reader = _LogReader(
            self._experiment,
            log.position,
            sources,
            self._put,
            is_final=is_final,
            follow=is_running and not is_final,
        )
        log.reader.start()

    def _reader_finished(self, event: _ReaderFinished) -> None:
        reader = event.reader
        log = self._logs[reader.ref.process]
        log.reader = None
        if event.error is not None:
            log.read_to_end.pop(reader.ref.uid, None)
            if not event.is_temporary:
                raise event.error
        if reader.is_final and event.error is None:
            log.finished_pods.add(reader.ref.uid)
        else:
            if reader.received_lines:
                log.pause = FIRST_PAUSE_SECONDS
            else:
                log.pause = min(log.pause * 2, MAX_PAUSE_SECONDS)
            log.next_read_at = time.monotonic() + log.pause
        self._check_soon()


def _start_log(
    name: str, sources: list[LogSource], lines: list[bytes], since: bytes | None, *, is_tail: bool
) -> _ProcessLog:
    """Return a `_ProcessLog` that is positioned after the existing ``lines``.

    If ``is_tail`` is set, lines that are older than the first of ``lines`` are never yielded.
    """
    floor = since or b""
    if is_tail and lines:
        floor = line_time(lines[0])
    log = _ProcessLog(name=name, position=LogPosition(floor))
    log.position.remember(lines)
    for source in sources:
        log.restarts[source.ref.uid] = source.ref.restarts
        if source.ref.finished:
            log.finished_pods.add(source.ref.uid)
    return log


def _order(item: LogLine | ExperimentEvent) -> float:
    """Return the time by which lines and events are merged.

    Kubernetes truncates the times of starts and exits to seconds, and a process writes its lines
    between them.
    """
    if isinstance(item, LogLine):
        return item.at or 0.0
    return item.at if item.kind in _BEFORE_OUTPUT else item.at + 1.0


def _close_if_outdated(reader: _LogReader, refs: list[ContainerRef]) -> None:
    """Close a reader if its Pod was deleted or its container was restarted, and it has received
    nothing for `OUTDATED_SECONDS` since then.

    Otherwise, the reader could keep waiting for a node that no longer exists, or for lines of
    another execution than the one whose last lines have not been read.
    """
    latest = next((ref for ref in refs if ref.uid == reader.ref.uid), None)
    if latest is not None and latest.restarts == reader.ref.restarts:
        reader.outdated_at = None
    elif reader.outdated_at is None:
        reader.outdated_at = time.monotonic()
    elif time.monotonic() > max(reader.outdated_at, reader.received_at) + OUTDATED_SECONDS:
        reader.close()


class _LogReader:
    """A reader of one container's logs. Each reader runs in a separate thread.

    With ``follow``, the reader waits for new lines. Otherwise, it reads to the current end of the
    log. ``is_final`` is true if the container will write no more lines. ``put`` is called with each
    event and returns False if the follower has been closed.
    """

    def __init__(
        self,
        experiment: KubeExperiment,
        position: LogPosition,
        sources: list[LogSource],
        put: Callable[[_QueuedEvent], bool],
        *,
        is_final: bool,
        follow: bool,
    ) -> None:
        self.ref = sources[-1].ref
        self.is_final = is_final
        self.received_lines = False
        # The time since which the Pod is deleted or the container is restarted, and the time at
        # which the last lines were received.
        self.outdated_at: float | None = None
        self.received_at = 0.0
        self._scope = experiment.scope
        self._experiment = experiment
        self._position = position
        self._sources = sources
        self._put = put
        self._follow = follow
        self._closed = threading.Event()
        self._stream: ResponseStream | None = None

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, daemon=True, name=f"log-{self.ref.process}").start()

    def close(self) -> None:
        """Stop reading. Any thread can call this method."""
        self._closed.set()
        if self._stream is not None:
            self._stream.close()

    def _run(self) -> None:
        error: SymphonyError | None = None
        try:
            for source in self._sources:
                self._read_if_present(source)
        except ApiError as exc:
            error = log_error(exc, self.ref.process, self._scope)
        except SymphonyError as exc:
            error = exc
        finally:
            # The follower waits for this event, whatever has happened.
            self._put(_ReaderFinished(reader=self, error=error))

    def _read_if_present(self, source: LogSource) -> None:
        """Read a log, if the API has it. The log of the previous execution may appear later."""
        tries = PREVIOUS_TRIES if source.previous else 1
        for number in range(tries):
            if number and self._closed.wait(PREVIOUS_PAUSE_SECONDS):
                return
            try:
                self._read(source)
            except ApiError as exc:
                if exc.status not in NO_LOG_STATUSES:
                    raise
            else:
                return

    def _read(self, source: LogSource) -> None:
        new_lines, assembler = self._position.new_line_filter(), LineAssembler()
        follow = self._follow and not source.previous
        since = self._position.since_time(previous=source.previous)
        stream = open_log(self._experiment, source, since=since, follow=follow)
        self._stream = stream
        if self._closed.is_set():  # The reader was closed while the stream was being opened.
            stream.close()
        # The status may not show yet that the container was restarted.
        can_be_restarted = not source.previous and len(self._sources) == 1
        for chunk in stream.chunks():
            self.received_at = time.monotonic()
            lines = new_lines.filter(assembler.add(chunk))
            if lines and can_be_restarted and new_lines.has_missed_latest:
                can_be_restarted = False
                self._read_previous(source)
            if not self._deliver(lines):
                stream.close()
                return
        # An incomplete line from a running process is read again when it is complete.
        if not follow:
            self._deliver(new_lines.filter(assembler.flush()))

    def _read_previous(self, source: LogSource) -> None:
        """Read the rest of the log of the previous execution, if the API still has it."""
        stream = self._stream
        try:
            self._read_if_present(replace(source, previous=True))
        finally:
            self._stream = stream
            if self._closed.is_set() and stream is not None:
                stream.close()

    def _deliver(self, lines: list[bytes]) -> bool:
        """Put lines into the queue. Return False if the follower has been closed."""
        if not lines:
            return True
        self.received_lines = True
        self._position.remember(lines)
        return self._put(_NewLines(process=self.ref.process, lines=lines))
