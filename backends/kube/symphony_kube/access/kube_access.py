"""The part of the kube backend with which users reach processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from symphony.cluster.backend import Access, ForwardRequest, Inspection, NamedProcess, Place

if TYPE_CHECKING:
    from symphony.cluster import ExecResult, Progress, Tunnel
    from symphony_kube.api.kube_experiment import KubeExperiment


class KubeAccess(Access):
    """Access to the processes in Pods. Each method delegates to the module that implements it.

    ``target`` returns an experiment with its client.
    """

    def __init__(self, backend: Inspection, target: Callable[[str], KubeExperiment]) -> None:
        super().__init__(backend)
        self._target = target

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

    def forward(self, experiment: str, request: ForwardRequest) -> Tunnel:
        """Forward a local port through the API server.

        With ``external``, nothing is forwarded if the external address accepts connections.
        """
        from symphony_kube.access import port_forward

        target = self._target(experiment)
        if request.external:
            return port_forward.visit(target, request.name, on_error=request.on_error)
        return port_forward.port_forward(
            target, request.name, request.port, request.local_port, on_error=request.on_error
        )
