"""The part of the kube backend with which users reach processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from symphony.cluster.backend import Access, NamedProcess, Place

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

    # --- processes ---

    def exec(
        self, experiment: str, process: NamedProcess, argv: Sequence[str], *, interactive: bool
    ) -> ExecResult:
        """Run a command in a process's container."""
        from symphony_kube.access import exec

        scope = self._scope(experiment)
        return exec.run_command(
            self.api, scope, process.name, argv, process.group, interactive=interactive
        )

    def attach(self, experiment: str, process: NamedProcess, *, dry_run: bool) -> None:
        """Run an interactive shell in a process's container, and connect the shell to the
        terminal.
        """
        if dry_run:
            process.find()
            return
        from symphony_kube.access import exec

        exec.login(self.api, self._scope(experiment), process.name, process.group)

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

        scope = self._scope(experiment)
        if dry_run:
            copy.dry_run(self.api, scope, source.text, target.text)
        else:
            copy.transfer(self.api, scope, source.text, target.text, progress=progress)

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

        scope = self._scope(experiment)
        if external:
            return port_forward.visit(self.api, scope, process_or_service, on_error=on_error)
        return port_forward.port_forward(
            self.api, scope, process_or_service, port, local_port, on_error=on_error
        )

    def external_addresses(
        self, experiment: str, service: str | None = None
    ) -> Mapping[str, str | None]:
        """Return the addresses that load balancers have assigned.

        The address of a node port requires further requests, so only that of ``service`` is found.
        """
        from symphony_kube.access import external_services

        scope = self._scope(experiment)
        if service is not None:
            return {service: external_services.external_address(self.api, scope, service)}
        return external_services.exposed_services(self.api, scope)
