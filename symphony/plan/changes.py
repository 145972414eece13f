"""The difference between a running experiment and a new description of it.

A backend describes both as a `Snapshot`, and `compare` determines for each process whether it is
added, removed, restarted, updated without a restart, started because it has exited, or not
affected. All functions are pure.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from symphony.code.snapshot import SHORT_DIGEST_LENGTH
from symphony.errors import shown
from symphony.plan.actions import ChangeAction, Relaunch, Remove, Start, Stop, Update
from symphony.plan.resolution.configs import digests
from symphony.plan.stop_order import stop_waves
from symphony.plan.wish import start_cause
from symphony.status import ENDED, State
from symphony.support.hidden_values import CHANGED, HIDDEN, HiddenValues, shown_pair
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.model.settings.table import Settings
    from symphony.plan.plan import Plan, PlannedProcess
    from symphony.status import ProcessStatus

ADDED, REMOVED, RESTARTED, STARTED, UPDATED, UNCHANGED = (
    "added",
    "removed",
    "restarted",
    "started",
    "updated",
    "unchanged",
)
ACTIONS = (ADDED, REMOVED, RESTARTED, STARTED, UPDATED, UNCHANGED)
# The actions after which a process that existed before is started again.
STARTED_AGAIN = (RESTARTED, STARTED)
_NOT_DESCRIBED = "not part of the experiment any more"

# The maximum number of process names in one line of text.
_MAX_NAMES = 6
# The maximum length of the common start of two texts in a message.
_MAX_COMMON_START = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSnapshot:
    """The values of one process that determine whether it has changed.

    ``settings`` maps the names of settings to values that JSON can represent. ``binds`` contains
    the services that the process or its group binds or exposes, ``connects`` those that it connects
    to, and ``secrets`` the secrets whose values its variables contain.
    """

    group: str | None = None
    settings: Mapping[str, Any]
    binds: Collection[str] = ()
    connects: Collection[str] = ()
    secrets: Collection[str] = ()

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ProcessSnapshot:
        """Create a snapshot from the output of `Snapshot.to_dict`."""
        return cls(**data)

    def to_dict(self) -> dict[str, Any]:
        """Return the snapshot as a dictionary of JSON-serializable values."""
        return {
            "group": self.group,
            "settings": dict(self.settings),
            "binds": list(self.binds),
            "connects": list(self.connects),
            "secrets": list(self.secrets),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The values of an experiment that determine what has changed.

    ``services`` maps each service to what its clients have to know, such as its address.
    ``replicas`` maps each replicated service to the number of its replicas. The addresses of the
    replicas are those of the services with the same name and a number, such as ``inference-0``.
    ``secrets`` contains the names of the secrets, each with a value that differs if the contents
    differ. ``policies`` contains the rules for the end of the experiment; see
    `symphony.plan.policies.Policies.to_dict`.
    """

    experiment: str
    backend: str
    processes: Mapping[str, ProcessSnapshot]
    services: Mapping[str, Any] = field(default_factory=dict)
    replicas: Mapping[str, int] = field(default_factory=dict)
    secrets: Mapping[str, Any] = field(default_factory=dict)
    policies: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Snapshot:
        """Create a snapshot from the output of `to_dict`."""
        processes = {
            name: ProcessSnapshot.from_dict(process) for name, process in data["processes"].items()
        }
        return cls(**{**data, "processes": processes})

    def to_dict(self) -> dict[str, Any]:
        """Return the snapshot as a dictionary of JSON-serializable values."""
        return {
            "experiment": self.experiment,
            "backend": self.backend,
            "processes": {name: item.to_dict() for name, item in self.processes.items()},
            "services": dict(self.services),
            "replicas": dict(self.replicas),
            "secrets": dict(self.secrets),
            "policies": dict(self.policies),
        }


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A setting with two different values. None means that the setting is not set.

    ``setting`` can contain a key, as in ``env.SEED``.
    """

    setting: str
    old: Any
    new: Any

    @property
    def text(self) -> str:
        """The change as words, such as ``env.SEED changed from 1 to 2``."""
        if self.old == HIDDEN and self.new == f"{HIDDEN} {CHANGED}":
            return f"{self.setting} changed {HIDDEN}"
        if self.old is None:
            return f"{self.setting} set to {shown(_simple(self.new))}"
        if self.new is None:
            return f"{self.setting} removed, was {shown(_simple(self.old))}"
        old, new = _without_common_start(_simple(self.old), _simple(self.new))
        return f"{self.setting} changed from {shown(old)} to {shown(new)}"

    def with_hidden_secrets(self, hidden: HiddenValues) -> SettingChange:
        """Return the change with hidden secrets; see `symphony.support.hidden_values`."""
        old, new = shown_pair(self.setting, self.old, self.new, hidden)
        return replace(self, old=old, new=new)

    def to_dict(self) -> dict[str, Any]:
        """Return the change as a dictionary of JSON-serializable values."""
        return {"setting": self.setting, "old": self.old, "new": self.new}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessChange:
    """The change of one process.

    ``action`` is one of `ACTIONS`. A process is ``started`` if it should run and does not, and
    nothing else requires a restart. ``settings`` contains the process's own settings that have
    changed, and ``reasons`` the other reasons for the action, such as the address of a service.
    ``starts_after`` maps the processes for which it waits to the conditions. ``is_running`` is
    false if nothing of it is running, so that it is not stopped before it is started or removed.
    """

    name: str
    group: str | None = None
    action: str
    settings: tuple[SettingChange, ...] = ()
    reasons: tuple[str, ...] = ()
    starts_after: Mapping[str, str] = field(default_factory=dict)
    is_running: bool = True

    @property
    def path(self) -> str:
        """The path ``group/process``, or ``process`` if the process is in no group."""
        return f"{self.group}/{self.name}" if self.group else self.name

    @property
    def text(self) -> str:
        """Why the process changes, or ``""``."""
        return "; ".join([*(change.text for change in self.settings), *self.reasons])

    def to_dict(self) -> dict[str, Any]:
        """Return the change as a dictionary of JSON-serializable values."""
        return {
            "name": self.name,
            "group": self.group,
            "action": self.action,
            "settings": [change.to_dict() for change in self.settings],
            "reasons": list(self.reasons),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The difference between a running experiment and a new description of it.

    ``processes`` contains all processes of both, in the order of the new description, followed by
    those that are removed. ``policies`` contains the changed rules for the end of the experiment,
    which apply without a restart. ``launch`` is the reason why the experiment is launched instead
    of changed, such as ``it does not exist``, or ``""``. ``relaunch`` contains the reasons why the
    experiment cannot be changed while it is running. ``notes`` contains messages for the user about
    changes that were made, such as the warnings of a server. ``other_backend`` is the backend of
    this machine on which the experiment is running, if it is another one.
    """

    experiment: str
    backend: str
    processes: tuple[ProcessChange, ...] = ()
    policies: tuple[SettingChange, ...] = ()
    launch: str = ""
    relaunch: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    other_backend: str = ""

    @property
    def is_empty(self) -> bool:
        """True if the running experiment already has the new description."""
        if self.launch or self.relaunch or self.policies:
            return False
        return all(process.action == UNCHANGED for process in self.processes)

    @property
    def has_new_code(self) -> bool:
        """True if the code of a process changes."""
        settings = [change.setting for process in self.processes for change in process.settings]
        return "code" in settings

    def names(self, *actions: str) -> list[str]:
        """Return the names of the processes with one of the actions; see `ACTIONS`."""
        return [process.name for process in self.processes if process.action in actions]

    def with_hidden_secrets(self, hidden: HiddenValues) -> Changes:
        """Return the changes with the secrets in the values of settings hidden.

        ``hidden`` contains the values that are hidden in all texts, such as commands.
        """
        processes = []
        for process in self.processes:
            settings = tuple(change.with_hidden_secrets(hidden) for change in process.settings)
            processes.append(replace(process, settings=settings))
        return replace(self, processes=tuple(processes))

    @property
    def summary(self) -> str:
        """The numbers of processes, such as ``1 added, 2 restarted, 7 unchanged``."""
        counts = {action: len(self.names(action)) for action in ACTIONS}
        given = [f"{count} {action}" for action, count in counts.items() if count]
        return ", ".join(given) or "no processes"

    @property
    def actions(self) -> list[ChangeAction]:
        """The actions, with their causes: first the changes without a restart, then the stops, in
        the reverse of the start order, and then the starts, in the start order.
        """
        actions: list[ChangeAction] = [Relaunch(reason) for reason in self.relaunch]
        actions += [Update("", change.text) for change in self.policies]
        by_name = {process.name: process for process in self.processes}
        starts_after = {name: process.starts_after for name, process in by_name.items()}
        waves = stop_waves(by_name, starts_after)
        updated = [process for process in self.processes if process.action == UPDATED]
        actions += [Update(process.name, process.text) for process in updated]
        in_stop_order = [by_name[name] for wave in waves for name in wave]
        removed = [process for process in in_stop_order if process.action == REMOVED]
        for process in in_stop_order:
            if process.is_running and process.action in (REMOVED, *STARTED_AGAIN):
                cause = _NOT_DESCRIBED if process.action == REMOVED else process.text
                actions.append(Stop(process.name, cause))
        actions += [Remove(process.name) for process in removed]
        for process in [by_name[name] for wave in reversed(waves) for name in wave]:
            if process.action in (ADDED, *STARTED_AGAIN):
                actions.append(Start(process.name, _cause_of_start(process)))
        return actions

    def lines(self) -> list[str]:
        """Return the actions as lines of text. Processes with the same action and cause share a
        line.
        """
        return _lines(self.actions, {process.name: process.path for process in self.processes})

    def __str__(self) -> str:
        """Return the differences as text that ends with a newline."""
        title = f"{self.experiment} on {self.backend}"
        if self.launch:
            return f"{title}: {self.launch}, so it is launched; {self.summary}\n"
        if self.is_empty:
            return f"{title}: no difference; {self.summary}\n"
        return "\n".join([f"{title}: {self.summary}", *self.lines(), ""])

    def to_dict(self) -> dict[str, Any]:
        """Return the differences as a dictionary of JSON-serializable values."""
        return {
            "experiment": self.experiment,
            "backend": self.backend,
            "different": not self.is_empty,
            "launch": self.launch,
            "relaunch": list(self.relaunch),
            "policies": [change.to_dict() for change in self.policies],
            "processes": [process.to_dict() for process in self.processes],
            "actions": [_action_dict(action) for action in self.actions],
            "notes": list(self.notes),
        }


def _lines(actions: Iterable[ChangeAction], paths: Mapping[str, str]) -> list[str]:
    """Return actions as lines of text. Processes with the same action and cause share a line.

    ``paths`` maps the names of processes to those that the lines show.
    """
    shared: dict[tuple[type[ChangeAction], str], list[str]] = {}
    first: dict[tuple[type[ChangeAction], str], ChangeAction] = {}
    for action in actions:
        key = (type(action), action.cause)
        first.setdefault(key, action)
        if action.process:
            shared.setdefault(key, []).append(paths[action.process])
    lines = []
    for key, action in first.items():
        names = join_names(shared[key], limit=_MAX_NAMES) if key in shared else ""
        lines.append(str(action._replace(process=names)))
    return lines


def _cause_of_start(change: ProcessChange) -> str:
    """Return why a process is started, and what it waits for, such as ``new; after replay is
    ready``.
    """
    why = ""
    if change.action == ADDED:
        why = "new"
    elif not change.is_running:
        why = change.text
    return "; ".join(filter(None, [why, start_cause(change.starts_after)]))


def _action_dict(action: ChangeAction) -> dict[str, str]:
    kind = type(action).__name__.lower()
    return {"action": kind, "process": action.process, "cause": action.cause}


def _simple(value: Any) -> Any:
    """Return a value for a message. A command is shown as it is written in a shell."""
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return shlex.join(value)
    return value


def _without_common_start(old: Any, new: Any) -> tuple[Any, Any]:
    """Shorten two texts to what differs if the difference would not be visible in a message."""
    if not isinstance(old, str) or not isinstance(new, str):
        return old, new
    pairs = enumerate(zip(old, new, strict=False))
    common = next((index for index, (one, other) in pairs if one != other), min(len(old), len(new)))
    if common <= _MAX_COMMON_START:
        return old, new
    begin = common - _MAX_COMMON_START // 2
    return f"...{old[begin:]}", f"...{new[begin:]}"


# --- comparing ---


def launching(snapshot: Snapshot, reason: str) -> Changes:
    """Return the changes for an experiment that is launched for ``reason``."""
    return Changes(
        experiment=snapshot.experiment,
        backend=snapshot.backend,
        processes=tuple(_added(name, process) for name, process in snapshot.processes.items()),
        launch=reason,
    )


def compare(
    running: Snapshot,
    new: Snapshot,
    *,
    live_settings: Collection[str] = (),
    unfinished: Collection[str] = (),
    idle: Mapping[str, str] = MappingProxyType({}),
    ended: Collection[str] = (),
    finished: Collection[str] = (),
    scaled: Collection[str] | None = None,
) -> Changes:
    """Return the changes that make the experiment ``running`` equal to ``new``.

    ``live_settings`` contains the settings that the backend changes without a restart.
    ``unfinished`` contains the processes that an earlier change has not restarted yet. ``idle``
    contains the processes that should run and do not, with the reasons; see `idle_processes`.
    ``ended`` contains the processes of which nothing is running. ``finished`` contains the
    one-shots that have succeeded; see `symphony.plan.one_shots`. They run again only if their own
    settings have changed. ``scaled`` contains the processes whose number is changed, or is None if
    the settings of all processes can have changed.

    A process is restarted if another setting of it has changed, or if it has to know that the
    address of a service or the contents of a secret have changed. A process uses a service if it
    binds, exposes or connects to it. If no process connects to a service, any process can use the
    service without having declared it, so all processes count as its users. The same applies to a
    secret that no variable contains.
    """
    relaunch = []
    if running.backend != new.backend:
        relaunch.append(f"it runs on the backend {running.backend}, not on {new.backend}")
    notices = _Notices(running, new)
    changes = []
    for name, process in new.processes.items():
        old = running.processes.get(name)
        if old is None:
            changes.append(_added(name, process))
            continue
        reasons = () if name in finished else notices.of(name)
        if name in unfinished:
            reasons = (*reasons, "an earlier change of it was not completed")
        change = _compare_process(name, old, process, reasons, live_settings)
        if name in finished and scaled is not None and name not in scaled and not reasons:
            # Only the addresses in its settings can have changed.
            change = replace(change, action=UNCHANGED, settings=())
        if name in idle and change.action in (UNCHANGED, UPDATED):
            change = replace(change, action=STARTED, reasons=(idle[name],))
        changes.append(replace(change, is_running=name not in ended))
    changes += [
        ProcessChange(
            name=name,
            group=process.group,
            action=REMOVED,
            starts_after=_starts_after(process),
            is_running=name not in ended,
        )
        for name, process in running.processes.items()
        if name not in new.processes
    ]
    return Changes(
        experiment=new.experiment,
        backend=new.backend,
        processes=tuple(_with_whole_units(changes, running, new)),
        policies=tuple(_setting_changes(running.policies, new.policies)),
        relaunch=tuple(relaunch),
    )


def idle_processes(
    processes: Iterable[ProcessStatus], names: Collection[str] | None = None
) -> dict[str, str]:
    """Return the processes that should run and do not, with the reasons as words.

    These are the processes that have failed, were stopped or were never started, unless they will
    be restarted. A process that has succeeded does not have to run again. ``names`` contains the
    processes that are considered; None means all.
    """
    found = {}
    for process in processes:
        is_considered = names is None or process.name in names
        has_succeeded = process.state is State.SUCCEEDED and not process.stopped
        if is_considered and process.state in ENDED and not has_succeeded:
            found[process.name] = _why_idle(process)
    return found


def _why_idle(process: ProcessStatus) -> str:
    if process.stopped:
        return "it was stopped"
    detail = process.reason.removeprefix("never started: ")
    if not detail and process.exit_code is not None:
        detail = f"exit code {process.exit_code}"
    verb = "was never started" if process.started is None else "has failed"
    if process.state is State.UNKNOWN:
        verb = "is not running any more"
    return f"it {verb} ({detail})" if detail else f"it {verb}"


def _with_whole_units(
    changes: Sequence[ProcessChange], running: Snapshot, new: Snapshot
) -> Iterator[ProcessChange]:
    """Yield the changes. If a rank of a unit changes, the other ranks are restarted."""
    units: dict[str, str | None] = {}
    for snapshot in (running, new):
        for name, process in snapshot.processes.items():
            units[name] = process.settings.get("rank_of")
    causes: dict[str, ProcessChange] = {}
    for change in changes:
        unit = units[change.name]
        if unit is not None and change.action in (ADDED, *STARTED_AGAIN, REMOVED):
            causes.setdefault(unit, change)
    for change in changes:
        cause = causes.get(units[change.name] or "")
        if cause is not None and change.action in (UNCHANGED, UPDATED):
            reason = f"{cause.name} of the same unit is {cause.action}"
            yield replace(change, action=RESTARTED, reasons=(*change.reasons, reason))
        else:
            yield change


def _compare_process(
    name: str,
    old: ProcessSnapshot,
    new: ProcessSnapshot,
    reasons: tuple[str, ...],
    live_settings: Collection[str],
) -> ProcessChange:
    settings: tuple[SettingChange, ...] = ()
    if old.settings != new.settings or old.group != new.group:
        before = {"group": old.group, **old.settings}
        after = {"group": new.group, **new.settings}
        settings = tuple(_setting_changes(before, after))
    action = UNCHANGED
    if settings or reasons:
        changed = {change.setting.partition(".")[0] for change in settings}
        is_live = not reasons and changed <= set(live_settings)
        action = UPDATED if is_live else RESTARTED
    return ProcessChange(
        name=name,
        group=new.group,
        action=action,
        settings=settings,
        reasons=reasons,
        starts_after=_starts_after(new),
    )


def _added(name: str, process: ProcessSnapshot) -> ProcessChange:
    return ProcessChange(
        name=name, group=process.group, action=ADDED, starts_after=_starts_after(process)
    )


def _starts_after(process: ProcessSnapshot) -> Mapping[str, str]:
    found: Mapping[str, str] = process.settings.get("starts_after", {})
    return found


def _setting_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[SettingChange]:
    """Yield the changes between two mappings. A value that is a mapping is compared by key."""
    for key in dict.fromkeys([*old, *new]):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        is_mapping = isinstance(before or {}, Mapping) and isinstance(after or {}, Mapping)
        if is_mapping:
            for change in _setting_changes(before or {}, after or {}):
                yield replace(change, setting=f"{key}.{change.setting}")
        else:
            yield SettingChange(key, before, after)


class _Notices:
    """The changes of services and secrets, and the processes that have to know them."""

    def __init__(self, running: Snapshot, new: Snapshot) -> None:
        self._everybody: list[str] = []
        self._own: dict[str, list[str]] = {}
        for service, old in running.services.items():
            address = new.services.get(service)
            if address is not None and address != old:
                moved = SettingChange(f"service {service!r}", old, address).text
                clients = self._clients(new, service)
                servers = _users(new, service, "binds")
                self._add(moved, clients, servers)
        for service in dict.fromkeys([*running.replicas, *new.replicas]):
            old_count, new_count = running.replicas.get(service), new.replicas.get(service)
            if old_count != new_count and _serves(running, service) and _serves(new, service):
                setting = f"the number of replicas of service {service!r}"
                changed = SettingChange(setting, old_count, new_count).text
                clients = _users(new, service, "connects")
                # A process that has not declared that it connects to the service is not restarted,
                # because otherwise each change of a number would restart the whole experiment.
                if clients:
                    self._add(changed, clients)
        for secret, old in running.secrets.items():
            if secret in new.secrets and new.secrets[secret] != old:
                self._add(
                    f"the contents of secret {secret!r} have changed",
                    _users(new, secret, "secrets"),
                )

    def _add(self, reason: str, users: Sequence[str], others: Sequence[str] = ()) -> None:
        """Add a reason for the restart of ``users`` and ``others``, or of all if there are no
        ``users``.
        """
        if not users:
            self._everybody.append(reason)
            return
        for name in dict.fromkeys([*users, *others]):
            self._own.setdefault(name, []).append(reason)

    @staticmethod
    def _clients(snapshot: Snapshot, service: str) -> list[str]:
        """Return the processes that connect to a service. A process that connects to a replicated
        service connects to all replicas.
        """
        clients = _users(snapshot, service, "connects")
        for replicated in snapshot.replicas:
            if re.fullmatch(rf"{replicated}-[0-9]+", service):
                clients += _users(snapshot, replicated, "connects")
        return clients

    def of(self, name: str) -> tuple[str, ...]:
        """Return the reasons for the restart of a process."""
        if not self._everybody and not self._own:
            return ()
        return (*self._own.get(name, ()), *self._everybody)


def _serves(snapshot: Snapshot, service: str) -> bool:
    return service in snapshot.services or service in snapshot.replicas


def _users(snapshot: Snapshot, item: str, kind: str) -> list[str]:
    return [name for name, process in snapshot.processes.items() if item in getattr(process, kind)]


# --- snapshots of plans ---


def snapshot_of_plan(plan: Plan, secrets: Mapping[str, Any] | None = None) -> Snapshot:
    """Return the snapshot of a plan, with the settings that its file or program has set.

    ``secrets`` contains the secrets; see `Snapshot`.
    """
    from symphony.plan.resolution.encryption_keys import variable

    services = {
        endpoint.service: [
            endpoint.addr,
            endpoint.bind_host,
            variable(endpoint.service) in plan.shared_env,
        ]
        for endpoint in plan.addresses.endpoints
    }
    replicas = {name: len(plan.addresses.replicas(name)) for name in plan.addresses.replicated}
    return Snapshot(
        experiment=plan.experiment,
        backend=plan.backend,
        processes={process.name: _process_snapshot(process) for process in plan},
        services=services,
        replicas=replicas,
        secrets=dict(secrets or {}),
        policies=plan.policies.to_dict(),
    )


# The settings that appear in another form, or whose effect is part of another value.
_OMITTED_SETTINGS = frozenset(
    {
        "code",
        "configs",
        "env",
        "env_file",
        "binds",
        "exposes",
        "encrypted",
        "replicated",
        "starts_after",
    }
)


def _process_snapshot(process: PlannedProcess) -> ProcessSnapshot:
    bound = [endpoint.service for endpoint in process.serves]
    values = {
        "image": process.container_image,
        "command": None if process.command is None else list(process.command),
        "args": list(process.args),
        "cmds": None if process.cmds is None else list(process.cmds),
        "preamble_cmds": list(process.preamble_cmds),
        "start_dir": process.start_dir,
        "env": process.env,
        "configs": {
            name: digest[:SHORT_DIGEST_LENGTH] for name, digest in digests(process.configs).items()
        },
        "starts_after": process.starts_after,
        "binds": bound,
        "encrypted": list(process.keys),
        **_given_settings(process.pod),
        **_given_settings(process.settings),
    }
    return ProcessSnapshot(
        group=process.group,
        settings={name: value for name, value in values.items() if value not in (None, [], {})},
        binds=bound,
        connects=list(process.settings.connects),
        secrets=list(process.settings.env_secrets.values()),
    )


def _given_settings(settings: Settings) -> dict[str, Any]:
    return {name: value for name, value in vars(settings).items() if name not in _OMITTED_SETTINGS}
