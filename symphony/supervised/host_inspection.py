"""The part of the backends of supervised experiments that reads the run directories."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.cluster import Manifest, WatchedStatuses
from symphony.cluster.backend import (
    Backend,
    LogPart,
    Selection,
    Watch,
)
from symphony.errors import BackendError, NotFound, Unsupported
from symphony.status import ExperimentStatus, ProcessStatus
from symphony.supervised.record import directory
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import EventReader
from symphony.supervised.record.status import StatusReader

# Modules that only some commands need are imported inside functions.
if TYPE_CHECKING:
    from symphony.events import ExperimentEvent
    from symphony.log_blocks import LogBlock
    from symphony.plan.topology import Topology
    from symphony.process_details import ProcessDetails
    from symphony.supervised.host_records import HostRecords
    from symphony.supervised.read.log_files import IgnoredLine
    from symphony.usage import ExperimentUsage

_STATUS_CHECK_SECONDS = 1.0


class HostInspection(Backend[Manifest]):
    """Read experiments from the run directories in the directory ``root``.

    * ``find`` returns the run directory of an experiment. Raises `NotFound`.
    * ``make_reader`` returns a reader of the status of a run, and ``describe`` its status.
    * ``children`` is the name of the class that starts processes, or None if no experiment is
      started again after a reboot of this machine.
    * ``clean`` returns the output of a process that a part of its log contains. The last line of a
      log is not output if it matches ``ignored_last_line``.
    """

    output_includes_events = True

    def __init__(
        self,
        name: str,
        root: Path,
        *,
        find: Callable[[str], RunDirectory],
        make_reader: Callable[[RunDirectory], StatusReader],
        describe: Callable[[RunDirectory], ExperimentStatus],
        clean: Callable[[str], str],
        ignored_last_line: IgnoredLine | None,
        children: str | None,
    ) -> None:
        super().__init__(name)
        self._root = root
        self._find = find
        self._make_reader = make_reader
        self._describe = describe
        self._clean = clean
        self._ignored_last_line = ignored_last_line
        self._children = children

    @functools.cached_property
    def records(self) -> HostRecords:
        """The records of experiments and runs in the run directories."""
        from symphony.supervised.host_records import HostRecords

        return HostRecords(
            self._root, find=self._find, observe=self.observe, children=self._children
        )

    def names(self) -> Collection[str]:
        """Return the names of the run directories."""
        return [run.name for run in directory.find_all(self._root)]

    @property
    def location(self) -> str:
        """The directory with the run directories."""
        return str(self._root)

    def observe(self, experiment: str) -> ExperimentStatus:
        """Return the status that the manifest, the events and the running processes show."""
        return self._describe(self._find(experiment))

    @contextlib.contextmanager
    def watch(self, experiment: str) -> Iterator[Watch]:
        """Read only new events, as soon as they are written."""
        from symphony.supervised.read.log_files import growing

        run = self._find(experiment)
        reader = self._make_reader(run)
        with growing({"events": run.events}, remote=run.is_remote()) as wait_for_events:
            yield Watch(reader.read, wait_for_events)

    @contextlib.contextmanager
    def watch_statuses(self, experiment: str) -> Iterator[Callable[[], WatchedStatuses]]:
        """Read only new events."""
        reader = self._make_reader(self._find(experiment))

        def read() -> WatchedStatuses:
            nonlocal reader
            run = self._find(experiment)
            try:
                status = reader.read()
            except NotFound:
                # The experiment was launched again.
                reader = self._make_reader(run)
                status = reader.read()
            return WatchedStatuses([status])

        yield read

    def record(self, experiment: str) -> Mapping[str, Any]:
        """Return the recorded description of the launch."""
        from symphony.archive.run_record import RECORD_FILE, read_json

        run = self._find(experiment)
        record = read_json(run.file(RECORD_FILE))
        if record is None:
            raise BackendError(
                f"the record of experiment {experiment!r} cannot be read ({run.path / RECORD_FILE} "
                "is missing or damaged); launch it again"
            )
        return record

    def events(
        self, experiment: str, names: Collection[str] | None, *, follow: bool
    ) -> Iterator[ExperimentEvent]:
        """Yield the recorded events."""
        from symphony.supervised.read.log_files import growing
        from symphony.supervised.record.event_stream import EventStream

        # A run that is deleted is read to its end.
        with self._find(experiment).pin() as run:
            stream = EventStream(run, self._make_reader(run))
            if not follow:
                yield from stream.read_new()
                return
            is_over = stream.end_check(names)
            with growing({"events": run.events}, remote=run.is_remote()) as wait_for_events:
                while True:
                    # No event is recorded after the end, so the check comes before the read.
                    was_over = is_over()
                    yield from stream.read_new()
                    if was_over or stream.has_finished:
                        return
                    # A supervisor that is killed writes no event, so the status is also checked at
                    # regular intervals.
                    wait_for_events(_STATUS_CHECK_SECONDS)

    def details(self, experiment: str, process: ProcessStatus) -> ProcessDetails:
        """Return the command, resources, addresses and events of a process."""
        from symphony.supervised.read.read_details import process_details

        run = self._find(experiment)
        with run.report_damage(run.events):
            events = EventReader(run.events).read_new()
        return process_details(run.load_manifest(), process, events, run.log(process.name))

    def topology(self, experiment: str) -> Topology:
        """Return the connections in the manifest."""
        from symphony.supervised.read.read_details import topology

        run = self._find(experiment)
        status = self._describe(run)
        return topology(run.load_manifest(), status)

    def external_addresses(self, experiment: str) -> Mapping[str, str | None]:
        """Return the addresses in the manifest."""
        manifest = self._find(experiment).load_manifest()
        return {service: manifest["services"][service] for service in manifest["exposed"]}

    def usage(
        self, experiment: str, names: Collection[str] | None, interval: float
    ) -> Iterator[ExperimentUsage]:
        """Yield what the operating system reports about the processes."""
        run = self._find(experiment)
        other_host = run.other_host()
        if other_host is not None:
            raise Unsupported(run.other_host_message(other_host, "run the command there"))
        return self._sampled_usage(run, names, interval)

    def _sampled_usage(
        self, run: RunDirectory, names: Collection[str] | None, interval: float
    ) -> Iterator[ExperimentUsage]:
        from symphony.supervised.usage.follow import follow_usage
        from symphony.usage import select_usage

        # A run that is deleted is read to its end.
        with run.pin() as pinned:
            for usage in follow_usage(pinned, self._make_reader(pinned), interval):
                yield select_usage(usage, names)

    def output(self, experiment: str, selection: Selection) -> Iterator[LogBlock | ExperimentEvent]:
        """Yield the output in the log files, and the recorded events."""
        from symphony.supervised.read.output import iter_output

        run = self._find(experiment)
        return iter_output(
            run,
            selection,
            status=self._make_reader(run),
            clean=self._clean,
            ignored=self._ignored_last_line,
        )

    def log(self, experiment: str, process: str, part: LogPart) -> Iterator[str]:
        """Yield what the log file of a process contains."""
        if part.previous:
            return super().log(experiment, process, part)
        return self._log_text(experiment, process, part)

    def _log_text(self, experiment: str, process: str, part: LogPart) -> Iterator[str]:
        from symphony.supervised.read.log_files import iter_text

        run = self._find(experiment)
        with run.report_damage(run.logs):
            yield from iter_text(
                run, process, since=part.since, tail=part.tail, ignored=self._ignored_last_line
            )
