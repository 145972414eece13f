"""The records that a backend keeps of experiments and runs, in addition to their statuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symphony.archive.archive import Run
    from symphony.archive.archived_usage import RecordedUsage
    from symphony.code.snapshot import CodeArchive
    from symphony.status import ExperimentStatus


class Records:
    """The records of experiments. A backend overrides the methods for what it keeps.

    ``observe`` is `Backend.observe`. Every method that takes the name of an experiment raises
    `NotFound` if the experiment does not exist.
    """

    def __init__(self, observe: Callable[[str], ExperimentStatus]) -> None:
        self._observe = observe

    # --- runs ---

    def runs(self) -> list[Run]:
        """Return the recorded runs of all experiments on this machine, the newest first."""
        from symphony.archive import archive

        return archive.find_all()

    def resume(self, *, dry_run: bool) -> Mapping[str, str]:
        """Start the experiments again that a reboot of this machine has interrupted.

        See `Cluster.resume_experiments`. By default, no experiment is interrupted.
        """
        del dry_run
        return {}

    # --- experiments ---

    def usage(self, experiment: str) -> RecordedUsage:
        """Return the recorded resource use of an experiment, which is empty if there is none."""
        from symphony.archive.archived_usage import RecordedUsage

        self._observe(experiment)
        return RecordedUsage()

    def code(self, experiment: str) -> Mapping[str, CodeArchive]:
        """Return the recorded code of a running experiment, by the names of its processes."""
        del experiment
        return {}

    def secret_contents(self, experiment: str) -> list[bytes]:
        """Return the contents of the secrets of an experiment, as far as they can be read."""
        del experiment
        return []

    def removed_processes(self, experiment: str) -> list[str]:
        """Return the names of the processes that a change has removed and whose logs exist."""
        del experiment
        return []

    def removed_output(self, experiment: str, names: Sequence[str]) -> Mapping[str, int]:
        """Return the numbers of bytes that were removed at the beginnings of logs.

        ``names`` are names of processes, and the result contains those whose log has exceeded its
        ``log_limit``.
        """
        del experiment, names
        return {}
