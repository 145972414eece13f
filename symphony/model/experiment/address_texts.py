"""The strings of an experiment that can contain the addresses of services."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from symphony.model.experiment.address_references import references
from symphony.model.experiment.process import Process

if TYPE_CHECKING:
    from symphony.model.document_path import DocumentPath
    from symphony.model.experiment.experiment import Experiment
    from symphony.model.experiment.group import ProcessGroup


def address_texts(
    experiment: Experiment,
) -> Iterator[tuple[Process | ProcessGroup | None, DocumentPath, str]]:
    """Yield the strings that can contain addresses, each with the component that it belongs to, or
    None if it belongs to the experiment, and its path.
    """
    for path, text in _items((), experiment.env, {"preamble_cmds": experiment.preamble_cmds}):
        yield None, path, text
    for component in experiment.list_components():
        for path, text in _texts_of(component):
            yield component, path, text


def _texts_of(component: Process | ProcessGroup) -> Iterator[tuple[DocumentPath, str]]:
    base, settings = component.document_path, component.settings
    lists = {"preamble_cmds": component.preamble_cmds}
    if isinstance(component, Process):
        lists["command"] = component.command or []
        lists["args"] = component.args or []
        lists["cmds"] = component.cmds or []
    yield from _items(base, settings.env, lists)
    for key, test in (("ready", settings.ready), ("healthy", settings.healthy)):
        yield from _command_items((*base, key, "command"), (test or {}).get("command"))
    yield from _command_items((*base, "stop_command"), settings.stop_command)


def _command_items(
    path: DocumentPath, command: str | list[str] | None
) -> Iterator[tuple[DocumentPath, str]]:
    """Yield the parts of a command, which can be a shell line."""
    if isinstance(command, str):
        yield path, command
    else:
        for index, text in enumerate(command or ()):
            yield (*path, index), text


def _items(
    base: DocumentPath, env: Mapping[str, str], lists: Mapping[str, Sequence[str]]
) -> Iterator[tuple[DocumentPath, str]]:
    for name, value in env.items():
        yield (*base, "env", name), value
    for key, texts in lists.items():
        for index, text in enumerate(texts):
            yield (*base, key, index), text


def referenced_services(component: Process | ProcessGroup) -> list[str]:
    """Return the services whose addresses the values of a process or group contain."""
    return _services_in(text for _, text in _texts_of(component))


def services_for_all(experiment: Experiment) -> list[str]:
    """Return the services whose addresses the values for all processes contain."""
    return _services_in([*experiment.env.values(), *experiment.preamble_cmds])


def _services_in(texts: Iterable[str]) -> list[str]:
    services: dict[str, None] = {}
    for text in texts:
        services.update(dict.fromkeys(reference.service for reference in references(text)))
    return list(services)
