"""Text as Kubernetes takes it: arguments that it leaves alone, names that it accepts. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from symphony.errors import SpecError

Object = dict[str, Any]

# Kubernetes, apimachinery/pkg/util/validation: IsDNS1123Subdomain, IsValidPortName, IsConfigMapKey
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")
_LONGEST_SUBDOMAIN = 253
_LONGEST_PORT_NAME = 15
_LONGEST_LABEL = 63


def escaped(text: str) -> str:
    """An argument or a value so that it arrives as it is: Kubernetes puts variables in for ``$(NAME)``."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def variables(env: Mapping[str, str]) -> list[Object]:
    """Environment variables as a container has them."""
    return [
        {"name": key, "value": escaped(value) if "$" in value else value}
        for key, value in env.items()
    ]


def check_variables(names: Iterable[str], who: str) -> None:
    """Refuse names that a path could be, which Kubernetes does not take."""
    for name in names:
        if name == "." or name.startswith(".."):
            raise SpecError(f"{who} has a variable {name!r}, which Kubernetes refuses; rename it")


def fingerprint(value: object) -> str:
    """Eight letters that stand for plain data."""
    written = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(written.encode()).hexdigest()[:8]


def distinct(name: str, taken: Collection[str], limit: int = _LONGEST_LABEL) -> str:
    """``name``, or where it is taken or longer than ``limit``, a name that begins like it; always the same."""
    if len(name) <= limit and name not in taken:
        return name
    number = 0
    while True:
        tail = fingerprint([name, number])[: 5 if limit < _LONGEST_LABEL else 8]
        found = f"{name[: limit - len(tail) - 1].rstrip('-')}-{tail}"
        if found not in taken:
            return found
        number += 1


def port_name(service: str, taken: Collection[str]) -> str:
    """The name of the port of a service in a Pod where others have names already: at most 15 characters."""
    if is_port_name(service) and service not in taken:
        return service
    plain = re.sub(r"-+", "-", service)
    return distinct(plain, {*taken, plain}, _LONGEST_PORT_NAME)


def is_port_name(name: str) -> bool:
    """Whether a port may be called so."""
    return len(name) <= _LONGEST_PORT_NAME and _PORT_NAME.fullmatch(name) is not None


def check_object_name(name: str, what: str) -> str:
    """Return the name of a Secret, a ConfigMap or a claim, or raise `SpecError` where none can have it."""
    if len(name) > _LONGEST_SUBDOMAIN or not _SUBDOMAIN.fullmatch(name):
        raise SpecError(
            f"{what} {name!r} is not valid on Kubernetes: use a-z, 0-9, '-' and '.', at most 253"
        )
    return name


def check_key(key: str, what: str) -> str:
    """Return the name of a file in a Secret or a ConfigMap, or raise `SpecError` where none can have it."""
    if key.startswith("..") or len(key) > _LONGEST_SUBDOMAIN:
        raise SpecError(
            f"{what} has a file {key!r}, and Kubernetes takes at most 253 characters and no '..' first"
        )
    return key


def check_label_keys(keys: Iterable[str], who: str) -> None:
    """Refuse label keys whose prefix is no domain; what else is wrong with a label shows before."""
    for key in keys:
        prefix, slash, _ = key.rpartition("/")
        if slash and (len(prefix) > _LONGEST_SUBDOMAIN or not _SUBDOMAIN.fullmatch(prefix)):
            raise SpecError(
                f"{who} has a label {key!r}: what stands before '/' is a domain, such as example.org"
            )
