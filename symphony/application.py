"""For the programs that symphony launches: the address of a service, as an object.

Standard library only, so that a program needs nothing else to ask.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from symphony.errors import NotFound
from symphony.names import did_you_mean, env_name, join_names
from symphony.plan.addresses import PREFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a service is: connect to ``host:port``, listen on ``bind_host:port``."""

    service: str
    host: str
    port: int
    bind_host: str

    @property
    def tcp(self) -> str:
        """``tcp://host:port``, for a ZeroMQ ``connect``."""
        return f"tcp://{self.host}:{self.port}"

    @property
    def bind_tcp(self) -> str:
        """``tcp://bind_host:port``, for a ZeroMQ ``bind``."""
        return f"tcp://{self.bind_host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def address(service: str, environ: Mapping[str, str] | None = None) -> Address:
    """The address of a service, from the environment that symphony gave this process.

    Raises `NotFound`, naming the services that are there, where there is none of that name, and the variable
    that is missing or wrong.
    """
    environ = os.environ if environ is None else environ
    prefix = PREFIX + env_name(service)
    missing = [
        variable for variable in (f"{prefix}_HOST", f"{prefix}_PORT") if variable not in environ
    ]
    if missing:
        known = _services(environ)
        hint = did_you_mean(service, known) or f"; there are {join_names(known)}"
        if "SYMPHONY_EXPERIMENT" not in environ:
            hint = "; this process was not launched by symphony"
        raise NotFound(f"no service {service!r} in the environment ({missing[0]}){hint}")
    host, port = environ[f"{prefix}_HOST"], environ[f"{prefix}_PORT"]
    if not (port.isascii() and port.isdigit()):
        raise NotFound(
            f"no service {service!r} in the environment: {prefix}_PORT is {port!r}, which is no port"
        )
    return Address(
        service=service,
        host=host,
        port=int(port),
        bind_host=environ.get(f"{prefix}_BIND_HOST", host),
    )


def _services(environ: Mapping[str, str]) -> list[str]:
    ends = "_BIND_HOST"
    names = [
        key[len(PREFIX) : -len(ends)]
        for key in environ
        if key.startswith(PREFIX) and key.endswith(ends)
    ]
    return sorted(name.lower().replace("_", "-") for name in names)
