"""The verbs of a backend whose processes run on this machine."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from symphony.cluster import Cluster, ExecResult, OnChange, Progress, Tunnel
from symphony.cluster.matching import (
    Until,
    experiment_exists,
    experiment_not_found,
    still_awaited,
    wait_timeout,
)
from symphony.errors import (
    AlreadyExists,
    BackendError,
    LaunchFailed,
    NotFound,
    SpecError,
    Unsupported,
)
from symphony.host.run import directory
from symphony.host.run.directory import RunDirectory
from symphony.host.run.events import Reader
from symphony.host.run.observer import Observer
from symphony.names import did_you_mean, join_names
from symphony.status import ExperimentStatus, LogLine

# What launches, follows and stops is imported where it is used: looking must be quick to start.
if TYPE_CHECKING:
    import socket

    from symphony.host.logs import Tail
    from symphony.host.render import HostManifest
    from symphony.host.resources.leases import PortLeases
    from symphony.host.resources.ports import EndingPorts
    from symphony.host.supervisor.restart_policy import Backoff
    from symphony.model import Experiment
    from symphony.model.validators import Strings
    from symphony.plan.topology import Topology
    from symphony.process_details import ProcessDetails

# How long a supervisor whose processes have all ended may take to stop what they left behind, in seconds.
FINISHING = 60.0
HOLDS = ("started", "bound")


class HostCluster(Cluster):
    """Processes of this machine, each experiment under a supervisor that outlives its launcher.

    A backend says with ``children`` how its processes are started: ``"module:Class"`` of a
    `symphony.host.supervisor.supervisor.Children`, which the supervisor imports.

    ``state_dir`` is where run directories are kept, unless SYMPHONY_STATE_DIR or the XDG state directory say.
    ``gpus`` are the identifiers of the devices to lease (CUDA_VISIBLE_DEVICES, else all of the machine).
    ``backoff`` is how restarts wait. ``hold_ports`` says how long a port is held for its server: until it is
    ``"started"``, or, once it has ``"bound"`` it over the hold, to the end; servers that do not set SO_REUSEADDR
    cannot do that.
    """

    children: ClassVar[str]
    commands_run_here: ClassVar[bool] = True

    def __init__(
        self,
        *,
        state_dir: str | os.PathLike[str] | None = None,
        gpus: Sequence[str] | None = None,
        backoff: Backoff | None = None,
        hold_ports: Literal["started", "bound"] = "started",
        preamble_cmds: Strings | None = None,
        start_dir: str | None = None,
    ) -> None:
        super().__init__(preamble_cmds=preamble_cmds, start_dir=start_dir)
        self._root = Path(state_dir).absolute() if state_dir else directory.state_root(self.backend)
        self._gpus = None if gpus is None else [str(device) for device in gpus]
        self._backoff = backoff
        if hold_ports not in HOLDS:
            raise SpecError(
                f"hold_ports is {', '.join(HOLDS)}, not {hold_ports!r}{did_you_mean(str(hold_ports), HOLDS)}"
            )
        self._hold_until_bound = hold_ports == "bound"

    # --- launching ---

    def manifest(self, experiment: Experiment) -> HostManifest:
        """What a launch would do now; the ports are those that are free at this moment.

        What a live experiment of that name has counts as free: a launch refuses the name, or replaces it.
        """
        from symphony.host.resources.leases import PortLeases
        from symphony.host.resources.ports import OwnPorts

        with PortLeases(
            OwnPorts(directory.find(self._root, experiment.name)), self._ending_ports()
        ) as ports:
            return self._render(experiment, ports.refuse)

    def _ending_ports(self) -> EndingPorts:
        from symphony.host.resources.ports import EndingPorts

        return EndingPorts(self._root, FINISHING)

    def _render(self, experiment: Experiment, refuse: Callable[[int], str | None]) -> HostManifest:
        import shutil

        from symphony.host.render import HOST, render
        from symphony.plan.addresses import AddressScheme
        from symphony.plan.resolve import resolve

        scheme = AddressScheme(
            backend=self.backend, host=lambda _: HOST, bind_host=HOST, refuse=refuse
        )
        return render(
            resolve(experiment, scheme, self.defaults),
            run_id=os.urandom(16).hex(),
            directory=self._root / experiment.name,
            here=Path.cwd(),
            shell=shutil.which("bash") or "/bin/sh",
        )

    def _launch(
        self, experiment: Experiment, *, force: bool, on_change: OnChange = None
    ) -> HostManifest:
        del on_change  # a launch here is over at once
        from symphony.host import preflight
        from symphony.host.resources import gpus
        from symphony.host.resources.leases import GpuLeases, PortLeases, visible_gpus
        from symphony.host.supervisor import handover

        if force:
            # What is wrong with the new one must show before the old one is gone. Ports and GPUs are looked at
            # afterwards: those of the old one will be free.
            preflight.check(self._render(experiment, lambda _: None))
            self.delete(experiment.name)
        else:
            self._make_way(experiment.name)
        devices = visible_gpus() if self._gpus is None else self._gpus
        manifest: HostManifest | None = None
        try:
            with (
                directory.aside(self._root) as (run, lock),
                handover.preparing(run, experiment.name, children=self.children) as channel,
                PortLeases(ending=self._ending_ports()) as ports,
                GpuLeases(devices) as leased,
            ):
                manifest = self._render(experiment, ports.refuse)
                preflight.check(manifest)
                manifest, gpu_leases = gpus.assign(manifest, leased)
                self._start(run, lock, channel, manifest, ports, gpu_leases)
        except BaseException:  # interrupted, though all may have started, or the supervisor died
            if manifest is not None:
                self._discard(manifest)
            raise
        return manifest

    def _make_way(self, name: str) -> None:
        """Refuse the name of a live experiment; remove one that has ended."""
        from symphony.host.stop import finished, wait_for_end

        while True:
            with directory.exclusive(self._root):
                found = directory.find(self._root, name)
                if found is None:
                    return
                host = found.elsewhere()
                if host is not None and not finished(
                    found
                ):  # of what cannot be seen, nothing is removed
                    raise AlreadyExists(found.way_out(host))
                try:
                    ended = self._describe(found).ended
                except NotFound:  # somebody has deleted it just now
                    continue
                if not ended:
                    raise experiment_exists(name)
                supervisor = found.supervisor()
                if supervisor is None:
                    self._remove(found)
                    return
            if not wait_for_end(supervisor, FINISHING):
                raise experiment_exists(name)

    def _start(
        self,
        run: RunDirectory,
        lock: int,
        channel: socket.socket,
        manifest: HostManifest,
        ports: PortLeases,
        gpu_leases: dict[str, list[int]],
    ) -> None:
        from symphony.host import preflight
        from symphony.host.supervisor import handover, restart_policy

        kept, until_started = [lock, *ports.leases.values()], ports.holds
        if self._hold_until_bound:
            kept, until_started = [*kept, *ports.holds.values()], {}
        preflight.write(run, manifest)
        report = handover.start(
            channel,
            run,
            self._root / manifest.experiment,
            keep=kept,
            holds=until_started,
            gpus=gpu_leases,
            children_options=self._children_options(),
            backoff=self._backoff or restart_policy.Backoff(),
            inherited=ports.release_holds,
        )
        if report.word == handover.EXISTS:
            raise experiment_exists(manifest.experiment)
        if report.word == handover.REFUSED:
            raise LaunchFailed(f"{report.reason}; what had started was stopped")

    def _discard(self, manifest: HostManifest) -> None:
        """Delete the experiment if it is the one of this manifest."""
        found = directory.find(self._root, manifest.experiment)
        with contextlib.suppress(FileNotFoundError):  # it was another's, who deletes it
            if found is not None and found.load_manifest()["run_id"] == manifest.run_id:
                self.delete(manifest.experiment)

    def delete(self, experiment: str) -> None:
        """Stop an experiment and remove all of it. One that is not there is no error."""
        from symphony.host.stop import stop

        found = directory.find(self._root, experiment)
        if found is not None:
            before = _run_id(found)
            stop(found)
            if (
                _run_id(found) == before
            ):  # else who deleted it meanwhile has launched another of that name
                self._remove(found)

    def _children_options(self) -> dict[str, Any]:
        """The keywords with which the supervisor makes its ``children``, as JSON knows them."""
        return {}

    def _remove(self, run: RunDirectory) -> None:
        """Remove what is left of an experiment of which nothing runs."""
        run.remove()

    def stop(self, experiment: str, *, at_once: bool = False) -> None:
        """Stop an experiment and keep its logs and status; ``at_once`` without a grace period."""
        from symphony.host.stop import stop

        stop(self._find(experiment), at_once=at_once)

    # --- observing ---

    def list_experiments(self) -> list[str]:
        """The names of the experiments that symphony made here, in order."""
        return [run.name for run in directory.find_all(self._root)]

    def describe_experiment(self, experiment: str) -> ExperimentStatus:
        """An experiment and its processes as they are now."""
        return self._describe(self._find(experiment))

    def _find(self, experiment: str) -> RunDirectory:
        found = directory.find(self._root, experiment)
        if found is None:
            raise experiment_not_found(experiment, self.list_experiments())
        return found

    def _describe(self, run: RunDirectory) -> ExperimentStatus:
        return Observer(run).look()

    def explain_process(
        self, experiment: str, process: str, process_group: str | None = None
    ) -> ProcessDetails:
        """All that matters about one process; see `Cluster.explain_process`."""
        from symphony.host.describe import process_details

        status = self.describe_process(experiment, process, process_group)
        run = self._find(experiment)
        return process_details(
            run.load_manifest(), status, Reader(run.events).new(), run.log(status.name)
        )

    def describe_topology(self, experiment: str) -> Topology:
        """Who is joined with whom, from what was launched; see `Cluster.describe_topology`."""
        from symphony.host.topology import topology

        run = self._find(experiment)
        status = self._describe(run)
        return topology(run.load_manifest(), status)

    def wait(
        self,
        experiment: str,
        *,
        timeout: float | None = None,
        on_change: OnChange = None,
        until: Until = "ended",
    ) -> ExperimentStatus:
        """Return when every process has ended, or come as far as ``until`` says; see `Cluster.wait`."""
        from symphony.host.logs import growing

        run = self._find(experiment)
        deadline = None if timeout is None else time.monotonic() + timeout
        observer = Observer(run)
        before: ExperimentStatus | None = None
        with growing({"": run.events}) as grown:
            while True:
                now = observer.look()
                if on_change is not None and now != before:
                    on_change(now)
                before = now
                going = still_awaited(now, until)
                if not going:
                    return now
                left = 1.0 if deadline is None else min(1.0, deadline - time.monotonic())
                if left <= 0:
                    raise wait_timeout(experiment, until, going, timeout or 0.0)
                grown(left)

    # --- using ---

    def _read_log(
        self, experiment: str, process: str, *, since: float | str | None, tail: int | None
    ) -> str:
        from symphony.host.logs import read

        return read(self._find(experiment), process, since=_since(since), tail=tail)

    def iter_logs(
        self,
        experiment: str,
        processes: Sequence[str] | None = None,
        *,
        follow: bool = False,
        since: float | str | None = None,
        tail: int | None = None,
    ) -> Iterator[LogLine]:
        """What processes wrote, line by line, in the order in which they wrote it; see `Cluster.iter_logs`."""
        run = self._find(experiment)
        wanted = (
            [self.find_process(experiment, name).name for name in processes] if processes else None
        )
        names = wanted or [process.name for process in self._describe(run)]
        return self._iter_logs(run, names, follow, _since(since), tail)

    def _iter_logs(
        self,
        run: RunDirectory,
        names: list[str],
        follow: bool,
        since: float | None,
        tail: int | None,
    ) -> Iterator[LogLine]:
        from symphony.host.logs import follow as follow_logs

        lines, tails = self._written(run, names, since, tail)
        yield from lines
        if follow:
            yield from follow_logs(run, tails, Observer(run).ended(names))
        else:
            for name, log in tails.items():
                yield from (LogLine(process=name, text=text) for text in log.last())

    def _written(
        self, run: RunDirectory, names: Sequence[str], since: float | None, tail: int | None
    ) -> tuple[list[LogLine], dict[str, Tail]]:
        """What processes have written so far, and where each log was left. A backend may take lines out."""
        from symphony.host.logs import merged

        return merged(run, names, since=since, tail=tail)

    def exec_command(
        self,
        experiment: str,
        process: str,
        command: Strings,
        process_group: str | None = None,
        *,
        interactive: bool = False,
    ) -> ExecResult:
        """Run a command in the environment and the folder of a running process, behind the same preamble.

        The preamble runs anew, and what it prints goes where errors go.
        """
        from symphony.host import exec
        from symphony.host.processes.spec import Command
        from symphony.model.validators import strings

        found = self.describe_process(experiment, process, process_group)
        argv = strings(command, "command")
        run = self._find(experiment)
        host = run.elsewhere()
        if host is not None:
            raise NotFound(f"process {found.path!r} was launched on {host}: run the command there")
        manifest = run.load_manifest()
        program = Command.from_dict(
            next(data for data in manifest["processes"] if data["name"] == found.name)
        )
        env = None if found.pid is None else exec.began_with(run, manifest, program, found.pid)
        if env is None:
            state = f"{found.state}: {found.reason}" if found.reason else found.state
            raise NotFound(
                f"process {found.path!r} does not run ({state}): there is nothing to run beside"
            )
        try:
            done = exec.run(program, argv, env, capture_output=not interactive)
        except exec.CannotRun as exc:
            raise SpecError(f"cannot run {argv[0]!r} beside {found.path!r}: {exc}") from exc
        code = done.returncode
        return ExecResult(
            exit_code=128 - code if code < 0 else code,
            stdout=done.stdout or "",
            stderr=done.stderr or "",
        )

    def external_url(self, experiment: str, service: str) -> str:
        """Where an exposed service is reached: ``host:port`` of this machine."""
        manifest = self._find(experiment).load_manifest()
        if service not in manifest["exposed"]:
            known = manifest["exposed"]
            what = (
                "binds but does not expose"
                if service in manifest["services"]
                else "does not expose"
            )
            hint = did_you_mean(service, known) or f"; exposed are {join_names(known)}"
            raise NotFound(f"experiment {experiment!r} {what} {service!r}{hint}")
        address: str = manifest["services"][service]
        return address

    def transfer_file(
        self,
        experiment: str,
        source: str,
        target: str,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Copy to or from the working directory of a process, which may have exited; see `symphony.host.copy`.

        Both paths are on this machine, so ``progress`` is never called.
        """
        del progress
        from symphony.cluster.remote_path import parse_transfer
        from symphony.host import copy

        run = self._find(experiment)
        status = self._describe(run)
        of_processes = zip((source, target), parse_transfer(source, target), strict=True)
        made = [copy.end(text, there, status, run.load_manifest()) for text, there in of_processes]
        copy.copy(*made, dry_run=dry_run)

    def port_forward(
        self,
        experiment: str,
        process_or_service: str,
        port: int | None = None,
        *,
        local_port: int | None = None,
        on_error: Callable[[str], None] | None = None,
    ) -> Tunnel:
        """Raise `Unsupported`: every port of a process is one of this machine."""
        del local_port, on_error
        services: dict[str, str] = self._find(experiment).load_manifest()["services"]
        where = services.get(process_or_service) or f"127.0.0.1:{port or 'PORT'}"
        raise Unsupported(
            f"{process_or_service!r} runs on this machine, and no port has to be forwarded: use {where}"
        )


def _run_id(run: RunDirectory) -> str | None:
    """Which launch a run directory is of; None where it cannot be told."""
    try:
        run_id: str = run.load_manifest()["run_id"]
    except (BackendError, FileNotFoundError):
        return None
    return run_id


def _since(since: float | str | None) -> float | None:
    from symphony.cluster.since import parse_since

    return None if since is None else parse_since(since, time.time())
