"""Commands, copies and ports of processes on the nodes of a job."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from symphony.cluster import ExecResult, Tunnel
from symphony.cluster.matching import find_by_path
from symphony.errors import SpecError
from symphony.supervised.host_access import exec_on_this_machine
from symphony.supervised.terminal_access import TerminalAccess
from symphony_slurm import slurm
from symphony_slurm.job.node_relay import batch_node, node_of, node_relay, relay_result
from symphony_slurm.status import is_alive

if TYPE_CHECKING:
    from symphony.cluster import Progress
    from symphony.cluster.backend import ForwardRequest, NamedProcess, Place
    from symphony.supervised.record.directory import RunDirectory

_CONNECT_SECONDS = 3.0


class JobAccess(TerminalAccess):
    """Access to processes through their job, as long as it is running."""

    def exec(
        self, experiment: str, process: NamedProcess, argv: Sequence[str], *, interactive: bool
    ) -> ExecResult:
        """Run a command on the node of a process.

        When the job has ended, the command runs on this machine.
        """
        from symphony_slurm.job.relay_work import NO_PID

        found = process.find()
        run = self._runs.find(experiment)
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

        run = self._runs.find(experiment)
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

    def forward(self, experiment: str, request: ForwardRequest) -> Tunnel:
        """Return a tunnel to a service or a process.

        If this machine cannot connect to the node, the connections go through the job.
        """
        from symphony.supervised.access.relay import Relay

        if request.external:
            from symphony.cluster.backend.external_address import find_external_address

            external_address = find_external_address(self.backend, experiment, request.name)
            if can_reach(_endpoint(external_address)):
                return Tunnel(external_address)
        run = self._runs.find(experiment)
        services: dict[str, str] = run.load_manifest()["services"]
        address, port = services.get(request.name), request.port
        if address is None:
            found = find_by_path(self.backend.observe(experiment), request.name)
            if port is None:
                raise SpecError(f"the port of process {request.name!r} is missing; set port")
            host = node_of(run, found.name)
        else:
            batch_node(run)
            host, _, own_port = address.rpartition(":")
            port = int(own_port) if port is None else port
        target = (host, port)
        connect = None
        if not can_reach(target):
            connect = self._connection_through_job(run, target)
        relay = Relay(request.local_port or 0, target, request.on_error, connect=connect)
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
