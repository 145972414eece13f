"""From an experiment to a plan: everything decided, nothing rendered, frozen.

Resolving checks what only the whole can show: that services meet, that no two share a port, that the start
order has no cycle. It does no IO but what the address scheme does to learn which ports are free.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from symphony.errors import SpecError
from symphony.model import Experiment, Process, ProcessGroup
from symphony.model.component import refuse_shared_mounts
from symphony.model.settings import CONTAINER, Settings
from symphony.model.validators import DEFAULT_PORTS
from symphony.names import did_you_mean, join_names
from symphony.plan import encryption_keys
from symphony.plan.addresses import AddressBook, AddressScheme, ServiceRequest, book


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a cluster gives to all its experiments, below their own settings.

    ``resource_request`` is, by resource, for processes that neither request nor limit that resource.
    """

    preamble_cmds: tuple[str, ...] = ()
    start_dir: str | None = None
    resource_request: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedProcess:
    """A process with everything that holds for it.

    ``command`` and ``args`` or else ``cmds`` say what runs. ``env`` has the user's variables alone, see
    `Plan.environment`. ``start_dir`` joins those of cluster, experiment,
    group and process, and is absolute or relative to the experiment's base. ``settings`` are the process's own
    over those of its group that reach every member; ``pod`` are those of its group, or its own without one.
    ``starts_after`` has, by process, the condition to wait for. ``keys`` are the variables that hold keys of
    encrypted services.
    """

    name: str
    group: str | None
    container_image: str | None
    command: tuple[str, ...] | None
    args: tuple[str, ...]
    cmds: tuple[str, ...] | None
    preamble_cmds: tuple[str, ...]
    start_dir: str | None
    env: dict[str, str]
    settings: Settings
    pod: Settings
    starts_after: dict[str, str]
    keys: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """``group/process``, or ``process`` where it is in no group."""
        return f"{self.group}/{self.name}" if self.group else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An experiment, resolved for one backend.

    ``secrets`` has a path by file name, ``shared_env`` the variables that are the same for every process. Some
    processes have ``keys`` of encrypted services, which a launch makes; they are in no plan.
    ``base_dir`` is where relative paths begin; it is no part of what the plan says.
    """

    experiment: str
    backend: str
    processes: tuple[PlannedProcess, ...]
    addresses: AddressBook
    shared_env: dict[str, str]
    secrets: dict[str, str]
    base_dir: Path | None = field(default=None, compare=False)

    def __iter__(self) -> Iterator[PlannedProcess]:
        return iter(self.processes)

    def environment(self, process: PlannedProcess) -> dict[str, str]:
        """What a process gets on top of the backend's own environment, addresses over the user's variables."""
        identity = {"SYMPHONY_ROLE": process.name, "SYMPHONY_GROUP": process.group or ""}
        return {**process.env, **self.shared_env, **identity}

    def env_secrets(self, process: PlannedProcess) -> dict[str, str]:
        """The variables of a process that hold a secret, by name, and whose file that is."""
        given = process.settings.env_secrets
        return (
            {key: secret for key, secret in given.items() if key not in self.shared_env}
            if given
            else given
        )

    @property
    def key_variables(self) -> tuple[str, ...]:
        """The variables of all keys that a launch has to make."""
        return tuple(dict.fromkeys(key for process in self.processes for key in process.keys))

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON knows it."""
        data = asdict(self)
        del data["base_dir"]
        return data


def resolve(
    experiment: Experiment, scheme: AddressScheme, defaults: Defaults | None = None
) -> Plan:
    """Decide everything about ``experiment`` on a backend, or raise `SpecError` before anything is done.

    The experiment is only read: changing it afterwards does not change the plan.
    """
    if not experiment.list_all_processes():
        raise SpecError(f"experiment {experiment.name!r} has no processes")
    for group in experiment.list_process_groups():
        if not group.list_processes():
            raise SpecError(f"group {group.name!r} has no processes")
    requests = service_requests(experiment)
    _check_connects(experiment, requests)
    _check_ready(experiment)
    order = start_order(experiment)
    encrypted = encrypted_services(experiment)
    addresses = book(requests.values(), scheme, experiment.port_range or DEFAULT_PORTS)
    outer = defaults or Defaults()
    return Plan(
        experiment=experiment.name,
        backend=scheme.backend,
        processes=tuple(
            _planned(experiment, process, outer, order[process.name], encrypted)
            for process in experiment.list_all_processes()
        ),
        addresses=addresses,
        shared_env={
            **addresses.environment(),
            **{encryption_keys.variable(name): encryption_keys.CURVE for name in encrypted},
            "SYMPHONY_EXPERIMENT": experiment.name,
            "SYMPHONY_BACKEND": scheme.backend,
        },
        secrets=dict(experiment.secrets),
        base_dir=experiment.base_dir,
    )


def _planned(
    experiment: Experiment,
    process: Process,
    outer: Defaults,
    after: dict[str, str],
    encrypted: Collection[str],
) -> PlannedProcess:
    group = process.group
    pod = (group or process).settings.at_level("pod")
    below = group.settings.at_level(CONTAINER) if group else Settings()
    settings = below.under(process.settings)
    settings.resource_request = {
        **_unsaid(outer.resource_request, settings),
        **settings.resource_request,
    }
    refuse_shared_mounts(process.path, settings.volumes)
    _check_env_secrets(process.path, settings, experiment.secrets)
    return PlannedProcess(
        name=process.name,
        group=group.name if group else None,
        container_image=process.container_image,
        command=None if process.command is None else tuple(process.command),
        args=tuple(process.args or ()),
        cmds=None if process.cmds is None else tuple(process.cmds),
        preamble_cmds=(
            *outer.preamble_cmds,
            *experiment.preamble_cmds,
            *(group.preamble_cmds if group else ()),
            *process.preamble_cmds,
        ),
        start_dir=_joined(
            outer.start_dir,
            experiment.start_dir,
            group.start_dir if group else None,
            process.start_dir,
        ),
        env={**_without(experiment.env, settings.env_secrets), **settings.env},
        settings=settings,
        pod=pod,
        starts_after=after,
        keys=_keys(experiment, process, settings, encrypted),
    )


def _keys(
    experiment: Experiment, process: Process, settings: Settings, encrypted: Collection[str]
) -> tuple[str, ...]:
    """The variables with keys that a process gets, by what it or its group does with encrypted services."""
    group = process.group
    binds = {*settings.binds, *(group.settings.binds if group else ())}
    found: tuple[str, ...]
    if not binds.isdisjoint(encrypted):
        found = encryption_keys.OF_SERVERS
    elif not set(settings.connects).isdisjoint(encrypted):
        found = encryption_keys.OF_CLIENTS
    else:
        return ()
    for key in found:
        if any(
            key in taken
            for taken in (settings.env, settings.env_secrets, experiment.env, experiment.secrets)
        ):
            raise SpecError(
                f"{process.path!r} gets a key in the variable {key!r}: leave that name to symphony"
            )
    return found


def _unsaid(requests: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """The requests for what the settings do not limit: a limit is a request too, and may be lower than these."""
    return {key: value for key, value in requests.items() if key not in settings.resource_limit}


def _check_env_secrets(who: str, settings: Settings, secrets: Mapping[str, str]) -> None:
    for key, secret in settings.env_secrets.items():
        if secret not in secrets:
            hint = did_you_mean(secret, secrets) or f"; its secrets are {join_names(secrets)}"
            raise SpecError(
                f"{who!r} has the variable {key!r} from the secret {secret!r}, which is not there{hint}"
            )
        if key in settings.env:
            raise SpecError(
                f"{who!r} has the variable {key!r} twice, from its env and from the secret {secret!r}"
            )


def _without(env: Mapping[str, str], keys: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in env.items() if key not in keys}


def secret_text(name: str, content: bytes) -> str:
    """The content of a secret as a variable can hold it. `SpecError` without the content where it cannot."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise SpecError(
            f"secret {name!r} cannot be a variable: it is no UTF-8 text; read it from SYMPHONY_SECRETS_DIR"
        )
    return text


def shell_line(cmds: Sequence[str]) -> str:
    """Shell lines as one, each run if those before it succeeded; a comment ends with its own line."""
    return cmds[0] if len(cmds) == 1 else " && ".join(f"{{ {line}\n}}" for line in cmds)


def argv(process: PlannedProcess, shell: str, *, first: Sequence[str] = ()) -> list[str]:
    """What runs a process: its own command where that is enough, else ``shell`` with its lines.

    ``first`` are shell lines that run before its preamble. Empty where it has neither command nor shell lines.
    """
    before = [
        f"{{ {line}\n}} || exit" for line in (*first, *process.preamble_cmds)
    ]  # one that fails ends the shell
    if process.cmds is not None:
        return [shell, "-c", "\n".join([*before, shell_line(process.cmds)])]
    if not process.command:
        return []
    command = [*process.command, *process.args]
    return [shell, "-c", "\n".join([*before, 'exec "$@"']), shell, *command] if before else command


def _joined(*folders: str | None) -> str | None:
    given = [folder for folder in folders if folder]
    return posixpath.join(*given) if given else None


# --- services ---


def service_requests(experiment: Experiment) -> dict[str, ServiceRequest]:
    """The services that are bound or exposed, in declaration order, each served by one process or group."""
    found: dict[str, ServiceRequest] = {}
    for component in _components(experiment):
        settings = component.settings
        for name in dict.fromkeys([*settings.binds, *settings.exposes]):
            ports = {given.get(name) for given in (settings.binds, settings.exposes)} - {None}
            if len(ports) > 1:
                raise SpecError(
                    f"{component.name!r} binds and exposes {name!r} on two ports: {_both(ports)}; give it one"
                )
            other = found.get(name)
            if other is not None:
                raise SpecError(
                    f"service {name!r} is bound by two processes, {other.owner!r} and {component.name!r}; "
                    "one of them serves it, the others connect"
                )
            found[name] = ServiceRequest(
                name=name,
                owner=component.name,
                port=next(iter(ports), None),
                exposed=name in settings.exposes,
            )
    return found


def _both(ports: set[int | None]) -> str:
    return " and ".join(str(port) for port in sorted(port for port in ports if port))


def _components(experiment: Experiment) -> Iterator[Process | ProcessGroup]:
    for member in experiment.list_members():
        yield member
        if isinstance(member, ProcessGroup):
            yield from member.list_processes()


def _check_connects(experiment: Experiment, requests: dict[str, ServiceRequest]) -> None:
    bound = [name for component in _components(experiment) for name in component.settings.binds]
    for component in _components(experiment):
        for name in component.settings.connects:
            if name in bound:
                continue
            if name in requests:
                owner = requests[name].owner
                raise SpecError(
                    f"{component.name!r} connects to {name!r}, which {owner!r} exposes but does not bind; "
                    f"let {owner!r} bind it too"
                )
            hint = did_you_mean(name, bound) or f"; bound are {join_names(bound)}"
            raise SpecError(
                f"{component.name!r} connects to {name!r}, which no process binds{hint}"
            )


def _check_ready(experiment: Experiment) -> None:
    for process in experiment.list_all_processes():
        components = [process, process.group] if process.group else [process]
        ready = (
            process.settings.ready
            or (process.group.settings.ready if process.group else None)
            or {}
        )
        service = ready.get("tcp") or ready.get("http", [None])[0]
        own = [
            name for part in components for name in (*part.settings.binds, *part.settings.exposes)
        ]
        if service is not None and service not in own:
            hint = did_you_mean(service, own) or f"; its own are {join_names(own)}"
            raise SpecError(
                f"{process.name!r} is ready when {service!r} answers, which is not its own{hint}"
            )


def encrypted_services(experiment: Experiment) -> tuple[str, ...]:
    """The services that are encrypted, each by who binds it. Raises `SpecError` for another's."""
    found: list[str] = []
    for component in _components(experiment):
        settings = component.settings
        for name in settings.encrypted:
            if name not in settings.binds:
                hint = (
                    did_you_mean(name, settings.binds) or f"; it binds {join_names(settings.binds)}"
                )
                raise SpecError(
                    f"{component.name!r} encrypts {name!r}, which it does not bind{hint}"
                )
            found.append(name)
    return tuple(found)


# --- start order ---


def start_order(experiment: Experiment) -> dict[str, dict[str, str]]:
    """By process, what it waits for: ``{process: condition}``, with groups spelled out.

    Names that are not there, a wait for oneself or within one group, and a cycle raise `SpecError`.
    """
    every = {process.name: process for process in experiment.list_all_processes()}
    groups = {group.name: group for group in experiment.list_process_groups()}
    waits: dict[str, dict[str, str]] = {name: {} for name in every}
    for member in experiment.list_members():
        waiting = member.list_processes() if isinstance(member, ProcessGroup) else [member]
        own = {process.name for process in waiting} | {member.name}
        for name, condition in member.settings.starts_after.items():
            if name not in every and name not in groups:
                hint = did_you_mean(name, [*every, *groups])
                raise SpecError(
                    f"{member.name!r} starts after {name!r}, which is not in the experiment{hint}"
                )
            if name in own:
                raise SpecError(f"{member.name!r} starts after {name!r}: it cannot wait for itself")
            awaited = groups[name].list_processes() if name in groups else [every[name]]
            for process in waiting:
                waits[process.name].update({other.name: condition for other in awaited})
    _refuse_cycle(waits)
    return waits


def _refuse_cycle(waits: dict[str, dict[str, str]]) -> None:
    done: set[str] = set()
    for start in waits:
        trail: list[str] = []
        stack = [(start, iter(waits[start]))]
        while stack:
            name, rest = stack[-1]
            if len(trail) < len(stack):
                trail.append(name)
            step = next(rest, None)
            if step is None:
                done.add(name)
                stack.pop()
                trail.pop()
            elif step in trail:
                cycle = [*trail[trail.index(step) :], step]
                raise SpecError(
                    f"the start order is a cycle: {' waits for '.join(map(repr, cycle))}; break it"
                )
            elif step not in done:
                stack.append((step, iter(waits[step])))


# --- what a backend leaves out ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """A setting that a backend keeps but cannot honour, and the processes that have it."""

    setting: str
    processes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.setting} ({join_names(self.processes, limit=4)})"


def ignored_settings(plan: Plan, honoured: frozenset[str]) -> tuple[Ignored, ...]:
    """The settings of ``plan`` that are not among ``honoured`` (``"env"``, ``"resource_limit.gpu"``)."""
    found: dict[str, list[str]] = {}
    for process in plan:
        for setting in _setting_names(process):
            if setting not in honoured and setting.partition(".")[0] not in honoured:
                found.setdefault(setting, []).append(process.path)
    return tuple(Ignored(setting=key, processes=tuple(paths)) for key, paths in found.items())


def _setting_names(process: PlannedProcess) -> Iterator[str]:
    if process.container_image:
        yield "container_image"
    for key, value in {**process.settings.dump(), **process.pod.dump()}.items():
        if key in {"resource_request", "resource_limit"}:
            yield from (f"{key}.{part}" for part in value)
        elif key == "volumes":
            yield from dict.fromkeys(f"volumes.{next(iter(volume))}" for volume in value)
        else:
            yield key
