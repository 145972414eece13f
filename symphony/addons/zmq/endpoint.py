"""Determining a socket's address from a service, an address, or a host and a port. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from symphony.addons.zmq.errors import ZmqAddressError
from symphony.errors import shown
from symphony.launched_program import address as address_of
from symphony.plan.resolution.encryption_keys import Keys, keys_for

LOOPBACK = "127.0.0.1"
MAX_PORT = 65535
# The supported transports. Each value shows the form of the text after "://".
TRANSPORTS = {"tcp": "host:port", "ipc": "/path/of/a/socket", "inproc": "name"}
_EXAMPLES = {"service": "replay", "host": LOOPBACK}
# The maximum length of a DNS name in its text form (RFC 1035, section 2.3.4).
LONGEST_HOST = 253
_TCP = re.compile(r"(?P<host>\[[0-9a-fA-F:.%a-z]+\]|[^:\s/;]+):(?P<port>[0-9]{1,18}|\*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketAddress:
    """An address in ZeroMQ notation (``tcp://10.0.0.7:7000``), and whether the socket binds to it.

    ``keys`` contains the keys of an encrypted service, or is None. ``what`` is the name of the
    endpoint in error messages. ``others`` contains the addresses of the other replicas to which the
    socket connects.
    """

    address: str
    others: tuple[str, ...] = ()
    bind: bool
    what: str
    keys: Keys | None = None


def find(
    *,
    bind: bool,
    service: str | None,
    address: str | None,
    host: str | None,
    port: int | None,
    environ: Mapping[str, str],
    all_replicas: bool = False,
) -> SocketAddress:
    """Return the address that the keyword arguments specify.

    If ``all_replicas`` is true, a socket that connects to a replicated service connects to all
    replicas. Otherwise, it connects to the first one.

    Raises `ZmqAddressError` if the keyword arguments specify no address or several addresses, or if
    the address is malformed. Raises `NotFound` if ``environ`` does not contain the service or, if
    the service is encrypted, its keys.
    """
    given = {"service": service, "address": address, "port": port if port is not None else host}
    named = [key for key, value in given.items() if value is not None]
    if len(named) != 1:
        raise ZmqAddressError(
            "give exactly one of service=, address= and port= (with host=), not "
            f"{' and '.join(named) or 'none of them'}"
        )
    for key, value in (("service", service), ("host", host)):
        if value is not None and not (isinstance(value, str) and value):
            raise ZmqAddressError(
                f"{key} must be text such as {_EXAMPLES[key]!r}, not {shown(value)}"
            )
    if service is not None:
        return _from_service(service, bind, environ, all_replicas)
    if address is not None:
        return SocketAddress(address=check_address(address, bind), bind=bind, what=f"{address}")
    return _from_port(LOOPBACK if host is None else host, port, bind)


def _from_service(
    service: str, bind: bool, environ: Mapping[str, str], all_replicas: bool
) -> SocketAddress:
    found = address_of(service, environ)
    address = found.bind_tcp if bind else found.tcp
    others: list[str] = []
    if all_replicas and not bind:
        address, *others = [replica.tcp for replica in found.all]
    return SocketAddress(
        address=address,
        others=tuple(others),
        bind=bind,
        what=f"service {shown(service)}",
        keys=keys_for(service, environ, serves=bind),
    )


def _from_port(host: str, port: object, bind: bool) -> SocketAddress:
    if isinstance(port, bool) or not isinstance(port, int):
        raise ZmqAddressError(
            f"port must be a number from 1 to 65535, not {shown(port)} (host={shown(host)})"
        )
    if not 0 <= port <= MAX_PORT:
        raise ZmqAddressError(f"port must be a number from 1 to {MAX_PORT}, not {shown(port)}")
    place = f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
    return SocketAddress(address=check_address(f"tcp://{place}", bind), bind=bind, what=place)


def check_address(address: object, bind: bool) -> str:
    """Validate an address, and return it with its transport. ``host:port`` without a transport
    means TCP. Port 0 or ``*`` selects any free port and is valid only if the socket binds.
    """
    if not isinstance(address, str) or not address:
        raise ZmqAddressError(
            f"an address must be text such as 'tcp://127.0.0.1:7000', not {shown(address)}"
        )
    if "\0" in address or not _is_utf8(address):
        raise ZmqAddressError(
            f"address {shown(address)} is malformed: it has a character that is not allowed there"
        )
    transport, separator, rest = address.partition("://")
    if not separator:
        transport, rest = "tcp", address
    if transport not in TRANSPORTS or not rest:
        forms = ", ".join(f"{name}://{form}" for name, form in TRANSPORTS.items())
        raise ZmqAddressError(f"address {shown(address)} is malformed: it must be {forms}")
    return _tcp(address, rest, bind) if transport == "tcp" else address


def _tcp(address: str, rest: str, bind: bool) -> str:
    match = _TCP.fullmatch(rest)
    if match is None:
        raise ZmqAddressError(
            f"address {shown(address)} is malformed: it must be tcp://host:port, "
            "for example tcp://10.0.0.7:7000"
        )
    if len(match["host"]) > LONGEST_HOST:
        long = f"{match['host'][:30]}..."
        raise ZmqAddressError(
            f"host {long!r} has {len(match['host'])} letters; at most {LONGEST_HOST} are allowed"
        )
    number = 0 if match["port"] == "*" else int(match["port"])
    if number > MAX_PORT:
        raise ZmqAddressError(
            f"address {shown(address)} has port {number}; a port is a number from 1 to 65535"
        )
    if not bind and (number == 0 or match["host"] == "*"):
        raise ZmqAddressError(
            f"address {shown(address)} can only be bound; to connect, name a host and its port"
        )
    return f"tcp://{match['host']}:{number or '*'}"


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
