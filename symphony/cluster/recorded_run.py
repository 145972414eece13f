"""A cluster that reads the record of a run whose experiment no longer exists."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from symphony.archive import archived_logs
from symphony.archive.run_record import (
    DETAILS_FILE,
    LOG_DIRECTORY,
    RECORD_FILE,
    STATUS_FILE,
    TOPOLOGY_FILE,
    read_files,
    read_json,
)
from symphony.cluster.backend import Backend, LaunchRequest, RecordedRuns, Selection, WaitGoal
from symphony.cluster.cluster import Manifest, OnChange
from symphony.errors import BackendError, Unsupported
from symphony.status import ExperimentStatus, ProcessStatus

if TYPE_CHECKING:
    from symphony.archive.archive import Run
    from symphony.log_blocks import LogBlock
    from symphony.plan.topology import Topology
    from symphony.process_details import ProcessDetails


class _OneRun(RecordedRuns):
    """Recorded runs among which ``run`` is the one of the experiment."""

    def __init__(self, backend: RecordBackend, run: Run) -> None:
        super().__init__(backend)
        self._run = run

    def find(self, experiment: str) -> Run:
        """Return the run."""
        del experiment
        return self._run


class RecordBackend(Backend[Manifest]):
    """The files of the record of one run, in the form that `symphony.archive` describes.

    The methods that read an experiment read the record, whatever the name of the experiment is. All
    other methods raise `Unsupported`.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run.backend)
        self._run = run

    def names(self) -> Collection[str]:
        """Return the name of the run's experiment."""
        return [self._run.experiment]

    def record(self, experiment: str, pattern: str) -> Mapping[str, bytes]:
        """Return files of the record."""
        del experiment
        if pattern == RECORD_FILE:
            # A damaged description is an error of the run.
            self._run.load_record()
        return read_files(self._run.path, pattern)

    @property
    def recorded_runs(self) -> RecordedRuns:
        """The object that finds the run."""
        return _OneRun(self, self._run)

    def observe(self, experiment: str) -> ExperimentStatus:
        """Return the last status before the experiment was deleted."""
        del experiment
        data = self._read(STATUS_FILE)
        try:
            return ExperimentStatus.from_dict(data)
        except (KeyError, TypeError, ValueError) as exc:
            raise self._damaged(STATUS_FILE) from exc

    def wait(self, experiment: str, goal: WaitGoal, on_change: OnChange = None) -> ExperimentStatus:
        """Return the last status, because nothing changes."""
        del goal
        status = self.observe(experiment)
        if on_change is not None:
            on_change(status)
        return status

    def details(self, experiment: str, process: ProcessStatus) -> ProcessDetails:
        """Return the recorded details of a process."""
        from symphony.process_details import ProcessDetails

        del experiment
        details = read_json(self._run.path / DETAILS_FILE) or {}
        if process.name not in details:
            return ProcessDetails(status=process)
        try:
            return ProcessDetails.from_dict(details[process.name], process)
        except (KeyError, TypeError) as exc:
            raise self._damaged(DETAILS_FILE) from exc

    def topology(self, experiment: str) -> Topology:
        """Return the recorded connections."""
        from symphony.plan.topology import Topology

        del experiment
        data = self._read(TOPOLOGY_FILE)
        try:
            return Topology.from_dict(data)
        except (KeyError, TypeError) as exc:
            raise self._damaged(TOPOLOGY_FILE) from exc

    def external_addresses(
        self, experiment: str, service: str | None = None
    ) -> Mapping[str, str | None]:
        """Return the exposed services. Their addresses do not exist any more."""
        del service
        services = self.topology(experiment).services
        return {found.name: None for found in services if found.exposed}

    def output(self, experiment: str, selection: Selection) -> Iterator[LogBlock]:
        """Yield the recorded output, to which nothing is added."""
        from symphony.log_blocks import LogBlock, to_blocks

        del experiment
        directory = self._run.path / LOG_DIRECTORY
        if selection.as_written:
            (name,) = selection.names
            pieces = archived_logs.iter_text(
                directory, name, since=selection.since, tail=selection.tail
            )
            return (LogBlock(name, piece) for piece in pieces)
        lines = archived_logs.iter_lines(
            directory, selection.names, since=selection.since, tail=selection.tail
        )
        return to_blocks(lines)

    def logs(self, experiment: str, names: Sequence[str] | None = None) -> Mapping[str, int]:
        """Return the recorded logs."""
        del experiment
        recorded = sorted(path.stem for path in (self._run.path / LOG_DIRECTORY).glob("*.log"))
        return {name: 0 for name in recorded if names is None or name in names}

    # --- methods that would change something ---

    def launch(self, request: LaunchRequest) -> Manifest:
        """Raise `Unsupported`."""
        raise self._read_only(request.experiment.name)

    def delete(self, experiment: str, *, in_order: bool, at_once: bool, purge: bool) -> None:
        """Raise `Unsupported`."""
        del in_order, at_once, purge
        raise self._read_only(experiment)

    def _read_only(self, experiment: str) -> Unsupported:
        return Unsupported(
            f"run {self._run.name!r} of {experiment!r} is a record, which can only be read"
        )

    # --- files ---

    def _read(self, name: str) -> dict[str, Any]:
        """Return the contents of a file of the record."""
        data = read_json(self._run.path / name)
        if data is None:
            raise self._damaged(name)
        return data

    def _damaged(self, name: str) -> BackendError:
        path = self._run.path / name
        return BackendError(
            f"the record of run {self._run.name!r} is incomplete: {path} is missing or damaged"
        )
