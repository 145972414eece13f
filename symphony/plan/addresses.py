"""Where services live, and how processes learn it: the one place that every backend shares.

For each bound or exposed service every process of the experiment gets ``SYMPH_<NAME>_HOST``, ``_PORT``,
``_ADDR`` (``host:port``), which say where to connect, and ``_BIND_HOST``, which says where its server listens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from symphony.errors import NotFound, SpecError
from symphony.names import did_you_mean, env_name, join_names

PREFIX = "SYMPH_"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRequest:
    """A service that somebody serves, before it has an address. ``port`` is 1..65535 or None for any."""

    name: str
    owner: str
    port: int | None = None
    exposed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a service lives: connect to ``host:port``, listen on ``bind_host:port``."""

    service: str
    owner: str
    host: str
    port: int
    bind_host: str
    exposed: bool = False

    @property
    def addr(self) -> str:
        """``host:port``."""
        return f"{self.host}:{self.port}"

    def environment(self) -> dict[str, str]:
        """The variables that tell a process of this endpoint."""
        prefix = PREFIX + env_name(self.service)
        return {
            f"{prefix}_HOST": self.host,
            f"{prefix}_PORT": str(self.port),
            f"{prefix}_ADDR": self.addr,
            f"{prefix}_BIND_HOST": self.bind_host,
        }


@dataclass(frozen=True, slots=True)
class AddressBook(Mapping[str, Endpoint]):
    """The endpoints of an experiment by service name, in declaration order."""

    endpoints: tuple[Endpoint, ...] = field(default=())

    def __getitem__(self, service: str) -> Endpoint:
        for endpoint in self.endpoints:
            if endpoint.service == service:
                return endpoint
        raise KeyError(service)

    def __iter__(self) -> Iterator[str]:
        return (endpoint.service for endpoint in self.endpoints)

    def __len__(self) -> int:
        return len(self.endpoints)

    def find(self, service: str) -> Endpoint:
        """The endpoint of a service; `NotFound` with the near miss where there is none."""
        try:
            return self[service]
        except KeyError:
            hint = did_you_mean(service, self) or f"; it has {join_names(self)}"
            raise NotFound(f"no service {service!r}{hint}") from None

    def environment(self) -> dict[str, str]:
        """The variables that tell a process of every service."""
        result: dict[str, str] = {}
        for endpoint in self.endpoints:
            result.update(endpoint.environment())
        return result


@dataclass(frozen=True, kw_only=True)
class AddressScheme:
    """How one backend gives addresses.

    ``host`` tells where a service is reached; ``bind_host`` where its server listens. ``refuse`` says why a
    port cannot be had (``"is in use"``), or None where it can, and may then hold it; by default every port can.
    """

    backend: str
    host: Callable[[str], str]
    bind_host: str
    refuse: Callable[[int], str | None] = lambda _: None


def book(
    requests: Iterable[ServiceRequest], scheme: AddressScheme, pool: tuple[int, int]
) -> AddressBook:
    """Give every requested service its address; ``pool`` has the first and the last port to choose from."""
    requests = list(requests)
    _refuse_shared_variables(requests)
    ports = choose_ports(requests, pool, scheme.refuse)
    return AddressBook(
        tuple(
            Endpoint(
                service=request.name,
                owner=request.owner,
                host=scheme.host(request.name),
                port=ports[request.name],
                bind_host=scheme.bind_host,
                exposed=request.exposed,
            )
            for request in requests
        )
    )


def _refuse_shared_variables(requests: Iterable[ServiceRequest]) -> None:
    """Refuse ``x`` beside ``x-bind``: SYMPH_X_BIND_HOST would have to say two things."""
    names = {request.name for request in requests}
    for name in sorted(names):
        if f"{name}-bind" in names:
            raise SpecError(
                f"services {name!r} and {f'{name}-bind'!r} share the variable {PREFIX}{env_name(name)}_BIND_HOST; "
                "rename one of them"
            )


def choose_ports(
    requests: Iterable[ServiceRequest], pool: tuple[int, int], refuse: Callable[[int], str | None]
) -> dict[str, int]:
    """A port for each service: the fixed ones first, then from the pool in declaration order.

    The same requests and the same refusals give the same ports. A fixed port that is refused, one port given
    to two services, and a pool that runs dry raise `SpecError`.
    """
    requests = list(requests)
    taken: dict[int, ServiceRequest] = {}
    for request in requests:
        if request.port is not None:
            _take_fixed(request, request.port, taken, refuse)
    chosen = {request.name: port for port, request in taken.items()}
    candidates = iter(range(pool[0], pool[1] + 1))
    refused: list[str] = []
    for request in requests:
        if request.port is None:
            chosen[request.name] = _next_free(request, candidates, taken, refuse, refused, pool)
    return chosen


def _take_fixed(
    request: ServiceRequest,
    port: int,
    taken: dict[int, ServiceRequest],
    refuse: Callable[[int], str | None],
) -> None:
    other = taken.get(port)
    if other is not None:
        raise SpecError(
            f"port {port} is given to two services: {other.name!r} of {other.owner!r} "
            f"and {request.name!r} of {request.owner!r}; give one of them another"
        )
    reason = refuse(port)
    if reason:
        raise SpecError(
            f"port {port} of service {request.name!r} ({request.owner!r}) {reason}; free it, or leave the port out"
        )
    taken[port] = request


def _next_free(
    request: ServiceRequest,
    candidates: Iterator[int],
    taken: Mapping[int, Any],
    refuse: Callable[[int], str | None],
    refused: list[str],
    pool: tuple[int, int],
) -> int:
    for port in candidates:
        reason = None if port not in taken else f"is given to {taken[port].name!r}"
        reason = reason or refuse(port)
        if reason is None:
            return port
        refused.append(f"{port} {reason}")
    why = f" ({join_names(refused, limit=3)})" if refused else ""
    raise SpecError(
        f"no port is left in {pool[0]}-{pool[1]} for service {request.name!r} of {request.owner!r}{why}; "
        "give the experiment a wider port_range"
    )
