"""Rendering a plan as a manifest for this machine.

All functions in this module are pure and do not access files.
"""

from __future__ import annotations

import functools
import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from symphony.archive.code_archives import CODE_DIRECTORY, SNAPSHOTS_KEY
from symphony.archive.run_record import run_name
from symphony.cluster import Manifest
from symphony.code.snapshot import ARCHIVE_SUFFIX, CodeSnapshot
from symphony.config.locations import expand_user
from symphony.errors import SpecError
from symphony.model.settings.quantities import parse_quantity
from symphony.model.settings.table import SUPERVISED, Settings, honoured_by
from symphony.plan.ignored import Ignored, ignored_settings
from symphony.plan.plan import Plan, PlannedProcess
from symphony.plan.policies import Policies
from symphony.plan.resolution.configs import digest as configs_digest
from symphony.plan.resolution.configs import digests
from symphony.plan.restart_policy import RestartPolicy
from symphony.plan.shell import argv, command_argv, runs_entry_point
from symphony.supervised.processes.identity import RUN_ID_VARIABLE
from symphony.supervised.processes.scratch import SCRATCH_VARIABLE
from symphony.supervised.processes.spec import (
    DEFAULT_GRACE_SECONDS,
    DEFAULT_LOG_LIMIT_BYTES,
    PASSED_SETTINGS,
    ProcessSpec,
)
from symphony.supervised.record.run_paths import CONFIG_DIRECTORY, SCRATCH_DIRECTORY
from symphony.support.names import join_names

HOST = "127.0.0.1"
SECRETS_VARIABLE = "SYMPHONY_SECRETS_DIR"
CODE_VARIABLE = "SYMPHONY_CODE_DIR"
CONFIG_VARIABLE = "SYMPHONY_CONFIG_DIR"
# The length of the digest in the path of the configuration files of a process.
_CONFIG_DIGEST_LENGTH = 12

DEFAULT_READY_TIMEOUT_SECONDS = 60.0

# The settings and options that a supervisor honours. It ignores all others.
HONOURED = honoured_by(SUPERVISED) | {
    "ends_with",
    "on_failure",
    "deadline",
    "record_usage",
    "resume",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostManifest(Manifest):
    """The processes of an experiment, as this machine would run them.

    * ``run_name`` is the identifier of the run that users see, and ``launched`` is the time of the
      launch in seconds since the epoch. ``run_id`` identifies the processes of the run.
    * ``directory`` is the run directory.
    * ``env`` overrides variables in the launcher's environment. Each process's own ``env``
      overrides the manifest's ``env``.
    * ``services`` maps each service to its ``host:port`` address, and ``exposed`` contains the
      names of the exposed services.
    * ``secrets`` maps the name of each secret to the path of the file to copy.
    * ``ignored`` contains the experiment's settings that the backend does not implement.
    * ``keys`` contains the names of the secrets that the launch generates.
    * ``policies`` contains the rules for the end of the experiment.
    * ``snapshots`` maps the names of processes to the snapshots of their code.
    * ``parameters`` contains the values of parameters that the user has given, in which secrets are
      hidden.
    * ``configs`` maps the names of processes to the texts of their configuration files, which are
      written to the run directory.
    * ``movable_ports`` maps services to the ranges from which another port can be chosen when
      their ranks restart.
    """

    experiment: str
    run_name: str
    launched: float
    run_id: str
    directory: str
    processes: tuple[ProcessSpec, ...]
    env: dict[str, str]
    services: dict[str, str]
    exposed: tuple[str, ...]
    secrets: dict[str, str]
    ignored: tuple[Ignored, ...]
    keys: tuple[str, ...] = ()
    policies: Policies = field(default_factory=Policies)
    snapshots: Mapping[str, CodeSnapshot] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    movable_ports: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of the manifest file as a dictionary of JSON-serializable values."""
        return {
            "experiment": self.experiment,
            "backend": self.env["SYMPHONY_BACKEND"],
            "run_name": self.run_name,
            "launched": self.launched,
            "run_id": self.run_id,
            "services": self.services,
            "movable_ports": dict(self.movable_ports),
            "exposed": list(self.exposed),
            "secrets": self.secrets,
            "env": self.env,
            "policies": self.policies.to_dict(),
            "parameters": dict(self.parameters),
            "processes": [process.to_dict() for process in self.processes],
            SNAPSHOTS_KEY: {name: item.to_dict() for name, item in self.snapshots.items()},
            "ignored": [
                {"setting": item.setting, "processes": list(item.processes)}
                for item in self.ignored
            ],
        }

    def __str__(self) -> str:
        from symphony.model.document.files import to_yaml

        secrets = {name: f"{source} (copied)" for name, source in self.secrets.items()}
        secrets.update(dict.fromkeys(self.keys, "(generated by the launch)"))
        content: dict[str, Any] = {
            "experiment": self.experiment,
            "backend": self.env["SYMPHONY_BACKEND"],
            "directory": self.directory,
            "services": self.services,
            "secrets": secrets,
            # Every launch creates a new run identifier, so the preview does not contain one.
            "env": {key: value for key, value in self.env.items() if key != RUN_ID_VARIABLE},
            "policies": self.policies.to_dict(),
            "code": {item.source: str(item) for item in self.snapshots.values()},
            "processes": {
                process.path: _preview(process, self.configs.get(process.name, {}))
                for process in self.processes
            },
            "ignored": {item.setting: list(item.processes) for item in self.ignored},
        }
        return to_yaml({key: value for key, value in content.items() if value})


def _preview(spec: ProcessSpec, configs: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that a dry run shows for a process. Optional settings are omitted if they
    have their default values.
    """
    ready = {**spec.ready, "timeout": spec.ready_timeout} if spec.ready else None
    has_default_log_limit = spec.log_limit == DEFAULT_LOG_LIMIT_BYTES
    has_default_grace = spec.grace == DEFAULT_GRACE_SECONDS
    optional = {
        "env_secrets": spec.env_secrets,
        "configs": dict(configs),
        "starts_after": spec.starts_after,
        "ready": ready,
        "healthy": spec.healthy,
        "restart_policy": None if spec.restart == RestartPolicy() else spec.restart.value(),
        "termination_grace_period": None if has_default_grace else spec.grace,
        **_changed_settings(spec),
        "stop_command": shlex.join(spec.stop_command),
        "deadline": spec.deadline,
        "gpus": spec.gpus,
        "log_limit": None if has_default_log_limit else spec.log_limit,
    }
    return {
        "command": shlex.join(spec.argv),
        "folder": spec.cwd,
        "env": spec.env,
        **{key: value for key, value in optional.items() if value},
    }


def _changed_settings(spec: ProcessSpec) -> dict[str, Any]:
    values = {name: getattr(spec, name) for name in PASSED_SETTINGS}
    return {name: value for name, value in values.items() if value != PASSED_SETTINGS[name]}


def render(
    plan: Plan,
    *,
    run_id: str,
    launched: float,
    directory: Path,
    working_directory: Path,
    shell: str,
    honoured: frozenset[str] = HONOURED,
    snapshots: Mapping[str, CodeSnapshot] = MappingProxyType({}),
    copies_code: bool = False,
) -> HostManifest:
    """Return the manifest for a plan.

    ``run_id`` consists of random hexadecimal digits. ``launched`` is the time of the launch in
    seconds since the epoch. ``directory`` is the path that the run directory will have. Relative
    paths are resolved against the plan's directory, or against ``working_directory`` if the plan
    has no directory. ``shell`` is the program that runs shell lines. ``honoured`` contains the
    settings that the backend implements. ``snapshots`` maps the names of processes to the snapshots
    of their code. With ``copies_code``, the processes run from copies in the run directory, and
    otherwise in the directories of the code.

    Raises SpecError if a process has no command.
    """
    _check_programs(plan.processes)
    base = plan.base_dir or working_directory

    @functools.cache
    def directory_path(start_dir: str) -> str:
        return str(base / start_dir)

    def place(process: PlannedProcess) -> _Place:
        start_dir = process.start_dir or ""
        snapshot = snapshots.get(process.name)
        if process.code is None:
            return _Place(directory_path(start_dir))
        if snapshot is None:
            # Without snapshots, the plan is only checked.
            return _Place(directory_path(os.path.join(process.code.path, start_dir)))  # noqa: PTH118
        code = _code_place(snapshot, directory, copies=copies_code)
        return _Place(str(Path(code["directory"], start_dir)), code)

    env = {**plan.shared_env, RUN_ID_VARIABLE: run_id}
    endpoints = plan.addresses.endpoints
    if plan.secrets:
        env[SECRETS_VARIABLE] = str(directory / "secrets")
    return HostManifest(
        experiment=plan.experiment,
        run_name=run_name(plan.experiment, launched, run_id),
        launched=launched,
        run_id=run_id,
        directory=str(directory),
        processes=tuple(
            _process_spec(plan, process, env, place(process), shell, directory) for process in plan
        ),
        env=env,
        services={endpoint.service: endpoint.addr for endpoint in endpoints},
        exposed=tuple(endpoint.service for endpoint in endpoints if endpoint.exposed),
        secrets={name: str(base / expand_user(source)) for name, source in plan.secrets.items()},
        ignored=ignored_settings(plan, honoured),
        keys=plan.key_variables,
        policies=plan.policies,
        snapshots=snapshots,
        parameters=plan.parameters,
        configs={process.name: process.configs for process in plan if process.configs},
        movable_ports=plan.movable_ports,
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """The directory in which a process starts, and its code; see `ProcessSpec`."""

    cwd: str
    code: dict[str, str] | None = None


def _code_place(snapshot: CodeSnapshot, run_directory: Path, *, copies: bool) -> dict[str, str]:
    directory = snapshot.source
    if copies or directory.endswith(ARCHIVE_SUFFIX):
        directory = str(run_directory / CODE_DIRECTORY / snapshot.short_digest)
    return {"digest": snapshot.digest, "directory": directory, "source": snapshot.source}


def _process_spec(
    plan: Plan,
    process: PlannedProcess,
    shared_env: Mapping[str, str],
    place: _Place,
    shell: str,
    directory: Path,
) -> ProcessSpec:
    ready = dict(process.settings.ready or {})
    ready_timeout = float(ready.pop("timeout", DEFAULT_READY_TIMEOUT_SECONDS))
    return ProcessSpec(
        name=process.name,
        group=process.group,
        argv=tuple(argv(process, shell)),
        cwd=place.cwd,
        env={
            **_own_variables(plan, process, shared_env, place.code),
            **_directory_variables(process, directory),
        },
        env_secrets={**plan.env_secrets(process), **{key: key for key in process.keys}},
        grace=grace_seconds(process.pod),
        stop_command=tuple(command_argv(process.settings.stop_command or [], shell)),
        **_passed_settings(process.settings),
        restart=process.restart.of_job(process.pod.job),
        deadline=_deadline_seconds(process.pod),
        ready=_resolved_test(ready, process, shell) or None,
        ready_timeout=ready_timeout,
        healthy=_health_test(process, shell),
        starts_after=process.starts_after,
        releases=tuple(endpoint.port for endpoint in process.serves),
        connects=tuple(process.settings.connects),
        gpus=int(process.settings.resource_limit.get("gpu", 0)),
        log_limit=_log_limit_bytes(process.settings),
        unit=process.settings.rank_of,
        preamble=process.preamble_cmds,
        code=place.code,
        configs=digests(process.configs),
    )


def _passed_settings(settings: Settings) -> dict[str, Any]:
    given = {name: getattr(settings, name) for name in PASSED_SETTINGS}
    return {name: value for name, value in given.items() if value is not None}


def _directory_variables(process: PlannedProcess, directory: Path) -> dict[str, str]:
    """Return the variables with the directories of a process in the run directory ``directory``.

    Changed configuration files have another directory, so a running process keeps its own files.
    """
    # Thousands of processes can be rendered, and pathlib is slow.
    variables = {SCRATCH_VARIABLE: f"{directory}/{SCRATCH_DIRECTORY}/{process.name}"}
    if process.configs:
        digest = configs_digest(process.configs)[:_CONFIG_DIGEST_LENGTH]
        variables[CONFIG_VARIABLE] = str(directory / CONFIG_DIRECTORY / process.name / digest)
    return variables


def _own_variables(
    plan: Plan,
    process: PlannedProcess,
    shared_env: Mapping[str, str],
    code: Mapping[str, str] | None,
) -> dict[str, str]:
    """Return a process's environment variables, except for those that the whole experiment shares.

    The manifest contains the shared variables in its ``env``. A process's own variable must not
    replace a shared one, because the shared variables contain the service addresses.
    """
    given = {key: value for key, value in process.env.items() if key not in shared_env}
    result = {**given, **plan.own_env(process)}
    if code is not None:
        result[CODE_VARIABLE] = code["directory"]
    return result


def grace_seconds(pod: Settings) -> float:
    """Return the grace period of a process in seconds."""
    if pod.termination_grace_period is None:
        return DEFAULT_GRACE_SECONDS
    return float(pod.termination_grace_period)


def _deadline_seconds(pod: Settings) -> float | None:
    """Return the time limit of a process that is a job, or None if there is no limit."""
    limit = (pod.job or {}).get("active_deadline")
    return None if limit is None else float(limit)


def _log_limit_bytes(settings: Settings) -> int:
    if settings.log_limit is None:
        return DEFAULT_LOG_LIMIT_BYTES
    return int(parse_quantity(settings.log_limit, "log_limit"))


def _check_programs(processes: Iterable[PlannedProcess]) -> None:
    """Raise SpecError if there are processes that only the entry point of an image can start."""
    without = [process for process in processes if _runs_entry_point(process)]
    if not without:
        return
    paths = [repr(process.path) for process in without]
    what = f"process {paths[0]} has no command"
    if len(paths) > 1:
        what = f"processes {join_names(paths, limit=5)} have no command"
    raise SpecError(
        f"{what}: this backend cannot run the entry point of an image; set command, cmd or cmds",
        path=without[0].document_path,
    )


def _runs_entry_point(process: PlannedProcess) -> bool:
    has_command = bool(process.command) or process.cmds is not None
    return runs_entry_point(process.args, has_command=has_command)


def _health_test(process: PlannedProcess, shell: str) -> dict[str, Any] | None:
    test = process.settings.healthy
    if test is None:
        return None
    limits = {key: test[key] for key in ("every", "failures", "timeout")}
    return {**_resolved_test(test, process, shell), **limits}


def _resolved_test(test: Mapping[str, Any], process: PlannedProcess, shell: str) -> dict[str, Any]:
    """Return a test of a process with an address for each service, and a shell for a shell line."""
    if "tcp" in test:
        endpoint = process.endpoint(test["tcp"])
        return {"tcp": [endpoint.host, endpoint.port]}
    if "http" in test:
        service, path = test["http"]
        endpoint = process.endpoint(service)
        return {"http": [endpoint.host, endpoint.port, path]}
    if "command" in test:
        return {"command": command_argv(test["command"], shell)}
    return dict(test)
