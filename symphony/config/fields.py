"""The fields of a configuration, and the validation of their values.

A configuration is stored as a flat mapping. The key of a value is its path, such as ``("resources",
"cpu")``. The value None removes the value that a source with a lower priority sets.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from symphony.config.locations import expand_user
from symphony.errors import SpecError, error_path, shown
from symphony.support.names import (
    MAX_LENGTH,
    OWN_KEY_PREFIX,
    check_name,
    did_you_mean,
    is_name,
    join_names,
)

KeyPath = tuple[str, ...]
Values = dict[KeyPath, Any]
# A function that validates a field's value and returns the value to store. Its arguments are the
# value and the base directory for relative paths.
FieldReader = Callable[[object, Path], Any]

PROFILES = "profiles"


class Content(NamedTuple):
    """The values that a source sets, and the values that each of its profiles sets."""

    values: Values
    profiles: dict[str, Values]


def with_username(username: str, name: str) -> str:
    """Return the experiment name with the user name as a prefix: ``rl`` becomes ``sarah-rl``.

    A name that already begins with the user name and a hyphen is not changed. Raises `SpecError` if
    ``name`` is invalid, or if the result is too long.

    >>> with_username("sarah", "rl"), with_username("sarah", "sarah-rl")
    ('sarah-rl', 'sarah-rl')
    >>> with_username("sarah", "sarahs-x")
    'sarah-sarahs-x'
    """
    check_name(name, "experiment")
    if name.startswith(f"{username}-"):
        return name
    result = f"{username}-{name}"
    if len(result) > MAX_LENGTH:
        raise SpecError(
            f"experiment {name!r} of user {username!r} would have the name {result!r} with "
            f"{len(result)} characters, but at most {MAX_LENGTH} are allowed; "
            "shorten one of the two"
        )
    return result


def _nonempty_text(value: object, what: str) -> str:
    """Validate ``value`` as a nonempty string, and return it.

    Raises `SpecError` if ``value`` is invalid.
    """
    if isinstance(value, str) and value and "\0" not in value:
        return value
    # This module is imported here because most values are valid strings, which do not need it.
    from symphony.model.settings import validators

    return validators.nonempty_text(value, what)


def _read_username(value: object, _: Path) -> str:
    return check_name(_nonempty_text(value, "username"), "user")


def _read_namespace(value: object, _: Path) -> str:
    name = _nonempty_text(value, "namespace")
    if not is_name(name):
        raise SpecError(
            f"a namespace must consist of a-z, 0-9 and '-', at most {MAX_LENGTH} characters, "
            f"not {name!r}"
        )
    return name


def _text_reader(name: str) -> FieldReader:
    return lambda value, _: _nonempty_text(value, name)


def _path_reader(name: str) -> FieldReader:
    """Return a function that makes a path absolute and expands ``~`` to the home directory."""

    def read(value: object, base: Path) -> str:
        path = expand_user(_nonempty_text(value, name))
        return os.path.normpath(base / path)

    return read


FIELDS: dict[str, FieldReader] = {
    "username": _read_username,
    "experiment_folder": _path_reader("experiment_folder"),
    "backend": _text_reader("backend"),
    "profile": _text_reader("profile"),
    "context": _text_reader("context"),
    "namespace": _read_namespace,
    "kubeconfig": _path_reader("kubeconfig"),
    "image": _text_reader("image"),
}
# The fields that contain other fields: the resource amounts, the settings of the records of runs,
# and each backend's options.
GROUPS = ("resources", "runs", "options")
RESOURCES = ("cpu", "memory", "mem")
RUN_SETTINGS = ("keep", "max_size", "older_than", "max_log_size", "log_timeout", "record_usage")
# Fields that are passed to a backend's class if the class has an option with the same name.
BACKEND_OPTION_FIELDS = ("context", "namespace", "kubeconfig", "image")

KNOWN = (*FIELDS, *GROUPS, PROFILES)
IN_PROFILES = tuple(name for name in (*FIELDS, *GROUPS) if name != "profile")


def is_text_field(path: tuple[str | int, ...], key: str, inherited: bool) -> bool:
    """Return whether ``key`` takes a string, even if YAML would read its value as another type."""
    is_top_level = not path or (len(path) == 2 and path[0] == PROFILES)
    return inherited or (is_top_level and key in FIELDS)


def read_content(data: object, base: Path, own_fields: Collection[str] = ()) -> Content:
    """Validate a configuration, and return its values and its profiles' values.

    ``base`` is the directory for relative paths. ``own_fields`` are fields that the program has
    added. Raises `SpecError` if a key or a value is invalid. The error's ``path`` identifies the
    key or value.
    """
    from symphony.model.settings import validators

    given = validators.mapping(data, "a configuration")
    described = given.pop(PROFILES, None)
    profiles: dict[str, Values] = {}
    with error_path(PROFILES):
        by_name = validators.mapping({} if described is None else described, PROFILES)
        for name, profile in by_name.items():
            what = f"profile {name!r}"
            with error_path(name):
                settings = validators.mapping({} if profile is None else profile, what)
                profiles[name] = _read_values(settings, base, IN_PROFILES, own_fields, what)
    values = _read_values(given, base, KNOWN, own_fields, "a configuration")
    return Content(values, profiles)


def _read_values(
    given: Mapping[str, Any],
    base: Path,
    known: Collection[str],
    own_fields: Collection[str],
    what: str,
) -> Values:
    values: Values = {}
    for key, value in given.items():
        is_own = key.startswith(OWN_KEY_PREFIX) or (key in own_fields and key not in KNOWN)
        with error_path(key):
            if is_own:
                values[(key,)] = value
            elif key not in known:
                raise _unknown_key(key, known, own_fields, what)
            elif value is None:
                values[(key,)] = None
            elif key == "resources":
                resources = read_resources(value)
                values.update({(key, name): amount for name, amount in resources.items()})
            elif key == "runs":
                settings = read_run_settings(value)
                values.update({(key, name): setting for name, setting in settings.items()})
            elif key == "options":
                values.update(_read_options(value))
            else:
                values[(key,)] = FIELDS[key](value, base)
    return values


def _unknown_key(
    key: str, known: Collection[str], own_fields: Collection[str], what: str
) -> SpecError:
    hint = did_you_mean(key, {*known, *own_fields})
    if not hint:
        hint = f"; the keys are {join_names(known, limit=20)}"
    return SpecError(
        f"{what} has no key {key!r}{hint} (your own keys must begin with {OWN_KEY_PREFIX!r})"
    )


def read_resources(value: object) -> dict[str, str | None]:
    """Validate the default resources for processes that request none, and return them as text.

    The value None removes the default that a source with a lower priority sets.
    """
    from symphony.model.settings import quantities, validators

    given = validators.mapping(value, "resources")
    validators.refuse_unknown(given, RESOURCES, "resources")
    if given.get("mem") is not None and given.get("memory") is not None:
        raise SpecError("memory and mem are the same setting; set only one of them")
    result: dict[str, str | None] = {}
    for key, amount in given.items():
        name = "memory" if key == "mem" else key
        with error_path(key):
            text = None if amount is None else quantities.quantity_text(amount, name)
        result[name] = text
    return result


def read_run_settings(value: object) -> dict[str, int | str | None]:
    """Validate the settings of the records of runs, and return them.

    Numbers of runs are integers, and sizes and durations are text. The value None removes the
    setting of a source with a lower priority.
    """
    from symphony.model.settings import durations, quantities, validators

    given = validators.mapping(value, "runs")
    validators.refuse_unknown(given, RUN_SETTINGS, "runs")
    result: dict[str, int | str | None] = {}
    for key, limit in given.items():
        with error_path(key):
            if limit is None:
                result[key] = None
            elif key == "record_usage":
                result[key] = validators.flag(limit, key)
            elif key == "keep":
                result[key] = validators.whole_number(limit, key)
            elif key in ("older_than", "log_timeout"):
                durations.parse_duration(limit, key)
                result[key] = str(limit)
            else:
                result[key] = quantities.quantity_text(limit, key)
    return result


def _read_options(value: object) -> Values:
    """Validate the structure of the backend options, and return the options.

    The backend's class validates the values of the options.
    """
    from symphony.model.settings import validators

    values: Values = {}
    for backend, options in validators.mapping(value, "options").items():
        with error_path(backend):
            if options is not None and not isinstance(options, Mapping):
                raise SpecError(
                    "options must be grouped by backend, as in {kube: {expose: none}}, "
                    f"not {shown(options)}"
                )
            given = {} if options is None else options
            by_name = validators.mapping(given, f"options of {backend!r}")
            for name, option in by_name.items():
                values["options", backend.lower(), name] = option
    return values


def nested(values: Mapping[KeyPath, Any]) -> dict[str, Any]:
    """Convert a flat mapping to nested dictionaries.

    >>> nested({("cpu",): "2", ("kube", "expose"): "none"})
    {'cpu': '2', 'kube': {'expose': 'none'}}
    """
    result: dict[str, Any] = {}
    for path, value in values.items():
        *parents, key = path
        mapping = result
        for parent in parents:
            mapping = mapping.setdefault(parent, {})
        mapping[key] = value
    return result
