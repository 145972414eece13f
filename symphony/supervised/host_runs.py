"""The run directories of a cluster of supervised experiments, and the way to their supervisors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from symphony.cluster.matching import experiment_exists, experiment_not_found
from symphony.errors import BackendError, NotFound, SymphonyError
from symphony.status import ExperimentStatus, State
from symphony.supervised.record import directory
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.status import StatusReader

# Modules that only some commands need are imported inside functions.
if TYPE_CHECKING:
    from pathlib import Path

    from symphony.supervised.host_options import HostOptions
    from symphony.supervised.user_requests.requests import SupervisorLink


class HostRuns:
    """The run directories of experiments, whose root and whose children `HostOptions` contains.

    With the option ``run_path``, every experiment has the directory of this record.
    """

    def __init__(self, options: HostOptions) -> None:
        self.root: Path = options.root
        self.children = options.children
        self._run_path = options.run_path

    # --- finding ---

    def names(self) -> list[str]:
        """Return the sorted names of the experiments."""
        return sorted(run.name for run in directory.find_all(self.root))

    def find(self, experiment: str) -> RunDirectory:
        """Return the run directory of an experiment. Raises `NotFound`."""
        if self._run_path is not None:
            return RunDirectory(self._run_path)
        found = directory.find(self.root, experiment)
        if found is None:
            raise experiment_not_found(experiment, self.names(), str(self.root))
        return found

    def name_in_use(self, name: str) -> SymphonyError:
        """Return the error for a name that could not be claimed."""
        path = self.root / name
        is_foreign = os.path.lexists(path) and not path.is_dir()
        with contextlib.suppress(NotFound):
            if not is_foreign:
                with RunDirectory(path).pin() as run:
                    is_foreign = not run.is_run_directory()
        if is_foreign:
            return BackendError(
                f"the name {name!r} cannot be used, because {path} is not a run directory of "
                "symphony; remove it or choose another name"
            )
        return experiment_exists(name)

    # --- reading ---

    def reader(self, run: RunDirectory) -> StatusReader:
        """Return a reader of the status, which replaces a supervisor that was killed."""
        is_record = self._run_path is not None
        return StatusReader(run, None if is_record else self._replace_supervisor)

    def final_reader(self, run: RunDirectory) -> StatusReader:
        """Return a reader of the status of a run without running processes."""
        return StatusReader(run)

    def status(self, run: RunDirectory) -> ExperimentStatus:
        """Return the status that the manifest, the events and the running processes show."""
        return self.reader(run).read()

    def _replace_supervisor(self, run: RunDirectory) -> bool:
        from symphony.supervised.user_requests.replacement import replace_supervisor

        return replace_supervisor(run, self.children)

    # --- supervisors ---

    def link(self, run: RunDirectory) -> SupervisorLink:
        """Return the way in which this program reaches the supervisor of a pinned run."""
        from symphony.supervised.user_requests.requests import LocalLink

        return LocalLink(run)

    def send(
        self,
        run: RunDirectory,
        request: Mapping[str, Any],
        *,
        timeout: float | None = None,
        on_sent: Callable[[], None] = lambda: None,
        waits: bool = False,
    ) -> None:
        """Send a request to the supervisor of a pinned run.

        See `symphony.supervised.user_requests.requests.send_request`.
        """
        from symphony.supervised.user_requests.requests import send_request

        link = self.link(run)
        send_request(run, request, timeout=timeout, on_sent=on_sent, link=link, waits=waits)


def unobserved_host(run: RunDirectory, status: ExperimentStatus) -> str | None:
    """Return the other host on which processes of the experiment can be running, or None."""
    if all(process.state is not State.UNKNOWN for process in status):
        return None
    return run.other_host()
