"""Text that Kubernetes accepts: escaped arguments, valid names and unique names. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from symphony.errors import SpecError

Object = dict[str, Any]

# These rules are defined by IsDNS1123Subdomain and IsValidPortName in
# k8s.io/apimachinery/pkg/util/validation.
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")
# See Expand in third_party/forked/golang/expansion of Kubernetes. The first alternative matches the
# command substitutions of a shell, such as $(date +%s), which cannot be references to variables.
_DOLLARS = re.compile(
    r"(?P<unchanged>\$\([^$)]*[^-._a-zA-Z0-9$)][^$)]*\))|\$\$+|\$(?=\(|[^\x00-\x7f])"
)
_MAX_SUBDOMAIN_LENGTH = 253
_MAX_PORT_NAME_LENGTH = 15
_MAX_LABEL_LENGTH = 63


def escape(text: str) -> str:
    """Escape an argument or a value so that Kubernetes passes it on unchanged.

    Kubernetes expands ``$(NAME)`` and replaces ``$$`` with ``$``. If a byte of a non-ASCII
    character follows a single ``$``, Kubernetes replaces the byte with another character. In all
    other places, for example in ``$(date +%s)``, ``$`` is not escaped, so that a shell script
    remains readable. ``$(date)`` is escaped although the plan does not declare a variable ``date``:
    ``envFrom``, the Services of the namespace and admission webhooks can also define variables.
    """
    return _DOLLARS.sub(_doubled_unless_unchanged, text)


def _doubled_unless_unchanged(match: re.Match[str]) -> str:
    return match["unchanged"] or match.group() * 2


def env_vars(env: Mapping[str, str]) -> list[Object]:
    """Return environment variables as a container's ``env`` list."""
    return [{"name": key, "value": escape(value)} for key, value in env.items()]


def check_variable_names(names: Iterable[str], owner: str) -> None:
    """Raise `SpecError` for variable names that Kubernetes rejects because they look like paths.

    ``owner`` names the owner of the variables in messages, for example ``process 'db'``.
    """
    for name in names:
        if name == "." or name.startswith(".."):
            raise SpecError(f"{owner} has a variable {name!r}, which Kubernetes rejects; rename it")


def short_hash(value: object) -> str:
    """Return a hash of JSON-serializable data as eight hexadecimal digits."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def unique_name(name: str, taken: Collection[str], limit: int = _MAX_LABEL_LENGTH) -> str:
    """Return ``name``, or a similar name if ``name`` is in ``taken`` or has more than ``limit``
    characters.

    The same arguments always give the same name.
    """
    if len(name) <= limit and name not in taken:
        return name
    hash_length = 8 if limit >= _MAX_LABEL_LENGTH else 5
    number = 0
    while True:
        suffix = short_hash([name, number])[:hash_length]
        prefix = name[: limit - len(suffix) - 1].rstrip("-")
        candidate = f"{prefix}-{suffix}"
        if candidate not in taken:
            return candidate
        number += 1


def port_name(service: str, taken: Collection[str]) -> str:
    """Return a name for a service's port.

    The name has at most 15 characters and is not in ``taken``.
    """
    if is_port_name(service) and service not in taken:
        return service
    name = re.sub(r"-+", "-", service)
    return unique_name(name, {*taken, name}, _MAX_PORT_NAME_LENGTH)


def is_port_name(name: str) -> bool:
    """Return whether Kubernetes accepts ``name`` as a port name."""
    return len(name) <= _MAX_PORT_NAME_LENGTH and _PORT_NAME.fullmatch(name) is not None


def check_object_name(name: str, what: str) -> str:
    """Validate ``name`` as the name of a Secret, ConfigMap or PersistentVolumeClaim. Return it.

    Raises `SpecError` if the name is not valid.
    """
    if len(name) > _MAX_SUBDOMAIN_LENGTH or not _SUBDOMAIN.fullmatch(name):
        raise SpecError(
            f"{what} {name!r} is not valid on Kubernetes: use a-z, 0-9, '-' and '.', at most "
            f"{_MAX_SUBDOMAIN_LENGTH} characters"
        )
    return name


def check_file_name(name: str, what: str) -> str:
    """Validate ``name`` as a file name in a Secret or ConfigMap, and return it.

    Raises `SpecError` if the name is not valid.
    """
    if name.startswith("..") or len(name) > _MAX_SUBDOMAIN_LENGTH:
        raise SpecError(
            f"{what} has a file {name!r}: on Kubernetes a file name has at most "
            f"{_MAX_SUBDOMAIN_LENGTH} characters and does not begin with '..'"
        )
    return name


def check_label_keys(keys: Iterable[str], owner: str) -> None:
    """Raise `SpecError` for label keys whose prefix is not a domain name.

    The rest of each key was checked when the label was set. ``owner`` names the owner
    of the labels in messages.
    """
    for key in keys:
        prefix, slash, _ = key.rpartition("/")
        if slash and (len(prefix) > _MAX_SUBDOMAIN_LENGTH or not _SUBDOMAIN.fullmatch(prefix)):
            raise SpecError(
                f"{owner} has a label {key!r}: the part before '/' must be a domain name, such as "
                "example.org"
            )
