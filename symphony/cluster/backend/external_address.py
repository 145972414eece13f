"""Finding the external address of an exposed service."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from symphony.errors import NotFound, Unsupported
from symphony.support.names import did_you_mean, join_names

if TYPE_CHECKING:
    from symphony.cluster.backend import Inspection


def find_external_address(backend: Inspection, experiment: str, service: str) -> str:
    """Return the external address of an exposed service as ``host:port``.

    Raises `NotFound` if the experiment does not expose the service, or if the address is not known
    yet.
    """
    addresses = backend.external_addresses(experiment, service)
    if service not in addresses:
        raise _not_exposed(backend, experiment, service, addresses)
    address = addresses[service]
    if address is None:
        raise NotFound(
            f"service {service!r} of {experiment!r} has no external address yet; try again"
        )
    return address


def _not_exposed(
    backend: Inspection, experiment: str, service: str, exposed: Collection[str]
) -> NotFound:
    bound: Iterable[str] = ()
    with contextlib.suppress(Unsupported):
        bound = [found.name for found in backend.topology(experiment).services]
    if service in bound:
        return NotFound(
            f"experiment {experiment!r} binds but does not expose {service!r}; "
            f"for its address, use: symphony forward {experiment} {service}"
        )
    hint = did_you_mean(service, exposed) or f"; exposed are {join_names(exposed)}"
    return NotFound(f"experiment {experiment!r} does not expose {service!r}{hint}")
