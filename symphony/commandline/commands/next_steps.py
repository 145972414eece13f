"""The next steps of a user with an experiment: its addresses, and further commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symphony.commandline.commands.line import Line
    from symphony.model import Experiment


def exposed_services(line: Line, experiment: str) -> dict[str, str | None]:
    """Return the exposed services of an experiment with their addresses, as far as the backend
    can determine them.
    """
    from symphony.errors import SymphonyError

    try:
        return line.cluster.exposed_services(experiment)
    except SymphonyError:
        # The addresses are additional information. The command has done its work.
        return {}


def address_lines(line: Line, experiment: Experiment) -> list[str]:
    """Return the result of `exposed_lines`. An experiment that exposes no service is not asked
    for, because reading the services of a large experiment takes time.
    """
    if any(component.settings.exposes for component in experiment.list_components()):
        return exposed_lines(line, experiment.name)
    return []


def exposed_lines(line: Line, experiment: str) -> list[str]:
    """Return a line for each exposed service, with its URL or the command that finds it."""
    from symphony.commandline.output.views import align_pairs

    services = exposed_services(line, experiment)
    if not services:
        return []
    location = "".join(f" {word}" for word in _location_of(line, experiment))
    pairs = []
    for service, address in services.items():
        command = f"{line.prog} visit{location} {experiment} {service}"
        pairs.append((service, f"http://{address}" if address else f"address: {command}"))
    return align_pairs(pairs)


def next_commands(line: Line, experiment: str) -> list[str]:
    """Return lines that suggest commands for a newly launched experiment."""
    from symphony.commandline.output.views import align_pairs

    location = "".join(f" {word}" for word in _location_of(line, experiment))
    return align_pairs(
        [
            (f"{line.prog} ps{location} {experiment}", "show its processes"),
            (f"{line.prog} logs{location} -f {experiment}", "follow its logs"),
            (f"{line.prog} delete{location} {experiment}", "stop and delete it"),
        ]
    )


def _location_of(line: Line, experiment: str) -> list[str]:
    """Return the words that other commands need to find an experiment on this cluster."""
    from symphony.commandline.commands.lookup.find_backend import is_ambiguous

    backend = line.cluster.backend
    if not line.names_backend and is_ambiguous(line.cluster, experiment):
        return ["-b", backend]
    return line.cluster_arguments
