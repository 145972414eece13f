"""The fields of a configuration: what each holds, and how what was written is checked.

A configuration is held flat, by where a value stands in it: ``("resources", "cpu")``. None takes away what a lower
source says.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from symphony.errors import SpecError, error_path
from symphony.names import MAX_LENGTH, check_name, did_you_mean, is_name, join_names

Place = tuple[str, ...]
Values = dict[Place, Any]

OWN = "x-"  # how keys of the user's own begin, in files that all programs read
PROFILES = "profiles"


class Field(NamedTuple):
    """What a field is for, and how a value of it is read; paths are relative to the given folder."""

    about: str
    read: Callable[[object, Path], Any]


class Content(NamedTuple):
    """What one file, or one update, says: its own values, and those of each of its profiles."""

    values: Values
    profiles: dict[str, Values]


def user_name(value: object) -> str:
    """A user name, which names of experiments begin with. Raises `SpecError`."""
    return check_name(_filled(value, "username"), "user")


def _filled(value: object, what: str) -> str:
    if isinstance(value, str) and value and "\0" not in value:
        return value
    from symphony.model import (
        validators,
    )  # what is wrong, or no text yet: variables are read without this

    return validators.path(value, what)


def _text(what: str) -> Callable[[object, Path], str]:
    return lambda value, _: _filled(value, what)


def _path(what: str) -> Callable[[object, Path], str]:
    return lambda value, base: absolute(value, base, what)


def absolute(value: object, base: Path, what: str) -> str:
    """A path as an absolute one: relative to ``base``, and ``~`` is the user's home."""
    given = Path(_filled(value, what)).expanduser()
    return os.path.normpath(base / given)


def _namespace(value: object, _: Path) -> str:
    name = _filled(value, "namespace")
    if not is_name(name):
        raise SpecError(f"a namespace is a-z, 0-9 and '-', at most {MAX_LENGTH}, not {name!r}")
    return name


FIELDS: dict[str, Field] = {
    "username": Field("begins the names of new experiments", lambda value, _: user_name(value)),
    "experiment_folder": Field("where every launch is saved", _path("experiment_folder")),
    "backend": Field("where processes run", _text("backend")),
    "profile": Field("the profile that holds", _text("profile")),
    "context": Field("the context of the kubeconfig", _text("context")),
    "namespace": Field("a namespace that exists, for all experiments", _namespace),
    "kubeconfig": Field("the kubeconfig", _path("kubeconfig")),
    "image": Field("the image of processes that name none", _text("image")),
}
# Those that hold others: {resource: amount}, and by backend the keywords of its class.
GROUPS = ("resources", "options")
RESOURCES = ("cpu", "memory", "mem")
# Those that the class of a backend takes as a keyword of the same name.
OF_BACKENDS = ("context", "namespace", "kubeconfig", "image")

KNOWN = (*FIELDS, *GROUPS, PROFILES)
IN_PROFILES = tuple(name for name in (*FIELDS, *GROUPS) if name != "profile")


def is_text(place: tuple[str | int, ...], key: str, inherited: bool) -> bool:
    """Whether what stands under ``key`` of a configuration is text, however YAML would read it."""
    outermost = not place or (len(place) == 2 and place[0] == PROFILES)
    return inherited or (outermost and key in FIELDS)


def read(data: object, base: Path, own: Collection[str] = ()) -> Content:
    """Check a configuration. ``own`` are fields of the user's beside those that begin with ``x-``.

    Raises `SpecError` with the path to what is wrong.
    """
    from symphony.model import validators

    given = validators.mapping(data, "a configuration")
    profiles: dict[str, Values] = {}
    with error_path(PROFILES):
        described = given.pop(PROFILES, None)
        for name, profile in validators.mapping(
            {} if described is None else described, PROFILES
        ).items():
            with error_path(name):
                settings = validators.mapping(
                    {} if profile is None else profile, f"profile {name!r}"
                )
                profiles[name] = _read(settings, base, IN_PROFILES, own, f"profile {name!r}")
    return Content(_read(given, base, KNOWN, own, "a configuration"), profiles)


def _read(
    given: Mapping[str, Any], base: Path, known: Collection[str], own: Collection[str], what: str
) -> Values:
    found: Values = {}
    for key, value in given.items():
        with error_path(key):
            if key.startswith(OWN) or (key in own and key not in KNOWN):
                found[(key,)] = value
            elif key not in known:
                hint = (
                    did_you_mean(key, {*known, *own}) or f"; it knows {join_names(known, limit=20)}"
                )
                raise SpecError(
                    f"{what} knows no {key!r}{hint} (keys of your own begin with {OWN!r})"
                )
            elif value is None:
                found[(key,)] = None
            elif key == "resources":
                found.update(_resources(value))
            elif key == "options":
                found.update(_options(value))
            else:
                found[(key,)] = FIELDS[key].read(value, base)
    return found


def _resources(value: object) -> Values:
    """What a process requests that says nothing of it."""
    from symphony.model import validators

    given = validators.mapping(value, "resources")
    validators.refuse_unknown(given, RESOURCES, "resources")
    if given.get("mem") is not None and given.get("memory") is not None:
        raise SpecError("memory and mem are one setting, and both are given")
    found: Values = {}
    for key, amount in given.items():
        with error_path(key):
            name = "memory" if key == "mem" else key
            found["resources", name] = None if amount is None else validators.quantity(amount, name)
    return found


def _options(value: object) -> Values:
    """By backend, keywords for its class."""
    from symphony.model import validators

    found: Values = {}
    for backend, options in validators.mapping(value, "options").items():
        with error_path(backend):
            if options is not None and not isinstance(options, Mapping):
                raise SpecError(
                    f"options are by backend, as in {{kube: {{expose: none}}}}, not {options!r}"
                )
            for name, item in validators.mapping(
                {} if options is None else options, f"options of {backend!r}"
            ).items():
                found["options", backend.lower(), name] = item
    return found


def nested(found: Mapping[Place, Any]) -> Any:
    """What stands at places below one another, as the mappings that they make up.

    >>> nested({("cpu",): "2", ("kube", "expose"): "none"})
    {'cpu': '2', 'kube': {'expose': 'none'}}
    """
    result: dict[str, Any] = {}
    for place, value in found.items():
        inner = result
        for part in place[:-1]:
            inner = inner.setdefault(part, {})
        inner[place[-1]] = value
    return result
