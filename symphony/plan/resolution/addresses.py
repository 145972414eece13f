"""The addresses of services, and the environment variables that contain them.

For each bound or exposed service, every process in the experiment receives the variables
``SYMPH_<NAME>_HOST``, ``_PORT`` and ``_ADDR`` (``host:port``), which contain the address to which
clients connect. The variable ``SYMPH_<NAME>_BIND_HOST`` contains the address on which the server
listens.

A replicated service is bound by several processes, each of which has its own address. For the
service ``<name>``, the addresses are those of the services ``<name>-0``, ``<name>-1`` and so on.
``SYMPH_<NAME>_ADDRS`` contains all of them, separated by commas. The variables of ``<NAME>`` itself
contain the first address, and in a process that binds the service, its own address.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from symphony.errors import NotFound, SpecError, shown
from symphony.support.names import check_is_text, did_you_mean, join_names, service_env_name

if TYPE_CHECKING:
    from symphony.model.document_path import DocumentPath

PREFIX = "SYMPH_"

# A function that returns the reason why a port is unavailable, such as "is in use", or None if the
# port is available.
PortCheck = Callable[[int], "str | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRequest:
    """A service that needs an address.

    ``port`` is between 1 and 65535, or None if symphony can choose the port. ``replica_of`` is the
    replicated service to which the service belongs. ``unit`` is the group of the owner, or the
    owner itself if it is in no group. ``master_of`` is the unit of ranks that meet at the service.
    ``path`` contains the keys that lead to the service in an experiment file.
    """

    name: str
    owner: str
    unit: str = ""
    port: int | None = None
    exposed: bool = False
    replica_of: str | None = None
    master_of: str | None = None
    path: DocumentPath = ()

    @property
    def declared_name(self) -> str:
        """The name of the service in the experiment's description."""
        return self.name if self.replica_of is None else self.replica_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of a service.

    Clients connect to ``host:port``, and the server binds ``bind_host:port``. ``replica_of`` is the
    replicated service to which the service belongs, or None. ``master_of`` is the unit of ranks
    that meet at the service, or None. ``own_host`` is the name by which the machine of the server
    knows itself, if it is not ``host``.
    """

    service: str
    owner: str
    host: str
    port: int
    bind_host: str
    exposed: bool = False
    replica_of: str | None = None
    master_of: str | None = None
    own_host: str | None = None

    @property
    def declared_service(self) -> str:
        """The name of the service in the experiment's description."""
        return self.service if self.replica_of is None else self.replica_of

    @property
    def addr(self) -> str:
        """The address ``host:port`` to which clients connect."""
        return f"{self.host}:{self.port}"

    def environment(self) -> dict[str, str]:
        """Return the environment variables that describe the endpoint."""
        return self._variables(self.service)

    def own_environment(self) -> dict[str, str]:
        """Return the variables with the name of the replicated service that contain the address of
        this endpoint.
        """
        return self._variables(self.declared_service)

    def _variables(self, service: str) -> dict[str, str]:
        prefix = PREFIX + service_env_name(service)
        return {
            f"{prefix}_HOST": self.host,
            f"{prefix}_PORT": str(self.port),
            f"{prefix}_ADDR": self.addr,
            f"{prefix}_BIND_HOST": self.bind_host,
        }


@dataclass(frozen=True, slots=True)
class AddressBook(Mapping[str, Endpoint]):
    """A mapping from service names to an experiment's endpoints, in declaration order.

    ``replicated`` contains the names of the replicated services, including those that no process
    binds because there are no replicas.
    """

    endpoints: tuple[Endpoint, ...] = field(default=())
    replicated: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        """Raise `SpecError` if ``endpoints`` is not a tuple of endpoints."""
        is_valid = isinstance(self.endpoints, tuple) and all(
            isinstance(endpoint, Endpoint) for endpoint in self.endpoints
        )
        if not is_valid:
            raise SpecError(f"endpoints must be a tuple of Endpoint, not {shown(self.endpoints)}")

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
        """Return the endpoint of a service.

        Raises `NotFound` if the experiment has no such service. The error message suggests similar
        names or lists the services.
        """
        check_is_text(service, "service")
        if service not in self:
            hint = did_you_mean(service, self) or f"; services: {join_names(self)}"
            raise NotFound(f"no service {service!r}{hint}")
        return self[service]

    def replicas(self, service: str) -> tuple[Endpoint, ...]:
        """Return the endpoints of a replicated service."""
        return tuple(endpoint for endpoint in self.endpoints if endpoint.replica_of == service)

    def environment(self) -> dict[str, str]:
        """Return the environment variables that describe all endpoints."""
        result: dict[str, str] = {}
        for endpoint in self.endpoints:
            result.update(endpoint.environment())
        for service in self.replicated:
            endpoints = self.replicas(service)
            if endpoints:
                result.update(endpoints[0].own_environment())
            addresses = ",".join(endpoint.addr for endpoint in endpoints)
            result[addresses_variable(service)] = addresses
        return result


class ServedEndpoints:
    """The endpoints of an experiment, by the processes and groups that serve them."""

    def __init__(self, addresses: AddressBook) -> None:
        self._endpoints = addresses.endpoints
        self._positions: dict[str, list[int]] = {}
        for position, endpoint in enumerate(addresses.endpoints):
            self._positions.setdefault(endpoint.owner, []).append(position)

    def of(self, *owners: str | None) -> tuple[Endpoint, ...]:
        """Return the endpoints that the given processes and groups serve, in declaration order."""
        positions: list[int] = []
        for owner in owners:
            if owner is not None:
                positions += self._positions.get(owner, ())
        return tuple(self._endpoints[position] for position in sorted(positions))


def own_environment(served: Iterable[Endpoint]) -> dict[str, str]:
    """Return the variables of replicated services with the addresses that a process serves."""
    result: dict[str, str] = {}
    for endpoint in served:
        if endpoint.replica_of is not None:
            result.update(endpoint.own_environment())
    return result


def addresses_variable(service: str) -> str:
    """Return the name of the variable that contains all addresses of a replicated service."""
    return f"{PREFIX}{service_env_name(service)}_ADDRS"


_REPLICA = re.compile(r"(?P<service>.+)-[0-9]+")
_ADDRESSES_VARIABLE = re.compile(rf"{PREFIX}(?P<service>[A-Z0-9_]+)_ADDRS")


def replicated_service(service: str, environ: Mapping[str, object]) -> str | None:
    """Return the replicated service to which a service belongs, or None.

    ``environ`` contains the variables with the addresses of all services.
    """
    match = _REPLICA.fullmatch(service)
    if match is None or addresses_variable(match["service"]) not in environ:
        return None
    return match["service"]


def replicated_services(environ: Mapping[str, str]) -> dict[str, int]:
    """Return the number of addresses of each replicated service.

    ``environ`` contains the variables with the addresses of all services.
    """
    counts: dict[str, int] = {}
    for variable, addresses in environ.items():
        match = _ADDRESSES_VARIABLE.fullmatch(variable)
        if match is not None:
            service = match["service"].lower().replace("_", "-")
            counts[service] = len(addresses.split(",")) if addresses else 0
    return counts


@dataclass(frozen=True, kw_only=True)
class AddressScheme:
    """The rules by which a backend assigns addresses.

    ``host`` returns the host to which a service's clients connect. ``bind_host`` is the address on
    which servers listen. ``refuse`` returns the reason why a port is unavailable, such as
    ``"is in use"``, or None if the port is available. ``refuse`` is called at most once for each
    port, and can reserve an available port. By default, every port is available. A port is chosen
    for which ``avoid`` returns false, unless no other port is available. ``present`` maps
    the services of a running experiment to their ports, which they keep if it is possible. If
    ``shares_ports`` is true, all processes run on one machine. Otherwise, only the members of a
    group share the ports. ``node`` returns the number of the node of a process, if the backend
    chooses it. ``rank_host`` returns the host name of the machine of a rank, if each
    rank has its own. Other machines find it below the host of the service of the unit.
    """

    backend: str
    host: Callable[[str], str]
    bind_host: str
    refuse: PortCheck = lambda _: None
    avoid: Callable[[int], bool] = lambda _: False
    present: Mapping[str, int] = field(default_factory=dict)
    shares_ports: bool = True
    node: Callable[[str], int] = lambda _: 0
    rank_host: Callable[[str], str] | None = None


def assign_addresses(
    requests: Iterable[ServiceRequest],
    scheme: AddressScheme,
    pool: tuple[int, int],
    replicated: Iterable[str] = (),
) -> AddressBook:
    """Return an address for each requested service.

    ``pool`` contains the first and the last port of the range from which ports are chosen.
    ``replicated`` contains the names of the replicated services.

    Raises `SpecError` in the same cases as `choose_ports`, and if services on one machine have the
    same fixed port.
    """
    requests = list(requests)
    _check_fixed_ports(requests, scheme)
    ports = choose_ports(requests, pool, scheme.refuse, scheme.present, scheme.avoid)
    endpoints = [_endpoint(request, ports[request.name], scheme) for request in requests]
    return AddressBook(tuple(endpoints), tuple(replicated))


def _endpoint(request: ServiceRequest, port: int, scheme: AddressScheme) -> Endpoint:
    host, own_host = scheme.host(request.name), None
    if request.master_of is not None and scheme.rank_host is not None:
        own_host = scheme.rank_host(request.owner)
        host = f"{own_host}.{host}"
    return Endpoint(
        service=request.name,
        owner=request.owner,
        host=host,
        port=port,
        bind_host=scheme.bind_host,
        exposed=request.exposed,
        replica_of=request.replica_of,
        master_of=request.master_of,
        own_host=own_host,
    )


def services_with_one_port(
    requests: Iterable[ServiceRequest], *, shares_ports: bool
) -> Iterator[tuple[ServiceRequest, ServiceRequest]]:
    """Yield each service that has the same fixed port as another one, after the other one.

    If ``shares_ports`` is false, only the members of a group share their ports.
    """
    owners: dict[tuple[str, int], ServiceRequest] = {}
    for request in requests:
        if request.port is None:
            continue
        machine = "" if shares_ports else request.unit
        other = owners.setdefault((machine, request.port), request)
        if other is not request:
            yield other, request


def hint_for_one_port(request: ServiceRequest) -> str:
    """Return how to give a service a port of its own."""
    if request.replica_of is None:
        return "choose another port for one of them"
    return (
        "remove the port, so that each gets its own, or give each a port of its own, as in "
        f"{request.replica_of}: 80${{index}}"
    )


def _check_fixed_ports(requests: Iterable[ServiceRequest], scheme: AddressScheme) -> None:
    """Raise `SpecError` if services that share their ports have the same fixed port."""
    for other, request in services_with_one_port(requests, shares_ports=scheme.shares_ports):
        place = "on one machine" if scheme.shares_ports else f"in one Pod ({request.unit})"
        if request.replica_of is not None and other.replica_of == request.replica_of:
            service = f"service {request.replica_of!r}"
        else:
            service = f"services {other.declared_name!r} and {request.declared_name!r}"
        problem = f"{other.owner!r} and {request.owner!r} both bind {service}"
        if other.owner == request.owner:
            problem = f"{request.owner!r} binds {service}"
        raise SpecError(
            f"{problem} on port {request.port} {place}; {hint_for_one_port(request)}",
            path=request.path,
        )


def choose_ports(
    requests: Iterable[ServiceRequest],
    pool: tuple[int, int],
    refuse: PortCheck,
    present: Mapping[str, int] | None = None,
    avoid: Callable[[int], bool] = lambda _: False,
) -> dict[str, int]:
    """Return a mapping from each service's name to its port.

    Fixed ports are assigned first. Services in ``present`` then keep their ports if these are in
    the pool. The other services get ports from the pool in declaration order, so that the same
    requests get the same ports if the same ports are available. The ports for which ``avoid``
    returns true are chosen last. Raises `SpecError` if a fixed port is unavailable, or if the pool
    does not contain enough available ports.
    """
    requests = list(requests)
    services: dict[int, str] = {}
    chosen: dict[str, int] = {}
    for request in requests:
        if request.port is not None:
            chosen[request.name] = request.port
            # Services on different machines can have the same port.
            reason = None if request.port in services else refuse(request.port)
            if reason:
                raise SpecError(
                    f"port {request.port} of service {request.name!r} ({request.owner!r}) "
                    f"{reason}; free the port, or remove it so that symphony chooses one",
                    path=request.path,
                )
            services[request.port] = request.name
    for request in requests:
        port = (present or {}).get(request.name)
        if request.port is not None or port is None or port in services:
            continue
        if pool[0] <= port <= pool[1] and refuse(port) is None:
            services[port] = request.name
            chosen[request.name] = port
    candidates = _avoided_last(range(pool[0], pool[1] + 1), services, avoid)
    refused: list[str] = []
    for request in requests:
        if request.name not in chosen:
            port = _next_available(candidates, services, refuse, refused)
            if port is None:
                reasons = f" ({join_names(refused, limit=3)})" if refused else ""
                raise SpecError(
                    f"no port is available in {pool[0]}-{pool[1]} for service {request.name!r} "
                    f"of {request.owner!r}{reasons}; choose a larger port_range",
                    path=request.path,
                )
            chosen[request.name] = port
            services[port] = request.name
    return chosen


def _avoided_last(
    ports: Iterable[int], services: Mapping[int, str], avoid: Callable[[int], bool]
) -> Iterator[int]:
    avoided: list[int] = []
    for port in ports:
        if port not in services and avoid(port):
            avoided.append(port)
        else:
            yield port
    yield from avoided


def _next_available(
    candidates: Iterator[int], services: Mapping[int, str], refuse: PortCheck, refused: list[str]
) -> int | None:
    """Return the next available candidate, or None if there is none.

    Each unavailable candidate is added to ``refused``, with the reason why it is unavailable.
    """
    for port in candidates:
        if port in services:
            reason: str | None = f"is assigned to {services[port]!r}"
        else:
            reason = refuse(port)
        if reason is None:
            return port
        refused.append(f"{port} {reason}")
    return None
