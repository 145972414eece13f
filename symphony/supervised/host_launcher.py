"""Launching experiments on this machine: from the reserved name to the handover to a supervisor."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from symphony.code.take_snapshots import take_snapshots
from symphony.errors import BackendError, LaunchFailed, NotFound
from symphony.plan.restart_policy import Backoff
from symphony.status import ENDED
from symphony.supervised import preflight
from symphony.supervised.record import directory, run_paths
from symphony.supervised.record.launch_settings import LaunchSettings
from symphony.supervised.resources.gpus import (
    assign_gpus,
    check_number_of_gpus,
    check_total_of_gpus,
)
from symphony.supervised.resources.leases import GpuLeases, PortLeases
from symphony.supervised.resources.ports import ExperimentPorts
from symphony.supervised.supervisor import handover
from symphony.support.data_classes import replace

if TYPE_CHECKING:
    import socket

    from symphony.cluster.backend import LaunchRequest
    from symphony.code.snapshot import CodeArchives
    from symphony.supervised.host_deletion import HostDeletion
    from symphony.supervised.host_options import HostOptions
    from symphony.supervised.host_planner import HostPlanner
    from symphony.supervised.host_runs import HostRuns
    from symphony.supervised.record.directory import RunDirectory
    from symphony.supervised.render import HostManifest


class HostLauncher:
    """Launches experiments in ``runs``.

    ``planner`` makes their manifests, and ``deletion`` removes those that are replaced.
    """

    # The number of file descriptors that the supervisor needs for each process.
    process_descriptors: ClassVar[int] = 0

    def __init__(
        self, options: HostOptions, runs: HostRuns, planner: HostPlanner, deletion: HostDeletion
    ) -> None:
        self._options = options
        self._runs = runs
        self._deletion = deletion
        self._planner = planner

    def launch(self, request: LaunchRequest) -> HostManifest:
        """Hand an experiment over to a supervisor, and return its manifest."""
        # A launch on this machine takes very little time, so only a warning is reported.
        experiment = request.experiment
        preflight.check_open_files(experiment, self.process_descriptors)
        archives = take_snapshots(experiment)
        manifest, warning = self._start_in_turn(request, archives)
        if warning and request.on_change is not None:
            with contextlib.suppress(NotFound):
                status = self._runs.status(self._runs.find(experiment.name))
                request.on_change(replace(status, note=warning))
        return manifest

    def children_options(self) -> dict[str, Any]:
        """Return the keyword arguments for the class that starts processes.

        The values can be serialized as JSON. A backend can override this.
        """
        return {}

    def _start_in_turn(
        self, request: LaunchRequest, archives: CodeArchives
    ) -> tuple[HostManifest, str]:
        """Do the same as `_start`, and wait for GPUs before if the request says so.

        Errors that waiting does not remove are raised at once.
        """
        if request.on_wait is None:
            return self._start(request, archives)
        request.check_name(lambda name: self._runs.status(self._runs.find(name)))
        replaced = directory.find(self._runs.root, request.experiment.name)
        # A port that is in use now can be free when the launch has its turn.
        planned = self._planner.render(
            request.experiment, request.defaults, lambda _port: None, archives
        )
        preflight.check(planned)
        unsupervised = self._planner.unsupervised_usage(except_run=replaced)
        leases = GpuLeases(self._planner.gpus(), unsupervised)
        check_total_of_gpus(planned.processes, leases)
        requested = sum(process.gpus for process in planned.processes)
        needed = requested - len(self._leased_gpus(replaced))
        if needed <= 0:
            return self._start(request, archives)
        from symphony.supervised.resources.gpu_queue import launch_in_turn

        return launch_in_turn(
            leases, needed, lambda: self._start(request, archives), request.on_wait
        )

    def _start(self, request: LaunchRequest, archives: CodeArchives) -> tuple[HostManifest, str]:
        """Free the experiment's name, launch the experiment, and return its manifest.

        Also return a warning for the user, which can be empty. A running experiment of this name is
        deleted when everything is ready to start the processes, because both can use the same ports
        and GPUs. If an earlier step fails, it keeps running.
        Raises AlreadyExists if an experiment of this name is running and ``force`` is false.
        """
        experiment, root = request.experiment, self._runs.root
        devices = self._planner.gpus()
        unsupervised = self._planner.unsupervised_usage()
        finishing = self._planner.finishing_ports()
        manifest: HostManifest | None = None
        settings = LaunchSettings(
            children_options=self.children_options(),
            backoff=(self._options.backoff or Backoff())._asdict(),
            hold_until_bound=self._options.hold_until_bound,
        )
        try:
            with (
                directory.full_disk_errors(root, len(experiment.list_all_processes())),
                # Other launches of the same name wait for this one, and do not compete for its
                # ports and GPUs.
                directory.staging_directory(root, experiment.name) as (run, lock),
            ):
                planned = None
                if request.force:
                    planned = self._plan_replacement(request, archives)
                else:
                    self._deletion.free_name(experiment.name)
                with (
                    handover.prepared_supervisor(
                        run, experiment.name, children=self._options.children, settings=settings
                    ) as channel,
                    PortLeases(finishing=finishing, unsupervised=unsupervised) as ports,
                    GpuLeases(devices, unsupervised) as gpus,
                ):
                    if planned is not None:
                        self._write_files(run, planned, archives)
                        directory.check_free_space(root, len(planned.processes))
                        # Everything that can fail before the processes start has been done.
                        self._deletion.delete(experiment.name)
                    manifest = self._planner.render(
                        experiment,
                        request.defaults,
                        ports.reserve,
                        archives,
                        avoid_port=ports.avoid,
                        run_id=None if planned is None else planned.run_id,
                    )
                    if planned is None:
                        preflight.check(manifest)
                    processes, gpu_leases = assign_gpus(manifest.processes, gpus)
                    manifest = replace(manifest, processes=processes)
                    self._write_files(run, manifest, archives, written=planned)
                    warning = self._hand_over(
                        run, lock, channel, request, manifest, ports, gpus, gpu_leases
                    )
        except BaseException:
            # Processes may already have started, for example if the caller was interrupted.
            if manifest is not None:
                # No record is kept, because the launch has failed.
                self._deletion.delete(manifest.experiment, manifest.run_id, purge=True)
            raise
        return manifest, warning

    def _plan_replacement(self, request: LaunchRequest, archives: CodeArchives) -> HostManifest:
        """Return the manifest of an experiment that replaces the one of the same name.

        The ports and GPUs of that experiment count as free. Raises `SpecError` or `LaunchFailed` if
        the experiment cannot be launched when that experiment has been deleted.
        """
        replaced = directory.find(self._runs.root, request.experiment.name)
        unsupervised = self._planner.unsupervised_usage(except_run=replaced)
        finishing = self._planner.finishing_ports()
        with PortLeases(ExperimentPorts(replaced), finishing, unsupervised) as ports:
            manifest = self._planner.render(
                request.experiment, request.defaults, ports.reserve, archives
            )
        preflight.check(manifest)
        gpus = GpuLeases(self._planner.gpus(), unsupervised)
        check_number_of_gpus(manifest.processes, gpus, self._leased_gpus(replaced))
        return manifest

    def _leased_gpus(self, run: RunDirectory | None) -> frozenset[str]:
        """Return the GPUs that the processes of an experiment have leased, if there is one.

        A process that has ended has released its GPUs.
        """
        from symphony.supervised.processes.spec import devices_of

        if run is None:
            return frozenset()
        try:
            manifest, status = run.load_manifest(), self._runs.status(run)
        except (BackendError, NotFound, FileNotFoundError):
            return frozenset()
        holders = {process.name for process in status if process.state not in ENDED}
        found: set[str] = set()
        for item in manifest["processes"]:
            if item["name"] in holders:
                found.update(devices_of(item["gpus"], item["env"]))
        return frozenset(found)

    @staticmethod
    def _write_files(
        run: RunDirectory,
        manifest: HostManifest,
        archives: CodeArchives,
        written: HostManifest | None = None,
    ) -> None:
        """Write the files that the processes need, and the manifest.

        ``written`` is a manifest of the same launch, with other ports and GPUs, whose files have
        been written before.
        """
        if written is None:
            preflight.write_code(run, manifest, archives)
            preflight.write_secrets(run, manifest)
        if written is None or manifest.configs != written.configs:
            # Another port is another version of a file, in a directory of its own.
            directory.remove_tree(run.file(run_paths.CONFIG_DIRECTORY))
            preflight.write_configs(run, manifest)
        run.write_manifest(manifest.to_dict())

    def _hand_over(
        self,
        run: RunDirectory,
        lock: int,
        channel: socket.socket,
        request: LaunchRequest,
        manifest: HostManifest,
        ports: PortLeases,
        gpus: GpuLeases,
        gpus_of_processes: dict[str, list[int]],
    ) -> str:
        """Record the launch, and make the supervisor start the processes.

        Return the supervisor's warning, which can be empty. The state of the code is recorded while
        the supervisor works.

        ``gpus_of_processes`` maps process names to the descriptors of their leases in ``gpus``.
        Raises AlreadyExists if another program has used the name in the meantime, and LaunchFailed
        if a process cannot be started.
        """
        from symphony.archive.code_state import CodeCapture
        from symphony.supervised.record import archived_record as records

        held_to_the_end = [*ports.leases.values()]
        held_until_started = ports.holds
        if self._options.hold_until_bound:
            held_to_the_end += ports.holds.values()
            held_until_started = {}

        def release() -> None:
            ports.release()
            gpus.release()

        # From the handover on, the experiment is complete even if this process is killed. On a full
        # disk, it runs without a record of its launch.
        with contextlib.suppress(OSError):
            records.write_launch_record(
                run,
                request.experiment,
                self._options.backend,
                manifest.run_name,
                manifest.launched,
                dict(request.options),
            )
        source = request.experiment.base_dir or Path.cwd()
        # The supervisor renames the run directory while the state of the code is captured.
        with run.pin() as pinned, CodeCapture(source, pinned.file(".")) as code:
            report = handover.hand_over(
                channel,
                run,
                self._runs.root / manifest.experiment,
                lock=lock,
                keep=held_to_the_end,
                holds=held_until_started,
                gpus=gpus_of_processes,
                on_inherited=release,
                while_launching=code.start,
            )
        if report.outcome == handover.EXISTS:
            raise self._runs.name_in_use(manifest.experiment)
        if report.outcome == handover.REFUSED:
            raise LaunchFailed(f"{report.reason}; the processes that had started were stopped")
        if report.outcome == handover.FAILED:
            raise BackendError(report.reason)
        return report.warning
