"""Rules that apply to every backend: the errors that a launch reports, and unused services."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from symphony.model.experiment.address_texts import referenced_services, services_for_all
from symphony.plan.findings import WARNING, Finding, finding_of
from symphony.plan.resolution.addresses import addresses_variable
from symphony.plan.resolution.configs import read_config_templates
from symphony.plan.resolution.unexpanded import check_unexpanded_variables
from symphony.plan.resolve import check_experiment

if TYPE_CHECKING:
    from symphony.model import Experiment


def rules(experiment: Experiment) -> Iterator[Finding]:
    """Yield the errors in an experiment, and a warning for each bound service that is unused, for
    each variable that no shell expands, and for each process that connects to a service without
    replicas.

    A service is unused if no process connects to it, no value contains its address, and it is not
    exposed.
    """
    yield from check_experiment(experiment)
    yield from check_unexpanded_variables(experiment)
    yield from _services_without_replicas(experiment)
    yield from _unused_services(experiment)


def _services_without_replicas(experiment: Experiment) -> Iterator[Finding]:
    absent = frozenset(experiment.services_without_replicas)
    for component in experiment.list_components():
        for index, name in enumerate(component.settings.connects):
            if name in absent:
                yield finding_of(
                    component,
                    "no-replicas",
                    f"connects to service {name!r}, which has no replicas, so "
                    f"{addresses_variable(name)} is empty",
                    "set replicas of the process that binds it to at least 1, or handle this case "
                    "in the program",
                    below=("connects", index),
                    level=WARNING,
                )


def _unused_services(experiment: Experiment) -> Iterator[Finding]:
    components = experiment.list_components()
    used = {name for component in components for name in component.settings.connects}
    used.update(name for component in components for name in component.settings.exposes)
    used.update(services_for_all(experiment), read_config_templates(experiment).services())
    for component in components:
        used.update(referenced_services(component))
    for component in components:
        for name in component.settings.binds:
            if name not in used:
                yield finding_of(
                    component,
                    "unused-service",
                    f"binds service {name!r}, but no process connects to it",
                    "connect a process to it, expose it, or remove it",
                    below=("binds", name),
                    level=WARNING,
                )
