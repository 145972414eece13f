"""The files of a run, and their paths."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

EVENTS_FILE = "events.jsonl"
CONFIG_DIRECTORY, SCRATCH_DIRECTORY = "configs", "scratch"
LOG_START_SUFFIX = ".start"
# This file marks a run whose files are written by other machines.
REMOTE_FILE = "remote"
# The guardian, which imports almost nothing, has the same constant.
_EXITS_FILE = "exits"


class RunPaths(NamedTuple):
    """The paths of the files of a run. The files and subdirectories may be missing.

    ``path`` is the directory that has the experiment's name. Another program can replace this
    directory with that of another run. If the directory is pinned, ``descriptor`` is a descriptor
    of the directory, and all files are those of the pinned run; see `RunDirectory.pin`.
    """

    path: Path
    descriptor: int | None = None

    @property
    def name(self) -> str:
        """Return the name of the experiment."""
        return self.path.name

    @property
    def _files(self) -> Path:
        """Return the directory in which this object reads and writes files."""
        return self.path if self.descriptor is None else Path(f"/proc/self/fd/{self.descriptor}")

    @property
    def lock(self) -> Path:
        """Return the path of the lock file, which exists in every run directory."""
        return self._files / "lock"

    @property
    def manifest(self) -> Path:
        """Return the path of the manifest, which is a JSON file."""
        return self._files / "manifest.json"

    @property
    def events(self) -> Path:
        """Return the path of the event log."""
        return self._files / EVENTS_FILE

    @property
    def note(self) -> Path:
        """Return the path of the supervisor's note; see `symphony.supervised.record.note`."""
        return self._files / "note"

    @property
    def launch_settings(self) -> Path:
        """Return the path of the launcher's settings; see `launch_settings` in this package."""
        return self._files / "launcher.json"

    @property
    def secrets(self) -> Path:
        """Return the path of the directory that contains the secrets."""
        return self._files / "secrets"

    def configs(self, process: str, version: str) -> Path:
        """Return a directory with configuration files; see `symphony.supervised.render`."""
        return self._files / CONFIG_DIRECTORY / process / version

    @property
    def supervisor_log(self) -> Path:
        """Return the path of the file that contains the supervisor's own output.

        The file is empty unless an error has occurred.
        """
        return self._files / "supervisor.log"

    @property
    def logs(self) -> Path:
        """Return the path of the directory that contains the logs."""
        return self._files / "logs"

    def log(self, process: str) -> Path:
        """Return the path of the file that contains the output of a process."""
        return self.logs / f"{process}.log"

    @property
    def pipes(self) -> Path:
        """Return the path of the directory that contains the pipes of the processes."""
        return self._files / "pipes"

    @property
    def pipes_lock(self) -> Path:
        """Return the path of the file that the program which reads the pipes has locked."""
        return self._files / "pipes.lock"

    def locks_pipes(self) -> bool:
        """Return whether the program that reads the pipes locks `pipes_lock`.

        If several machines share the directory, each has such a program.
        """
        return not self.is_remote()

    @property
    def stop_record(self) -> Path:
        """Return the path of the record of the programs that were asked to exit; see
        `symphony.supervised.processes.stop_record`.
        """
        return self._files / "stopping"

    def log_times(self, process: str) -> Path:
        """Return the path of the file that records the length of a process's log over time."""
        return self.logs / f"{process}.when"

    def log_start(self, process: str) -> Path:
        """Return the path of the file that contains the byte offset at which a process's log
        starts. The file exists only if old output was removed.
        """
        return self.logs / f"{process}{LOG_START_SUFFIX}"

    @property
    def exits(self) -> Path:
        """Return the path of the file in which the guardian records exits; see
        `symphony.supervised.processes.exit_status`.
        """
        return self._files / _EXITS_FILE

    @property
    def _supervisor_file(self) -> Path:
        return self._files / "supervisor.json"

    def file(self, name: str) -> Path:
        """Return the path of a file that a backend adds to the run directory."""
        return self._files / name

    def logged_processes(self) -> list[str]:
        """Return the sorted names of the processes that have a log."""
        return sorted(path.stem for path in self.logs.glob("*.log"))

    def is_remote(self) -> bool:
        """Return whether other machines write the files of the run."""
        return self.file(REMOTE_FILE).exists()

    def is_current(self) -> bool:
        """Return whether the directory at ``path`` is this run directory.

        If the directory is not pinned, return whether there is a directory at ``path``.
        """
        try:
            found = self.path.stat()
        except OSError:
            return False
        return self.descriptor is None or os.path.samestat(found, os.fstat(self.descriptor))
