"""Finding the addresses of services from within a program that symphony has launched.

This module requires only the standard library.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from symphony.errors import NotFound, SpecError, shown
from symphony.plan.resolution.addresses import PREFIX, addresses_variable
from symphony.support.names import check_is_text, did_you_mean, join_names, service_env_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a service. Clients connect to ``host:port``, and the process that binds the
    service listens on ``bind_host:port``.

    If the service is replicated, this is the address of its first replica. In a process that binds
    the service, it is the address of that process. ``replicas`` contains the addresses of all
    replicas, and is empty if the service is not replicated.
    """

    service: str
    host: str
    port: int
    bind_host: str
    replicas: tuple[Address, ...] = ()

    @property
    def all(self) -> tuple[Address, ...]:
        """The addresses of all processes that bind the service, in declaration order."""
        return self.replicas or (self,)

    @property
    def tcp(self) -> str:
        """The address ``tcp://host:port`` for a ZeroMQ socket's ``connect`` method."""
        return f"tcp://{self.host}:{self.port}"

    @property
    def bind_tcp(self) -> str:
        """The address ``tcp://bind_host:port`` for a ZeroMQ socket's ``bind`` method."""
        return f"tcp://{self.bind_host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def address(service: str, environ: Mapping[str, str] | None = None) -> Address:
    """Read the address of ``service`` from the environment variables that symphony sets, and return
    the address.

    ``environ`` defaults to the environment of this process. Raises `NotFound` if a variable for the
    service is missing or invalid. The message names the variable and, if possible, suggests a
    service or lists the services.
    """
    check_is_text(service, "service")
    environ = os.environ if environ is None else environ
    if not isinstance(environ, Mapping):
        raise SpecError(f"environ must be a mapping, not {shown(environ)}")
    if not service.isprintable():
        # Such a name cannot be part of a variable's name.
        raise NotFound(f"no service {shown(service)} in the environment")
    prefix = PREFIX + service_env_name(service)
    if environ.get(addresses_variable(service)) == "":
        raise NotFound(f"service {service!r} has no replicas")
    for variable in (f"{prefix}_HOST", f"{prefix}_PORT"):
        if variable not in environ:
            hint = _hint_for_missing(service, environ)
            raise NotFound(
                f"no service {shown(service)} in the environment ({shown(variable)[1:-1]}){hint}"
            )
    host = environ[f"{prefix}_HOST"]
    port = _port(service, f"{prefix}_PORT", environ[f"{prefix}_PORT"])
    bind_host = environ.get(f"{prefix}_BIND_HOST", host)
    replicas = tuple(_replicas(service, bind_host, environ))
    return Address(service=service, host=host, port=port, bind_host=bind_host, replicas=replicas)


def _replicas(service: str, bind_host: str, environ: Mapping[str, str]) -> Iterator[Address]:
    variable = addresses_variable(service)
    if not environ.get(variable):
        return
    for index, address in enumerate(environ[variable].split(",")):
        host, _, port = address.rpartition(":")
        number = _port(service, variable, port)
        name = f"{service}-{index}"
        yield Address(service=name, host=host, port=number, bind_host=bind_host)


def _port(service: str, variable: str, port: object) -> int:
    if not isinstance(port, str) or not (port.isascii() and port.isdigit()):
        raise NotFound(
            f"no service {shown(service)} in the environment: {variable} is {port!r}, "
            "which is not a port"
        )
    return int(port)


def _hint_for_missing(service: str, environ: Mapping[str, str]) -> str:
    if "SYMPHONY_EXPERIMENT" not in environ:
        return "; this process was not launched by symphony"
    known = _service_names(environ)
    return did_you_mean(service, known) or f"; the services are: {join_names(known)}"


def _service_names(environ: Mapping[str, str]) -> list[str]:
    """Return the sorted names of the services for which ``environ`` contains variables."""
    suffix = "_BIND_HOST"
    names = []
    for variable in environ:
        if variable.startswith(PREFIX) and variable.endswith(suffix):
            name = variable[len(PREFIX) : -len(suffix)]
            names.append(name.lower().replace("_", "-"))
    return sorted(names)
