"""The services of an experiment, and the rules that they must satisfy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from symphony.model import Process
from symphony.plan.findings import Finding, finding_of, suggestion
from symphony.plan.resolution.addresses import PREFIX, ServiceRequest
from symphony.plan.resolution.ranks import master_service, units_of
from symphony.support.names import join_names, service_env_name

if TYPE_CHECKING:
    from symphony.model import Experiment, ProcessGroup


def service_requests(experiment: Experiment) -> list[ServiceRequest]:
    """Return the services that are bound or exposed, in declaration order.

    The experiment must satisfy the rules of `check_services`.
    """
    requests: list[ServiceRequest] = []
    replicas: dict[str, int] = {}
    first_ranks = {names[0]: unit for unit, names in units_of(experiment).items()}
    for component in experiment.list_components():
        if component.name in first_ranks:
            unit = first_ranks[component.name]
            requests.append(
                ServiceRequest(
                    name=master_service(unit),
                    owner=component.name,
                    unit=component.name,
                    master_of=unit,
                )
            )
        settings = component.settings
        group = component.group if isinstance(component, Process) else None
        for service in served_services(component):
            name, replica_of = service, None
            if service in settings.replicated:
                name, replica_of = f"{service}-{replicas.get(service, 0)}", service
                replicas[service] = replicas.get(service, 0) + 1
            key = "binds" if service in settings.binds else "exposes"
            if not settings.binds.get(service) and settings.exposes.get(service):
                # Of both, the key that contains the port.
                key = "exposes"
            requests.append(
                ServiceRequest(
                    name=name,
                    owner=component.name,
                    unit=component.name if group is None else group.name,
                    port=settings.binds.get(service) or settings.exposes.get(service),
                    exposed=service in settings.exposes,
                    replica_of=replica_of,
                    path=(*component.document_path, key, service),
                )
            )
    return requests


def replicated_services(experiment: Experiment) -> tuple[str, ...]:
    """Return the replicated services, in declaration order, including those without replicas."""
    components = experiment.list_components()
    names = [name for component in components for name in component.settings.replicated]
    return tuple(dict.fromkeys([*names, *experiment.services_without_replicas]))


def served_services(component: Process | ProcessGroup) -> list[str]:
    """Return the services that a process or group binds or exposes, without duplicates."""
    settings = component.settings
    return list(dict.fromkeys([*settings.binds, *settings.exposes]))


def encrypted_services(experiment: Experiment) -> tuple[str, ...]:
    """Return the encrypted services, in declaration order."""
    components = experiment.list_components()
    names = [name for component in components for name in component.settings.encrypted]
    return tuple(dict.fromkeys(names))


def check_services(experiment: Experiment) -> Iterator[Finding]:
    """Yield a finding for each error in an experiment's services."""
    yield from _services_with_two_servers(experiment)
    yield from _services_that_are_not_bound(experiment)
    for process in experiment.list_all_processes():
        yield from _tests_of_foreign_services(process)
    for component in experiment.list_components():
        yield from _encryption_of_a_foreign_service(component)
        yield from _replication_of_a_foreign_service(component)
    yield from _services_encrypted_by_some_replicas(experiment)
    yield from _services_that_share_a_variable(experiment)


def _services_with_two_servers(experiment: Experiment) -> Iterator[Finding]:
    servers: dict[str, Process | ProcessGroup] = {}
    for component in experiment.list_components():
        settings = component.settings
        for name in served_services(component):
            bound_port, exposed_port = settings.binds.get(name), settings.exposes.get(name)
            if bound_port and exposed_port and bound_port != exposed_port:
                yield finding_of(
                    component,
                    "two-ports",
                    f"binds service {name!r} on port {bound_port} and exposes it on port "
                    f"{exposed_port}",
                    "use one port",
                    below=("exposes", name),
                )
            server = servers.setdefault(name, component)
            is_replicated = name in settings.replicated and name in server.settings.replicated
            if server is not component and not is_replicated:
                yield finding_of(
                    component,
                    "bound-twice",
                    f"serves service {name!r}, which {server.path!r} serves too",
                    "let one of them bind it and the others connect to it, rename one service, or "
                    f"add 'replicated: {name}' to both, so that each has its own address",
                    below=("binds" if name in settings.binds else "exposes", name),
                )


def _services_that_are_not_bound(experiment: Experiment) -> Iterator[Finding]:
    components = experiment.list_components()
    bound = {name: None for component in components for name in component.settings.binds}
    bound.update(dict.fromkeys(experiment.services_without_replicas))
    exposed = {name: component for component in components for name in component.settings.exposes}
    for component in components:
        for index, name in enumerate(component.settings.connects):
            if name in bound:
                continue
            if name in exposed:
                owner = exposed[name].path
                problem = f"connects to service {name!r}, which {owner!r} exposes but does not bind"
                hint = f"add it to the binds of {owner!r}"
            else:
                problem = f"connects to service {name!r}, which no process binds"
                hint = suggestion(name, bound) or (
                    f"let a process bind it; bound services: {join_names(bound)}"
                )
            yield finding_of(component, "unbound-service", problem, hint, below=("connects", index))


def _tests_of_foreign_services(process: Process) -> Iterator[Finding]:
    """Yield the errors about the tests of a process, see `_test_of_a_foreign_service`."""
    for setting in ("ready", "healthy"):
        yield from _test_of_a_foreign_service(process, setting)


def _test_of_a_foreign_service(process: Process, setting: str) -> Iterator[Finding]:
    """Yield an error if ``ready`` or ``healthy`` tests a service that the process does not serve.

    The test and the service can be set on the process or on its group.
    """
    group = process.group
    holder: Process | ProcessGroup = process
    if getattr(process.settings, setting) is None and group is not None:
        holder = group
    test = getattr(holder.settings, setting) or {}
    if "tcp" in test:
        key, service = "tcp", test["tcp"]
    elif "http" in test:
        key, service = "http", test["http"][0]
    else:
        return
    served = served_services(process)
    if group is not None:
        served += served_services(group)
    if service not in served:
        yield finding_of(
            process,
            setting,
            f"{setting}.{key} names service {service!r}, which the process neither binds nor "
            "exposes",
            suggestion(service, served)
            or f"bind {service!r}, or name a service that the process binds",
            path=(*holder.document_path, setting),
        )


def _encryption_of_a_foreign_service(component: Process | ProcessGroup) -> Iterator[Finding]:
    settings = component.settings
    for index, name in enumerate(settings.encrypted):
        if name not in settings.binds:
            yield finding_of(
                component,
                "encrypted",
                f"encrypts service {name!r}, which it does not bind",
                suggestion(name, settings.binds) or "encrypt the service where it is bound",
                below=("encrypted", index),
            )


def _replication_of_a_foreign_service(component: Process | ProcessGroup) -> Iterator[Finding]:
    served = served_services(component)
    for index, name in enumerate(component.settings.replicated):
        if name not in served:
            yield finding_of(
                component,
                "replicated",
                f"declares service {name!r} as replicated, which it neither binds nor exposes",
                suggestion(name, served) or "declare the service where it is bound",
                below=("replicated", index),
            )


def _services_encrypted_by_some_replicas(experiment: Experiment) -> Iterator[Finding]:
    """Yield an error if only some of the processes that bind a replicated service encrypt it."""
    encrypted = encrypted_services(experiment)
    for component in experiment.list_components():
        settings = component.settings
        for name in settings.replicated:
            if name in encrypted and name in settings.binds and name not in settings.encrypted:
                yield finding_of(
                    component,
                    "encrypted",
                    f"does not encrypt service {name!r}, which other replicas encrypt",
                    f"add 'encrypted: {name}'",
                    below=("binds", name),
                )


def _services_that_share_a_variable(experiment: Experiment) -> Iterator[Finding]:
    """Yield an error for services ``x`` and ``x-bind`` because both use ``SYMPH_X_BIND_HOST``, and
    for the replicated service ``x`` and a service ``x-0``.
    """
    components = experiment.list_components()
    served = {name for component in components for name in served_services(component)}
    replicated = replicated_services(experiment)
    for component in components:
        for name in served_services(component):
            of_replica = re.fullmatch(r"(.+)-[0-9]+(-bind)?", name)
            if of_replica is not None and of_replica[1] in replicated:
                key = "binds" if name in component.settings.binds else "exposes"
                yield finding_of(
                    component,
                    "shared-variable",
                    f"serves {name!r}, which is the name of a replica of service {of_replica[1]!r}",
                    "rename one of them",
                    below=(key, name),
                )
        for name in served_services(component):
            other = f"{name}-bind"
            if other in served:
                key = "binds" if name in component.settings.binds else "exposes"
                yield finding_of(
                    component,
                    "shared-variable",
                    f"services {name!r} and {other!r} share the variable "
                    f"{PREFIX}{service_env_name(name)}_BIND_HOST",
                    "rename one of them",
                    below=(key, name),
                )
