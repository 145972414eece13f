"""The part of a backend that finds, reads and continues the recorded runs of experiments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from symphony.cluster.matching import unsupported

if TYPE_CHECKING:
    from pathlib import Path

    from symphony.archive.archive import Run
    from symphony.cluster.backend.inspection import Inspection


class RecordedRuns:
    """The runs whose records are on this machine. All methods are optional.

    By default, ``backend`` records no runs.
    """

    def __init__(self, backend: Inspection) -> None:
        self.backend = backend

    def list_all(self) -> list[Run]:
        """Return the recorded runs, the newest first. By default, these are of all backends."""
        from symphony.archive import archive

        return archive.find_all()

    def active_paths(self, experiment: str) -> list[Path]:
        """Return the directories in which the record of an active run of an experiment can be,
        without reading them. By default, these are those of all backends.
        """
        from symphony.support.directories.state_home import active_records, backend_roots

        return active_records(experiment, backend_roots())

    def find(self, experiment: str) -> Run | None:
        """Return the run of an existing experiment, or None if it has no record."""
        del experiment
        return None

    def at_run(self, run: Run) -> Inspection:
        """Return a backend whose methods for reading an experiment read the record of ``run``."""
        raise unsupported(
            self.backend.name, f"keeps no records of runs, so {run.name!r} cannot be read"
        )

    def resume(self, *, dry_run: bool) -> Mapping[str, str]:
        """Start the experiments again that a reboot of this machine has interrupted.

        See `Cluster.resume_experiments`. By default, no experiment is interrupted.
        """
        del dry_run
        return {}
