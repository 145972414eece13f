"""The part of the Slurm backend that `Cluster` calls; see `symphony.cluster.backend`."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError, SymphonyError
from symphony.supervised.host_backend import HostBackend, Launcher
from symphony.supervised.host_runs import HostRuns
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.terminal_backend import TerminalBackend
from symphony_slurm.job.node_relay import (
    placement_of,
    supervisor_link,
)
from symphony_slurm.status import SlurmStatusReader, wait_for_logs
from symphony_slurm.stop_job import stop_job

if TYPE_CHECKING:
    from symphony.cluster.backend import Access, Selection
    from symphony.events import ExperimentEvent
    from symphony.log_blocks import LogBlock
    from symphony.model import Experiment
    from symphony.plan.findings import Finding
    from symphony.plan.resolve import Defaults
    from symphony.supervised.host_change import HostChange
    from symphony.supervised.host_deletion import HostDeletion
    from symphony.supervised.host_options import HostOptions
    from symphony.supervised.user_requests.requests import SupervisorLink
    from symphony.usage import ExperimentUsage
    from symphony_slurm.job_options import SlurmJobOptions
    from symphony_slurm.plan_job import SlurmPlanner


class SlurmRuns(HostRuns):
    """The run directories on a shared file system."""

    def reader(self, run: RunDirectory) -> SlurmStatusReader:
        """Return a reader of the status."""
        return SlurmStatusReader(run)

    def final_reader(self, run: RunDirectory) -> SlurmStatusReader:
        """Return a reader of the status of a run without running processes."""
        return SlurmStatusReader(run)

    def link(self, run: RunDirectory) -> SupervisorLink:
        """Return the way in which this program reaches the supervisor of a pinned run."""
        return supervisor_link(run)


class SlurmBackend(TerminalBackend):
    """The experiments whose run directories are on a shared file system."""

    # Slurm starts jobs again; see the option ``requeue``.
    resumes_after_reboot = False

    def __init__(self, options: HostOptions, job: SlurmJobOptions) -> None:
        super().__init__(options)
        self._job = job

    def make_runs(self, options: HostOptions) -> HostRuns:
        """Return the run directories."""
        return SlurmRuns(options)

    def with_options(self, options: HostOptions) -> HostBackend:
        """Return a backend for the same jobs with other options."""
        return type(self)(options, self._job)

    @functools.cached_property
    def planner(self) -> SlurmPlanner:
        """The object that makes the manifests of jobs."""
        from symphony_slurm.plan_job import SlurmPlanner

        return SlurmPlanner(self.options, self._job)

    @functools.cached_property
    def launcher(self) -> Launcher:
        """The object that submits jobs."""
        from symphony_slurm.launch_job import SlurmLauncher

        return SlurmLauncher(
            self.options, self.runs, self.planner, self.deletion, self._job.options
        )

    @functools.cached_property
    def changing(self) -> HostChange:
        """The object that changes experiments in their jobs."""
        from symphony_slurm.change_job import SlurmChange

        return SlurmChange(self.options, self.runs, self.planner, self._job)

    @functools.cached_property
    def deletion(self) -> HostDeletion:
        """The object that deletes experiments and their jobs."""
        from symphony_slurm.delete_job import SlurmDeletion

        return SlurmDeletion(self.runs, self.options.configuration)

    # --- launching ---

    def check(self, manifest: Any) -> str:
        """Let Slurm check the job of a manifest without submitting it."""
        from symphony_slurm.submit.check_job import check_submission

        return check_submission(manifest, self._job.options.partition)

    def check_nodes(
        self, experiment: Experiment, defaults: Defaults, *, thorough: bool
    ) -> Iterator[Finding]:
        """Check the nodes of an experiment; see `SlurmCluster.check_nodes`."""
        from symphony_slurm.submit.check_job import find_node_problems

        try:
            manifest = self.planner.manifest(experiment, defaults)
        except SymphonyError:
            # Other rules report errors of the experiment.
            return
        yield from find_node_problems(
            self.runs.root, manifest, self._job.options, thorough=thorough
        )

    # --- ending ---

    def stop_for_good(self, experiment: str, *, at_once: bool) -> None:
        """Stop the job of an experiment, and keep its logs and its status."""
        with self.runs.find(experiment).pin() as run:
            stop_job(run, at_once=at_once)

    # --- observing ---

    def usage(
        self, experiment: str, names: Collection[str] | None, interval: float
    ) -> Iterator[ExperimentUsage]:
        """Yield samples of the resource use, which the agents of the nodes measure."""
        return self._received_usage(self.runs.find(experiment), names, interval)

    def _received_usage(
        self, run: RunDirectory, names: Collection[str] | None, interval: float
    ) -> Iterator[ExperimentUsage]:
        from symphony.usage import select_usage
        from symphony_slurm.job.node_usage import follow_usage

        with run.pin() as pinned:
            link = functools.partial(supervisor_link, pinned)
            for usage in follow_usage(pinned, self.runs.reader(pinned), link, interval):
                yield select_usage(usage, names)

    def output(self, experiment: str, selection: Selection) -> Iterator[LogBlock | ExperimentEvent]:
        """Yield the output once the shared file system shows the logs."""
        run = self.runs.find(experiment)
        if selection.as_written:
            names = selection.names
        else:
            names = [process.name for process in self.runs.status(run)]
        wait_for_logs(run, names)
        return super().output(experiment, selection)

    def external_addresses(
        self, experiment: str, service: str | None = None
    ) -> Mapping[str, str | None]:
        """Return the addresses in the manifest, which are not known before the job has started.

        The host is a node. With ``service``, raises BackendError if the job has not started.
        """
        addresses = super().external_addresses(experiment, service)
        try:
            placement_of(self.runs.find(experiment))
        except BackendError:
            if service in addresses:
                raise
            return dict.fromkeys(addresses)
        return addresses

    # --- using ---

    @property
    def access(self) -> Access:
        """The object that reaches the nodes of a job."""
        from symphony_slurm.job_access import JobAccess

        return JobAccess(self)
