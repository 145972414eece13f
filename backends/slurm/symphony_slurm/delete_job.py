"""Deleting experiments on Slurm, together with their jobs."""

from __future__ import annotations

from symphony.cluster.matching import experiment_exists
from symphony.supervised.host_deletion import HostDeletion
from symphony.supervised.record.directory import RunDirectory
from symphony_slurm.stop_job import stop_job


class SlurmDeletion(HostDeletion):
    """The deletion of experiments in jobs."""

    def stop_and_remove(
        self, run: RunDirectory, *, purge: bool, in_order: bool, at_once: bool
    ) -> None:
        """Stop the job of a pinned run, and remove the run."""
        stop_job(run, in_order=in_order, at_once=at_once)
        self.remove(run, purge=purge)

    def remove_finished(self, run: RunDirectory) -> None:
        """Remove a pinned run that has finished."""
        reader = self._runs.reader(run)
        if not reader.read().ended:
            raise experiment_exists(run.name)
        if reader.waits_for_start:
            stop_job(run)
        self.remove(run)
