"""Changing an experiment that is being supervised: the steps before the change takes effect.

The client prepares the new manifest in a directory (see
`symphony.supervised.record.change_directory`), and sends the leases and holds of new ports and GPUs
as file descriptors. Everything that can fail is done before the new manifest replaces the previous
one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError, shown
from symphony.plan.policies import Policies
from symphony.supervised.processes.spec import GPU_VARIABLE, ProcessSpec
from symphony.supervised.record import change_directory
from symphony.supervised.resources.leases import held_resource, take_lease
from symphony.supervised.supervisor.serving.request_server import RequestRefused
from symphony.support.data_classes import dataclass, field

if TYPE_CHECKING:
    from symphony.plan.state import RunState
    from symphony.supervised.record.directory import RunDirectory
    from symphony.supervised.supervisor.process_host import ProcessHost

_HOLD, _GPU = "hold", "gpu"


@dataclass(slots=True, eq=False)
class Change:
    """A change of an experiment.

    ``specs`` describes all processes after the change, and ``old_specs`` the removed and restarted
    processes before it. ``holds`` maps new ports to the descriptors that are closed before their
    servers start. ``gpus`` maps the names of added and restarted processes to their leases.
    ``surplus`` contains leases that are not needed when the restarted processes have exited.
    ``new_addresses`` contains the addresses ``host:port`` of services that no service had before,
    and ``old_addresses`` those that no service has any more.
    """

    manifest: Mapping[str, Any]
    specs: Mapping[str, ProcessSpec]
    old_specs: Mapping[str, ProcessSpec]
    policies: Policies
    holds: dict[int, int] = field(default_factory=dict)
    gpus: dict[str, list[int]] = field(default_factory=dict)
    surplus: list[int] = field(default_factory=list)
    new_addresses: set[str] = field(default_factory=set)
    old_addresses: set[str] = field(default_factory=set)

    @property
    def event(self) -> Mapping[str, Any]:
        """The event of the change."""
        event: Mapping[str, Any] = self.manifest["change"]
        return event

    @property
    def added(self) -> list[str]:
        """The names of the added processes."""
        return list(self.event["added"])

    @property
    def removed(self) -> list[str]:
        """The names of the removed processes."""
        return list(self.event["removed"])

    @property
    def restarted(self) -> list[str]:
        """The names of the restarted processes."""
        return list(self.event["restarted"])

    def close(self) -> None:
        """Release what is not needed any more, after the removed processes have exited."""
        for descriptor in self.surplus:
            os.close(descriptor)
        self.surplus.clear()


def prepare(
    run: RunDirectory,
    request: Mapping[str, Any],
    state: RunState,
    specs: Mapping[str, ProcessSpec],
    host: ProcessHost,
) -> Change:
    """Check a request for a change.

    ``specs`` describes the processes before the change. Raises RequestRefused if the change is not
    possible.
    """
    directory = request.get("directory")
    if not isinstance(directory, str) or not change_directory.is_change_directory(directory):
        raise RequestRefused(f"'directory' is not valid: {shown(directory)}")
    try:
        running = run.load_manifest(is_new=True)
        manifest = change_directory.load_manifest(run, directory)
    except (OSError, ValueError) as exc:
        raise RequestRefused(f"the new manifest cannot be read: {exc}") from exc
    if manifest.get("run_id") != running["run_id"]:
        raise RequestRefused("the change is for another run")
    if manifest["change"]["revision"] != state.revision + 1:
        raise RequestRefused("another program has changed the experiment; try again")
    if manifest["previous"]["services"] != running["services"]:
        raise RequestRefused("ranks have restarted with another MASTER_PORT; try again")
    stopped = (*manifest["change"]["removed"], *manifest["change"]["restarted"])
    return Change(
        manifest,
        _load_specs(run, manifest, None if host.is_remote else directory),
        {name: specs[name] for name in stopped},
        Policies.from_dict(manifest.get("policies", {})),
        new_addresses=_addresses(manifest) - _addresses(running),
        old_addresses=_addresses(running) - _addresses(manifest),
    )


def _addresses(manifest: Mapping[str, Any]) -> set[str]:
    services: Mapping[str, str] = manifest.get("services", {})
    return set(services.values())


def take_resources(
    change: Change,
    request: Mapping[str, Any],
    descriptors: list[int],
    gpus: Mapping[str, list[int]],
    host: ProcessHost,
) -> None:
    """Determine the leases and holds of a change, and lease the GPUs that are missing.

    ``descriptors`` are those that the client has sent; those that the change needs are removed.
    ``gpus`` maps process names to the leases that the supervisor holds. Raises RequestRefused if
    another experiment has leased one of the GPUs, or if an address is unavailable.
    """
    accepted: list[int] = request.get("accepted", [])
    unavailable = host.reserve_addresses(change.new_addresses, accepted)
    if unavailable:
        texts = [f"the address {address} {reason}" for address, reason in unavailable.items()]
        raise RequestRefused("; ".join(texts), unavailable)
    if host.is_remote:
        return
    received = {held_resource(descriptor): descriptor for descriptor in descriptors}
    _take_gpus(change, received, gpus)
    if not request.get("keep_holds"):
        for resource, descriptor in received.items():
            if resource is not None and resource[0] == _HOLD:
                change.holds[int(resource[1])] = descriptor
    # The other descriptors are leases of ports, which are held until the supervisor exits.
    descriptors.clear()


def resume(
    run: RunDirectory, specs: Mapping[str, ProcessSpec], old_specs: Mapping[str, ProcessSpec]
) -> Change:
    """Return the latest change of a run, which a killed supervisor has begun.

    The leases of the processes in ``specs`` are not part of it.
    """
    manifest = run.load_manifest(is_new=True)
    surplus: list[int] = []
    for name in manifest["change"]["restarted"]:
        for device in set(_devices(old_specs[name])) - set(_devices(specs[name])):
            # A launch can have leased the device while no supervisor was running.
            lease = take_lease(_GPU, device)
            if lease is not None:
                surplus.append(lease)
    previous = manifest.get("previous", {}).get("services", {})
    return Change(
        manifest,
        specs,
        old_specs,
        Policies.from_dict(manifest.get("policies", {})),
        surplus=surplus,
        old_addresses=set(previous.values()) - _addresses(manifest),
    )


def _load_specs(
    run: RunDirectory, manifest: Mapping[str, Any], directory: str | None
) -> dict[str, ProcessSpec]:
    """Return the new descriptions of the processes.

    They contain the values of the secrets, unless ``directory`` is None.
    """
    try:
        specs = [ProcessSpec.from_dict(data) for data in manifest["processes"]]
        if directory is None:
            return {spec.name: spec for spec in specs}
        new_secrets = run.file(directory) / change_directory.SECRETS
        return {spec.name: spec.with_secrets(run.secrets, new_secrets) for spec in specs}
    except (OSError, TypeError, KeyError, BackendError) as exc:
        raise RequestRefused(f"the new manifest is not valid: {exc}") from exc


def _take_gpus(
    change: Change,
    received: Mapping[tuple[str, str] | None, int],
    present: Mapping[str, list[int]],
) -> None:
    """Determine the leases of the added and restarted processes, and take those that are missing.

    A process that has exited can have released its GPUs. Raises RequestRefused if another
    experiment has leased one of them.
    """
    taken: list[int] = []
    try:
        for name in (*change.added, *change.restarted):
            spec = change.specs[name]
            held = {held_resource(descriptor): descriptor for descriptor in present.get(name, ())}
            own: list[int] = []
            for device in _devices(spec):
                resource = (_GPU, device)
                descriptor = held.pop(resource, None) or received.get(resource)
                if descriptor is None:
                    descriptor = take_lease(*resource)
                    if descriptor is None:
                        raise RequestRefused(f"another experiment has leased the GPUs of {name!r}")
                    taken.append(descriptor)
                own.append(descriptor)
            if own:
                change.gpus[name] = own
            change.surplus += held.values()
    except RequestRefused:
        for descriptor in taken:
            os.close(descriptor)
        raise


def _devices(spec: ProcessSpec) -> list[str]:
    return spec.env[GPU_VARIABLE].split(",") if spec.gpus else []
