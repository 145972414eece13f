"""Finding the external address of an exposed service."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from symphony.errors import NotFound, Unsupported
from symphony.support.names import did_you_mean, join_names

if TYPE_CHECKING:
    from symphony.cluster.backend import Inspection
    from symphony.plan.topology import Service


def find_external_address(backend: Inspection, experiment: str, service: str) -> str:
    """Return the external address of an exposed service as ``host:port``.

    Raises `NotFound` if the experiment does not expose the service, or if the address is not known
    yet.
    """
    addresses = backend.external_addresses(experiment, service)
    if service not in addresses:
        raise _not_exposed(backend, experiment, service, addresses.keys())
    address = addresses[service]
    if address is None:
        raise NotFound(
            f"service {service!r} of {experiment!r} has no external address yet; try again"
        )
    return address


def _not_exposed(
    backend: Inspection, experiment: str, service: str, exposed: AbstractSet[str]
) -> NotFound:
    bound = _find_service(backend, experiment, service)
    replicas = () if bound is None else bound.replicas
    if not exposed.isdisjoint(replicas):
        return _one_for_each_replica(experiment, service, replicas)
    if bound is not None:
        example, what = (
            (replicas[0], "the address of a replica") if replicas else (service, "its address")
        )
        return NotFound(
            f"experiment {experiment!r} binds but does not expose {service!r}; "
            f"for {what}, use: symphony forward {experiment} {example}"
        )
    hint = did_you_mean(service, exposed) or f"; exposed are {join_names(exposed)}"
    return NotFound(f"experiment {experiment!r} does not expose {service!r}{hint}")


@contextlib.contextmanager
def errors_about_replicas(backend: Inspection, experiment: str, name: str) -> Iterator[None]:
    """Replace the `NotFound` of the block by the names of the replicas, if ``name`` is a replicated
    service.
    """
    try:
        yield
    except NotFound as exc:
        found = _find_service(backend, experiment, name)
        if found is None or not found.replicas:
            raise
        raise _one_for_each_replica(experiment, name, found.replicas) from exc


def _one_for_each_replica(experiment: str, service: str, replicas: Sequence[str]) -> NotFound:
    """Return the error for the name of a replicated service."""
    choice = "one of " if len(replicas) > 1 else ""
    return NotFound(
        f"each replica of service {service!r} of {experiment!r} has its own address; "
        f"name {choice}{join_names(replicas)}"
    )


def _find_service(backend: Inspection, experiment: str, name: str) -> Service | None:
    with contextlib.suppress(Unsupported):
        for service in backend.topology(experiment).services:
            if service.name == name:
                return service
    return None
