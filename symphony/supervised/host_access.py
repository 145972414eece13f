"""Commands, copies and ports of supervised processes, on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from symphony.cluster import ExecResult, Progress, Tunnel
from symphony.cluster.backend import Access, ForwardRequest, NamedProcess, Place
from symphony.cluster.matching import find_by_path
from symphony.errors import NotFound, SpecError
from symphony.status import ProcessStatus
from symphony.supervised.record.directory import RunDirectory

# Modules that only some commands need are imported inside functions.
if TYPE_CHECKING:
    from symphony.supervised.host_inspection import HostInspection


class HostAccess(Access):
    """Access to processes of this machine, whose run directories are those of ``backend``."""

    def __init__(self, backend: HostInspection) -> None:
        super().__init__(backend)
        self._runs = backend.runs

    def exec(
        self, experiment: str, process: NamedProcess, argv: Sequence[str], *, interactive: bool
    ) -> ExecResult:
        """Run a command on this machine. The process can have exited.

        The process's preamble runs again before the command, with its output on standard error.
        Raises NotFound if the process was launched on another host, and SpecError if the command
        cannot be run.
        """
        found = process.find()
        run = self._runs.find(experiment)
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
        manifest = self._runs.find(experiment).load_manifest()
        paths = (resolve_path(source, manifest), resolve_path(target, manifest))
        copy(*paths, dry_run=dry_run)

    def forward(self, experiment: str, request: ForwardRequest) -> Tunnel:
        """Return a tunnel with the address itself, because every port is a port of this machine.

        With another ``local_port``, connections to it are relayed to the address.
        """
        if request.external:
            return super().forward(experiment, request)
        services: dict[str, str] = self._runs.find(experiment).load_manifest()["services"]
        address = services.get(request.name)
        if address is None:
            find_by_path(self.backend.observe(experiment), request.name)
            if request.port is None:
                raise SpecError(f"the port of process {request.name!r} is missing; set port")
            address = f"127.0.0.1:{request.port}"
        elif request.port is not None:
            address = f"{address.rpartition(':')[0]}:{request.port}"
        host, _, own_port = address.rpartition(":")
        if request.local_port is None or request.local_port == int(own_port):
            return Tunnel(address)
        from symphony.supervised.access.relay import Relay

        relay = Relay(request.local_port, (host, int(own_port)), request.on_error)
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
