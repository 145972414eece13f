"""The recorded runs of supervised experiments: their run directories, and the archives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from symphony.cluster.backend import RecordedRuns
from symphony.supervised.record import directory
from symphony.support.data_classes import replace
from symphony.support.directories.state_home import active_records

# Modules that only some commands need are imported inside functions.
if TYPE_CHECKING:
    from pathlib import Path

    from symphony.archive.archive import Run
    from symphony.supervised.host_backend import HostBackend


class HostRecordedRuns(RecordedRuns):
    """The runs in the run directories of ``backend`` and in the archives."""

    def __init__(self, backend: HostBackend) -> None:
        super().__init__(backend)
        self._host = backend
        self._runs = backend.runs

    def list_all(self) -> list[Run]:
        """Return the recorded runs, including those whose experiments still exist."""
        from symphony.archive import archive

        archives = {archive.archive_directory(), directory.archive_directory(self._runs.root)}
        roots = [*directory.all_roots(self._runs.root), archive.active_directory()]
        found = archive.find_active(roots)
        for each in archives:
            found += archive.find_archived(each)
        return archive.newest_first(found)

    def active_paths(self, experiment: str) -> list[Path]:
        """Return the directories in which the record of an active run of an experiment can be."""
        return active_records(experiment, directory.all_roots(self._runs.root))

    def find(self, experiment: str) -> Run:
        """Return the run in the directory of an experiment."""
        from symphony.archive import archive

        return archive.load(self._runs.find(experiment).path)

    def at_run(self, run: Run) -> HostBackend:
        """Return a backend that reads the directory of ``run``."""
        return self._host.with_options(replace(self._host.options, run_path=run.path))

    def resume(self, *, dry_run: bool) -> Mapping[str, str]:
        """Start new supervisors for interrupted experiments."""
        from symphony.supervised.user_requests.resume import resume_runs

        if not self._host.resumes_after_reboot:
            return {}
        found = directory.find_all(self._runs.root)
        return resume_runs(found, self._runs.children, dry_run=dry_run)
