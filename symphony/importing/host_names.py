"""The names of services in compose files, which are host names there.

In an experiment, a process refers to the addresses of services, as in ``${redis.addr}``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# The host in a value such as redis://user@redis:6379/0, or at the beginning of a value.
_HOST = r"(?:(?<=//)|(?<=@)|(?<=,)|(?<![^\s=]))"
_NAME = r"([\w.-]+)"
# A port is a number, or a reference to a parameter.
_PORT = r"(\d+|\$\{\w+(?::-\d*)?\})"
_HOST_VARIABLE = re.compile(r"HOST|SERVER|ADDR|ENDPOINT|URL|BROKER|NODE", re.IGNORECASE)
_OTHER_VARIABLE = re.compile(
    r"NAME|DATABASE|DB|USER|PASS|SCHEMA|TITLE|ROLE|TYPE|TOPIC|QUEUE|PROJECT|APP|ENGINE|DRIVER",
    re.IGNORECASE,
)
_HOST_OPTION = re.compile(r"-h|--?[-a-z]*(host|server|addr|address|url|endpoint)")


@dataclass(kw_only=True)
class Service:
    """The services of a process, which stands for a service of a compose file.

    ``ports`` maps the names of the services to their ports. The first one is used if a value
    contains only a host name. ``field`` is the field of a reference to an address. If the process
    can be switched off, it is ``addrs``, which is then empty.
    """

    host: str
    ports: Mapping[str, int | str | None]
    can_be_off: bool = False

    def name_of(self, port: str) -> str | None:
        """Return the name of the service with a port, or None if there is none."""
        return next((name for name, item in self.ports.items() if str(item) == port), None)


@dataclass
class Replaced:
    """A text in which addresses replace host names.

    ``connects`` contains the names of the services to which the text refers. ``unknown`` contains
    the host names that were not replaced.
    """

    text: str
    connects: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


# The patterns match any host name. A pattern with the names of all services would take too long if
# there are many.
_WITH_PORT = re.compile(rf"{_HOST}{_NAME}:{_PORT}(?![\w.])")
_IN_URL = re.compile(rf"(?:(?<=//)|(?<=@)){_NAME}(?=[/?#,]|$)()")


class HostNames:
    """The services of an experiment by their host names. A service can have several host names."""

    def __init__(self, services: Mapping[str, Service]) -> None:
        self._services = services

    def places(self, host: str) -> str:
        """Return where a name is a host name. On Kubernetes, it is the name of a service."""
        service = self._services.get(host)
        is_service = service is not None and host == service.host and host in service.ports
        return "in compose and on Kubernetes" if is_service else "in compose"

    def ports(self, texts: Iterable[str]) -> dict[str, int]:
        """Return the ports with which texts mention hosts, by the names in the compose file."""
        found: dict[str, int] = {}
        for text in texts:
            for match in self._matches(_WITH_PORT, text):
                digits = re.search(r"\d+", match[2].partition(":-")[2] or match[2])
                if digits is not None:
                    found.setdefault(self._services[match[1]].host, int(digits[0]))
        return found

    def variable(self, key: str, value: str) -> Replaced:
        """Return the value of a variable in which addresses replace host names."""
        if value not in self._services:
            return self._replaced(value)
        if _HOST_VARIABLE.search(key):
            return self._alone(value)
        unknown = [] if _OTHER_VARIABLE.search(key) else [value]
        return Replaced(value, unknown=unknown)

    def word(self, previous: str, word: str) -> Replaced:
        """Return a word of a command in which addresses replace host names."""
        if word in self._services and _HOST_OPTION.fullmatch(previous):
            return self._alone(word)
        return self._replaced(word)

    def _alone(self, host: str) -> Replaced:
        service = self._services[host]
        name = next(iter(service.ports), None)
        if name is None or service.can_be_off:
            return Replaced(host, unknown=[host])
        return Replaced(f"${{{name}.host}}", [name])

    def _replaced(self, text: str) -> Replaced:
        result = Replaced("")
        end = 0
        matches = [*self._matches(_WITH_PORT, text), *self._matches(_IN_URL, text)]
        for match in sorted(matches, key=lambda item: item.start()):
            found = self._address(match[1], match[2])
            result.connects += found.connects
            result.unknown += found.unknown
            result.text += text[end : match.start()] + found.text
            end = match.end()
        result.text += text[end:]
        return result

    def _matches(self, pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
        """Return the matches of a pattern that contain the host name of a service."""
        return [match for match in pattern.finditer(text) if match[1] in self._services]

    def _address(self, host: str, port: str) -> Replaced:
        service = self._services[host]
        name = service.name_of(port) if port else None
        if name is not None:
            field = "addrs" if service.can_be_off else "addr"
            return Replaced(f"${{{name}.{field}}}", [name])
        found = self._alone(host)
        return Replaced(
            f"{found.text}:{port}" if port else found.text, found.connects, found.unknown
        )
