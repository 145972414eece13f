"""The effective settings of a process, and the rules that apply to these settings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from symphony.errors import SpecError
from symphony.model.experiment.component import mount_path_of
from symphony.model.settings.table import CONTAINER
from symphony.plan.findings import Finding, finding_of, suggestion
from symphony.plan.resolution import encryption_keys
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.model import Experiment, Process
    from symphony.model.document_path import DocumentPath
    from symphony.model.settings.table import Settings
    from symphony.plan.resolution.env_files import EnvFiles


def effective_settings(process: Process, env_files: EnvFiles) -> Settings:
    """Return a process's settings, with its group's container settings as the defaults.

    The variables in env files are part of ``env``.
    """
    own = env_files.applied_to(process.settings)
    if process.group is None:
        return own.copied()
    return env_files.applied_to(process.group.settings.at_level(CONTAINER)).under(own)


def check_process_settings(
    experiment: Experiment,
    settings: Mapping[str, Settings],
    encrypted: Collection[str],
    experiment_env: Collection[str],
) -> Iterator[Finding]:
    """Yield the errors in ``settings``, which maps process names to effective settings.

    ``experiment_env`` contains the names of the experiment's own variables.
    """
    for process in experiment.list_all_processes():
        effective = settings[process.name]
        yield from _volumes_with_one_mount_path(process, effective)
        yield from _variables_of_secrets(experiment, process, effective)
        yield from _variables_of_keys(experiment, process, effective, encrypted, experiment_env)


def _volumes_with_one_mount_path(process: Process, effective: Settings) -> Iterator[Finding]:
    own_volumes = process.settings.volumes
    mount_paths: set[str] = set()
    for volume in effective.volumes:
        mount_path = mount_path_of(volume)
        if mount_path in mount_paths:
            below: DocumentPath = ("volumes",)
            if volume in own_volumes:
                below = ("volumes", own_volumes.index(volume))
            yield finding_of(
                process,
                "mounted-twice",
                f"mounts two volumes at {mount_path!r}",
                "choose another mount_path for one of them",
                below=below,
            )
        mount_paths.add(mount_path)


def _variables_of_secrets(
    experiment: Experiment, process: Process, effective: Settings
) -> Iterator[Finding]:
    for key, secret in effective.env_secrets.items():
        path = _path_of_variable(process, "env_secrets", key)
        if secret not in experiment.secrets:
            yield finding_of(
                process,
                "unknown-secret",
                f"variable {key!r} uses secret {secret!r}, which the experiment does not have",
                suggestion(secret, experiment.secrets)
                or f"its secrets: {join_names(experiment.secrets)}",
                path=path,
            )
        if key in effective.env:
            yield finding_of(
                process,
                "variable-twice",
                f"variable {key!r} is set in env and in env_secrets",
                "remove one of them",
                path=path,
            )


def _variables_of_keys(
    experiment: Experiment,
    process: Process,
    effective: Settings,
    encrypted: Collection[str],
    experiment_env: Collection[str],
) -> Iterator[Finding]:
    for key in encryption_key_variables(process, effective, encrypted):
        if key in experiment.secrets:
            path: DocumentPath = ("secrets", key)
        elif key in effective.env_secrets:
            path = _path_of_variable(process, "env_secrets", key)
        elif key in effective.env:
            path = _path_of_variable(process, "env", key)
        elif key in experiment_env:
            path = ("env", key)
        else:
            continue
        yield finding_of(
            process,
            "reserved-variable",
            f"variable {key!r} is reserved for an encryption key of the process",
            "choose another name",
            path=path,
        )


def _path_of_variable(process: Process, setting: str, key: str) -> DocumentPath:
    """Return the path of a variable that is set on the process or on its group."""
    holder = process if key in getattr(process.settings, setting) else process.group or process
    return (*holder.document_path, setting, key)


def encryption_key_variables(
    process: Process, effective: Settings, encrypted: Collection[str]
) -> tuple[str, ...]:
    """Return the names of the variables in which a process receives encryption keys.

    The variables depend on which encrypted services the process or its group binds or connects to.
    """
    bound = set(effective.binds)
    if process.group is not None:
        bound.update(process.group.settings.binds)
    if not bound.isdisjoint(encrypted):
        return encryption_keys.SERVER_VARIABLES
    if not set(effective.connects).isdisjoint(encrypted):
        return encryption_keys.CLIENT_VARIABLES
    return ()


def secret_text(name: str, content: bytes) -> str:
    """Return a secret's contents as a string that can be the value of a variable.

    Raises `SpecError` if the contents are not UTF-8 text or contain a NUL character. The error
    message does not reveal the contents.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = None
    if text is None or "\0" in text:
        raise SpecError(
            f"secret {name!r} cannot be the value of a variable, because it is not UTF-8 text; "
            "read the file in SYMPHONY_SECRETS_DIR"
        )
    return text
