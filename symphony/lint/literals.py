"""Rules about strings that mean something else on other machines: local addresses and paths."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from symphony.lint.texts import START_DIR, Text, texts
from symphony.model.experiment.component import mount_path_of
from symphony.plan.findings import ERROR, WARNING, finding_of
from symphony.plan.resolution.services import served_services

if TYPE_CHECKING:
    from symphony.model import Experiment, Process, ProcessGroup
    from symphony.plan.findings import Finding

# A network such as 127.0.0.0/8 is not an address.
_LOCAL_ADDRESS = re.compile(
    r"(?<![\w.:-])(?P<host>localhost|127(?:\.\d{1,3}){3}|0\.0\.0\.0|\[::1\]|::1)"
    r"(?![\w.-])(?!(?<=\d)/\d{1,3}(?![\w/.]))(?::(?P<port>\d{1,5})\b)?",
    re.IGNORECASE,
)
ANY_ADDRESS = "0.0.0.0"
# The ways in which a program can use an address.
Purpose = Literal["connect", "listen", "either"]
# The first pattern matches the names of options and variables that hold an address to connect to.
# The second pattern matches the names of those that hold an address to listen on.
_CONNECT_OPTION = re.compile(
    r"connect|master|coordinator|upstream|target|remote|peer|broker|advertise", re.IGNORECASE
)
_LISTEN_OPTION = re.compile(r"bind|listen", re.IGNORECASE)
# The names of options and variables that hold an address for users or other networks.
_OUTSIDE_OPTION = re.compile(r"public|external|advertise|callback|redirect", re.IGNORECASE)
# The scheme and the user information of a URL, which precede its host.
_URL_SCHEME = re.compile(r"([a-z][-+.a-z0-9]*)://(?:[^\s/@]*@)?$", re.IGNORECASE)
_MAX_SCHEME_LENGTH = 80
# A ZeroMQ server can listen on URLs with these schemes. Only clients use URLs with other schemes.
_SOCKET_SCHEMES = ("tcp", "udp")
# An absolute path at the beginning of a word, a value or a list element. A path that begins with
# two slashes is not matched, because it is part of a URL.
_ABSOLUTE_PATH = re.compile(r"(?:^|(?<=[\s=:,;'\"(<>]))(/(?!/)[^\s=:,;'\"()<>|&]*)")
# Directories that exist on most machines and in most images.
_SYSTEM_DIRECTORIES = (
    "/bin",
    "/dev",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/opt",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/tmp",
    "/usr",
    "/var",
)
_PERSONAL_DIRECTORIES = ("/home", "/Users", "/mnt", "/media", "/Volumes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The properties of this machine that the rules use.

    ``home`` is the user's home directory, ``base`` is the directory of the experiment file, and
    ``exists`` returns whether a path exists.
    """

    home: str
    base: str
    exists: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class _Address:
    """A local address in a string. ``scheme`` and ``port`` are empty if the string omits them."""

    scheme: str
    host: str
    port: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.port else self.host


def rules(experiment: Experiment, machine: Machine) -> Iterator[Finding]:
    """Yield a finding for each local address or path in the strings that apply to each process."""
    owners = _owners_of_fixed_ports(experiment)
    bound = {
        name for component in experiment.list_components() for name in component.settings.binds
    }
    for process in experiment.list_all_processes():
        mount_paths = _mount_paths(process)
        for text in texts(experiment, process):
            if text.key != START_DIR:
                yield from _local_addresses(text, process, owners, bound)
            yield from _local_paths(text, process, mount_paths, machine)


# --- addresses ---


def _owners_of_fixed_ports(experiment: Experiment) -> dict[int, tuple[str, str]]:
    """Return a mapping from each fixed port to the names of its service and of the component that
    serves it.
    """
    owners: dict[int, tuple[str, str]] = {}
    for component in experiment.list_components():
        for ports in (component.settings.exposes, component.settings.binds):
            for service, port in ports.items():
                if port is not None:
                    owners[port] = (service, component.name)
    return owners


def _local_addresses(
    text: Text,
    process: Process,
    owners: Mapping[int, tuple[str, str]],
    bound: Collection[str],
) -> Iterator[Finding]:
    components: list[Process | ProcessGroup] = [process]
    if process.group is not None:
        components.append(process.group)
    own_names = {component.name for component in components}
    served = _served_ports(components)
    own = {port: (name, process.name) for name, port in served.items() if port is not None}
    connected = [
        name for component in components for name in component.settings.connects if name in bound
    ]
    for address in _addresses_in(text.content):
        is_server_address = address.host == ANY_ADDRESS and bool(served)
        if is_server_address and not _is_for_clients(text.option):
            # A server can listen on this address on any machine.
            continue
        port = int(address.port or 0)
        service, owner = own.get(port) or owners.get(port, ("", ""))
        is_own = bool(service) and owner in own_names
        # If the process serves only services with fixed ports, and none of them has this port, the
        # port belongs to another process.
        has_other_port = bool(address.port) and not is_own and all(served.values())
        purpose = _purpose(text.option, address.scheme, has_other_port=has_other_port)
        is_foreign_service = bool(service) and not is_own
        is_outside = bool(_OUTSIDE_OPTION.search(text.option))
        yield finding_of(
            process,
            "localhost",
            f"{_describe(text)} contains {address}, {_meaning(address, service, is_own, process)}",
            _address_hint(service, is_own, purpose, list(served), connected),
            path=text.path,
            level=ERROR if is_foreign_service and not is_outside else WARNING,
        )


def _addresses_in(content: str) -> list[_Address]:
    addresses: dict[_Address, None] = {}
    for match in _LOCAL_ADDRESS.finditer(content):
        # Search for the scheme only in a limited number of characters, so that the total time is
        # linear in the length of the string.
        before = content[max(0, match.start() - _MAX_SCHEME_LENGTH) : match.start()]
        scheme = _URL_SCHEME.search(before)
        address = _Address(
            scheme=scheme[1].lower() if scheme else "",
            host=match["host"],
            port=match["port"] or "",
        )
        addresses[address] = None
    return list(addresses)


def _served_ports(components: Sequence[Process | ProcessGroup]) -> dict[str, int | None]:
    """Return a mapping from each service that the components serve to its fixed port or None."""
    served: dict[str, int | None] = {}
    for component in components:
        settings = component.settings
        for name in served_services(component):
            port = settings.binds.get(name) or settings.exposes.get(name)
            served[name] = port or served.get(name)
    return served


def _meaning(address: _Address, service: str, is_own: bool, process: Process) -> str:
    if address.host == ANY_ADDRESS:
        return "which is an address to listen on, not to connect to"
    if service and not is_own:
        return f"but service {service!r} is on another host"
    if process.group is not None:
        return f"where only the processes of its group {process.group.name!r} are reachable"
    return "where only the process itself is reachable"


def _is_for_clients(option: str) -> bool:
    """Return whether an option or a variable holds an address to connect to."""
    return bool(_CONNECT_OPTION.search(option)) and not _LISTEN_OPTION.search(option)


def _purpose(option: str, scheme: str, *, has_other_port: bool) -> Purpose:
    if _LISTEN_OPTION.search(option):
        return "listen"
    if _CONNECT_OPTION.search(option):
        return "connect"
    is_client_url = scheme != "" and scheme not in _SOCKET_SCHEMES
    return "connect" if has_other_port or is_client_url else "either"


def _address_hint(
    service: str, is_own: bool, purpose: Purpose, served: Sequence[str], connected: Sequence[str]
) -> str:
    """Return a hint that explains how to write an address that is valid on every machine.

    If the address belongs to no known service and its purpose is unclear, the hint can cover both
    listening and connecting.
    """
    if service:
        if is_own and purpose != "connect":
            return f"listen on ${{{service}.bind_host}}"
        return f"connect to ${{{service}.addr}}"
    hints: list[str] = []
    if served and purpose != "connect":
        hints.append(f"to listen, use ${{{served[0]}.bind_host}}")
    if purpose != "listen" or not hints:
        if len(connected) == 1:
            hints.append(f"to connect, use ${{{connected[0]}.addr}}")
        elif connected:
            hints.append("to connect, use ${service.addr} with one of the services in connects")
        else:
            hints.append("to connect, add the service to connects and use ${service.addr}")
    return ", or ".join(hints)


# --- paths ---


def _mount_paths(process: Process) -> list[str]:
    volumes = list(process.settings.volumes)
    if process.group is not None:
        volumes += process.group.settings.volumes
    return [mount_path_of(volume) for volume in volumes]


def _local_paths(
    text: Text, process: Process, mount_paths: Sequence[str], machine: Machine
) -> Iterator[Finding]:
    is_one_path = text.key == START_DIR or (text.key == "command" and text.content.startswith("/"))
    paths = [text.content] if is_one_path else _ABSOLUTE_PATH.findall(text.content)
    for path in dict.fromkeys(paths):
        is_mounted = any(_is_below(path, mount_path) for mount_path in mount_paths)
        if not path.startswith("/") or is_mounted or not _is_local(path, machine):
            continue
        yield finding_of(
            process,
            "local-path",
            f"{_describe(text)} contains {path}, a path of this machine",
            "use a path of the image, or mount the files (mount_nfs, mount_pvc, mount_host_path)",
            path=text.path,
            level=WARNING,
        )


def _is_local(path: str, machine: Machine) -> bool:
    """Return whether a path is in one of the user's directories, or exists on this machine but may
    not exist on other machines.
    """
    own_directories = (machine.home, machine.base, *_PERSONAL_DIRECTORIES)
    # Some containers have the home directory `/`, which contains every path and is therefore
    # skipped.
    if any(_is_below(path, own) for own in own_directories if own.strip("/")):
        return True
    if any(_is_below(path, system) for system in _SYSTEM_DIRECTORIES):
        return False
    return posixpath.normpath(path) != "/" and machine.exists(path)


def _is_below(path: str, directory: str) -> bool:
    path, directory = posixpath.normpath(path), posixpath.normpath(directory)
    return path == directory or path.startswith(f"{directory.rstrip('/')}/")


def _describe(text: Text) -> str:
    """Describe a string's origin, for example as ``variable DATA`` or ``a shell line``."""
    if text.key == "env":
        return f"variable {text.option}"
    if text.option:
        return text.option
    return "a shell line" if text.key in ("cmds", "preamble_cmds") else text.key
