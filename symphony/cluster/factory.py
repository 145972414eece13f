"""Creating a cluster from the name of its backend, its options and the configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from symphony.cluster import plugins
from symphony.config import SymphonyConfig
from symphony.errors import PluginError, SpecError, dotted
from symphony.support.names import did_you_mean

if TYPE_CHECKING:
    from symphony.cluster import Cluster

# Returns the class to use instead of that of a backend; see `symphony.cluster.backend.scope`.
limit_class: Callable[[type[Cluster]], type[Cluster]] | None = None


def create_cluster(base: type[Any], name: str | None, options: Mapping[str, Any]) -> Cluster:
    """Return a cluster for a backend; see `Cluster.new`.

    ``base`` is the class `Cluster`, which is a parameter because its module imports this module.
    The current configuration provides the backend if ``name`` is None, and each option that is not
    in ``options``. The cluster uses this configuration for all its launches.
    """
    configuration = SymphonyConfig()
    backend = configuration.backend if name is None else name
    if configuration.is_empty():
        cluster = _open_class(backend, base).with_options(backend, options)
    else:
        configuration.warn_of_untrusted_files()
        cluster = _create_configured(base, configuration, backend, options)
    cluster.configuration = configuration
    return cluster


def _open_class(name: str, base: type[Any]) -> type[Cluster]:
    cls = plugins.open_backend(name, base)
    return cls if limit_class is None else limit_class(cls)


def _create_configured(
    base: type[Any], configuration: SymphonyConfig, name: str, options: Mapping[str, Any]
) -> Cluster:
    """Return a cluster with the given ``options``. Other options have their configured values."""
    backend = _open_backend(base, configuration, name)
    values, sections = _configured_options(configuration, backend)
    only_configured = {
        option: section for option, section in sections.items() if option not in options
    }
    with _configured_position(configuration, only_configured):
        cluster = backend.with_options(name, {**values, **options})
    resources = configuration.get("resources")
    if resources:
        cluster.set_default_resources(resources)
    return cluster


def _open_backend(base: type[Any], configuration: SymphonyConfig, name: str) -> type[Cluster]:
    """Return a backend's class. If the configuration selected the backend, the message of a
    `PluginError` names the file or variable that selected it.
    """
    try:
        return _open_class(name, base)
    except PluginError as exc:
        source = configuration.source("backend") if configuration.backend == name else None
        if source is None or source.startswith("--"):
            raise
        raise PluginError(f"{source}: {exc}") from exc


def _configured_options(
    configuration: SymphonyConfig, backend: type[Cluster]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a backend's configured options, and a mapping from each option to the section that
    sets it.

    The sections are the keys of ``options`` in the configuration. Each section is named after a
    backend or an alias of a backend.
    """
    name = backend.backend
    values = configuration.options_for(name, backend.option_names())
    by_section = configuration.get("options") or {}
    sections = dict.fromkeys(by_section.get(name, ()), name)
    for section, section_values in by_section.items():
        if section != name and _is_alias(configuration, section, name):
            values.update(section_values)
            sections.update(dict.fromkeys(section_values, section))
    return values, sections


def _is_alias(configuration: SymphonyConfig, section: str, backend: str) -> bool:
    """Return whether ``section``, the name of a section of ``options``, is an alias of ``backend``.

    Sections for backends that are not installed are allowed. Raises `SpecError` if the section's
    name is unknown but similar to the name of an installed backend, because the name is probably a
    typing error.
    """
    try:
        return plugins.find_backend(section).name == backend
    except PluginError as exc:
        if did_you_mean(section, plugins.backend_names()):
            raise _at_position(configuration, exc, "options", section) from exc
        return False


@contextmanager
def _configured_position(
    configuration: SymphonyConfig, sections: Mapping[str, str]
) -> Iterator[None]:
    """Add the position in the configuration to a `SpecError` about a configured option.

    ``sections`` maps each configured option to the section that sets it; see `_configured_options`.
    """
    try:
        yield
    except SpecError as exc:
        option = str(exc.path[-1]) if exc.path else _first_word_of(str(exc), sections)
        if option not in sections:
            raise
        raise _at_position(configuration, exc, "options", sections[option], option) from exc


def _first_word_of(message: str, options: Iterable[str]) -> str:
    """Return the option with which ``message`` begins, or an empty string if it begins with none of
    ``options``.

    Error messages about an option's value begin with the option's name.
    """
    for option in options:
        if re.match(rf"{re.escape(option)}\b", message):
            return option
    return ""


def _at_position(configuration: SymphonyConfig, exc: Exception, *keys: str) -> SpecError:
    position = configuration.position(*keys)
    key = dotted(keys)
    if position is None:
        return SpecError(f"{key} in the configuration: {exc}", path=keys)
    return SpecError(f"{position}: {key}: {exc}", path=keys)
