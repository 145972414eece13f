"""The base class of the backends whose processes run on this machine."""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from symphony.cluster import Cluster, OnChange
from symphony.cluster.matching import (
    experiment_exists,
    experiment_not_found,
)
from symphony.errors import (
    AlreadyExists,
    BackendError,
    LaunchFailed,
    NotFound,
    SpecError,
    SymphonyError,
    shown,
)
from symphony.status import ExperimentStatus
from symphony.supervised.host_backend import HostBackend, unobserved_host
from symphony.supervised.record import directory, run_paths
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import unfinished_previous
from symphony.supervised.record.status import StatusReader
from symphony.support.data_classes import replace
from symphony.support.directories.state_home import state_root
from symphony.support.names import did_you_mean

# Modules that only a launch, a stop or a log command needs are imported inside functions, so that
# commands such as `symphony ls` start quickly.
if TYPE_CHECKING:
    import socket

    from symphony.archive.archive import Run
    from symphony.code.snapshot import CodeArchives
    from symphony.model import Experiment
    from symphony.model.settings.validators import Strings
    from symphony.plan.changes import Changes
    from symphony.plan.restart_policy import Backoff
    from symphony.supervised.processes.spec import ProcessSpec
    from symphony.supervised.read.log_files import IgnoredLine
    from symphony.supervised.render import HostManifest
    from symphony.supervised.resources.leases import GpuLeases, PortLeases
    from symphony.supervised.resources.ports import FinishingPorts
    from symphony.supervised.resources.unsupervised import UnsupervisedUsage
    from symphony.supervised.user_requests.request_change import Update
    from symphony.supervised.user_requests.requests import SupervisorLink

# How many seconds a launch waits for the supervisor of a finished experiment to exit. Before its
# exit, the supervisor stops processes that were left behind.
FINISH_TIMEOUT_SECONDS = 60.0
# How long a command that needs the lock of a run without a supervisor waits for other programs.
LOCK_TIMEOUT_SECONDS = 0.2
_STATUS_CHECK_SECONDS = 1.0
PORT_HOLD_MODES = ("started", "bound")


class HostCluster(Cluster):
    """A cluster that runs processes on this machine. Each experiment has a detached supervisor.

    A backend sets ``children`` to the ``"module:Class"`` that starts its processes. The supervisor
    imports this class; see `symphony.supervised.supervisor.children.Children`.

    Options:

    * ``state_dir`` is the directory that contains the run directories. The default is a
      subdirectory of SYMPHONY_STATE_DIR, or else of the XDG state directory.
    * ``gpus`` contains the identifiers of the GPUs that launches may lease. The default is the GPUs
      in CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES, or else all NVIDIA GPUs on the machine, or
      its AMD GPUs if there are none.
    * ``backoff`` sets the delays before restarts.
    * ``hold_ports`` sets how long a port is held for its server. With ``"started"``, the port is
      held until the server starts. With ``"bound"``, the port is held until the experiment
      finishes, so that the port is never free before the server has bound it. ``"bound"`` requires
      servers that set SO_REUSEADDR.
    * With ``snapshot``, processes with `code` run from a copy in the run directory, which later
      edits do not change.
    """

    children: ClassVar[str]
    # The class of `implementation`.
    backend_class: ClassVar[type[HostBackend]] = HostBackend
    # The number of file descriptors that the supervisor needs for each process.
    process_descriptors: ClassVar[int] = 0
    # True if experiments that a reboot of this machine has interrupted can be started again.
    resumes_after_reboot: ClassVar[bool] = True
    commands_run_here: ClassVar[bool] = True
    launch_option_names: ClassVar[tuple[str, ...]] = ("snapshot",)
    ports_are_here: ClassVar[bool] = True

    # The record that is read instead of the experiments; see `at_run`.
    _run_path: Path | None = None

    def __init__(
        self,
        *,
        state_dir: str | os.PathLike[str] | None = None,
        gpus: Sequence[str] | None = None,
        backoff: Backoff | None = None,
        hold_ports: Literal["started", "bound"] = "started",
        snapshot: bool = False,
        preamble_cmds: Strings | None = None,
        start_dir: str | None = None,
    ) -> None:
        super().__init__(preamble_cmds=preamble_cmds, start_dir=start_dir)
        self._root = state_root(self.backend) if state_dir is None else _state_root(state_dir)
        self._gpus = None if gpus is None else _device_names(gpus)
        if backoff is not None:
            from symphony.model.settings.validators import instance
            from symphony.plan.restart_policy import Backoff

            instance(backoff, Backoff, "backoff")
        self._backoff = backoff
        if not isinstance(snapshot, bool):
            raise SpecError(f"snapshot must be true or false, not {shown(snapshot)}")
        self._copies_code = snapshot
        if hold_ports not in PORT_HOLD_MODES:
            hint = did_you_mean(shown(hold_ports).strip("'"), PORT_HOLD_MODES)
            modes = " or ".join(PORT_HOLD_MODES)
            raise SpecError(f"hold_ports must be {modes}, not {shown(hold_ports)}{hint}")
        self._hold_until_bound = hold_ports == "bound"

    @functools.cached_property
    def implementation(self) -> HostBackend:
        """The part of the cluster that reads run directories and sends requests."""
        return self.backend_class(**self._backend_arguments())

    def _backend_arguments(self) -> dict[str, Any]:
        """Return the arguments for the constructor of the backend."""
        return {
            "name": self.backend,
            "root": self._root,
            "find": self._find,
            "make_reader": self._reader,
            "describe": self._describe,
            "send": self._send,
            "manifest": self._manifest,
            "launch": self._launch,
            "at_run": self._at_run,
            "diff": self._diff,
            "change": self._change,
            "delete": self._delete,
            "link": self._supervisor_link,
            "clean": self._clean_output,
            "ignored_last_line": self._ignored_last_line,
            "children": self.children if self.resumes_after_reboot else None,
        }

    # --- launching ---

    def _manifest(self, experiment: Experiment) -> HostManifest:
        """Return the manifest that a launch would use at this moment.

        The manifest contains ports that are free now. The ports of a running experiment of the same
        name count as free, because a launch either refuses the name or replaces that experiment.
        """
        from symphony.code.take_snapshots import take_snapshots
        from symphony.supervised.resources.leases import PortLeases
        from symphony.supervised.resources.ports import ExperimentPorts

        replaced = directory.find(self._root, experiment.name)
        unsupervised = self._unsupervised_usage(except_run=replaced)
        archives = take_snapshots(experiment)
        with PortLeases(ExperimentPorts(replaced), self._finishing_ports(), unsupervised) as ports:
            return self._render(experiment, ports.reserve, archives, avoid_port=ports.avoid)

    def _finishing_ports(self) -> FinishingPorts:
        from symphony.supervised.resources.ports import FinishingPorts

        return FinishingPorts(self._root, FINISH_TIMEOUT_SECONDS)

    def _unsupervised_usage(self, except_run: RunDirectory | None = None) -> UnsupervisedUsage:
        from symphony.supervised.resources.unsupervised import UnsupervisedUsage

        return UnsupervisedUsage(directory.all_roots(self._root), except_run)

    def _render(
        self,
        experiment: Experiment,
        reserve_port: Callable[[int], str | None],
        archives: CodeArchives,
        *,
        avoid_port: Callable[[int], bool] = lambda _: False,
        present: Mapping[str, int] | None = None,
        run_id: str | None = None,
        copies_code: bool = False,
    ) -> HostManifest:
        """Return the manifest of an experiment, whose processes have the code in ``archives``.

        ``reserve_port`` returns None if a port can be used, and otherwise the reason why it cannot
        be used. ``avoid_port`` returns whether another port is preferable. ``present`` maps the
        services of the running experiment to their ports, and ``run_id`` is its identifier. Its
        processes run from copies of the code with ``copies_code``.
        """
        import shutil

        from symphony.plan.resolution.addresses import AddressScheme
        from symphony.plan.resolve import resolve
        from symphony.supervised.render import HOST, render

        scheme = AddressScheme(
            backend=self.backend,
            host=lambda _: HOST,
            bind_host=HOST,
            refuse=reserve_port,
            avoid=avoid_port,
            present=present or {},
        )
        return render(
            resolve(experiment, scheme, self.defaults),
            run_id=run_id or os.urandom(16).hex(),
            launched=time.time(),
            directory=self._root / experiment.name,
            working_directory=Path.cwd(),
            shell=shutil.which("bash") or "/bin/sh",
            snapshots={name: archive.snapshot for name, archive in archives.items()},
            copies_code=self._copies_code or copies_code,
        )

    def _launch(
        self, experiment: Experiment, *, force: bool, on_change: OnChange = None
    ) -> HostManifest:
        # A launch on this machine takes very little time, so only a warning is reported.
        from symphony.code.take_snapshots import take_snapshots
        from symphony.supervised import preflight

        preflight.check_open_files(experiment, self.process_descriptors)
        archives = take_snapshots(experiment)
        manifest, warning = self._start(experiment, archives, force=force)
        if warning and on_change is not None:
            with contextlib.suppress(NotFound):
                status = self.describe_experiment(experiment.name)
                on_change(replace(status, note=warning))
        return manifest

    def _plan_replacement(self, experiment: Experiment, archives: CodeArchives) -> HostManifest:
        """Return the manifest of an experiment that replaces the one of the same name.

        The ports and GPUs of that experiment count as free. Raises `SpecError` or `LaunchFailed` if
        the experiment cannot be launched when that experiment has been deleted.
        """
        from symphony.supervised import preflight
        from symphony.supervised.resources.gpus import check_number_of_gpus
        from symphony.supervised.resources.leases import GpuLeases, PortLeases, visible_gpus
        from symphony.supervised.resources.ports import ExperimentPorts

        replaced = directory.find(self._root, experiment.name)
        unsupervised = self._unsupervised_usage(except_run=replaced)
        with PortLeases(ExperimentPorts(replaced), self._finishing_ports(), unsupervised) as ports:
            manifest = self._render(experiment, ports.reserve, archives)
        preflight.check(manifest)
        devices = visible_gpus() if self._gpus is None else self._gpus
        gpus = GpuLeases(devices, unsupervised)
        check_number_of_gpus(manifest.processes, gpus, _leased_gpus(replaced))
        return manifest

    def _start(
        self, experiment: Experiment, archives: CodeArchives, *, force: bool
    ) -> tuple[HostManifest, str]:
        """Free the experiment's name, launch the experiment, and return its manifest.

        Also return a warning for the user, which can be empty. A running experiment of this name is
        deleted when everything is ready to start the processes, because both can use the same ports
        and GPUs. If an earlier step fails, it keeps running.
        Raises AlreadyExists if an experiment of this name is running and ``force`` is false.
        """
        from symphony.plan.restart_policy import Backoff
        from symphony.supervised import preflight
        from symphony.supervised.record.launch_settings import LaunchSettings
        from symphony.supervised.resources.gpus import assign_gpus
        from symphony.supervised.resources.leases import GpuLeases, PortLeases, visible_gpus
        from symphony.supervised.supervisor import handover

        devices = visible_gpus() if self._gpus is None else self._gpus
        unsupervised = self._unsupervised_usage()
        manifest: HostManifest | None = None
        settings = LaunchSettings(
            children_options=self._children_options(),
            backoff=(self._backoff or Backoff())._asdict(),
            hold_until_bound=self._hold_until_bound,
        )
        try:
            with (
                directory.full_disk_errors(self._root, len(experiment.list_all_processes())),
                # Other launches of the same name wait for this one, and do not compete for its
                # ports and GPUs.
                directory.staging_directory(self._root, experiment.name) as (run, lock),
            ):
                planned = None
                if force:
                    planned = self._plan_replacement(experiment, archives)
                else:
                    self._free_name(experiment.name)
                with (
                    handover.prepared_supervisor(
                        run, experiment.name, children=self.children, settings=settings
                    ) as channel,
                    PortLeases(
                        finishing=self._finishing_ports(), unsupervised=unsupervised
                    ) as ports,
                    GpuLeases(devices, unsupervised) as gpus,
                ):
                    if planned is not None:
                        self._write_files(run, planned, archives)
                        directory.check_free_space(self._root, len(planned.processes))
                        # Everything that can fail before the processes start has been done.
                        self.delete(experiment.name)
                    manifest = self._render(
                        experiment,
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
                        run, lock, channel, experiment, manifest, ports, gpus, gpu_leases
                    )
        except BaseException:
            # Processes may already have started, for example if the caller was interrupted.
            if manifest is not None:
                self._roll_back(manifest)
            raise
        return manifest, warning

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
        from symphony.supervised import preflight

        if written is None:
            preflight.write_code(run, manifest, archives)
            preflight.write_secrets(run, manifest)
        if written is None or manifest.configs != written.configs:
            # Another port is another version of a file, in a directory of its own.
            directory.remove_tree(run.file(run_paths.CONFIG_DIRECTORY))
            preflight.write_configs(run, manifest)
        preflight.write_manifest(run, manifest)

    def _free_name(self, name: str) -> None:
        """Remove a finished experiment of this name, if there is one.

        Raises AlreadyExists if the experiment has not finished, or if its supervisor does not exit
        in time. Raises BackendError if the experiment's record is damaged, or if its supervisor is
        suspended.
        """
        from symphony.supervised.record.unsupervised_run import lock_unsupervised
        from symphony.supervised.user_requests.stop import has_remaining_processes, stop_remaining

        found = directory.find(self._root, name)
        if found is None:
            return
        # NotFound means that another program has just deleted the experiment.
        with contextlib.suppress(NotFound), found.pin() as run:
            self._check_finished(run)
            with lock_unsupervised(run, timeout=LOCK_TIMEOUT_SECONDS) as lock:
                if lock is None and run.recorded_supervisor() is not None:
                    # Another program has started a new supervisor for a killed one.
                    raise experiment_exists(run.name)
                if run.other_host() is None and has_remaining_processes(run):
                    # The supervisor was killed. Only descendants of the exited processes are
                    # running.
                    stop_remaining(run)
                self._remove(run)

    def _check_finished(self, run: RunDirectory) -> None:
        """Raise AlreadyExists if an experiment is running, or if its supervisor does not exit in
        time.

        Raises BackendError if the supervisor is suspended.
        """
        from symphony.supervised.processes.process_groups import wait_for_exit
        from symphony.supervised.user_requests.stop import (
            check_not_suspended,
            find_supervisor,
            has_finished,
        )

        other_host = run.other_host()
        if other_host is not None:
            # Processes on another host cannot be observed, so the experiment's record must show
            # that it has finished.
            if not has_finished(run):
                raise AlreadyExists(run.other_host_message(other_host))
            return
        reader = StatusReader(run)
        if not reader.read().ended:
            raise experiment_exists(run.name)
        if reader.waits_for_start:
            from symphony.supervised.user_requests.requests import send_request

            # The request is refused if another program has just started one of the processes. The
            # supervisor may also have been killed.
            with contextlib.suppress(BackendError):
                send_request(run, {"request": "finish"})
            if not reader.read().ended:
                raise experiment_exists(run.name)
        supervisor = find_supervisor(run)
        if supervisor is not None and not wait_for_exit(supervisor, FINISH_TIMEOUT_SECONDS):
            check_not_suspended(run)
            raise experiment_exists(run.name)

    def _hand_over(
        self,
        run: RunDirectory,
        lock: int,
        channel: socket.socket,
        experiment: Experiment,
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
        from symphony.supervised.supervisor import handover

        held_to_the_end = [*ports.leases.values()]
        held_until_started = ports.holds
        if self._hold_until_bound:
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
                experiment,
                self.backend,
                manifest.run_name,
                manifest.launched,
                self._options_to_record(),
            )
        source = experiment.base_dir or Path.cwd()
        # The supervisor renames the run directory while the state of the code is captured.
        with run.pin() as pinned, CodeCapture(source, pinned.file(".")) as code:
            report = handover.hand_over(
                channel,
                run,
                self._root / manifest.experiment,
                lock=lock,
                keep=held_to_the_end,
                holds=held_until_started,
                gpus=gpus_of_processes,
                on_inherited=release,
                while_launching=code.start,
            )
        if report.outcome == handover.EXISTS:
            raise self._name_in_use(manifest.experiment)
        if report.outcome == handover.REFUSED:
            raise LaunchFailed(f"{report.reason}; the processes that had started were stopped")
        if report.outcome == handover.FAILED:
            raise BackendError(report.reason)
        return report.warning

    def _children_options(self) -> dict[str, Any]:
        """Return the keyword arguments for the ``children`` class, as JSON-serializable values."""
        return {}

    def _name_in_use(self, name: str) -> SymphonyError:
        """Return the error for a name that could not be claimed."""
        path = self._root / name
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

    def _roll_back(self, manifest: HostManifest) -> None:
        """Delete the experiment if its current run is the one that ``manifest`` describes.

        No record is kept, because the launch has failed.
        """
        self._delete(manifest.experiment, manifest.run_id, purge=True)

    # --- changing ---

    def _diff(self, experiment: Experiment, *, start: Sequence[str] | None) -> Changes:
        """Return how a running experiment differs; see `Cluster.diff`."""
        from symphony.code.take_snapshots import take_snapshots

        archives = take_snapshots(experiment)
        found = None
        while found is None:
            # A launch in progress, whose client can have been killed, has reserved the ports.
            directory.wait_for_launch(self._root, experiment.name)
            # No launch begins while this program determines whether the ports are free, and no
            # other program determines the same.
            with directory.existing_launch_lock(self._root):
                found = directory.find(self._root, experiment.name)
                if found is None and not directory.is_launching(self._root, experiment.name):
                    return self._launching(experiment, archives, "it does not exist")
        with found.pin() as run, contextlib.ExitStack() as stack:
            reader = self._reader(run)
            status = reader.read()
            if _has_finished(reader, status):
                other_host = unobserved_host(run, status)
                if other_host is not None:
                    message = run.other_host_message(other_host, "run the command there")
                    raise BackendError(message)
                return self._launching(experiment, archives, "it has finished")

            previous = unfinished_previous(reader.state, reader.manifest)
            leaving = {port for item in previous for port in item["releases"]}

            @functools.cache
            def ports() -> PortLeases:
                # Most changes need no new port.
                from symphony.supervised.resources.leases import PortLeases

                unsupervised = self._unsupervised_usage(except_run=found)
                finishing = self._finishing_ports()
                leases = PortLeases(finishing=finishing, unsupervised=unsupervised)
                return stack.enter_context(leases)

            def reserve(port: int) -> str | None:
                # The port of a leaving process is reserved until it has exited, and then free.
                return None if port in leaving else ports().reserve(port)

            update = self._difference(
                run,
                reader,
                status,
                experiment,
                archives,
                reserve,
                lambda port: ports().avoid(port),
                start=start,
            )
            return update.changes

    def _difference(
        self,
        run: RunDirectory,
        reader: StatusReader,
        status: ExperimentStatus,
        experiment: Experiment,
        archives: CodeArchives,
        reserve_port: Callable[[int], str | None],
        avoid_port: Callable[[int], bool],
        *,
        start: Sequence[str] | None,
    ) -> Update:
        """Return the difference between a running experiment and ``experiment``.

        ``reader`` has read ``status``. ``archives`` contains the code of the processes.
        ``reserve_port`` and ``avoid_port`` are called for new ports; see `_render`. ``start``
        contains the processes that are started if they have exited; None means all.
        """
        from symphony.supervised.user_requests.request_change import Update

        manifest = self._render_again(
            experiment, archives, reader.manifest, reserve_port, avoid_port
        )
        return Update(run, reader, status, manifest, archives, start=start)

    def _launching(self, experiment: Experiment, archives: CodeArchives, reason: str) -> Changes:
        from symphony.plan.changes import launching
        from symphony.supervised.changed_resources import snapshot

        other = self._other_backend(experiment.name)
        if other is None:
            manifest = self._manifest(experiment)
            return launching(snapshot(manifest.to_dict(), {}), reason)
        # The experiment on the other backend has reserved the ports.
        manifest = self._render(experiment, lambda _: None, archives)
        changes = launching(snapshot(manifest.to_dict(), {}), reason)
        reason = f"it runs on the backend {other}, not on {self.backend}"
        return replace(changes, launch="", relaunch=(reason,), other_backend=other)

    def _other_backend(self, name: str) -> str | None:
        """Return another backend of this machine on which an experiment is running, or None."""
        for root in directory.all_roots(self._root)[1:]:
            found = directory.find(root, name)
            if found is None:
                continue
            reader = StatusReader(found)
            if not _has_finished(reader, reader.read()):
                return root.name
        return None

    def _render_again(
        self,
        experiment: Experiment,
        archives: CodeArchives,
        running: Mapping[str, Any],
        reserve_port: Callable[[int], str | None],
        avoid_port: Callable[[int], bool],
    ) -> HostManifest:
        """Return the new manifest of a running experiment, whose services keep their ports.

        ``reserve_port`` and ``avoid_port`` are called for new ports; see `_render`.
        """
        services = running["services"].items()
        present = {name: int(address.rpartition(":")[2]) for name, address in services}
        own = set(present.values())

        def reserve(port: int) -> str | None:
            return None if port in own else reserve_port(port)

        codes = [item["code"] for item in running["processes"] if item.get("code")]
        return self._render(
            experiment,
            reserve,
            archives,
            avoid_port=avoid_port,
            present=present,
            run_id=running["run_id"],
            copies_code=any(code["directory"] != code["source"] for code in codes),
        )

    def _change(self, experiment: Experiment, *, start: Sequence[str] | None) -> Changes:
        """Change a running experiment; see `Cluster.up`."""
        from symphony.code.take_snapshots import take_snapshots
        from symphony.supervised import preflight
        from symphony.supervised.record.change_directory import change_lock
        from symphony.supervised.resources.leases import GpuLeases, PortLeases, visible_gpus

        preflight.check_open_files(experiment, self.process_descriptors)
        archives = take_snapshots(experiment)
        devices = visible_gpus() if self._gpus is None else self._gpus
        found = self._find(experiment.name)
        with (
            directory.full_disk_errors(self._root, len(experiment.list_all_processes())),
            found.pin() as run,
            change_lock(run),
        ):
            unsupervised = self._unsupervised_usage(except_run=found)
            reader = self._reader(run)
            status = read_unchanging(run, reader)
            with (
                PortLeases(finishing=self._finishing_ports(), unsupervised=unsupervised) as ports,
                GpuLeases(devices, unsupervised) as gpus,
            ):
                update = self._difference(
                    run,
                    reader,
                    status,
                    experiment,
                    archives,
                    ports.reserve,
                    ports.avoid,
                    start=start,
                )
                if not update.changes.is_empty:
                    self._check_change(update.changes)
                    update.assign_gpus(functools.partial(_lease_gpus, gpus))
                    send = functools.partial(_send_change, run, ports, gpus)
                    update.apply(experiment, send, keep_holds=self._hold_until_bound)
        return update.changes

    def _check_change(self, changes: Changes) -> None:
        """Check that the backend can start the added processes. A backend can override this."""

    # --- controlling processes ---

    def _send(
        self,
        run: RunDirectory,
        request: Mapping[str, Any],
        *,
        timeout: float | None = None,
        on_sent: Callable[[], None] = lambda: None,
        waits: bool = False,
    ) -> None:
        """Send a request to the supervisor.

        See `symphony.supervised.user_requests.requests.send_request`.
        """
        from symphony.supervised.user_requests.requests import send_request

        link = self._supervisor_link(run)
        send_request(run, request, timeout=timeout, on_sent=on_sent, link=link, waits=waits)

    def _supervisor_link(self, run: RunDirectory) -> SupervisorLink:
        """Return the way in which this program reaches the supervisor of a pinned run."""
        from symphony.supervised.user_requests.requests import LocalLink

        return LocalLink(run)

    # --- deleting ---

    def _delete(
        self,
        experiment: str,
        run_id: str | None = None,
        *,
        purge: bool = False,
        in_order: bool = True,
        at_once: bool = False,
    ) -> None:
        """Delete an experiment. If ``run_id`` is given, do nothing if another run has the name."""
        from symphony.supervised.record.unsupervised_run import lock_unsupervised
        from symphony.supervised.user_requests.stop import stop, stop_remaining

        found = directory.find(self._root, experiment)
        if found is None:
            return
        # NotFound means that another program has just deleted the experiment.
        with contextlib.suppress(NotFound), found.pin() as run:
            if run_id is not None and run.run_id() != run_id:
                return
            run.grant_access()
            if run.is_current() and not run.is_run_directory():
                raise self._name_in_use(experiment)
            with lock_unsupervised(run, timeout=LOCK_TIMEOUT_SECONDS) as lock:
                if lock is None:
                    stop(run, in_order=in_order, at_once=at_once)
                else:
                    stop_remaining(run, in_order=in_order, at_once=at_once)
                self._remove(run, purge=purge)

    def _remove(self, run: RunDirectory, *, purge: bool = False) -> None:
        """Free the name of an experiment that has no running processes, and archive its record.

        With ``purge``, remove the record. ``run`` is pinned. If another run has the name by now,
        that run is not changed.
        """
        from symphony.supervised.record import archived_record as records

        if not purge:
            try:
                records.archive_run(
                    run,
                    directory.archive_directory(self._root),
                    self._retention(),
                    self._final_reader,
                )
                return
            except OSError as exc:
                raise BackendError(
                    f"the record of experiment {run.name!r} cannot be moved to the archive: {exc}; "
                    "delete the experiment with --purge to remove its record"
                ) from exc
        run.remove()

    def _final_reader(self, run: RunDirectory) -> StatusReader:
        """Return a reader of the status of a run without running processes."""
        return StatusReader(run)

    # --- runs ---

    def _at_run(self, run: Run) -> HostBackend:
        """Return a backend that reads the record of ``run``."""
        import copy

        reader = copy.copy(self)
        reader._run_path = run.path
        return reader.implementation

    # --- observing ---

    def _find(self, experiment: str) -> RunDirectory:
        if self._run_path is not None:
            return RunDirectory(self._run_path)
        found = directory.find(self._root, experiment)
        if found is None:
            raise experiment_not_found(experiment, self.list_experiments(), self.location)
        return found

    def _describe(self, run: RunDirectory) -> ExperimentStatus:
        return self._reader(run).read()

    def _reader(self, run: RunDirectory) -> StatusReader:
        """Return a reader of the status, which replaces a supervisor that was killed."""
        is_record = self._run_path is not None
        return StatusReader(run, None if is_record else self._replace_supervisor)

    def _replace_supervisor(self, run: RunDirectory) -> bool:
        from symphony.supervised.user_requests.replacement import replace_supervisor

        return replace_supervisor(run, self.children)

    # --- logs ---

    # A backend sets this pattern if the last line of its log files can be text that is not output.
    _ignored_last_line: ClassVar[IgnoredLine | None] = None

    def _clean_output(self, text: str) -> str:
        """Return the output of a process that a part of its log contains.

        A backend overrides this method if its log files can contain other text.
        """
        return text

    # --- using ---


def _state_root(value: object) -> Path:
    """Validate the option ``state_dir``, and return it as an absolute path."""
    from symphony.model.settings.validators import path

    root = path(value, "state_dir").absolute()
    if root.exists() and not root.is_dir():
        raise SpecError(f"state_dir must be a directory, not the file {root}")
    return root


def _leased_gpus(run: RunDirectory | None) -> frozenset[str]:
    """Return the GPUs that the processes of an experiment have leased, if there is one."""
    from symphony.supervised.processes.spec import devices_of

    if run is None:
        return frozenset()
    try:
        manifest = run.load_manifest()
    except (BackendError, FileNotFoundError):
        return frozenset()
    found: set[str] = set()
    for item in manifest["processes"]:
        found.update(devices_of(item["gpus"], item["env"]))
    return frozenset(found)


def _has_finished(reader: StatusReader, status: ExperimentStatus) -> bool:
    """Return whether an experiment has finished, so that its processes cannot be started again."""
    return status.ended and not reader.waits_for_start


def _lease_gpus(
    gpus: GpuLeases, process: ProcessSpec, processes: Sequence[ProcessSpec]
) -> Sequence[str]:
    """Lease GPUs for a process. Raises LaunchFailed if too few GPUs are free."""
    from symphony.supervised.resources.gpus import too_few_gpus_message

    del processes
    devices = gpus.lease(process.gpus)
    if devices is None:
        raise LaunchFailed(too_few_gpus_message(process, gpus))
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


def _device_names(value: object) -> list[str]:
    """Validate the option ``gpus``, and return the identifiers as strings."""
    if not isinstance(value, (list, tuple)):
        raise SpecError(
            f"gpus must be a list of device identifiers, such as [0, 1], not {shown(value)}"
        )
    from symphony.model.settings.validators import strings

    return strings(value, "gpus")
