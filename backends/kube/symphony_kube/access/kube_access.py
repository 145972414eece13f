"""The part of the kube backend with which users reach processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from symphony.cluster.backend import Access, NamedProcess, Place
from symphony_kube.api.kube_experiment import KubeExperiment

if TYPE_CHECKING:
    from symphony.cluster import ExecResult, Progress, Tunnel
    from symphony_kube.api.client import Api
    from symphony_kube.api.connection import ApiConnection
    from symphony_kube.api.labels import Scope, Scopes


class KubeAccess(Access):
    """Access to the processes in Pods. Each method delegates to the module that implements it.

    ``scopes`` names the objects of experiments.
    """

    def __init__(self, name: str, connection: ApiConnection, scopes: Scopes) -> None:
        super().__init__(name)
        self._connection = connection
        self._scopes = scopes

    @property
    def api(self) -> Api:
        """The client for the API server."""
        return self._connection.api

    def _scope(self, experiment: str) -> Scope:
        return self._scopes.of(experiment)

    def _target(self, experiment: str) -> KubeExperiment:
        return KubeExperiment(self.api, self._scope(experiment))

    # --- processes ---

    def exec(
        self, experiment: str, process: NamedProcess, argv: Sequence[str], *, interactive: bool
    ) -> ExecResult:
        """Run a command in a process's container."""
        from symphony_kube.access import exec

        target = self._target(experiment)
        return exec.run_command(
            target,
            process.name,
            argv,
            process.group,
            interactive=interactive,
        )

    def attach(self, experiment: str, process: NamedProcess, *, dry_run: bool) -> None:
        """Run an interactive shell in a process's container, and connect the shell to the
        terminal.
        """
        if dry_run:
            process.find()
            return
        from symphony_kube.access import exec

        exec.login(self._target(experiment), process.name, process.group)

    def copy(
        self,
        experiment: str,
        source: Place,
        target: Place,
        *,
        dry_run: bool,
        progress: Progress | None,
    ) -> None:
        """Copy files from or to a process's container."""
        from symphony_kube.access import copy

        objects = self._target(experiment)
        if dry_run:
            copy.dry_run(objects, source.text, target.text)
        else:
            copy.transfer(objects, source.text, target.text, progress=progress)

    # --- services ---

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
        """Forward a local port through the API server.

        With ``external``, nothing is forwarded if the external address accepts connections.
        """
        from symphony_kube.access import port_forward

        target = self._target(experiment)
        if external:
            return port_forward.visit(target, process_or_service, on_error=on_error)
        return port_forward.port_forward(
            target, process_or_service, port, local_port, on_error=on_error
        )

    def external_addresses(
        self, experiment: str, service: str | None = None
    ) -> Mapping[str, str | None]:
        """Return the addresses that load balancers have assigned.

        The address of a node port requires further requests, so only that of ``service`` is found.
        """
        from symphony_kube.access import external_services

        target = self._target(experiment)
        if service is not None:
            return {service: external_services.external_address(target, service)}
        return external_services.exposed_services(target)
