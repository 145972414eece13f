"""The part of the Slurm backend that reaches the nodes of a job; see `symphony.cluster.backend`."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from symphony.cluster import ExecResult, Tunnel
from symphony.cluster.matching import find_by_path
from symphony.errors import BackendError, SpecError, SymphonyError
from symphony.supervised.host_backend import HostBackend, Launcher, exec_on_this_machine
from symphony.supervised.host_runs import HostRuns
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.terminal_backend import TerminalBackend
from symphony_slurm import slurm
from symphony_slurm.job.node_relay import (
    batch_node,
    node_of,
    node_relay,
    placement_of,
    relay_result,
    supervisor_link,
)
from symphony_slurm.status import SlurmStatusReader, is_alive, wait_for_logs
from symphony_slurm.stop_job import stop_job

if TYPE_CHECKING:
    from symphony.cluster import Progress
    from symphony.cluster.backend import NamedProcess, Place, Selection
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

_CONNECT_SECONDS = 3.0


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

    def exec(
        self, experiment: str, process: NamedProcess, argv: Sequence[str], *, interactive: bool
    ) -> ExecResult:
        """Run a command on the node of a process.

        When the job has ended, the command runs on this machine.
        """
        from symphony_slurm.job.relay_work import NO_PID

        found = process.find()
        run = self.runs.find(experiment)
        node = node_of(run, found.name)
        if found.pid is None and not is_alive(run):
            return exec_on_this_machine(run, found, argv, interactive=interactive)
        kind = "exec-here" if interactive else "exec"
        arguments = [kind, found.name, str(found.pid or NO_PID), *argv]
        if interactive:
            return self._exec_here(run, node, arguments)
        result = relay_result(run, node, *arguments)
        if "error" in result:
            raise SpecError(
                f"cannot run {argv[0]!r} in the environment of {found.path!r}: {result['error']}"
            )
        return ExecResult(
            exit_code=result["exit_code"],
            stdout=result["stdout"] or "",
            stderr=result["stderr"] or "",
        )

    def _exec_here(self, run: RunDirectory, node: str, arguments: Sequence[str]) -> ExecResult:
        from symphony.support.inherited_signals import observable_exits
        from symphony_slurm.job.supervisor_connection import relay_command

        is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        argv = relay_command(run, node, *arguments, terminal=is_terminal)
        with observable_exits():
            done = subprocess.run(argv, check=False, env=slurm.submission_environment())
        code = done.returncode
        return ExecResult(exit_code=128 - code if code < 0 else code, stdout="", stderr="")

    def copy(
        self,
        experiment: str,
        source: Place,
        target: Place,
        *,
        dry_run: bool,
        progress: Progress | None,
    ) -> None:
        """Copy from or to the node of a process. After the end of the job, copy shared files."""
        from symphony.supervised.access.copy import resolve_path
        from symphony_slurm.job.node_copy import copy_from_node, copy_to_node

        run = self.runs.find(experiment)
        if not is_alive(run):
            super().copy(experiment, source, target, dry_run=dry_run, progress=progress)
            return
        manifest = run.load_manifest()
        paths = (resolve_path(source, manifest), resolve_path(target, manifest))
        if source.process is not None:
            relay = node_relay(run, source.process.find())
            copy_from_node(run, *paths, relay, dry_run=dry_run)
        elif target.process is not None:
            relay = node_relay(run, target.process.find())
            copy_to_node(run, *paths, relay, dry_run=dry_run)

    def forward(
        self,
        experiment: str,
        process_or_service: str,
        port: int | None,
        *,
        local_port: int | None,
        external: bool,
        on_error: Callable[[str], None] | None,
    ) -> Tunnel:
        """Return a tunnel to a service or a process.

        If this machine cannot connect to the node, the connections go through the job.
        """
        from symphony.supervised.access.relay import Relay

        if external:
            from symphony.cluster.backend.external_address import find_external_address

            external_address = find_external_address(self, experiment, process_or_service)
            if can_reach(_endpoint(external_address)):
                return Tunnel(external_address)
        run = self.runs.find(experiment)
        services: dict[str, str] = run.load_manifest()["services"]
        address = services.get(process_or_service)
        if address is None:
            found = find_by_path(self.observe(experiment), process_or_service)
            if port is None:
                raise SpecError(f"the port of process {process_or_service!r} is missing; set port")
            host = node_of(run, found.name)
        else:
            batch_node(run)
            host, _, own_port = address.rpartition(":")
            port = int(own_port) if port is None else port
        target = (host, port)
        connect = None
        if not can_reach(target):
            connect = self._connection_through_job(run, target)
        relay = Relay(local_port or 0, target, on_error, connect=connect)
        return Tunnel(relay.address, close=relay.close)

    def _connection_through_job(
        self, run: RunDirectory, target: tuple[str, int]
    ) -> Callable[[], Any]:
        from symphony_slurm.job.supervisor_connection import StepConnection, relay_command

        node = batch_node(run)
        argv = relay_command(run, node, "forward", target[0], str(target[1]))
        return lambda: StepConnection(argv).socket


def _endpoint(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def can_reach(target: tuple[str, int]) -> bool:
    """Return whether this machine can connect to a node. A closed port is reachable, too."""
    import socket

    try:
        socket.create_connection(target, timeout=_CONNECT_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True
