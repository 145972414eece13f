"""Resolving an experiment into a plan, in which all values are determined but not rendered.

Resolving an experiment also checks the rules that concern several of its parts. For example,
services must be bound, services must not share a port, and the start order must not contain a
cycle. Resolving performs no input or output, except that it reads env files and the templates of
configuration files, and that an address scheme can check which ports are free.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from symphony.model import Experiment, Process
from symphony.model.settings.code import code_source
from symphony.model.settings.table import POD, Settings
from symphony.model.settings.validators import DEFAULT_PORT_RANGE
from symphony.plan.findings import ERROR, Finding, finding_of
from symphony.plan.plan import Plan, PlannedProcess
from symphony.plan.resolution import encryption_keys
from symphony.plan.resolution.address_values import (
    AddressValues,
    ProcessValues,
    check_address_references,
)
from symphony.plan.resolution.addresses import (
    AddressBook,
    AddressScheme,
    Endpoint,
    ServedEndpoints,
    assign_addresses,
)
from symphony.plan.resolution.configs import ConfigTemplates, check_configs, read_config_templates
from symphony.plan.resolution.dependencies import check_start_order, start_dependencies
from symphony.plan.resolution.env_files import EnvFiles, check_env_files, read_env_files
from symphony.plan.resolution.experiment_policies import check_policies, resolve_policies
from symphony.plan.resolution.process_settings import (
    check_process_settings,
    effective_settings,
    encryption_key_variables,
)
from symphony.plan.resolution.ranks import check_ranks, master_service, units_of
from symphony.plan.resolution.services import (
    check_services,
    encrypted_services,
    replicated_services,
    service_requests,
)
from symphony.plan.restart_policy import RestartPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The default settings that a cluster applies to all of its experiments.

    ``preamble_cmds`` run before an experiment's own preamble. If an experiment's start directory
    is a relative path, it is relative to ``start_dir``. ``resource_request`` maps resources to
    amounts. Each amount applies to processes that neither request nor limit that resource.
    ``record_usage`` applies to experiments that do not set it.
    """

    preamble_cmds: tuple[str, ...] = ()
    start_dir: str | None = None
    resource_request: Mapping[str, str] = field(default_factory=dict)
    record_usage: bool = False


def resolve(
    experiment: Experiment, scheme: AddressScheme, defaults: Defaults | None = None
) -> Plan:
    """Return the plan of an experiment for one backend.

    The experiment is not modified, and later changes to it do not affect the plan. Raises
    `SpecError` for the first error in the experiment, or if a port is unavailable.
    """
    experiment.check_values()
    env_files = read_env_files(experiment)
    templates = read_config_templates(experiment)
    settings = _effective_settings(experiment, env_files)
    for finding in _check(experiment, settings, env_files, templates):
        raise finding.to_error()
    encrypted = encrypted_services(experiment)
    port_range = experiment.port_range or DEFAULT_PORT_RANGE
    addresses = assign_addresses(
        service_requests(experiment), scheme, port_range, replicated_services(experiment)
    )
    values = AddressValues(addresses)
    dependencies = start_dependencies(experiment)
    shared_env = {
        **addresses.environment(),
        **_encryption_variables(addresses, encrypted),
        "SYMPHONY_EXPERIMENT": experiment.name,
        "SYMPHONY_BACKEND": scheme.backend,
    }
    endpoints = ServedEndpoints(addresses)
    processes = []
    for process in experiment.list_all_processes():
        served = endpoints.of(process.name, _group_name(process))
        planned = _planned_process(
            experiment,
            process,
            settings[process.name],
            defaults=defaults or Defaults(),
            templates=templates,
            values=values.of(served),
            starts_after=dependencies[process.name],
            encrypted=encrypted,
            experiment_env={**env_files.env(experiment.env_file), **experiment.env},
            serves=served,
            node=scheme.node(process.name),
        )
        processes.append(planned)
    return Plan(
        experiment=experiment.name,
        backend=scheme.backend,
        processes=tuple(processes),
        addresses=addresses,
        shared_env=shared_env,
        secrets=dict(experiment.secrets),
        policies=resolve_policies(experiment, record_usage=(defaults or Defaults()).record_usage),
        sbatch_options=tuple(experiment.sbatch_options),
        parameters=experiment.given.shown_parameters,
        movable_ports=dict.fromkeys(_unused_masters(experiment, values), port_range),
        base_dir=experiment.base_dir,
    )


def _unused_masters(experiment: Experiment, values: AddressValues) -> list[str]:
    """Return the services at which ranks meet and whose addresses only these ranks use.

    ``values`` has replaced the references of all processes.
    """
    masters = [master_service(unit) for unit in units_of(experiment)]
    return [service for service in masters if service not in values.used]


def check_experiment(experiment: Experiment) -> Iterator[Finding]:
    """Yield all errors that `resolve` would raise, except for errors about unavailable ports.

    Raises `SpecError` if the program has changed a value in place so that it is invalid.
    """
    experiment.check_values()
    env_files = read_env_files(experiment)
    settings = _effective_settings(experiment, env_files)
    yield from _check(experiment, settings, env_files, read_config_templates(experiment))


def _effective_settings(experiment: Experiment, env_files: EnvFiles) -> dict[str, Settings]:
    return {
        process.name: effective_settings(process, env_files)
        for process in experiment.list_all_processes()
    }


def _check(
    experiment: Experiment,
    settings: Mapping[str, Settings],
    env_files: EnvFiles,
    templates: ConfigTemplates,
) -> Iterator[Finding]:
    yield from _check_members(experiment)
    yield from check_env_files(experiment, env_files)
    yield from check_services(experiment)
    yield from check_address_references(experiment)
    yield from check_configs(experiment, settings, templates)
    yield from check_ranks(experiment)
    yield from check_start_order(experiment)
    yield from check_policies(experiment)
    yield from check_process_settings(
        experiment,
        settings,
        encrypted_services(experiment),
        {*env_files.env(experiment.env_file), *experiment.env},
    )


def _check_members(experiment: Experiment) -> Iterator[Finding]:
    if not experiment.list_members():
        yield Finding(
            rule="no-processes",
            level=ERROR,
            problem=f"experiment {experiment.name!r} has no processes",
            hint="add one below processes, or raise its replicas from 0",
            path=("processes",),
        )
    for group in experiment.list_process_groups():
        if not group.list_processes():
            yield finding_of(
                group, "no-processes", "the group has no processes", "add one, or remove the group"
            )


def _group_name(process: Process) -> str | None:
    return None if process.group is None else process.group.name


def _planned_process(
    experiment: Experiment,
    process: Process,
    settings: Settings,
    *,
    defaults: Defaults,
    templates: ConfigTemplates,
    values: ProcessValues,
    starts_after: dict[str, str],
    encrypted: Collection[str],
    experiment_env: Mapping[str, str],
    serves: tuple[Endpoint, ...],
    node: int,
) -> PlannedProcess:
    group = process.group
    pod_component = process if group is None else group
    own_preamble = [*experiment.preamble_cmds]
    if group is not None:
        own_preamble += group.preamble_cmds
    own_preamble += process.preamble_cmds
    own_lines = values.texts(own_preamble, in_shell_line=True)
    mask_lines = [] if settings.umask is None else [f"umask {settings.umask}"]
    preamble_cmds = (*defaults.preamble_cmds, *mask_lines, *own_lines)
    code = code_source(process)
    start_dirs = [
        defaults.start_dir if code is None else None,
        experiment.start_dir,
        None if group is None else group.start_dir,
        process.start_dir,
    ]
    # A limit also acts as a request, and can be lower than the default request.
    default_request = {
        resource: amount
        for resource, amount in defaults.resource_request.items()
        if resource not in settings.resource_limit
    }
    settings.resource_request = {**default_request, **settings.resource_request}
    # A variable that the process sets from a secret replaces the experiment's variable with the
    # same name.
    inherited_env = {
        key: value for key, value in experiment_env.items() if key not in settings.env_secrets
    }
    env = {**inherited_env, **settings.env}
    settings.ready = _with_command(settings.ready, values)
    settings.healthy = _with_command(settings.healthy, values)
    if settings.stop_command is not None:
        settings.stop_command = values.command(settings.stop_command)
    pod = pod_component.settings.at_level(POD)
    return PlannedProcess(
        name=process.name,
        group=None if group is None else group.name,
        container_image=process.container_image,
        command=None if process.command is None else values.texts(process.command),
        args=values.texts(process.args or ()),
        cmds=None if process.cmds is None else values.texts(process.cmds, in_shell_line=True),
        preamble_cmds=preamble_cmds,
        start_dir=_joined_directories(start_dirs),
        env={key: values.text(value) for key, value in env.items()},
        settings=settings,
        pod=pod,
        restart=RestartPolicy.of(pod.restart_policy),
        starts_after=starts_after,
        code=code,
        configs=templates.rendered(settings.configs, values),
        keys=encryption_key_variables(process, settings, encrypted),
        serves=serves,
        node=node,
    )


def _with_command(test: dict[str, Any] | None, values: ProcessValues) -> dict[str, Any] | None:
    """Return a test of a process whose command contains addresses instead of references."""
    if test is None or "command" not in test:
        return test
    return {**test, "command": values.command(test["command"])}


def _encryption_variables(addresses: AddressBook, encrypted: Collection[str]) -> dict[str, str]:
    """Return the variables that mark encrypted services, and the replicas of such services."""
    names = list(encrypted)
    for endpoint in addresses.endpoints:
        if endpoint.replica_of in encrypted:
            names.append(endpoint.service)
    return {encryption_keys.variable(name): encryption_keys.CURVE for name in names}


def _joined_directories(directories: Collection[str | None]) -> str | None:
    given = [directory for directory in directories if directory]
    return posixpath.join(*given) if given else None
