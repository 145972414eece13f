"""The part of the clusters of supervised experiments that is not about launches and changes.

It reads the run directories, and sends requests to supervisors.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from symphony.cluster import ExecResult, Manifest, Progress, Tunnel
from symphony.cluster.backend import (
    LaunchRequest,
    NamedProcess,
    Place,
    ProcessRequest,
)
from symphony.cluster.matching import find_by_path
from symphony.errors import BackendError, NotFound, SpecError
from symphony.status import ENDED, ExperimentStatus, ProcessStatus, State
from symphony.supervised.host_inspection import HostInspection
from symphony.supervised.record.directory import RunDirectory

# Modules that only some commands need are imported inside functions.
if TYPE_CHECKING:
    from symphony.archive.archive import Run
    from symphony.model import Experiment
    from symphony.plan.changes import Changes
    from symphony.plan.resolve import Defaults
    from symphony.supervised.user_requests.requests import SupervisorLink


class HostBackend(HostInspection):
    """The experiments in the directory ``root``.

    * ``manifest`` and ``launch`` plan and launch an experiment. ``at_run`` returns a backend that
      reads the record of a run.
    * ``send`` sends a request to the supervisor of a pinned run; see
      `symphony.supervised.user_requests.requests.send_request`.
    * ``link`` returns the way in which this program reaches the supervisor of a pinned run.
    * ``diff`` and ``change`` compare and change a running experiment, and ``delete`` deletes one.

    The other arguments are those of `HostInspection`.
    """

    def __init__(
        self,
        *,
        manifest: Callable[[Experiment], Manifest],
        launch: Callable[..., Manifest],
        at_run: Callable[[Run], HostBackend],
        send: Callable[..., None],
        diff: Callable[..., Changes],
        change: Callable[..., Changes],
        delete: Callable[..., None],
        link: Callable[[RunDirectory], SupervisorLink],
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        self._manifest = manifest
        self._launch = launch
        self._at_run = at_run
        self._send = send
        self._diff = diff
        self._change = change
        self._delete = delete
        self._link = link

    # --- launching ---

    def manifest(self, experiment: Experiment, defaults: Defaults) -> Manifest:
        """Return the manifest that a launch would use at this moment."""
        del defaults
        return self._manifest(experiment)

    def launch(self, request: LaunchRequest) -> Manifest:
        """Hand an experiment over to a supervisor."""
        return self._launch(request.experiment, force=request.force, on_change=request.on_change)

    def at_run(self, run: Run) -> HostBackend:
        """Return a backend that reads the directory of ``run``."""
        return self._at_run(run)

    # --- ending ---

    def stop(self, experiment: str, *, at_once: bool) -> None:
        """Let the supervisor stop the processes, or stop them if it was killed."""
        from symphony.supervised.user_requests.stop import stop

        with self._find(experiment).pin() as run:
            if not run.is_locked():
                # The new supervisor of a killed one records that the processes were stopped. It is
                # not necessary, however.
                with contextlib.suppress(BackendError):
                    self._make_reader(run).read()
            stop(run, at_once=at_once)

    def delete(self, experiment: str, *, in_order: bool, at_once: bool, purge: bool) -> None:
        """Stop an experiment, and move the record of its run to the archive."""
        self._delete(experiment, in_order=in_order, at_once=at_once, purge=purge)

    # --- observing ---

    # --- changing ---

    def diff(self, experiment: Experiment, *, start: Sequence[str] | None) -> Changes:
        """Compare the manifest of a running experiment with a new one."""
        return self._diff(experiment, start=start)

    def change(self, experiment: Experiment, *, start: Sequence[str] | None) -> Changes:
        """Send a new manifest to the supervisor."""
        return self._change(experiment, start=start)

    def request(self, experiment: str, request: ProcessRequest) -> None:
        """Send a request to the supervisor, and wait until it is done."""
        with self._find(experiment).pin() as run:
            if request.kind == "stop" and _are_stopped(run, request):
                # Otherwise, a stop is not done when its processes have exited, because programs
                # that they have left behind may still be running.
                return
            values: dict[str, Any] = {"request": request.kind, "names": list(request.names)}
            if request.kind in ("stop", "restart"):
                values["grace"] = request.grace
            elif request.kind == "signal":
                values["signal"] = request.signal
                if request.force:
                    values["force"] = True
            waits = request.kind == "start"
            self._send(run, values, timeout=request.timeout, waits=waits)

    # --- using ---

    def exec(
        self, experiment: str, process: NamedProcess, argv: Sequence[str], *, interactive: bool
    ) -> ExecResult:
        """Run a command on this machine. The process can have exited.

        The process's preamble runs again before the command, with its output on standard error.
        Raises NotFound if the process was launched on another host, and SpecError if the command
        cannot be run.
        """
        found = process.find()
        run = self._find(experiment)
        other_host = run.other_host()
        if other_host is not None:
            raise NotFound(
                f"process {found.path!r} was launched on {other_host}: run the command there"
            )
        return exec_on_this_machine(run, found, argv, interactive=interactive)

    def copy(
        self,
        experiment: str,
        source: Place,
        target: Place,
        *,
        dry_run: bool,
        progress: Progress | None,
    ) -> None:
        """Copy files on this machine. The process can have exited. ``progress`` is never called."""
        from symphony.supervised.access.copy import copy, resolve_path

        del progress
        manifest = self._find(experiment).load_manifest()
        paths = (resolve_path(source, manifest), resolve_path(target, manifest))
        copy(*paths, dry_run=dry_run)

    def forward(
        self,
        experiment: str,
        process_or_service: str,
        port: int | None,
        *,
        local_port: int | None,
        on_error: Callable[[str], None] | None,
    ) -> Tunnel:
        """Return a tunnel with the address itself, because every port is a port of this machine.

        With another ``local_port``, connections to it are relayed to the address.
        """
        services: dict[str, str] = self._find(experiment).load_manifest()["services"]
        address = services.get(process_or_service)
        if address is None:
            find_by_path(self.observe(experiment), process_or_service)
            if port is None:
                raise SpecError(f"the port of process {process_or_service!r} is missing; set port")
            address = f"127.0.0.1:{port}"
        elif port is not None:
            address = f"{address.rpartition(':')[0]}:{port}"
        host, _, own_port = address.rpartition(":")
        if local_port is None or local_port == int(own_port):
            return Tunnel(address)
        from symphony.supervised.access.relay import Relay

        relay = Relay(local_port, (host, int(own_port)), on_error)
        return Tunnel(relay.address, close=relay.close)


def exec_on_this_machine(
    run: RunDirectory, found: ProcessStatus, argv: Sequence[str], *, interactive: bool
) -> ExecResult:
    """Run a command on this machine, in the environment of the process ``found``."""
    from symphony.supervised.access import exec_command
    from symphony.supervised.processes.spec import ProcessSpec

    manifest = run.load_manifest()
    data = next(data for data in manifest["processes"] if data["name"] == found.name)
    spec = ProcessSpec.from_dict(data)
    with run.report_damage(run.secrets):
        env = exec_command.initial_environment(run, manifest, spec, found.pid)
    if env is None:
        raise NotFound(f"process {found.path!r} belongs to another user")
    try:
        completed = exec_command.run(spec, argv, env, capture_output=not interactive)
    except exec_command.CommandNotRunError as exc:
        raise SpecError(
            f"cannot run the command {argv[0]!r} in the environment of {found.path!r}: {exc}"
        ) from exc
    code = completed.returncode
    return ExecResult(
        exit_code=128 - code if code < 0 else code,
        stdout=completed.stdout or "",
        stderr=completed.stderr or "",
    )


def unobserved_host(run: RunDirectory, status: ExperimentStatus) -> str | None:
    """Return the other host on which processes of the experiment can be running, or None."""
    if all(process.state is not State.UNKNOWN for process in status):
        return None
    return run.other_host()


def _are_stopped(run: RunDirectory, request: ProcessRequest) -> bool:
    """Return whether the processes of a request have exited, as far as this machine knows."""
    return (
        _have_ended(request.status, request.names) and unobserved_host(run, request.status) is None
    )


def _have_ended(status: ExperimentStatus, names: Sequence[str]) -> bool:
    return all(process.state in ENDED for process in status if process.name in names)
