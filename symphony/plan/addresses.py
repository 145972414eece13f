"""The addresses of services, and the environment variables that contain them.

For each bound or exposed service, every process in the experiment receives the variables
``SYMPH_<NAME>_HOST``, ``_PORT`` and ``_ADDR`` (``host:port``), which contain the address to which
clients connect. The variable ``SYMPH_<NAME>_BIND_HOST`` contains the address on which the server
listens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from symphony.errors import NotFound, SpecError, shown
from symphony.names import check_is_text, did_you_mean, join_names, service_env_name

PREFIX = "SYMPH_"

# A function that returns the reason why a port is unavailable, such as "is in use", or None if the
# port is available.
PortCheck = Callable[[int], "str | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRequest:
    """A service that needs an address.

    ``port`` is between 1 and 65535, or None if symphony can choose the port.
    """

    name: str
    owner: str
    port: int | None = None
    exposed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address of a service.

    Clients connect to ``host:port``, and the server binds ``bind_host:port``.
    """

    service: str
    owner: str
    host: str
    port: int
    bind_host: str
    exposed: bool = False

    @property
    def addr(self) -> str:
        """The address ``host:port`` to which clients connect."""
        return f"{self.host}:{self.port}"

    def environment(self) -> dict[str, str]:
        """Return the environment variables that describe the endpoint."""
        prefix = PREFIX + service_env_name(self.service)
        return {
            f"{prefix}_HOST": self.host,
            f"{prefix}_PORT": str(self.port),
            f"{prefix}_ADDR": self.addr,
            f"{prefix}_BIND_HOST": self.bind_host,
        }


@dataclass(frozen=True, slots=True)
class AddressBook(Mapping[str, Endpoint]):
    """A mapping from service names to an experiment's endpoints, in declaration order."""

    endpoints: tuple[Endpoint, ...] = field(default=())

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

    def environment(self) -> dict[str, str]:
        """Return the environment variables that describe all endpoints."""
        result: dict[str, str] = {}
        for endpoint in self.endpoints:
            result.update(endpoint.environment())
        return result


@dataclass(frozen=True, kw_only=True)
class AddressScheme:
    """The rules by which a backend assigns addresses.

    ``host`` returns the host to which a service's clients connect. ``bind_host`` is the address on
    which servers listen. ``refuse`` returns the reason why a port is unavailable, such as
    ``"is in use"``, or None if the port is available. ``refuse`` is called at most once for each
    port, and can reserve an available port. By default, every port is available. ``present`` maps
    the services of a running experiment to their ports, which they keep if it is possible.
    """

    backend: str
    host: Callable[[str], str]
    bind_host: str
    refuse: PortCheck = lambda _: None
    present: Mapping[str, int] = field(default_factory=dict)


def assign_addresses(
    requests: Iterable[ServiceRequest], scheme: AddressScheme, pool: tuple[int, int]
) -> AddressBook:
    """Return an address for each requested service.

    ``pool`` contains the first and the last port of the range from which ports are chosen.

    Raises `SpecError` in the same cases as `choose_ports`.
    """
    requests = list(requests)
    ports = choose_ports(requests, pool, scheme.refuse, scheme.present)
    endpoints = [
        Endpoint(
            service=request.name,
            owner=request.owner,
            host=scheme.host(request.name),
            port=ports[request.name],
            bind_host=scheme.bind_host,
            exposed=request.exposed,
        )
        for request in requests
    ]
    return AddressBook(tuple(endpoints))


def choose_ports(
    requests: Iterable[ServiceRequest],
    pool: tuple[int, int],
    refuse: PortCheck,
    present: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Return a mapping from each service's name to its port.

    Fixed ports are assigned first. Services in ``present`` then keep their ports if these are in
    the pool. The other services get ports from the pool in declaration order, so that the same
    requests get the same ports if the same ports are available. Two services must not request the
    same port. Raises `SpecError` if a fixed port is unavailable, or if the pool does not contain
    enough available ports.
    """
    requests = list(requests)
    services: dict[int, str] = {}
    for request in requests:
        if request.port is not None:
            reason = refuse(request.port)
            if reason:
                raise SpecError(
                    f"port {request.port} of service {request.name!r} ({request.owner!r}) "
                    f"{reason}; free the port, or remove it so that symphony chooses one"
                )
            services[request.port] = request.name
    for request in requests:
        port = (present or {}).get(request.name)
        if request.port is not None or port is None or port in services:
            continue
        if pool[0] <= port <= pool[1] and refuse(port) is None:
            services[port] = request.name
    chosen = {name: port for port, name in services.items()}
    candidates = iter(range(pool[0], pool[1] + 1))
    refused: list[str] = []
    for request in requests:
        if request.name not in chosen:
            port = _next_available(candidates, services, refuse, refused)
            if port is None:
                reasons = f" ({join_names(refused, limit=3)})" if refused else ""
                raise SpecError(
                    f"no port is available in {pool[0]}-{pool[1]} for service {request.name!r} "
                    f"of {request.owner!r}{reasons}; choose a larger port_range"
                )
            chosen[request.name] = port
    return chosen


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
