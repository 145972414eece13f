"""A Pod's volumes and its containers' mounts. Pure.

Mounts of the same source share a volume, unless the user gave their volumes different names. Two
mounts have the same source if they use the same NFS server and export, the same host path and type,
the same claim, or the same Secret or ConfigMap. A mount can be read-only while another mount of the
same volume is writable. An empty directory without a name is shared by all containers that mount it
at the same path with the same size and medium. An empty directory with a name is shared by all
containers that use this name with the same size and medium.

A volume has the name that the user gave it, or a name that consists of its kind and a hash. If the
user gave the same name to two different volumes, both names get a hash.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from symphony.errors import SpecError
from symphony.model.settings.setting_types import SHARED_MEMORY
from symphony_kube.api.labels import SCRATCH, SECRETS
from symphony_kube.render.file_objects.code_volumes import (
    code_mount,
    code_volumes,
    is_small,
    unpack_container,
    update_mount,
    volume_name,
)
from symphony_kube.render.file_objects.configs import config_mount, config_volume
from symphony_kube.render.pod_parts.containers import resources
from symphony_kube.render.render_context import (
    SCRATCH_DIRECTORY,
    SECRETS_DIRECTORY,
    PlannedUnit,
    RenderContext,
)
from symphony_kube.render.sync import restarts_in_place
from symphony_kube.render.text import Object, check_object_name, short_hash, unique_name

# A volume name has at most 63 characters. The hash and its hyphen take up nine of these characters.
_MAX_VOLUME_PREFIX_LENGTH = 54


@dataclass(frozen=True, slots=True, kw_only=True)
class PodVolumes:
    """A Pod's volumes, mounts and init containers.

    ``mounts`` maps each process to its mounts. ``init_containers`` contains the containers that
    unpack code.
    """

    volumes: list[Object] = field(default_factory=list)
    mounts: dict[str, list[Object]] = field(default_factory=dict)
    init_containers: list[Object] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Volume:
    """One volume with its mounts.

    ``identity`` is plain data that is equal for all mounts of the same source.
    """

    kind: str
    details: Mapping[str, Any]
    source: Object
    identity: list[Any]
    mounts: list[Object] = field(default_factory=list)

    @property
    def user_name(self) -> str | None:
        """The name that the user gave the volume, or None."""
        name: str | None = self.details.get("name")
        return name


def pod_volumes(
    unit: PlannedUnit, context: RenderContext, *, sends_code: bool = False
) -> PodVolumes:
    """Return a Pod's volumes. Raises `SpecError` if Kubernetes cannot mount a volume.

    With ``sends_code``, large code is sent to the Pod.
    """
    has_secrets = bool(context.plan.secrets)
    result = PodVolumes()
    if has_secrets:
        secret = {"secretName": context.scope.object_name(SECRETS, "Secret")}
        result.volumes.append({"name": SECRETS, "secret": secret})
    volumes: dict[str, _Volume] = {}
    for process in unit.processes:
        mounts: list[Object] = []
        result.mounts[process.name] = mounts
        if has_secrets:
            mounts.append({"name": SECRETS, "mountPath": SECRETS_DIRECTORY, "readOnly": True})
        owner = f"process {process.path!r}"
        for entry in process.settings.volumes:
            mounts.append(_mount(entry, volumes, context, owner))
    container_names = {process.name for process in unit.processes}
    for volume, name in _with_names(volumes.values()):
        for mount in volume.mounts:
            mount["name"] = name
        result.volumes.append({"name": name, **_volume_source(volume)})
    _add_configs(result, unit, context)
    _add_code(result, unit, context, container_names, sends_code=sends_code)
    _add_scratch_directories(result, unit)
    return result


def _add_configs(result: PodVolumes, unit: PlannedUnit, context: RenderContext) -> None:
    """Add the configuration files of a Pod's processes. Processes with equal files share a
    volume.
    """
    added: set[str] = set()
    for process in unit.processes:
        if not process.configs:
            continue
        volume = config_volume(process, context.scope)
        result.mounts[process.name].append(config_mount(process))
        if volume["name"] not in added:
            added.add(volume["name"])
            result.volumes.append(volume)


def _add_scratch_directories(result: PodVolumes, unit: PlannedUnit) -> None:
    """Add an empty directory for each of a Pod's processes."""
    for index, process in enumerate(unit.processes):
        name = f"{SCRATCH}-{index}" if unit.is_group else SCRATCH
        result.volumes.append({"name": name, "emptyDir": {}})
        result.mounts[process.name].append({"name": name, "mountPath": SCRATCH_DIRECTORY})


def _add_code(
    result: PodVolumes,
    unit: PlannedUnit,
    context: RenderContext,
    container_names: set[str],
    *,
    sends_code: bool,
) -> None:
    """Add the code of a Pod's processes. Processes with the same code share a volume, unless
    changed code is sent to them.
    """
    added: set[str] = set()
    for index, process in enumerate(unit.processes):
        archive = context.archives.get(process.name)
        if archive is None:
            continue
        volume = volume_name(archive)
        syncs = restarts_in_place(process, context.options)
        if syncs:
            volume = f"{volume}-{index}"
            result.mounts[process.name].append(update_mount(volume))
        result.mounts[process.name].append(code_mount(volume))
        if volume in added:
            continue
        added.add(volume)
        is_sent = sends_code and not is_small(archive)
        result.volumes.extend(code_volumes(volume, archive, context.scope, is_sent=is_sent))
        name = unique_name(volume, container_names)
        container_names.add(name)
        settings = process.settings
        override = settings.container_yml
        image = override.get("image") or process.container_image or context.options.image
        further = {
            "image": context.options.code_image or image,
            "imagePullPolicy": settings.image_pull_policy,
            "resources": resources(settings, None),
            "securityContext": override.get("securityContext"),
        }
        container = unpack_container(name, volume, archive, further, is_sent=is_sent)
        result.init_containers.append(container)


def _mount(
    entry: Mapping[str, Any],
    volumes: dict[str, _Volume],
    context: RenderContext,
    owner: str,
) -> Object:
    """Return a mount with an empty name. If its volume is new, add the volume to ``volumes``."""
    ((kind, details),) = entry.items()
    path = details.get("mount_path", SHARED_MEMORY)
    if ":" in path:
        raise SpecError(
            f"{owner} mounts a volume at {path!r}: a mount path on Kubernetes has no ':'"
        )
    if context.plan.secrets and path.rstrip("/") == SECRETS_DIRECTORY:
        raise SpecError(
            f"{owner} mounts a volume at {path!r}, the directory of the secrets of the experiment; "
            "choose another path"
        )
    source = _SOURCES[kind](details, context, owner)
    is_shared_by_path = kind in ("empty_dir", "shared_memory") and "name" not in details
    # The names of volumes contain a hash of this list, and must not depend on the version.
    identity = [source, path if is_shared_by_path else "", None, None]
    volume = _Volume(kind=kind, details=details, source=source, identity=identity)
    volume = volumes.setdefault(short_hash([identity, volume.user_name]), volume)
    mount: Object = {"name": "", "mountPath": path}
    if details.get("read_only"):
        mount["readOnly"] = True
    volume.mounts.append(mount)
    return mount


def _with_names(volumes: Iterable[_Volume]) -> list[tuple[_Volume, str]]:
    """Return every volume with its name.

    A volume keeps the name that the user gave it unless another volume has the same name.
    """
    volumes = list(volumes)
    user_names = [volume.user_name for volume in volumes if volume.user_name]
    reserved = {SECRETS, SCRATCH}
    kept = {name for name in user_names if user_names.count(name) == 1} - reserved
    taken = {*reserved, *kept}
    result = []
    for volume in volumes:
        name = volume.user_name
        if name not in kept:
            prefix = name or volume.kind.replace("_", "-")
            prefix = prefix[:_MAX_VOLUME_PREFIX_LENGTH].rstrip("-")
            name = unique_name(f"{prefix}-{short_hash(volume.identity)}", taken)
            taken.add(name)
        result.append((volume, name))
    return result


def _volume_source(volume: _Volume) -> Object:
    is_read_only = all(mount.get("readOnly") for mount in volume.mounts)
    if volume.kind != "pvc" or not is_read_only:
        return volume.source
    # Some claims can only be attached read-only. For such a claim, the volume must also be
    # read-only.
    return {"persistentVolumeClaim": {**volume.source["persistentVolumeClaim"], "readOnly": True}}


# --- volume sources ---


def _nfs(details: Mapping[str, Any], context: RenderContext, owner: str) -> Object:
    del context, owner
    return {"nfs": {"server": details["server"], "path": details["path"]}}


def _host_path(details: Mapping[str, Any], context: RenderContext, owner: str) -> Object:
    del context
    path = details["path"]
    if ".." in path.split("/"):
        raise SpecError(
            f"{owner} mounts {path!r} of the node: a host path on Kubernetes has no '..'"
        )
    source = {"path": path}
    if details.get("type"):
        source["type"] = details["type"]
    return {"hostPath": source}


def _pvc(details: Mapping[str, Any], context: RenderContext, owner: str) -> Object:
    del context
    claim = check_object_name(details["claim"], f"{owner}: the claim")
    return {"persistentVolumeClaim": {"claimName": claim}}


def _empty_dir(details: Mapping[str, Any], context: RenderContext, owner: str) -> Object:
    del context, owner
    source = {}
    if details.get("memory"):
        source["medium"] = "Memory"
    if "size" in details:
        source["sizeLimit"] = details["size"]
    return {"emptyDir": source}


def _shared_memory(details: Mapping[str, Any], context: RenderContext, owner: str) -> Object:
    return _empty_dir({**details, "memory": True}, context, owner)


def _secret(details: Mapping[str, Any], context: RenderContext, owner: str) -> Object:
    return {"secret": {"secretName": _object_name(details["secret"], "secret", context, owner)}}


def _config(details: Mapping[str, Any], context: RenderContext, owner: str) -> Object:
    return {"configMap": {"name": _object_name(details["config"], "config", context, owner)}}


def _object_name(name: str, kind: str, context: RenderContext, owner: str) -> str:
    """Return the name of a Secret or ConfigMap that is mounted as a volume.

    Either the experiment creates this object, or the object must already exist.
    """
    created = context.file_objects.get((kind, name))
    return created or check_object_name(name, f"{owner}: the {kind}")


_SOURCES: dict[str, Callable[[Mapping[str, Any], RenderContext, str], Object]] = {
    "nfs": _nfs,
    "host_path": _host_path,
    "pvc": _pvc,
    "empty_dir": _empty_dir,
    "shared_memory": _shared_memory,
    "secret": _secret,
    "config": _config,
}
