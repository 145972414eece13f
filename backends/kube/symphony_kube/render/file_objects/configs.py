"""The configuration files of processes, which are ConfigMaps with their texts. Pure.

A ConfigMap is named by the digest of its contents, so that processes with the same files share one.
A changed process mounts another one, and the running process keeps its files until its Pod is
replaced.
"""

from __future__ import annotations

from symphony.plan.plan import Plan, PlannedProcess
from symphony.plan.resolution.configs import digest
from symphony_kube.api.labels import CONFIGS, Scope
from symphony_kube.render.text import Object, check_file_name

CONFIG_VARIABLE = "SYMPHONY_CONFIG_DIR"
# The directory of the files in the containers of processes.
CONFIG_DIRECTORY = "/symphony/configs"
_DIGEST_LENGTH = 12


def config_objects(plan: Plan, scope: Scope) -> list[Object]:
    """Return the ConfigMaps. Raises `SpecError` if a file name is not valid on Kubernetes."""
    objects: dict[str, Object] = {}
    for process in plan:
        if not process.configs:
            continue
        name = _object_name(process, scope)
        if name in objects:
            continue
        labels = {**scope.labels, CONFIGS: _short_digest(process)}
        for file_name in process.configs:
            check_file_name(file_name, f"configs of process {process.path!r}")
        objects[name] = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": scope.namespace, "labels": labels},
            "data": dict(process.configs),
        }
    return list(objects.values())


def config_volume(process: PlannedProcess, scope: Scope) -> Object:
    """Return the volume with the files of a process."""
    return {"name": _volume_name(process), "configMap": {"name": _object_name(process, scope)}}


def config_mount(process: PlannedProcess) -> Object:
    """Return the mount of the files in the container of a process."""
    return {"name": _volume_name(process), "mountPath": CONFIG_DIRECTORY, "readOnly": True}


def _short_digest(process: PlannedProcess) -> str:
    return digest(process.configs)[:_DIGEST_LENGTH]


def _volume_name(process: PlannedProcess) -> str:
    return f"configs-{_short_digest(process)}"


def _object_name(process: PlannedProcess, scope: Scope) -> str:
    return scope.object_name(f"symphony-{_volume_name(process)}", "ConfigMap")
