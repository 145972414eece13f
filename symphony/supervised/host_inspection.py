"""The part of the backends of supervised experiments that reads the run directories."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from symphony.cluster import Manifest, WatchedStatuses
from symphony.cluster.backend import (
    Backend,
    Selection,
    Watch,
)
from symphony.errors import Unsupported
from symphony.status import ExperimentStatus, ProcessStatus
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import EventReader

# Modules that only some commands need are imported inside functions.
if TYPE_CHECKING:
    from symphony.events import ExperimentEvent
    from symphony.log_blocks import LogBlock
    from symphony.plan.topology import Topology
    from symphony.process_details import ProcessDetails
    from symphony.supervised.host_runs import HostRuns
    from symphony.supervised.read.log_files import IgnoredLine
    from symphony.usage import ExperimentUsage

_STATUS_CHECK_SECONDS = 1.0


class HostInspection(Backend[Manifest]):
    """Read experiments from the run directories in ``runs``."""

    output_includes_events = True
    # True if experiments that a reboot of this machine has interrupted can be started again.
    resumes_after_reboot: ClassVar[bool] = True
    # A backend sets this pattern if the last line of its log files can be text that is not output.
    ignored_last_line: ClassVar[IgnoredLine | None] = None

    def __init__(self, name: str, runs: HostRuns) -> None:
        super().__init__(name)
        self.runs = runs

    def clean(self, text: str) -> str:
        """Return the output of a process that a part of its log contains.

        A backend overrides this method if its log files can contain other text.
        """
        return text

    def clean_pieces(self, pieces: Iterator[str]) -> Iterator[str]:
        """Do the same for consecutive parts of a log."""
        return pieces

    def names(self) -> Collection[str]:
        """Return the names of the run directories."""
        return self.runs.names()

    @property
    def location(self) -> str:
        """The directory with the run directories."""
        return str(self.runs.root)

    def observe(self, experiment: str) -> ExperimentStatus:
        """Return the status that the manifest, the events and the running processes show."""
        return self.runs.status(self.runs.find(experiment))

    @contextlib.contextmanager
    def watch(self, experiment: str | None, *, follow: bool = True) -> Iterator[Watch]:
        """Read only new events, as soon as they are written."""
        from symphony.supervised.read.log_files import growing

        del follow
        name = self._single(experiment)
        run = self.runs.find(name)
        reader = self.runs.reader(run)

        def read() -> WatchedStatuses:
            # No event shows the deletion of an experiment that has finished.
            self.runs.find(name)
            return WatchedStatuses([reader.read()])

        with growing({"events": run.events}, remote=run.is_remote()) as wait_for_events:
            yield Watch(read, wait_for_events)

    def record(self, experiment: str, pattern: str) -> Mapping[str, bytes]:
        """Return files of the run directory."""
        from symphony.archive.run_record import read_files

        return read_files(self.runs.find(experiment).path, pattern)

    def events(
        self, experiment: str, names: Collection[str] | None, *, follow: bool
    ) -> Iterator[ExperimentEvent]:
        """Yield the recorded events."""
        from symphony.supervised.read.log_files import growing
        from symphony.supervised.record.event_stream import EventStream

        # A run that is deleted is read to its end.
        with self.runs.find(experiment).pin() as run:
            stream = EventStream(run, self.runs.reader(run))
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

        run = self.runs.find(experiment)
        with run.report_damage(run.events):
            events = EventReader(run.events).read_new()
        return process_details(run.load_manifest(), process, events, run.log(process.name))

    def topology(self, experiment: str) -> Topology:
        """Return the connections in the manifest."""
        from symphony.supervised.read.read_details import topology

        run = self.runs.find(experiment)
        status = self.runs.status(run)
        return topology(run.load_manifest(), status)

    def external_addresses(
        self, experiment: str, service: str | None = None
    ) -> Mapping[str, str | None]:
        """Return the addresses in the manifest."""
        del service
        manifest = self.runs.find(experiment).load_manifest()
        return {name: manifest["services"][name] for name in manifest["exposed"]}

    def usage(
        self, experiment: str, names: Collection[str] | None, interval: float
    ) -> Iterator[ExperimentUsage]:
        """Yield what the operating system reports about the processes."""
        run = self.runs.find(experiment)
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
            for usage in follow_usage(pinned, self.runs.reader(pinned), interval):
                yield select_usage(usage, names)

    def output(self, experiment: str, selection: Selection) -> Iterator[LogBlock | ExperimentEvent]:
        """Yield the output in the log files, and the recorded events."""
        if selection.as_written:
            return self._iter_log(experiment, selection)
        from symphony.supervised.read.output import iter_output

        run = self.runs.find(experiment)
        return iter_output(
            run,
            selection,
            status=self.runs.reader(run),
            clean=self.clean,
            ignored=self.ignored_last_line,
        )

    def _iter_log(self, experiment: str, selection: Selection) -> Iterator[LogBlock]:
        """Yield what the log file of a process contains."""
        from symphony.log_blocks import LogBlock
        from symphony.supervised.read.log_files import iter_text

        (name,) = selection.names
        run = self.runs.find(experiment)
        with run.report_damage(run.logs):
            pieces = iter_text(
                run,
                name,
                since=selection.since,
                tail=selection.tail,
                ignored=self.ignored_last_line,
            )
            for piece in self.clean_pieces(pieces):
                yield LogBlock(name, piece)

    def logs(self, experiment: str, names: Sequence[str] | None = None) -> Mapping[str, int]:
        """Return the log files, and the offsets of what they still contain."""
        from symphony.supervised.read.log_files import first_kept_offset

        run = self.runs.find(experiment)
        logged = run.logged_processes() if names is None else names
        return {name: first_kept_offset(run.log(name)) for name in logged}
