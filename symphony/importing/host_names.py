"""The names of services in compose files, which are host names there.

In an experiment, a process receives the addresses of services in variables. A value that contains
the host name of a service therefore becomes a shell line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from symphony.names import service_env_name

# The host in a value such as redis://user@redis:6379/0, or at the beginning of a value.
_HOST = r"(?:(?<=//)|(?<=@)|(?<=,)|(?<![^\s=]))"
_HOST_VARIABLE = re.compile(r"HOST|SERVER|ADDR|ENDPOINT|URL", re.IGNORECASE)
_HOST_OPTION = re.compile(r"-h|--?[-a-z]*(host|server|addr|address|url|endpoint)")


@dataclass(kw_only=True)
class Service:
    """A service of an experiment that stands for the host name of a service of a compose file.

    ``port`` is None if the port is not known.
    """

    host: str
    name: str
    port: int | str | None


@dataclass
class Line:
    """A text for a shell, and the services whose addresses it contains."""

    text: str
    services: list[Service] = field(default_factory=list)


class HostNames:
    """The services of an experiment by their host names."""

    def __init__(self, services: Iterable[Service]) -> None:
        self._services = {service.host: service for service in services}
        hosts = sorted(map(re.escape, self._services), key=len, reverse=True)
        names = "|".join(hosts) or r"(?!)"
        self._with_port = re.compile(rf"{_HOST}({names}):(\d+)(?![\w.])")
        self._in_url = re.compile(rf"(?:(?<=//)|(?<=@))({names})(?=[/?#,]|$)()")

    def ports(self, texts: Iterable[str]) -> dict[str, int]:
        """Return the ports with which texts mention hosts, by host."""
        found: dict[str, int] = {}
        for text in texts:
            for match in self._with_port.finditer(text):
                found.setdefault(match[1], int(match[2]))
        return found

    def variable(self, key: str, value: str) -> Line | None:
        """Return a shell line that sets a variable, or None if its value contains no host."""
        is_host = value in self._services and _HOST_VARIABLE.search(key) is not None
        line = self._host_alone(value) if is_host else self._quoted(value)
        return line and Line(f"export {key}={line.text}", line.services)

    def command(self, words: Sequence[str]) -> Line | None:
        """Return a shell line that runs a command, or None if the command contains no host."""
        lines: list[Line] = []
        is_changed = False
        for index, word in enumerate(words):
            previous = words[index - 1] if index else ""
            is_host = word in self._services and _HOST_OPTION.fullmatch(previous) is not None
            line = self._host_alone(word) if is_host else self._quoted(word)
            is_changed = is_changed or line is not None
            lines.append(line or Line(shlex.quote(word)))
        if not is_changed:
            return None
        services = [service for line in lines for service in line.services]
        return Line(f"exec {' '.join(line.text for line in lines)}", services)

    def _host_alone(self, host: str) -> Line:
        service = self._services[host]
        return Line(f'"{_variable(service, "HOST")}"', [service])

    def _quoted(self, text: str) -> Line | None:
        """Return a text in double quotes with the variables of hosts, or None if there is none."""
        services: list[Service] = []
        parts: list[str] = []
        end = 0
        matches = [*self._with_port.finditer(text), *self._in_url.finditer(text)]
        for match in sorted(matches, key=lambda item: item.start()):
            service = self._services[match[1]]
            services.append(service)
            parts.append(_in_double_quotes(text[end : match.start()]))
            if match[2] and str(service.port) == match[2]:
                parts.append(_variable(service, "ADDR"))
            else:
                port = f":{match[2]}" if match[2] else ""
                parts.append(_variable(service, "HOST") + port)
            end = match.end()
        if not services:
            return None
        parts.append(_in_double_quotes(text[end:]))
        return Line(f'"{"".join(parts)}"', services)


def _variable(service: Service, kind: str) -> str:
    return f"${{SYMPH_{service_env_name(service.name)}_{kind}}}"


def _in_double_quotes(text: str) -> str:
    """Return a text as it is written in double quotes. References to parameters are unchanged."""
    return re.sub(r'(["`\\]|\$(?!\{))', r"\\\1", text)
