"""A cluster as it is configured: what the configuration says of a backend, below what was asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from symphony.errors import PluginError, SpecError
from symphony.names import near

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.config.config import SymphonyConfig


def configured(config: SymphonyConfig, name: str, options: Mapping[str, Any]) -> Cluster:
    """A cluster of a backend with ``options`` over what is configured for it."""
    backend = _opened(config, name)
    given = config.options_for(backend.backend, backend.option_names())
    for other, keywords in (config.get("options") or {}).items():
        if other != backend.backend and _is_alias(other, backend.backend):
            given.update(keywords)
    cluster = backend.with_options(name, {**given, **options})
    resources = config.get("resources")
    if resources:
        cluster.set_default_resources(resources)
    return cluster


def _opened(config: SymphonyConfig, name: str) -> type[Cluster]:
    from symphony.plugins import open_backend

    try:
        return open_backend(name)
    except PluginError as exc:
        source = config.source("backend") if config.backend == name else None
        if source is None or source.startswith("--"):
            raise
        raise PluginError(f"{source}: {exc}") from exc


def _is_alias(name: str, backend: str) -> bool:
    """Whether options of ``name`` are for ``backend``; a name that nobody has is refused if it is nearly another's."""
    from symphony import plugins

    try:
        return plugins.find(name).name == backend
    except PluginError as exc:
        if near(name, plugins.names()):
            raise SpecError(f"options.{name} in the configuration: {exc}") from exc
        return False  # of a backend that is not installed here
