"""The messages that ``attach``, ``cp``, ``forward``, ``visit`` and ``render`` print in a dry run.

For invalid input, a dry run raises the same errors as the command itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from symphony.cluster import Cluster, Manifest
from symphony.cluster.plugins import backend_supports
from symphony.commandline.exit_codes import UsageError
from symphony.errors import NotFound, SymphonyError, Unsupported
from symphony.support.names import did_you_mean

if TYPE_CHECKING:
    from symphony.status import ExperimentStatus, ProcessStatus


def preview_attach(cluster: Cluster, status: ExperimentStatus, process: ProcessStatus) -> str:
    """Return a message that describes the effect of ``attach``.

    Raises `Unsupported` if the backend cannot attach a terminal.
    """
    if not backend_supports(cluster.backend, "login"):
        # The base class raises the error for a missing capability.
        Cluster.login(cluster, status.name, process.name)
    cluster.check_login(status.name, process.name, process.group)
    return f"would attach this terminal to {process.path} of {status.name} ({process.state})"


def preview_copy(cluster: Cluster, status: ExperimentStatus, source: str, target: str) -> str:
    """Return a message that describes the effect of ``cp``.

    Raises the same errors as `Cluster.transfer_file`, such as `Unsupported` if the backend cannot
    copy files.
    """
    cluster.transfer_file(status.name, source, target, dry_run=True)
    return f"would copy {source} to {target} ({status.name})"


def preview_forward(
    cluster: Cluster, status: ExperimentStatus, target: str, port: int | None, local: int | None
) -> str:
    """Return a message that describes the effect of ``forward``.

    Raises `NotFound` if ``target`` is neither a process nor a service, `UsageError` if the port is
    unknown, and `Unsupported` if the backend cannot forward ports.
    """
    if not backend_supports(cluster.backend, "forward"):
        # The base class raises the error for a missing capability.
        Cluster.port_forward(cluster, status.name, target)
    service_ports = _ports_by_service(cluster, status.name)
    processes = {name for process in status for name in (process.name, process.path)}
    if target not in service_ports and target not in processes:
        hint = did_you_mean(target, [*processes, *service_ports])
        raise NotFound(f"experiment {status.name!r} has no process or service {target!r}{hint}")
    port = port or service_ports.get(target)
    if port is None:
        raise UsageError(f"the port of process {target!r} is missing; add PORT or PORT:LOCAL")
    if cluster.ports_are_here and local in (None, port):
        return f"would print the address of port {port} of {target} of {status.name}"
    local_port = "any free local port" if local is None else f"local port {local}"
    return f"would forward {local_port} to port {port} of {target} of {status.name} until Ctrl-C"


def preview_visit(cluster: Cluster, status: ExperimentStatus, service: str) -> str:
    """Return a message that describes the effect of ``visit``.

    Raises `NotFound` if the experiment does not expose the service, and `Unsupported` if the
    backend cannot expose services. Neither error is raised if ``forward`` can reach the service.
    """
    # A service of this machine that is not exposed has no URL.
    can_forward = backend_supports(cluster.backend, "forward") and not cluster.ports_are_here
    try:
        address = cluster.external_url(status.name, service)
    except (NotFound, Unsupported):
        if can_forward and service in _ports_by_service(cluster, status.name):
            return preview_forward(cluster, status, service, None, None)
        raise
    text = f"would print http://{address}"
    if can_forward:
        text += ", or forward a port if that address does not answer"
    return text


def preview_secrets_file(manifest: Manifest, path: str) -> str:
    """Return a message that describes the effect of ``render --with-secrets``.

    Raises `Unsupported` if the manifest contains no secret values, and `SpecError` if ``path``
    cannot be written.
    """
    manifest.write(path, dry_run=True)
    return f"would write {path} with the values of secrets"


def _ports_by_service(cluster: Cluster, experiment: str) -> Mapping[str, int | None]:
    """Return a mapping from the names of an experiment's services to their ports.

    The result is empty if the backend cannot report the services.
    """
    try:
        services = cluster.describe_topology(experiment).services
    except SymphonyError:
        return {}
    return {service.name: service.port for service in services}
