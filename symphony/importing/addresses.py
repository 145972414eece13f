"""The services of an imported experiment, and the addresses that replace host names."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from symphony.importing import service_images
from symphony.importing.host_names import HostNames, Replaced, Service
from symphony.importing.interpolation import escaped
from symphony.importing.procfile import port_in_line
from symphony.importing.result import Imported
from symphony.model.document.other_formats.known_keys import service_names
from symphony.support.hidden_values import shown_value

# The condition of a dependency on a program that has exited.
_COMPLETED = "service_completed_successfully"


@dataclass(kw_only=True)
class Process:
    """A service of the compose file and the process for it.

    ``host`` is the name of the service in the compose file, and ``name`` that of the process.
    ``profile`` is the parameter that switches the process on, if there is one. ``env_files``
    contains the variables in its env files, by the path of the file. ``image_ports`` are the ports
    of its image, which apply if the compose file contains no port of the service.
    """

    host: str
    name: str
    given: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    profile: str | None = None
    env_files: dict[str, dict[str, str]] = field(default_factory=dict)
    image_ports: tuple[int, ...] = ()

    @property
    def where(self) -> str:
        """The place of the service in the compose file."""
        return f"services.{self.host}"

    def aliases(self) -> list[str]:
        """Return the further host names that all services can use."""
        names = [self.given.get("container_name"), self.given.get("hostname")]
        networks = self.given.get("networks")
        for network in networks.values() if isinstance(networks, Mapping) else ():
            aliases = network.get("aliases") if isinstance(network, Mapping) else None
            names += aliases if isinstance(aliases, list) else []
        return [str(name) for name in names if name]

    def links(self) -> dict[str, str]:
        """Return the host names that only this service can use, and the services they stand for."""
        result: dict[str, str] = {}
        links = self.given.get("links")
        for link in links if isinstance(links, list) else ():
            host, _, alias = str(link).partition(":")
            result[alias or host] = host
        return result

    def servers(self) -> list[str]:
        """Return the services that run while this one runs, because it depends on them."""
        value = self.given.get("depends_on")
        conditions = value if isinstance(value, Mapping) else dict.fromkeys(value or ())
        names = [
            str(name)
            for name, item in conditions.items()
            if not isinstance(item, Mapping) or item.get("condition") != _COMPLETED
        ]
        return list(dict.fromkeys([*names, *self.links().values()]))

    def needed(self) -> list[str]:
        """Return the services that must run first because the service uses parts of them."""
        names = list(self.links().values())
        for key in ("network_mode", "ipc", "pid"):
            kind, _, host = str(self.given.get(key) or "").partition(":")
            names += [host] if kind == "service" else []
        volumes = self.given.get("volumes_from")
        for item in volumes if isinstance(volumes, list) else ():
            if not str(item).startswith("container:"):
                names.append(str(item).partition(":")[0])
        return names


def connect(processes: Sequence[Process], imported: Imported) -> None:
    """Declare the services of processes, and replace their host names by their addresses."""
    services = _services(processes)
    every = dict(services)
    for item in processes:
        for alias in item.aliases():
            every.setdefault(alias, services[item.host])
    mentioned = HostNames(every).ports(text for item in processes for text in _texts(item))
    for process in processes:
        service = services[process.host]
        mentioned_port = mentioned.get(process.host)
        ports = _ports_of_program(process) if mentioned_port is None else (mentioned_port,)
        if not service.ports:
            service.ports = service_names(process.name, ports)
    _report_parameters(HostNames(every), imported)
    used: set[str] = set()
    for process in processes:
        linked = {
            name: services[host] for name, host in process.links().items() if host in services
        }
        used |= _Addresses(process, HostNames(ChainMap(linked, every)), imported).replace()
    if len(processes) > 1:
        for process in processes:
            used |= _assumed(process, services[process.host], used, imported)
    for process in processes:
        _bind(process, services[process.host], used)
    _connect_to_servers(processes, imported)


def _ports_of_program(process: Process) -> tuple[int, ...]:
    """Return the port in the command of a process, if it is a server, or those of its image."""
    words = [*process.settings.get("command", ()), *process.settings.get("args", ())]
    port = port_in_line(" ".join(["", *words]))
    if port is None or not process.image_ports or service_images.has_client(words):
        return process.image_ports
    return (port,)


def _assumed(process: Process, service: Service, used: set[str], imported: Imported) -> set[str]:
    """Return the services of a process whose ports are those of its image.

    Programs and their configuration files can contain its name, which is a host name on Kubernetes
    only if there is a service.
    """
    settings = process.settings
    is_declared = "binds" in settings or "exposes" in settings
    if is_declared or not service.ports.keys().isdisjoint(used):
        return set()
    if service_images.has_client([*settings.get("command", ()), *settings.get("args", ())]):
        return set()
    if service.ports:
        ports = " and ".join(map(str, service.ports.values()))
        problem = f"no port is given, and it binds {ports}, as its command or its image suggests"
        imported.omit(process.where, problem, "correct binds if it has another port")
    return set(service.ports)


def _connect_to_servers(processes: Sequence[Process], imported: Imported) -> None:
    """Let each process connect to the services of the processes on which it depends."""
    by_host = {process.host: process for process in processes}
    without_port: dict[str, Process] = {}
    for process in processes:
        for server in [by_host[host] for host in process.servers() if host in by_host]:
            binds, exposes = server.settings.get("binds", {}), server.settings.get("exposes", {})
            if not binds and not exposes:
                without_port[server.host] = server
            connects = process.settings.get("connects", [])
            added = [name for name in binds if name not in (*exposes, *connects)]
            if added and server.profile is None:
                process.settings["connects"] = [*connects, *added]
    for server in without_port.values():
        imported.omit(
            server.where,
            "its port is not known, without which its name is not a host name on Kubernetes",
            f"add binds: {{{server.name}: PORT}} if other processes connect to it",
        )


def _report_parameters(hosts: HostNames, imported: Imported) -> None:
    """Report the parameters whose defaults contain host names."""
    for name, default in imported.document.get("parameters", {}).items():
        replaced = hosts.variable(name, default or "")
        found = [*replaced.connects, *replaced.unknown]
        if found:
            is_service = all(item in (default or "") for item in found)
            places = {hosts.places(item) for item in found} if is_service else {"in compose"}
            imported.omit(
                f"${{{name}}}",
                f"the default of parameter {name} contains a host name, which exists only "
                f"{min(places)}",
                "write ${SERVICE.host} or ${SERVICE.addr} instead of the parameter",
            )


def _services(processes: Iterable[Process]) -> dict[str, Service]:
    return {
        process.host: Service(
            host=process.host,
            ports={**process.settings.get("exposes", {}), **process.settings.get("binds", {})},
            can_be_off=process.profile is not None,
        )
        for process in processes
    }


def _bind(process: Process, service: Service, used: set[str]) -> None:
    """Let a process bind its services to which values refer."""
    for name, port in service.ports.items():
        if name in used:
            process.settings.setdefault("binds", {}).setdefault(name, port)


def _texts(process: Process) -> list[str]:
    settings = process.settings
    values = settings.get("env", {}).values()
    in_files = [value for file in process.env_files.values() for value in file.values()]
    words = [*settings.get("command", ()), *settings.get("args", ())]
    test = settings.get("ready", {}).get("command", ())
    return [*map(str, values), *in_files, *words, *test]


class _Addresses:
    """The replacement of the host names in the settings of one process."""

    def __init__(self, process: Process, hosts: HostNames, imported: Imported) -> None:
        self._process = process
        self._hosts = hosts
        self._imported = imported
        # A dictionary keeps the order in which the services occur.
        self._used: dict[str, None] = {}

    def replace(self) -> set[str]:
        """Replace the host names, and return the names of the services that replace them."""
        settings = self._process.settings
        env = settings.get("env", {})
        for key, value in env.items():
            env[key] = self._use(self._hosts.variable(key, str(value)), f"environment.{key}")
        self._copy_from_env_files()
        key_of_command = "entrypoint" if "command" in settings else "command"
        for key in ("command", "args"):
            if key in settings:
                where = "command" if key == "args" else key_of_command
                settings[key] = self._words(settings[key], where)
        for test in ("ready", "healthy"):
            command = settings.get(test, {}).get("command")
            if isinstance(command, list):
                settings[test]["command"] = self._words(command, "healthcheck")
        own = {self._process.name, *settings.get("binds", {}), *settings.get("exposes", {})}
        others = [name for name in self._used if name not in own]
        if others:
            settings["connects"] = others
        return set(self._used)

    def _copy_from_env_files(self) -> None:
        """Set the variables of env files whose values contain host names, with addresses in them.

        A value that can contain a password is not copied, because the env file is often private.
        """
        has_parameters = bool(self._imported.document.get("parameters"))
        given = self._process.settings.get("env", {})
        # A variable that several files set has the value of the last file.
        sources: dict[str, tuple[str, str]] = {}
        for path, values in self._process.env_files.items():
            sources.update({key: (path, value) for key, value in values.items()})
        for key, (path, value) in sources.items():
            text = escaped(value, has_parameters=has_parameters)
            replaced = self._hosts.variable(key, text)
            has_host = replaced.text != text or bool(replaced.unknown)
            if key in given or not has_host:
                continue
            problem = f"the value of {key} in {path} contains a host name"
            fix = f"set {key} in env, and write ${{SERVICE.host}} or ${{SERVICE.addr}}"
            if not replaced.unknown and shown_value(key, value) == value:
                env = self._process.settings.setdefault("env", {})
                env[key] = self._use(replaced, "env_file")
                fix = f"env sets {key} with the address; change it there"
            else:
                problem += ", which exists only in compose"
            self._imported.omit(f"{self._process.where}.env_file", problem, fix)

    def _words(self, words: Sequence[str], where: str) -> list[str]:
        result: list[str] = []
        for index, word in enumerate(words):
            previous = words[index - 1] if index else ""
            result.append(self._use(self._hosts.word(previous, word), where))
        return result

    def _use(self, replaced: Replaced, where: str) -> str:
        self._used.update(dict.fromkeys(replaced.connects))
        for host in dict.fromkeys(replaced.unknown):
            self._imported.omit(
                f"{self._process.where}.{where}",
                f"the value contains the host name {host!r}, which exists only "
                f"{self._hosts.places(host)}",
                f"write ${{SERVICE.host}} with a service that the process of {host!r} binds",
            )
        return replaced.text
