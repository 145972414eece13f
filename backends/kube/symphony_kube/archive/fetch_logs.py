"""Fetch the logs of an experiment into the record of its run, while its Pods are deleted.

Before the deletion, the logs of containers that have finished are read, and the logs of running
containers are opened. Reading those continues until the containers have exited, so the record
contains the output with which processes react to SIGTERM.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.errors import SymphonyError
from symphony.model.settings.durations import parse_duration
from symphony.model.settings.quantities import parse_quantity
from symphony.support.causes import group_by_cause, renamed
from symphony.support.open_file_limit import raise_open_file_limit
from symphony_kube.api.errors import ApiError
from symphony_kube.archive.log_writer import LogWriter
from symphony_kube.lifecycle.create import in_parallel
from symphony_kube.logs.lines import LineAssembler
from symphony_kube.logs.sources import NO_LOG_STATUSES, LogSource, log_error, open_log, sources_of
from symphony_kube.state.pod_status import ContainerRef

if TYPE_CHECKING:
    from symphony_kube.api.client import ResponseStream
    from symphony_kube.api.kube_experiment import KubeExperiment

# Each followed log needs a connection and a thread. The logs of further running processes are read
# only up to the deletion.
MAX_FOLLOWED = 200
# How long to wait, after the Pods are gone, for the last output of processes.
LAST_OUTPUT_SECONDS = 2.0
# After this number of errors of a node in a row, its other logs are not read.
MAX_FAILURES = 3
# HTTP status codes from this one on are errors of the server or the node.
SERVER_ERRORS = 500
# The smallest share of the limit that the log of one process gets.
MIN_LOG_BYTES = 1 << 16
# A request with this event is not repeated.
_NO_RETRIES = threading.Event()
_NO_RETRIES.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLimits:
    """The limits for the logs of one run.

    ``max_bytes`` is the size of all logs together, of which each process gets an equal share.
    ``timeout_seconds`` is the time for which the deletion waits for the logs.
    """

    max_bytes: int = 2**30
    timeout_seconds: float = 60.0


def configured_limits(settings: Mapping[str, Any]) -> LogLimits:
    """Return the limits that the field ``runs`` of the configuration describes."""
    max_size, timeout = settings.get("max_log_size"), settings.get("log_timeout")
    default = LogLimits()
    return LogLimits(
        max_bytes=default.max_bytes if max_size is None else int(parse_quantity(max_size)),
        timeout_seconds=default.timeout_seconds if timeout is None else parse_duration(timeout),
    )


@dataclass(slots=True, kw_only=True)
class _ProcessLog:
    """The log of one process that is being fetched.

    ``problem`` is the reason why the log is incomplete, or an empty string.
    """

    name: str
    sources: Sequence[LogSource]
    follow: bool
    # Set when the deletion can begin as far as this log is concerned.
    settled: threading.Event = field(default_factory=threading.Event)
    stream: ResponseStream | None = None
    # None until the API has provided a log.
    writer: LogWriter | None = None
    problem: str = ""

    def add_problem(self, problem: str) -> None:
        """Set the problem, unless there is an earlier one."""
        self.problem = self.problem or problem


@dataclass(slots=True)
class _Node:
    """The failures of one node to provide logs, one after another.

    After too many of them, ``given_up`` is set, and the last one is the ``problem`` of ``process``.
    Each failed attempt takes seconds, because a node that restarts is asked again. Only a node that
    has no address is given up at once.
    """

    failures: int = 0
    problem: str = ""
    process: str = ""
    given_up: threading.Event = field(default_factory=threading.Event)

    def note_failure(self, process: str, problem: str) -> None:
        """Note that the log of a process could not be read."""
        self.failures += 1
        if self.failures >= MAX_FAILURES:
            self.give_up(process, problem)

    def give_up(self, process: str, problem: str) -> None:
        """Read no more logs, because that of a process could not be read."""
        if not self.given_up.is_set():
            self.problem, self.process = problem, process
            self.given_up.set()


class LogFetcher:
    """The fetching of all logs of an experiment into ``directory``. Errors become `problems`."""

    def __init__(
        self,
        experiment: KubeExperiment,
        refs: Sequence[ContainerRef],
        directory: Path,
        limits: LogLimits,
    ) -> None:
        self._experiment = experiment
        self._directory = directory
        self._limits = limits
        self._closed = False
        self._logs = _plan(refs)
        share = limits.max_bytes // max(1, len(self._logs))
        self._max_bytes = max(share, MIN_LOG_BYTES)
        self._futures: dict[str, Future[None]] = {}
        self._nodes: defaultdict[str, _Node] = defaultdict(_Node)

    def start(self) -> None:
        """Read the finished logs, and open the others. Return when the deletion can begin.

        Raises OSError if the directory cannot be created.
        """
        self._directory.mkdir(mode=0o700, exist_ok=True)
        self._give_up_nodes_without_address()
        followed = sum(log.follow for log in self._logs)
        connections = self._experiment.api.connections
        if followed > connections:
            raise_open_file_limit()
        workers = followed + min(len(self._logs) - followed, connections)
        pool = ThreadPoolExecutor(max_workers=max(1, workers), thread_name_prefix="record-logs")
        # The followed logs come first, so that each of them gets a thread.
        for log in sorted(self._logs, key=lambda log: not log.follow):
            self._futures[log.name] = pool.submit(self._fetch, log)
        pool.shutdown(wait=False)
        deadline = time.monotonic() + self._limits.timeout_seconds
        for log in self._logs:
            if not log.settled.wait(max(0.0, deadline - time.monotonic())):
                self._give_up(log)

    def finish(self) -> None:
        """Wait for the last output, after the Pods are gone, and close all logs."""
        wait(self._futures.values(), timeout=LAST_OUTPUT_SECONDS)
        for log in self._logs:
            if not self._futures[log.name].done():
                log.add_problem("may lack the last output")
        self.close()

    def close(self) -> None:
        """Close all logs. Output that has been read so far is kept."""
        self._closed = True
        for log in self._logs:
            if log.stream is not None:
                log.stream.close()
        wait(self._futures.values(), timeout=LAST_OUTPUT_SECONDS)

    def problems(self) -> list[str]:
        """Return messages about the logs that are incomplete, one for each problem."""
        groups = group_by_cause((log.name, log.problem) for log in self._logs if log.problem)
        return [f"the log of {group} {group.cause}" for group in groups]

    def _give_up_nodes_without_address(self) -> None:
        """Ask each node that should provide many logs for one of them.

        Asking a node in vain for all of its logs would take longer.
        """
        by_host = defaultdict(list)
        for log in self._logs:
            by_host[log.sources[0].ref.host].append(log)
        connections = self._experiment.api.connections
        first = [logs[0] for logs in by_host.values() if len(logs) > connections]
        in_parallel(self._ask_node, first, threads=connections)

    def _ask_node(self, log: _ProcessLog) -> None:
        source = log.sources[0]
        node = self._nodes[source.ref.host]
        try:
            open_log(self._experiment, source, tail=1, cancelled=_NO_RETRIES).close()
        except ApiError as exc:
            if exc.node_has_no_address:
                node.give_up(log.name, self._problem(log, exc))
        except SymphonyError:
            # The logs are read anyway, which reports the error.
            return

    def _problem(self, log: _ProcessLog, exc: ApiError) -> str:
        return f"cannot be read: {log_error(exc, log.name, self._experiment.scope)}"

    def _is_over(self, log: _ProcessLog) -> bool:
        return self._closed or bool(log.problem)

    def _give_up(self, log: _ProcessLog) -> None:
        limit = f"{self._limits.timeout_seconds:g} s"
        log.add_problem(f"was not completely read within {limit}")
        if log.stream is not None:
            log.stream.close()

    def _fetch(self, log: _ProcessLog) -> None:
        try:
            for source in log.sources:
                node = self._nodes[source.ref.host]
                if node.given_up.is_set():
                    log.add_problem(renamed(node.problem, node.process, log.name))
                self._read(log, source)
            if log.writer is not None:
                log.writer.close()
                if log.writer.is_cut:
                    limit = f"{self._max_bytes >> 10} KiB"
                    log.add_problem(f"was longer than {limit}, and only its end is kept")
        except OSError as exc:
            log.add_problem(f"cannot be written: {exc.strerror}")
        finally:
            if log.writer is not None:
                log.writer.discard()
            log.settled.set()

    def _open(self, log: _ProcessLog, source: LogSource, *, follow: bool) -> ResponseStream:
        """Open one log that the API provides."""
        given_up = self._nodes[source.ref.host].given_up
        stream = open_log(self._experiment, source, follow=follow, cancelled=given_up)
        self._nodes[source.ref.host].failures = 0
        log.stream = stream
        if self._is_over(log):  # The log was closed while it was being opened.
            stream.close()
        if follow:
            log.settled.set()
        return stream

    def _read(self, log: _ProcessLog, source: LogSource) -> None:
        """Write one log that the API provides. An error ends this log. Raises OSError."""
        if self._is_over(log):
            return
        is_last = source is log.sources[-1]
        assembler = LineAssembler()
        try:
            stream = self._open(log, source, follow=log.follow and is_last)
            if log.writer is None:
                log.writer = LogWriter(self._directory, log.name, self._max_bytes)
            for chunk in stream.chunks():
                log.writer.write(assembler.add(chunk))
        except ApiError as exc:
            if exc.status not in NO_LOG_STATUSES:
                problem = self._problem(log, exc)
                log.add_problem(problem)
                if exc.status >= SERVER_ERRORS:
                    self._nodes[source.ref.host].note_failure(log.name, problem)
        except SymphonyError as exc:
            log.add_problem(f"cannot be read: {exc}")
        rest = assembler.flush()
        if rest and log.writer is not None:
            log.writer.write(rest, complete=not is_last)


def _plan(refs: Sequence[ContainerRef]) -> list[_ProcessLog]:
    """Return the logs to fetch."""
    logs = []
    followed = 0
    for name in dict.fromkeys(ref.process for ref in refs):
        sources = sources_of(refs, name)
        if not sources:
            continue
        follow = sources[-1].ref.running and followed < MAX_FOLLOWED
        followed += follow
        logs.append(_ProcessLog(name=name, sources=sources, follow=follow))
    return logs
