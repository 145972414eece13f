"""A cluster as it is configured: what the configuration says of a backend, below what was asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from symphony.errors import PluginError, SpecError
from symphony.names import did_you_mean

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.config.config import SymphonyConfig


def configured(config: SymphonyConfig, name: str, options: Mapping[str, Any]) -> Cluster:
    """A cluster of a backend with ``options`` over what is configured for it."""
    backend = _opened(config, name)
    given = config.options_for(backend.backend, backend.option_names())
    every = config.get("options") or {}
    names = dict.fromkeys(
        every.get(backend.backend, ()), backend.backend
    )  # by option, that under which it stands
    for other, keywords in every.items():
        if other != backend.backend and _is_alias(config, other, backend.backend):
            given.update(keywords)
            names.update(dict.fromkeys(keywords, other))
    with _placed(
        config, {option: stands for option, stands in names.items() if option not in options}
    ):
        cluster = backend.with_options(name, {**given, **options})
    resources = config.get("resources")
    if resources:
        cluster.set_default_resources(resources)
    return cluster


def _opened(config: SymphonyConfig, name: str) -> type[Cluster]:
    from symphony.cluster.plugins import open_backend

    try:
        return open_backend(name)
    except PluginError as exc:
        source = config.source("backend") if config.backend == name else None
        if source is None or source.startswith("--"):
            raise
        raise PluginError(f"{source}: {exc}") from exc


@contextmanager
def _placed(config: SymphonyConfig, names: Mapping[str, str]) -> Iterator[None]:
    """Tell, of a `SpecError` about an option that is configured, where that is: below which of the backend's names."""
    try:
        yield
    except SpecError as exc:
        option = str(exc.path[-1]) if exc.path else _begins_with(str(exc), names)
        if option not in names:
            raise
        raise _at(config, exc, "options", names[option], option) from exc


def _begins_with(message: str, options: Iterable[str]) -> str:
    """The option that a message begins with, as those about a value do."""
    return next((option for option in options if re.match(rf"{re.escape(option)}\b", message)), "")


def _at(config: SymphonyConfig, exc: Exception, *place: str) -> SpecError:
    where = config.position(*place)
    dotted = ".".join(place)
    return SpecError(
        f"{where}: {dotted}: {exc}" if where else f"{dotted} in the configuration: {exc}",
        path=place,
    )


def _is_alias(config: SymphonyConfig, name: str, backend: str) -> bool:
    """Whether options of ``name`` are for ``backend``; a name that nobody has is refused if it is nearly another's."""
    from symphony.cluster import plugins

    try:
        return plugins.find_backend(name).name == backend
    except PluginError as exc:
        if did_you_mean(name, plugins.backend_names()):
            raise _at(config, exc, "options", name) from exc
        return False  # of a backend that is not installed here
