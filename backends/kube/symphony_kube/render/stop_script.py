"""The ConfigMap with the script that stops programs, which the containers of processes mount. Pure.

The script is larger than everything else in most Pods, so the Pods do not contain it. If the user
may not create ConfigMaps, each container lists it. See docs/adr/0016-stopping-in-containers.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from symphony_kube.api.labels import Scope
from symphony_kube.render.container_scripts import SCRIPTS_DIRECTORY, SHELL, STOP_PATH, script
from symphony_kube.render.manifest import KubeManifest
from symphony_kube.render.text import Object

VOLUME = "symphony-scripts"
_KEY = "stop"
_DIGEST_LENGTH = 12


def scripts_object(scope: Scope) -> Object:
    """Return the ConfigMap. A version of symphony with another script uses another one."""
    metadata = {"name": scripts_name(scope), "namespace": scope.namespace, "labels": scope.labels}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "immutable": True,
        "data": {_KEY: f"{script('stop')}\n"},
    }


def scripts_name(scope: Scope) -> str:
    """Return the name of the ConfigMap."""
    digest = hashlib.sha256(script("stop").encode()).hexdigest()[:_DIGEST_LENGTH]
    return scope.object_name(f"{VOLUME}-{digest}", "ConfigMap")


def with_mounted_script(spec: Object, scope: Scope) -> Object:
    """Return the spec of a Pod whose containers mount the script that their hooks run."""
    if not any(map(_runs_script, spec["containers"])):
        return spec
    containers = []
    for item in spec["containers"]:
        containers.append(_with_mount(item) if _runs_script(item) else item)
    volume = {"name": VOLUME, "configMap": {"name": scripts_name(scope)}}
    return {**spec, "containers": containers, "volumes": [*(spec.get("volumes") or ()), volume]}


def mounts_script(item: Any) -> bool:
    """Return whether a container in an object, or in a part of one, mounts the script."""
    if isinstance(item, list):
        return any(mounts_script(element) for element in item)
    if not isinstance(item, dict):
        return False
    return _runs_script(item) or any(mounts_script(value) for value in item.values())


def with_listed_script(manifest: KubeManifest) -> KubeManifest:
    """Return a manifest without the ConfigMap, in which each hook contains the script."""
    name = scripts_name(manifest.scope)
    base_objects = [item for item in manifest.base_objects if item["metadata"]["name"] != name]
    units = [_listed(item) for item in manifest.units]
    return replace(manifest, base_objects=tuple(base_objects), units=tuple(units))


def _listed(item: Any) -> Any:
    """Return a part of an object in which each hook contains the script."""
    if isinstance(item, list):
        return [_listed(element) for element in item if not _is_of_volume(element)]
    if not isinstance(item, dict):
        return item
    result = {key: _listed(value) for key, value in item.items()}
    if _runs_script(result):
        hook = result["lifecycle"]["preStop"]["exec"]
        command = [SHELL, "-c", script("stop"), SHELL, *hook["command"][2:]]
        lifecycle = {**result["lifecycle"], "preStop": {"exec": {**hook, "command": command}}}
        result["lifecycle"] = lifecycle
    for key in ("volumes", "volumeMounts"):
        if item.get(key) and not result[key]:
            del result[key]
    return result


def _is_of_volume(item: Any) -> bool:
    return isinstance(item, dict) and item.get("name") == VOLUME


def _with_mount(container: Object) -> Object:
    mount = {"name": VOLUME, "mountPath": SCRIPTS_DIRECTORY, "readOnly": True}
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), mount]}


def _runs_script(container: Mapping[str, Any]) -> bool:
    """Return whether the hook of a container runs the mounted script."""
    lifecycle = container.get("lifecycle")
    if not isinstance(lifecycle, dict):
        return False
    hook = lifecycle.get("preStop") or {}
    command = (hook.get("exec") or {}).get("command") or []
    return list(command[:2]) == [SHELL, STOP_PATH]
