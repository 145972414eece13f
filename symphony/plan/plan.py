"""The plan of an experiment: its processes with all settings, and the addresses of its services.

`symphony.plan.resolve` makes plans, and the renderers of the backends read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from symphony.model.settings.code import CodeSource
from symphony.model.settings.table import Settings
from symphony.plan.policies import Policies
from symphony.plan.resolution.addresses import (
    AddressBook,
    Endpoint,
    own_environment,
)
from symphony.plan.resolution.ranks import master_service, rank_environment
from symphony.plan.restart_policy import RestartPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedProcess:
    """A process with all settings that apply to it.

    The process runs either ``command`` with ``args``, or the shell lines ``cmds``. ``env`` contains
    only the variables that the user has set; `Plan.environment` adds those that symphony sets.
    ``start_dir`` joins the start directories of the cluster, the experiment, the group and the
    process, and is absolute or relative to the experiment's base directory. If the process has
    ``code``, it is absolute or relative to the code, and not to the start directory of the cluster.
    ``settings`` contains
    the process's settings, with its group's container settings as the defaults. ``pod`` contains
    the Pod-level settings of the group, or of the process if it is in no group. ``restart`` is the
    restart policy in ``pod``. ``starts_after``
    maps the processes that this process waits for to the conditions that they must meet. ``keys``
    contains the names of the variables that hold the keys for encrypted services. ``configs`` maps
    the names of configuration files to their texts, in which addresses are replaced. ``serves``
    contains the addresses of the services that the process or its group binds or exposes. ``node``
    is the number of the node on which the process runs, or 0 if the backend does not choose it.
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
    configs: dict[str, str] = field(default_factory=dict)
    serves: tuple[Endpoint, ...] = ()
    code: CodeSource | None = None
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    node: int = 0

    @property
    def path(self) -> str:
        """The path ``group/process``, or ``process`` if the process is in no group."""
        return f"{self.group}/{self.name}" if self.group else self.name

    @property
    def document_path(self) -> tuple[str, ...]:
        """The keys that lead to the process in an experiment file."""
        own_path = ("processes", self.name)
        return own_path if self.group is None else ("processes", self.group, *own_path)

    def endpoint(self, service: str) -> Endpoint:
        """Return the endpoint at which the process or its group serves a service.

        Raises KeyError if neither of them serves it.
        """
        for endpoint in self.serves:
            if endpoint.declared_service == service:
                return endpoint
        raise KeyError(service)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An experiment, resolved for one backend.

    ``secrets`` maps secret names to file paths. ``shared_env`` contains the variables that are the
    same for every process. A launch creates the keys for encrypted services, so a plan contains
    only the names of the variables for these keys. ``base_dir`` is the directory against which
    relative paths are resolved. It is ignored when plans are compared. ``policies`` contains the
    rules for the end of the experiment. ``sbatch_options`` contains further options of sbatch.
    ``parameters`` contains the values of parameters that the user has given, in which secrets are
    hidden. ``movable_ports`` maps the services at which ranks meet to the first and the last port
    from which another port can be chosen when the ranks restart. It does not contain services that
    other processes use.
    """

    experiment: str
    backend: str
    processes: tuple[PlannedProcess, ...]
    addresses: AddressBook
    shared_env: dict[str, str]
    secrets: dict[str, str]
    policies: Policies = field(default_factory=Policies)
    sbatch_options: tuple[str, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    movable_ports: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    base_dir: Path | None = field(default=None, compare=False)

    def __iter__(self) -> Iterator[PlannedProcess]:
        return iter(self.processes)

    def environment(self, process: PlannedProcess) -> dict[str, str]:
        """Return the environment variables that the user and symphony set for a process.

        The variables that symphony itself sets, such as service addresses, take precedence over the
        user's variables.
        """
        return {**process.env, **self.shared_env, **self.own_env(process)}

    def own_env(self, process: PlannedProcess) -> dict[str, str]:
        """Return the variables that symphony sets only for one process, or to another value than
        for the other processes: its name, and the addresses that it binds in replicated services.
        """
        return {
            "SYMPHONY_ROLE": process.name,
            "SYMPHONY_GROUP": process.group or "",
            **own_environment(process.serves),
            **self._rank_env(process),
        }

    def _rank_env(self, process: PlannedProcess) -> dict[str, str]:
        unit = process.settings.rank_of
        if unit is None:
            return {}
        ranks = [other for other in self.processes if other.settings.rank_of == unit]
        master = self.addresses[master_service(unit)]
        runs_in_pods = master.own_host is not None
        if runs_in_pods or "gpu" in process.settings.resource_limit:
            nodes = list(range(len(ranks)))
        else:
            nodes = [rank.node for rank in ranks]
        return rank_environment(
            unit,
            [rank.name for rank in ranks].index(process.name),
            nodes,
            master,
            per_process=(process.settings.per_pod or 1) if runs_in_pods else 1,
        )

    def env_secrets(self, process: PlannedProcess) -> dict[str, str]:
        """Return a mapping from variables to the secrets whose contents are the variables' values.

        Variables that symphony itself sets for every process are omitted.
        """
        env_secrets = process.settings.env_secrets
        if not env_secrets:
            return env_secrets
        return {key: secret for key, secret in env_secrets.items() if key not in self.shared_env}

    @property
    def option_names(self) -> tuple[str, ...]:
        """The names of the experiment options that are set and that a backend may ignore."""
        names = [*self.policies.names]
        if self.policies.record_usage:
            names.append("record_usage")
        if self.policies.resume:
            names.append("resume")
        if self.sbatch_options:
            names.append("sbatch_options")
        return tuple(names)

    @property
    def key_variables(self) -> tuple[str, ...]:
        """The names of the variables for all keys that a launch must create."""
        return tuple(dict.fromkeys(key for process in self.processes for key in process.keys))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as a dictionary of JSON-serializable values."""
        data = asdict(self)
        del data["base_dir"]
        return data
