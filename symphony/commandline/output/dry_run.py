"""What a dry run says of verbs that open a way to a process, with the mistakes that the verb itself would tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from symphony.cluster import Cluster, Manifest
from symphony.commandline.exit_codes import UsageError
from symphony.errors import NotFound, PluginError, SymphonyError, Unsupported
from symphony.names import did_you_mean

if TYPE_CHECKING:
    from symphony.status import ExperimentStatus, ProcessStatus


def preview_attach(cluster: Cluster, status: ExperimentStatus, process: ProcessStatus) -> str:
    """Raises `Unsupported` where no terminal is attached."""
    if not _claims(cluster, "login"):
        Cluster.login(cluster, status.name, process.name)
    return f"would attach this terminal to {process.path} of {status.name} ({process.state})"


def preview_copy(cluster: Cluster, status: ExperimentStatus, source: str, target: str) -> str:
    """Raises `Unsupported` where nothing is copied, and what the backend sees to be wrong."""
    cluster.transfer_file(status.name, source, target, dry_run=True)
    return f"would copy {source} to {target} ({status.name})"


def preview_forward(
    cluster: Cluster, status: ExperimentStatus, target: str, port: int | None, local: int | None
) -> str:
    """Raises `NotFound` for what is neither a process nor a service, and `Unsupported` where nothing is forwarded."""
    if not _claims(cluster, "forward"):
        Cluster.port_forward(cluster, status.name, target)
    served = _ports_of_services(cluster, status.name)
    processes = {name for process in status for name in (process.name, process.path)}
    if target not in served and target not in processes:
        hint = did_you_mean(target, [*processes, *served])
        raise NotFound(f"experiment {status.name!r} has no process or service {target!r}{hint}")
    port = port or served.get(target)
    if port is None:
        raise UsageError(f"which port of process {target!r}? say PORT, or PORT:LOCAL")
    here = "any free port" if local is None else f"port {local}"
    return f"would lead {here} of this machine to port {port} of {target} of {status.name}, until Ctrl-C"


def preview_visit(cluster: Cluster, status: ExperimentStatus, service: str) -> str:
    """Raises `NotFound` for a service that is not there, or to which nothing would lead."""
    forwards = _claims(cluster, "forward")
    try:
        address = cluster.external_url(status.name, service)
    except (NotFound, Unsupported):
        if forwards and service in _ports_of_services(cluster, status.name):
            return preview_forward(cluster, status, service, None, None)
        raise
    return f"would print http://{address}" + (
        ", or forward a port if that does not answer" if forwards else ""
    )


def preview_secrets_file(manifest: Manifest, path: str) -> str:
    """Raises `Unsupported` where a manifest has no values of secrets, and `SpecError` for what is no file."""
    manifest.write(path, dry_run=True)
    return f"would write {path}, with the values of secrets"


def _claims(cluster: Cluster, capability: str) -> bool:
    """Whether a backend says that it can do something; one that is no plug-in is taken to."""
    from symphony.cluster.plugins import find_backend

    try:
        return capability in find_backend(cluster.backend).capabilities
    except PluginError:
        return True


def _ports_of_services(cluster: Cluster, experiment: str) -> Mapping[str, int | None]:
    """Empty where a backend does not tell of services."""
    try:
        return {
            service.name: service.port for service in cluster.describe_topology(experiment).services
        }
    except SymphonyError:
        return {}
