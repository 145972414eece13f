"""Secrets and ConfigMaps that are created from files.

The functions are pure: the caller provides the contents of the files.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping

from symphony.errors import SpecError
from symphony.plan.plan import Plan
from symphony_kube.api.labels import KEYS, SECRETS, Scope
from symphony_kube.render.file_objects.files import MAX_OBJECT_BYTES
from symphony_kube.render.text import Object, check_file_name, check_object_name

# A mapping from each object's kind ("secret" or "config") and name to the object's source files.
# The source files are given as a mapping from file names to paths.
FileSources = dict[tuple[str, str], dict[str, str]]


def file_sources(plan: Plan) -> FileSources:
    """Return the files for every Secret and ConfigMap that a plan creates.

    Raises `SpecError` if two processes create the same object from different files.
    """
    found: FileSources = {}
    creators: dict[tuple[str, str], str] = {}
    if plan.secrets:
        found["secret", SECRETS] = plan.secrets
        creators["secret", SECRETS] = "the experiment"
    if plan.key_variables:
        found["secret", KEYS] = {variable: variable for variable in plan.key_variables}
        creators["secret", KEYS] = "the experiment"
    for kind, name, files, creator in _mounted_files(plan):
        key = (kind, check_object_name(name, f"{creator}: the {kind}"))
        if found.setdefault(key, files) != files:
            raise SpecError(
                f"the {kind} {name!r} is created from different files by {creators[key]} and "
                f"{creator}; rename one of them"
            )
        creators.setdefault(key, creator)
    return found


def _mounted_files(plan: Plan) -> Iterator[tuple[str, str, dict[str, str], str]]:
    """Yield the kind, name, files and creator of each volume that is created from files."""
    for process in plan:
        for volume in process.settings.volumes:
            for kind in _RENDERERS:
                details = volume.get(kind, {})
                if "files" in details:
                    yield kind, details[kind], details["files"], f"process {process.path!r}"


def file_object_name(scope: Scope, kind: str, name: str) -> str:
    """Return the name of the Kubernetes object for a secret or config created from files."""
    return scope.object_name(name, _KINDS[kind])


def file_objects(sources: FileSources, scope: Scope, files: Mapping[str, bytes]) -> list[Object]:
    """Return the Secrets and ConfigMaps that ``sources`` describes. ``files`` maps the paths of all
    files to their contents.

    Raises `SpecError` if an object is too large, or if a file name is not valid on Kubernetes.
    """
    objects = []
    for (kind, name), file_paths in sources.items():
        contents = {
            check_file_name(file_name, f"the {kind} {name!r}"): files[path]
            for file_name, path in file_paths.items()
        }
        size_bytes = sum(len(content) for content in contents.values())
        if size_bytes > MAX_OBJECT_BYTES:
            raise SpecError(
                f"the {kind} {name!r} has {size_bytes / MAX_OBJECT_BYTES:.2f} MiB in "
                f"{len(contents)} files, and the limit of Kubernetes is 1 MiB; split it, or put "
                "the files on a volume"
            )
        metadata = {
            "name": file_object_name(scope, kind, name),
            "namespace": scope.namespace,
            "labels": scope.labels,
        }
        objects.append(_RENDERERS[kind](metadata, contents))
    return objects


def _secret(metadata: Object, contents: Mapping[str, bytes]) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "Opaque",
        "data": {key: _base64(content) for key, content in contents.items()},
    }


def _config(metadata: Object, contents: Mapping[str, bytes]) -> Object:
    """Return a ConfigMap. Text is stored unencoded, and other content is encoded as base64."""
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}
    for key, content in contents.items():
        text = _decode_text(content)
        if text is None:
            binary_data[key] = _base64(content)
        else:
            data[key] = text
    result = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    if data:
        result["data"] = data
    if binary_data:
        result["binaryData"] = binary_data
    return result


def _decode_text(content: bytes) -> str | None:
    """Return the content as text, or None if it is not text."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


_RENDERERS = {"secret": _secret, "config": _config}
_KINDS = {"secret": "Secret", "config": "ConfigMap"}
