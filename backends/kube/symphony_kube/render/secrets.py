"""Secrets and ConfigMaps from files. Pure: the contents of the files are given."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

from symphony.errors import SpecError
from symphony.plan.resolve import Plan
from symphony_kube.api.labels import KEYS, SECRETS, Scope
from symphony_kube.render.files import MOST
from symphony_kube.render.text import Object, check_key, check_object_name

Made = dict[tuple[str, str], dict[str, str]]


def made_from_files(plan: Plan) -> Made:
    """The files of every Secret and ConfigMap that the plan makes, by kind and name.

    Raises `SpecError` for one that is made from different files in two places.
    """
    found: Made = {}
    makers: dict[tuple[str, str], str] = {}
    if plan.secrets:
        found["secret", SECRETS] = plan.secrets
        makers["secret", SECRETS] = "the experiment"
    if plan.key_variables:
        found["secret", KEYS] = {variable: variable for variable in plan.key_variables}
        makers["secret", KEYS] = "the experiment"
    for kind, name, files, who in _mounted(plan):
        key = (kind, check_object_name(name, f"{who}: the {kind}"))
        if found.setdefault(key, files) != files:
            raise SpecError(
                f"the {kind} {name!r} is made from different files by {makers[key]} and {who}; rename one of them"
            )
        makers.setdefault(key, who)
    return found


def _mounted(plan: Plan) -> Iterator[tuple[str, str, dict[str, str], str]]:
    for process in plan:
        for volume in process.settings.volumes:
            for kind in _OBJECTS:
                details = volume.get(kind, {})
                if "files" in details:
                    yield kind, details[kind], details["files"], f"process {process.path!r}"


def made_name(scope: Scope, kind: str, name: str) -> str:
    """What the object is called that is made for the secret or config of that name."""
    return scope.object_name(name, _KINDS[kind])


def objects(made: Made, scope: Scope, files: Mapping[str, bytes]) -> list[Object]:
    """The Secrets and ConfigMaps."""
    result = []
    for (kind, name), sources in made.items():
        contents = {
            check_key(key, f"the {kind} {name!r}"): files[source] for key, source in sources.items()
        }
        size = sum(map(len, contents.values()))
        if size > MOST:
            raise SpecError(
                f"the {kind} {name!r} has {size / MOST:.2f} MiB in {len(contents)} files, and Kubernetes takes 1 MiB; "
                "split it, or mount the files from a volume"
            )
        metadata = {
            "name": made_name(scope, kind, name),
            "namespace": scope.namespace,
            "labels": scope.labels,
        }
        result.append(_OBJECTS[kind](metadata, contents))
    return result


def _secret(metadata: Object, contents: Mapping[str, bytes]) -> Object:
    data = {key: _base64(content) for key, content in contents.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "data": data,
    }


def _config(metadata: Object, contents: Mapping[str, bytes]) -> Object:
    """Text as text, so that people can read it; what is no text as bytes."""
    texts, others = {}, {}
    for key, content in contents.items():
        text = _text(content)
        if text is None:
            others[key] = _base64(content)
        else:
            texts[key] = text
    parts = {"data": texts, "binaryData": others}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        **{part: content for part, content in parts.items() if content},
    }


def _text(content: bytes) -> str | None:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


_OBJECTS = {"secret": _secret, "config": _config}
_KINDS = {"secret": "Secret", "config": "ConfigMap"}
