"""From a plan to what runs on this machine. Pure: folders are named, not looked at."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symphony.cluster import Manifest
from symphony.errors import SpecError
from symphony.host.processes.spec import DEFAULT_GRACE, MARK, Command
from symphony.model.settings import Settings
from symphony.plan.resolve import Ignored, Plan, PlannedProcess, argv, ignored_settings

HOST = "127.0.0.1"
SECRETS_VARIABLE = "SYMPHONY_SECRETS_DIR"
GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"

HONOURED = frozenset(
    {
        "env",
        "env_secrets",
        "binds",
        "connects",
        "exposes",
        "encrypted",
        "resource_limit.gpu",
        "restart_policy",
    }
    | {"termination_grace_period", "ready", "starts_after"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostManifest(Manifest):
    """The processes of an experiment as this machine would run them.

    ``env`` lies over the launcher's environment and below each command's own. ``services`` has host and port
    as ``host:port`` by service, ``secrets`` the file to copy by name. ``keys`` are the secrets that are made anew.
    """

    experiment: str
    run_id: str
    directory: str
    commands: tuple[Command, ...]
    env: dict[str, str]
    services: dict[str, str]
    exposed: tuple[str, ...]
    secrets: dict[str, str]
    ignored: tuple[Ignored, ...]
    keys: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The manifest as JSON knows it, as it stands in the run directory."""
        return {
            "experiment": self.experiment,
            "backend": self.env["SYMPHONY_BACKEND"],
            "run_id": self.run_id,
            "services": self.services,
            "exposed": list(self.exposed),
            "secrets": self.secrets,
            "env": self.env,
            "processes": [command.to_dict() for command in self.commands],
            "ignored": [
                {"setting": item.setting, "processes": list(item.processes)}
                for item in self.ignored
            ],
        }

    def __str__(self) -> str:
        from symphony.model.files import to_yaml

        shown: dict[str, Any] = {
            "experiment": self.experiment,
            "backend": self.env["SYMPHONY_BACKEND"],
            "directory": self.directory,
            "services": self.services,
            "secrets": {
                **{name: f"{source} (copied)" for name, source in self.secrets.items()},
                **dict.fromkeys(self.keys, "(made by the launch)"),
            },
            "env": {key: value for key, value in self.env.items() if key != MARK},
            "processes": {command.path: _shown(command) for command in self.commands},
            "ignored": {item.setting: list(item.processes) for item in self.ignored},
        }
        return to_yaml({key: value for key, value in shown.items() if value})


def _shown(command: Command) -> dict[str, Any]:
    ready = {**command.ready, "timeout": command.ready_timeout} if command.ready else None
    optional = {
        "env_secrets": command.env_secrets,
        "starts_after": command.starts_after,
        "ready": ready,
        "restart_policy": command.restart if command.restart != "Never" else None,
        "termination_grace_period": command.grace if command.grace != DEFAULT_GRACE else None,
        "gpus": command.gpus,
    }
    return {
        "command": shlex.join(command.argv),
        "folder": command.cwd,
        "env": command.env,
        **{key: value for key, value in optional.items() if value},
    }


def render(plan: Plan, *, run_id: str, directory: Path, here: Path, shell: str) -> HostManifest:
    """What ``plan`` becomes on this machine.

    ``directory`` will be its run directory, ``here`` is where relative folders begin unless the plan says, and
    ``shell`` runs shell lines.
    """
    base = plan.base_dir or here
    env = {**plan.shared_env, MARK: run_id}
    if plan.secrets:
        env[SECRETS_VARIABLE] = str(directory / "secrets")
    return HostManifest(
        experiment=plan.experiment,
        run_id=run_id,
        directory=str(directory),
        commands=tuple(_command(plan, process, env, base, shell) for process in plan),
        env=env,
        services={name: endpoint.addr for name, endpoint in plan.addresses.items()},
        exposed=tuple(name for name, endpoint in plan.addresses.items() if endpoint.exposed),
        secrets={name: str(base / source) for name, source in plan.secrets.items()},
        ignored=ignored_settings(plan, HONOURED),
        keys=plan.key_variables,
    )


def _command(
    plan: Plan, process: PlannedProcess, shared: Mapping[str, str], base: Path, shell: str
) -> Command:
    served = [
        endpoint
        for endpoint in plan.addresses.values()
        if endpoint.owner in (process.name, process.group)
    ]
    ready = dict(process.settings.ready or {})
    timeout = float(ready.pop("timeout", 60.0))
    gpus = int(process.settings.resource_limit.get("gpu", 0))
    return Command(
        name=process.name,
        group=process.group,
        argv=tuple(_argv(process, shell)),
        cwd=str(base / (process.start_dir or "")),
        env=_own_env(plan, process, shared),
        env_secrets={**plan.env_secrets(process), **{key: key for key in process.keys}},
        grace=_grace(process.pod),
        restart=process.pod.restart_policy or "Never",
        ready=_ready(ready, plan) or None,
        ready_timeout=timeout,
        starts_after=process.starts_after,
        releases=tuple(endpoint.port for endpoint in served),
        connects=tuple(process.settings.connects),
        gpus=gpus,
        preamble=process.preamble_cmds,
    )


def _own_env(plan: Plan, process: PlannedProcess, shared: Mapping[str, str]) -> dict[str, str]:
    """The process's variables without the shared ones, which lie below these and would win over the user's."""
    return {key: value for key, value in plan.environment(process).items() if key not in shared}


def _grace(pod: Settings) -> float:
    return (
        DEFAULT_GRACE
        if pod.termination_grace_period is None
        else float(pod.termination_grace_period)
    )


def _argv(process: PlannedProcess, shell: str) -> list[str]:
    found = argv(process, shell)
    if not found:
        raise SpecError(
            f"process {process.path!r} has no command: an image's own entry point cannot run on this backend; "
            "give it command=, cmd= or cmds="
        )
    return found


def _ready(test: Mapping[str, Any], plan: Plan) -> dict[str, Any]:
    """A readiness test with addresses where it had services."""
    if "tcp" in test:
        return {"tcp": [HOST, plan.addresses[test["tcp"]].port]}
    if "http" in test:
        service, path = test["http"]
        return {"http": [HOST, plan.addresses[service].port, path]}
    return dict(test)
