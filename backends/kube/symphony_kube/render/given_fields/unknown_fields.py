"""Which settings contain the fields that an API server does not know. Pure.

Since Kubernetes 1.25, the server refuses such fields with a message that contains their paths in
the object, in which numbers identify the containers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from symphony.support.names import did_you_mean
from symphony_kube.render.given_fields.overrides import Override

# strict decoding error: unknown field "spec.containers[0].comand", unknown field "spec.colour"
_STRICT = re.compile(r'(?:unknown|duplicate) field "([^"]+)"')
# The answer to a server-side apply: .spec.colour: field not declared in schema
_UNDECLARED = re.compile(r"(\.\S+): field not declared in schema")
_STEP = re.compile(r"\[(\d+)\]|[^.\[\]]+")
# The fields that users set most often. An unknown field is often a misspelled one of these.
_COMMON_FIELDS = (
    *("affinity", "annotations", "args", "command", "containers", "dnsPolicy", "env", "envFrom"),
    *("hostNetwork", "image", "imagePullPolicy", "imagePullSecrets", "initContainers", "labels"),
    *("lifecycle", "limits", "livenessProbe", "metadata", "name", "nodeSelector", "ports"),
    *("priorityClassName", "readinessProbe", "requests", "resources", "restartPolicy"),
    *("runtimeClassName", "schedulerName", "securityContext", "serviceAccountName", "spec"),
    *("startupProbe", "terminationGracePeriodSeconds", "tolerations", "volumeMounts", "volumes"),
    *("workingDir", "runAsUser", "runAsGroup", "runAsNonRoot", "fsGroup", "capabilities"),
)

Place = tuple[str, ...]


def unknown_fields(
    message: str, body: Mapping[str, Any], overrides: Iterable[Override] = ()
) -> dict[str, list[str]]:
    """Return the unknown fields that an error message names, by what has set them.

    ``body`` is the refused object. A key of the result is the description of an override, or the
    name of a container. Each field has its path in there, and perhaps a hint. The result is empty
    if the message is about something else.
    """
    if "strict decoding error" in message:
        paths = _STRICT.findall(message)
    else:
        paths = _UNDECLARED.findall(message)
    found: dict[str, list[str]] = {}
    for path in dict.fromkeys(paths):
        steps = [match[1] or match[0] for match in _STEP.finditer(path)]
        place, siblings = _locate(body, steps)
        where, rest = _setting(place, overrides)
        known = dict.fromkeys([*siblings, *_COMMON_FIELDS])
        hint = did_you_mean(place[-1], known).removeprefix("; ")
        field = ".".join(rest)
        found.setdefault(where, []).append(f"{field} ({hint})" if hint else field)
    return found


def _locate(body: Any, steps: Sequence[str]) -> tuple[Place, list[str]]:
    """Return the path of a field with the names of list items, and the other fields there."""
    place = []
    siblings: list[str] = []
    for step in steps:
        name, item = step, None
        if isinstance(body, list) and step.isdecimal() and int(step) < len(body):
            item = body[int(step)]
            if isinstance(item, Mapping):
                name = str(item.get("name", step))
        elif isinstance(body, Mapping):
            item = body.get(step)
            siblings = [key for key in body if key != step]
        place.append(name)
        body = item
    return tuple(place), siblings


def _setting(place: Place, overrides: Iterable[Override]) -> tuple[str, Place]:
    """Return what has set a field, and the path of the field in it."""
    candidates = [item for item in overrides if _sets(item, place)]
    if candidates:
        override = max(candidates, key=lambda item: len(item.path))
        return override.description, place[len(override.path) :]
    if "containers" in place[:-2]:
        start = place.index("containers") + 2
        return f"container {place[start - 1]!r}", place[start:]
    return "it", place


def _sets(override: Override, place: Place) -> bool:
    """Return whether an override contains a field, as far as its mappings show."""
    if place[: len(override.path)] != override.path:
        return False
    fields: Any = override.fields
    for step in place[len(override.path) :]:
        if not isinstance(fields, Mapping):
            return True
        if step not in fields:
            return False
        fields = fields[step]
    return True
