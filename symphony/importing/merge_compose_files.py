"""Merging compose files, as the compose specification describes it.

The rules are those of https://docs.docker.com/reference/compose-file/merge/: mappings are merged,
lists are joined, and other values are replaced. Some keys of a service have rules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from symphony.errors import SpecError
from symphony.model.document.other_formats.values import mapping

# The keys that lead to a value in a document, such as ("services", "web", "ports").
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reset:
    """The value of a key with the tag ``!reset``, which removes the key."""


@dataclass(frozen=True, slots=True)
class Override:
    """A value with the tag ``!override``, which replaces another value instead of being merged."""

    value: Any


TAGS = {"!reset": lambda _tag, _value: Reset(), "!override": lambda _tag, value: Override(value)}

_REPLACED = frozenset({("command",), ("entrypoint",), ("healthcheck", "test")})


def merged(base: Any, over: Any, path: Path = ()) -> Any:
    """Return a value of a compose file into which the value of another file is merged.

    Tagged values remain tagged, so that the result can be merged into a further file. Raises
    `SpecError` if the values cannot be merged.
    """
    if isinstance(over, (Reset, Override)):
        return over
    if isinstance(base, Override):
        return Override(merged(base.value, over, path))
    if isinstance(base, Reset):
        return over
    key = path[2:] if path[:1] == ("services",) else ()
    if key in _REPLACED:
        return over
    if over is None or base is None:
        return base if over is None else over
    if key in _SPECIAL:
        return _SPECIAL[key](base, over, path)
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        return _merged_mappings(base, over, path)
    if isinstance(base, list) and isinstance(over, list):
        return _joined(base, over)
    has_two_forms = isinstance(base, (Mapping, list)) or isinstance(over, (Mapping, list))
    if has_two_forms and key[:1] != ("ulimits",):
        raise SpecError(
            f"{'.'.join(path)} has different forms in files that are merged; write both as a list "
            "or both as a mapping"
        )
    return over


def _merged_mappings(
    base: Mapping[str, Any], over: Mapping[str, Any], path: Path
) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        result[key] = merged(result[key], value, (*path, key)) if key in result else value
    return result


def _joined(base: list[Any], over: list[Any]) -> list[Any]:
    result = [*base]
    result += [item for item in over if item not in base]
    return result


def _as_list(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [f"{key}={item}" for key, item in value.items()]
    return value if isinstance(value, list) else [value]


def _merged_key_values(base: Any, over: Any, path: Path) -> dict[str, Any]:
    try:
        return {**mapping(base), **mapping(over)}
    except TypeError:
        raise SpecError(
            f"{'.'.join(path)} is neither a mapping nor a list of key=value; correct the file"
        ) from None


def _joined_lists(base: Any, over: Any, _path: Path) -> list[Any]:
    """Join values that can be one value or a list of values."""
    return _joined(_as_list(base), _as_list(over))


def _merged_names(base: Any, over: Any, path: Path) -> dict[str, Any]:
    """Merge values that can be a list of names or a mapping from names to options."""
    is_dependency = path[-1] == "depends_on"
    options = {"condition": "service_started", "required": "true"} if is_dependency else None

    def named(value: Any) -> Mapping[str, Any]:
        if isinstance(value, Mapping):
            return value
        if options is None:
            return dict.fromkeys(_as_list(value))
        return {name: dict(options) for name in _as_list(value)}

    return _merged_mappings(named(base), named(over), path)


def _merged_builds(base: Any, over: Any, path: Path) -> dict[str, Any]:
    return _merged_mappings(_as_build(base), _as_build(over), path)


def _as_build(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {"context": value}


def _merged_logging(base: Any, over: Any, path: Path) -> Any:
    """Merge the options of one driver. Another driver replaces them."""
    if not isinstance(base, Mapping) or not isinstance(over, Mapping):
        return over
    drivers = base.get("driver"), over.get("driver")
    is_same = None in drivers or drivers[0] == drivers[1]
    return _merged_mappings(base, over, path) if is_same else over


# The keys of a service with rules of their own.
_SPECIAL: dict[Path, Callable[[Any, Any, Path], Any]] = {
    ("annotations",): _merged_key_values,
    ("build",): _merged_builds,
    ("build", "additional_contexts"): _merged_key_values,
    ("build", "args"): _merged_key_values,
    ("build", "extra_hosts"): _joined_lists,
    ("build", "labels"): _merged_key_values,
    ("depends_on",): _merged_names,
    ("deploy", "labels"): _merged_key_values,
    ("dns",): _joined_lists,
    ("dns_opt",): _joined_lists,
    ("dns_search",): _joined_lists,
    ("env_file",): _joined_lists,
    ("environment",): _merged_key_values,
    ("extra_hosts",): _joined_lists,
    ("label_file",): _joined_lists,
    ("labels",): _merged_key_values,
    ("logging",): _merged_logging,
    ("models",): _merged_names,
    ("networks",): _merged_names,
    ("sysctls",): _merged_key_values,
    ("tmpfs",): _joined_lists,
}


# --- the end of merging ---


def without_tags(value: Any) -> Any:
    """Return a value without tags. A key with the tag ``!reset`` is missing from the result."""
    if isinstance(value, Override):
        return without_tags(value.value)
    if isinstance(value, Mapping):
        items = {key: item for key, item in value.items() if not isinstance(item, Reset)}
        return {key: without_tags(item) for key, item in items.items()}
    if isinstance(value, list):
        return [without_tags(item) for item in value if not isinstance(item, Reset)]
    return None if isinstance(value, Reset) else value


def mapped(value: Any, function: Callable[[str], Any]) -> Any:
    """Return a value in which ``function`` has been applied to each text. Keys are unchanged."""
    if isinstance(value, Override):
        return Override(mapped(value.value, function))
    if isinstance(value, Mapping):
        return {key: mapped(item, function) for key, item in value.items()}
    if isinstance(value, list):
        return [mapped(item, function) for item in value]
    return function(value) if isinstance(value, str) else value


def with_unique_items(service: Mapping[str, Any]) -> dict[str, Any]:
    """Return a service in which each list contains one item for each target.

    The last item for a target takes effect, at the position of the first one.
    """
    result = dict(service)
    for key, target_of in _TARGETS.items():
        value = result.get(key)
        if isinstance(value, list):
            result[key] = list({target_of(item): item for item in value}.values())
    return result


def _text(item: Any) -> str:
    return str(item)


def _target_of_volume(item: Any) -> str:
    if isinstance(item, Mapping):
        return str(item.get("target"))
    parts = str(item).split(":")
    return parts[0] if len(parts) == 1 else parts[1]


def _target_of_file(item: Any) -> str:
    if isinstance(item, Mapping):
        return str(item.get("target") or item.get("source"))
    return str(item)


def _path(item: Any) -> str:
    return str(item.get("path")) if isinstance(item, Mapping) else str(item)


_TARGETS: dict[str, Callable[[Any], str]] = {
    "cap_add": _text,
    "cap_drop": _text,
    "configs": _target_of_file,
    "devices": _target_of_volume,
    "dns": _text,
    "env_file": _path,
    "expose": _text,
    "ports": _text,
    "profiles": _text,
    "secrets": _target_of_file,
    "tmpfs": _text,
    "volumes": _target_of_volume,
}
