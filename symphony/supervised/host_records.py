"""The records of experiments and runs in the run directories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from symphony.cluster.backend.records import Records
from symphony.supervised.record import directory

# Modules that only some commands need are imported inside functions.
if TYPE_CHECKING:
    from symphony.archive.archive import Run
    from symphony.archive.archived_usage import RecordedUsage
    from symphony.code.snapshot import CodeArchive
    from symphony.status import ExperimentStatus
    from symphony.supervised.host_runs import HostRuns


class HostRecords(Records):
    """The records of the experiments in ``run_directories``.

    ``observe`` returns the status of an experiment. With ``resumes``, experiments that a reboot of
    this machine has interrupted can be started again.
    """

    def __init__(
        self,
        run_directories: HostRuns,
        observe: Callable[[str], ExperimentStatus],
        *,
        resumes: bool,
    ) -> None:
        super().__init__(observe)
        self._runs = run_directories
        self._resumes = resumes

    def runs(self) -> list[Run]:
        """Return the recorded runs, including those whose experiments still exist."""
        from symphony.archive import archive

        archives = {archive.archive_directory(), directory.archive_directory(self._runs.root)}
        roots = [*directory.all_roots(self._runs.root), archive.active_directory()]
        found = archive.find_active(roots)
        for each in archives:
            found += archive.find_archived(each)
        return archive.newest_first(found)

    def resume(self, *, dry_run: bool) -> Mapping[str, str]:
        """Start new supervisors for interrupted experiments."""
        from symphony.supervised.user_requests.resume import resume_runs

        if not self._resumes:
            return {}
        found = directory.find_all(self._runs.root)
        return resume_runs(found, self._runs.children, dry_run=dry_run)

    def usage(self, experiment: str) -> RecordedUsage:
        """Return the resource use in the record of the run."""
        from symphony.archive.archived_usage import read_usage

        return read_usage(self._runs.find(experiment).path)

    def code(self, experiment: str) -> Mapping[str, CodeArchive]:
        """Return the code in the run directory."""
        from symphony.archive.code_archives import read_archives

        return read_archives(self._runs.find(experiment).path)

    def secret_contents(self, experiment: str) -> list[bytes]:
        """Return the contents of the files with secrets."""
        secrets = self._runs.find(experiment).secrets
        if not secrets.is_dir():
            return []
        return [path.read_bytes() for path in secrets.iterdir() if path.is_file()]

    def removed_processes(self, experiment: str) -> list[str]:
        """Return the processes that have a log, but that the experiment does not contain."""
        present = {process.name for process in self._observe(experiment)}
        logged = self._runs.find(experiment).logged_processes()
        return [name for name in logged if name not in present]

    def removed_output(self, experiment: str, names: Sequence[str]) -> Mapping[str, int]:
        """Return the offsets of what the logs still contain."""
        from symphony.supervised.read.log_files import first_kept_offset

        run = self._runs.find(experiment)
        offsets = {name: first_kept_offset(run.log(name)) for name in names}
        return {name: offset for name, offset in offsets.items() if offset}
