"""Rules on words that mean something else on another machine: addresses of this one, and its paths."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from symphony.lint.findings import ERROR, WARNING, Finding
from symphony.lint.texts import START_DIR, Text, texts
from symphony.model import Experiment, Process
from symphony.model.component import SHARED_MEMORY
from symphony.names import env_name
from symphony.plan.topology import topology

_LOCALHOST = re.compile(
    r"(?<![\w.:-])(?P<host>localhost|127(?:\.\d{1,3}){3}|0\.0\.0\.0|\[::1\]|::1)(?![\w.-])(?::(?P<port>\d{1,5})\b)?",
    re.IGNORECASE,
)
ANY = "0.0.0.0"
Purpose = Literal["connect", "listen", "either"]
# An option or variable with one of these in its name says where to connect to, never where to listen.
_CONNECTING = re.compile(
    r"connect|master|coordinator|upstream|target|remote|peer|broker", re.IGNORECASE
)
# The other way round.
_LISTENING = re.compile(r"bind|listen", re.IGNORECASE)
# What stands before the host of a URL, and the schemes of those on which one listens too, as ZeroMQ does.
_SCHEME = re.compile(r"([a-z][-+.a-z0-9]*)://(?:[^\s/@]*@)?$", re.IGNORECASE)
_LONGEST_SCHEME = 80
_OF_SOCKETS = ("tcp", "udp")
# An absolute path, where a word, a value or an element of a list begins; two slashes are those of a URL.
_PATH = re.compile(r"(?:^|(?<=[\s=:,;'\"(<>]))(/(?!/)[^\s=:,;'\"()<>|&]*)")
# What every machine and most images have of their own.
_SYSTEM = ("/bin", "/sbin", "/usr", "/lib", "/lib32", "/lib64", "/etc", "/dev", "/proc", "/sys", "/run", "/var", "/opt",
           "/tmp")  # fmt: skip
# Where people's own files are.
_PERSONAL = ("/home", "/Users", "/mnt", "/media", "/Volumes")

_KEYS = {"cmds": "its shell line"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """This machine: the user's home, the folder of the file, and whether a path is there."""

    home: str
    base: str
    exists: Callable[[str], bool]


def rules(experiment: Experiment, machine: Machine) -> Iterator[Finding]:
    """Words that name this machine or its files, for each process."""
    ports = _ports(experiment)
    bound = {service.name for service in topology(experiment).services if service.bound}
    for process in experiment.list_all_processes():
        mounts = _mounts(process)
        for text in texts(experiment, process):
            if text.key != START_DIR:
                yield from _addresses(text, process, ports, bound)
            yield from _paths(text, process, mounts, machine)


# --- addresses ---


def _ports(experiment: Experiment) -> dict[int, tuple[str, str]]:
    """By port that is fixed, its service and the process or group that serves it."""
    every = [*experiment.list_all_processes(), *experiment.list_process_groups()]
    return {
        port: (name, component.name)
        for component in every
        for given in (component.settings.exposes, component.settings.binds)
        for name, port in given.items()
        if port is not None
    }


def _addresses(
    text: Text, process: Process, ports: Mapping[int, tuple[str, str]], bound: Collection[str]
) -> Iterator[Finding]:
    served, used = _services(process)
    for scheme, host, port in dict.fromkeys(map(_parts, _LOCALHOST.finditer(text.words))):
        if host == ANY and served and not _CONNECTING.search(text.option):
            continue  # who serves something listens there
        literal = f"{host}:{port}" if port else host
        service, owner = ports.get(int(port or 0), ("", ""))
        own = bool(service) and owner in (process.name, process.group.name if process.group else "")
        foreign = bool(port) and not own and all(served.values())
        purpose = _purpose(text.option, scheme, foreign)
        yield Finding(
            rule="localhost",
            level=ERROR if service and not own else WARNING,
            what=f"{_where(text)} names {literal}, {_meaning(host, service, own, process)}",
            mend=_mend(
                service, own, purpose, list(served), [name for name in used if name in bound]
            ),
            place=text.place,
            processes=(process.path,),
        )


def _parts(found: re.Match[str]) -> tuple[str, str, str | None]:
    """The scheme (empty where there is none), the host and the port of an address."""
    before = _SCHEME.search(found.string[max(0, found.start() - _LONGEST_SCHEME) : found.start()])
    return (before[1].lower() if before else "", found["host"], found["port"])


def _services(process: Process) -> tuple[dict[str, int | None], list[str]]:
    """What a process serves, with the ports that are fixed, and what it connects to, with what its group does."""
    parts = [process, process.group] if process.group else [process]
    served: dict[str, int | None] = {}
    for part in parts:
        for given in (part.settings.binds, part.settings.exposes):
            served.update({name: port or served.get(name) for name, port in given.items()})
    used = [name for part in parts for name in part.settings.connects]
    return served, used


def _meaning(host: str, service: str, own: bool, process: Process) -> str:
    if host == ANY:
        return "which is an address to listen on and none to connect to"
    if service and not own:
        return f"but {service!r} is served elsewhere"
    if process.group is not None:
        return f"where only its own group {process.group.name!r} is"
    return "where nobody but itself is"


def _purpose(option: str, scheme: str, foreign: bool) -> Purpose:
    """What an address is there for; ``foreign`` is whether its port is one that no service of the process has."""
    if _CONNECTING.search(option):
        return "connect"
    if _LISTENING.search(option):
        return "listen"
    return "connect" if foreign or (scheme and scheme not in _OF_SOCKETS) else "either"


def _mend(
    service: str, own: bool, purpose: Purpose, served: Sequence[str], used: Sequence[str]
) -> str:
    """How to say the same so that it holds elsewhere. Of an address that may be meant either way both are told."""
    if service:
        variable = _variable(service)
        return (
            f"listen on ${variable}_BIND_HOST"
            if own and purpose != "connect"
            else f"connect to ${variable}_ADDR"
        )
    listening = (
        "" if purpose == "connect" or not served else f"listen on ${_variable(served[0])}_BIND_HOST"
    )
    if listening and purpose == "listen":
        return listening
    before = f"{listening}, or, to connect, " if listening else ""
    if used:
        return f"{before}{'use' if before else 'connect to'} ${_variable(used[0])}_ADDR"
    return f"{before}let it connect to the service it needs, and use that one's SYMPH_<NAME>_ADDR"


def _variable(service: str) -> str:
    return f"SYMPH_{env_name(service)}"


# --- paths ---


def _mounts(process: Process) -> list[str]:
    """Where volumes are mounted for a process."""
    volumes = [
        *process.settings.volumes,
        *(process.group.settings.volumes if process.group else ()),
    ]
    return [
        str(details.get("mount_path", SHARED_MEMORY))
        for volume in volumes
        for details in volume.values()
    ]


def _paths(
    text: Text, process: Process, mounts: Sequence[str], machine: Machine
) -> Iterator[Finding]:
    whole = text.key == START_DIR or (text.key == "command" and text.words.startswith("/"))
    found = [text.words] if whole else _PATH.findall(text.words)
    for path in dict.fromkeys(found):
        if (
            not path.startswith("/")
            or any(_below(path, mount) for mount in mounts)
            or not _is_local(path, machine)
        ):
            continue
        mend = "name a path of the image, or mount the files there (mount_nfs, mount_pvc, mount_host_path)"
        yield Finding(
            rule="local-path",
            level=WARNING,
            what=f"{_where(text)} names {path}, a path of this machine",
            mend=mend,
            place=text.place,
            processes=(process.path,),
        )


def _is_local(path: str, machine: Machine) -> bool:
    """Whether a path is of this machine: somebody's own, or one that is here and not everywhere."""
    if any(_below(path, own) for own in (machine.home, machine.base, *_PERSONAL) if own.strip("/")):
        return True
    if any(_below(path, system) for system in _SYSTEM):
        return False
    return posixpath.normpath(path) != "/" and machine.exists(path)


def _below(path: str, folder: str) -> bool:
    path, folder = posixpath.normpath(path), posixpath.normpath(folder)
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _where(text: Text) -> str:
    """What names it: ``start_dir``, ``variable DATA``, ``--data``, ``its shell line``."""
    if text.key == "env":
        return f"variable {text.option}"
    return text.option or _KEYS.get(text.key, text.key)
