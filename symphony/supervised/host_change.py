"""Comparing running experiments with new descriptions, and changing them, on this machine."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from symphony.code.take_snapshots import take_snapshots
from symphony.errors import BackendError
from symphony.supervised.host_runs import HostRuns, unobserved_host
from symphony.supervised.record import directory
from symphony.supervised.record.event_file import unfinished_previous
from symphony.supervised.record.status import StatusReader
from symphony.support.data_classes import replace

# A comparison is fast if the modules that only a change needs are imported inside functions.
if TYPE_CHECKING:
    from symphony.cluster.backend import ChangeRequest
    from symphony.code.snapshot import CodeArchives
    from symphony.plan.changes import Changes
    from symphony.status import ExperimentStatus
    from symphony.supervised.host_options import HostOptions
    from symphony.supervised.host_planner import HostPlanner
    from symphony.supervised.processes.spec import ProcessSpec
    from symphony.supervised.record.directory import RunDirectory
    from symphony.supervised.render import HostManifest
    from symphony.supervised.resources.leases import GpuLeases, PortLeases
    from symphony.supervised.user_requests.request_change import Update

_STATUS_CHECK_SECONDS = 1.0


class Comparison(NamedTuple):
    """A running experiment, and its new description in ``request``.

    ``run`` is pinned, and ``reader`` has read ``status``. ``archives`` contains the code of the
    processes.
    """

    run: RunDirectory
    reader: StatusReader
    status: ExperimentStatus
    request: ChangeRequest
    archives: CodeArchives


class HostChange:
    """Compares and changes the experiments in ``runs``, whose manifests ``planner`` makes."""

    # The number of file descriptors that the supervisor needs for each process.
    process_descriptors: ClassVar[int] = 0

    def __init__(self, options: HostOptions, runs: HostRuns, planner: HostPlanner) -> None:
        self._options = options
        self._runs = runs
        self._planner = planner

    # --- comparing ---

    def diff(self, request: ChangeRequest) -> Changes:
        """Return how a running experiment differs; see `Cluster.diff`."""
        archives = take_snapshots(request.experiment)
        root, name = self._runs.root, request.experiment.name
        found = None
        while found is None:
            # A launch in progress, whose client can have been killed, has reserved the ports.
            directory.wait_for_launch(root, name)
            # No launch begins while this program determines whether the ports are free, and no
            # other program determines the same.
            with directory.existing_launch_lock(root):
                found = directory.find(root, name)
                if found is None and not directory.is_launching(root, name):
                    return self._launching(request, archives, "it does not exist")
        with found.pin() as run, contextlib.ExitStack() as stack:
            reader = self._runs.reader(run)
            status = reader.read()
            if _has_finished(reader, status):
                other_host = unobserved_host(run, status)
                if other_host is not None:
                    message = run.other_host_message(other_host, "run the command there")
                    raise BackendError(message)
                return self._launching(request, archives, "it has finished")

            previous = unfinished_previous(reader.state, reader.manifest)
            leaving = {port for item in previous for port in item["releases"]}

            @functools.cache
            def ports() -> PortLeases:
                # Most changes need no new port.
                from symphony.supervised.resources.leases import PortLeases

                unsupervised = self._planner.unsupervised_usage(except_run=found)
                finishing = self._planner.finishing_ports()
                leases = PortLeases(finishing=finishing, unsupervised=unsupervised)
                return stack.enter_context(leases)

            def reserve(port: int) -> str | None:
                # The port of a leaving process is reserved until it has exited, and then free.
                return None if port in leaving else ports().reserve(port)

            comparison = Comparison(run, reader, status, request, archives)
            update = self._difference(comparison, reserve, lambda port: ports().avoid(port))
            return update.changes

    def _difference(
        self,
        comparison: Comparison,
        reserve_port: Callable[[int], str | None],
        avoid_port: Callable[[int], bool],
    ) -> Update:
        """Return the difference between a running experiment and the requested one.

        ``reserve_port`` and ``avoid_port`` are called for new ports; see `HostPlanner.render`.
        """
        from symphony.supervised.user_requests.request_change import Update

        run, reader, status, request, archives = comparison
        manifest = self._render_again(request, archives, reader.manifest, reserve_port, avoid_port)
        return Update(run, reader, status, manifest, archives, start=request.start)

    def _render_again(
        self,
        request: ChangeRequest,
        archives: CodeArchives,
        running: Mapping[str, Any],
        reserve_port: Callable[[int], str | None],
        avoid_port: Callable[[int], bool],
    ) -> HostManifest:
        """Return the new manifest of a running experiment, whose services keep their ports."""
        services = running["services"].items()
        present = {name: int(address.rpartition(":")[2]) for name, address in services}
        own = set(present.values())

        def reserve(port: int) -> str | None:
            return None if port in own else reserve_port(port)

        codes = [item["code"] for item in running["processes"] if item.get("code")]
        return self._planner.render(
            request.experiment,
            request.defaults,
            reserve,
            archives,
            avoid_port=avoid_port,
            present=present,
            run_id=running["run_id"],
            copies_code=any(code["directory"] != code["source"] for code in codes),
        )

    def _launching(self, request: ChangeRequest, archives: CodeArchives, reason: str) -> Changes:
        """Return the changes for an experiment that is not running, which would be launched."""
        from symphony.plan.changes import launching
        from symphony.supervised.changed_resources import snapshot

        experiment = request.experiment
        other = self._other_backend(experiment.name)
        if other is None:
            manifest = self._planner.manifest(experiment, request.defaults)
            return launching(snapshot(manifest.to_dict(), {}), reason)
        # The experiment on the other backend has reserved the ports.
        manifest = self._planner.render(experiment, request.defaults, lambda _: None, archives)
        changes = launching(snapshot(manifest.to_dict(), {}), reason)
        reason = f"it runs on the backend {other}, not on {self._options.backend}"
        return replace(changes, launch="", relaunch=(reason,), other_backend=other)

    def _other_backend(self, name: str) -> str | None:
        """Return another backend of this machine on which an experiment is running, or None."""
        for root in directory.all_roots(self._runs.root)[1:]:
            found = directory.find(root, name)
            if found is None:
                continue
            reader = StatusReader(found)
            if not _has_finished(reader, reader.read()):
                return root.name
        return None

    # --- changing ---

    def change(self, request: ChangeRequest) -> Changes:
        """Change a running experiment; see `Cluster.up`."""
        from symphony.supervised import preflight
        from symphony.supervised.record.change_directory import change_lock
        from symphony.supervised.resources.leases import GpuLeases, PortLeases

        experiment = request.experiment
        preflight.check_open_files(experiment, self.process_descriptors)
        archives = take_snapshots(experiment)
        devices = self._planner.gpus()
        found = self._runs.find(experiment.name)
        with (
            directory.full_disk_errors(self._runs.root, len(experiment.list_all_processes())),
            found.pin() as run,
            change_lock(run),
        ):
            unsupervised = self._planner.unsupervised_usage(except_run=found)
            finishing = self._planner.finishing_ports()
            reader = self._runs.reader(run)
            status = read_unchanging(run, reader)
            with (
                PortLeases(finishing=finishing, unsupervised=unsupervised) as ports,
                GpuLeases(devices, unsupervised) as gpus,
            ):
                comparison = Comparison(run, reader, status, request, archives)
                update = self._difference(comparison, ports.reserve, ports.avoid)
                if not update.changes.is_empty:
                    self.check_change(update.changes)
                    update.assign_gpus(functools.partial(_lease_gpus, gpus))
                    send = functools.partial(_send_change, run, ports, gpus)
                    update.apply(experiment, send, keep_holds=self._options.hold_until_bound)
        return update.changes

    def check_change(self, changes: Changes) -> None:
        """Check that the backend can start the added processes. A backend can override this."""


def _has_finished(reader: StatusReader, status: ExperimentStatus) -> bool:
    """Return whether an experiment has finished, so that its processes cannot be started again."""
    return status.ended and not reader.waits_for_start


def _lease_gpus(
    gpus: GpuLeases, process: ProcessSpec, processes: Sequence[ProcessSpec]
) -> Sequence[str]:
    """Lease GPUs for a process. Raises LaunchFailed if too few GPUs are free."""
    from symphony.supervised.resources.gpus import too_few_gpus

    del processes
    devices = gpus.lease(process.gpus)
    if devices is None:
        raise too_few_gpus(process, gpus)
    return devices


def _send_change(
    run: RunDirectory,
    ports: PortLeases,
    gpus: GpuLeases,
    request: Mapping[str, Any],
    on_sent: Callable[[], None],
) -> None:
    """Send a change to the supervisor, with the leases for new ports and GPUs."""
    from symphony.supervised.user_requests.requests import send_request

    descriptors = [*ports.leases.values(), *ports.holds.values(), *gpus.leases.values()]

    def release() -> None:
        on_sent()
        # From now on, only the supervisor determines when the leases are released.
        ports.release()
        gpus.release()

    send_request(run, request, descriptors=descriptors, on_sent=release)


def read_unchanging(run: RunDirectory, reader: StatusReader) -> ExperimentStatus:
    """Return the status of an experiment when no change of it is in progress.

    The supervisor completes a change even if the program that has requested it was killed.
    """
    from symphony.supervised.read.log_files import growing

    with growing({"events": run.events}, remote=run.is_remote()) as wait_for_events:
        while True:
            status = reader.read()
            can_continue = reader.is_supervised() and not run.suspension()
            if not reader.state.is_changing or not can_continue:
                return status
            wait_for_events(_STATUS_CHECK_SECONDS)
