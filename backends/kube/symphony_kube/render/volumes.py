"""What a Pod mounts. Pure.

Two volumes are one where they are the same thing: the same export of the same server, the same path of the node
checked in the same way, the same claim. Whether a mount may be written to belongs to the mount. An empty folder
without a name is one for all containers of a Pod that mount it at the same path with the same size and medium;
with a name, for all that give it that name. A checkout is one for all that want the same revision of the same
repository.

A volume is called as its user calls it, or by its kind and a fingerprint of what it is. Where one name stands for
two things, both get a fingerprint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from symphony.errors import SpecError
from symphony.spec.component import SHARED_MEMORY
from symphony.spec.settings import Settings
from symphony_kube.names import SECRETS
from symphony_kube.render.context import SECRETS_FOLDER, Context, Group
from symphony_kube.render.text import Object, check_object_name, distinct, fingerprint

_CHECKOUT = "/checkout"
# What stands in it as "$1" and "$2" is never read by the shell. git makes the folder itself: one that another
# user owns, as a volume's is, it would not trust.
_CHECK_OUT = 'git clone -- "$1" "$3" && { [ -z "$2" ] || git -C "$3" checkout "$2" --; }'


@dataclass(frozen=True, slots=True, kw_only=True)
class Volumes:
    """The volumes of a Pod, the mounts of each of its processes, and the containers that fill volumes first."""

    volumes: list[Object] = field(default_factory=list)
    mounts: dict[str, list[Object]] = field(default_factory=dict)
    init: list[Object] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Volume:
    """One volume: what it is, and the mounts of it."""

    kind: str
    user_name: str | None
    what: Any
    source: Object
    details: Mapping[str, Any]
    first: Settings
    mounts: list[Object] = field(default_factory=list)


_NOTHING = Volumes()


def volumes(group: Group, context: Context) -> Volumes:
    """What the processes of a Pod mount. Raises `SpecError` for what cannot be mounted."""
    has_secrets = bool(context.plan.secrets)
    if not has_secrets and not any(process.settings.volumes for process in group.processes):
        return _NOTHING
    result = Volumes()
    if has_secrets:
        source = {"secretName": context.scope.object_name(SECRETS)}
        result.volumes.append({"name": SECRETS, "secret": source})
    found: dict[str, _Volume] = {}
    for process in group.processes:
        mounts = result.mounts[process.name] = []
        if has_secrets:
            mounts.append({"name": SECRETS, "mountPath": SECRETS_FOLDER, "readOnly": True})
        for given in process.settings.volumes:
            mounts.append(_mount(given, process.settings, found, context, f"process {process.path!r}"))
    _name(found, {process.name for process in group.processes}, result, context)
    return result


def _mount(
    given: Mapping[str, Any], settings: Settings, found: dict[str, _Volume], context: Context, who: str
) -> Object:
    ((kind, details),) = given.items()
    path = details.get("mount_path", SHARED_MEMORY)
    if ":" in path:
        raise SpecError(f"{who} mounts a volume at {path!r}, and Kubernetes takes no ':' there")
    if context.plan.secrets and path.rstrip("/") == SECRETS_FOLDER:
        raise SpecError(f"{who} mounts a volume at {path!r}, where the experiment's secrets are; choose another path")
    source = _SOURCES[kind](details, context, who)
    user_name = details.get("name")
    where = path if kind in ("empty_dir", "shared_memory") and user_name is None else ""
    what = [kind, source, where, details.get("repository"), details.get("revision")]
    volume = found.setdefault(
        fingerprint([user_name, what]),
        _Volume(kind=kind, user_name=user_name, what=what, source=source, details=details, first=settings),
    )
    mount: Object = {"mountPath": path}
    if details.get("read_only"):
        mount["readOnly"] = True
    if kind == "git_repo":
        mount["subPath"] = "repository"
    volume.mounts.append(mount)
    return mount


def _name(found: Mapping[str, _Volume], containers: set[str], result: Volumes, context: Context) -> None:
    """Give every volume its name, and its mounts with it."""
    by_name: dict[str, set[str]] = {}
    for key, volume in found.items():
        if volume.user_name is not None:
            by_name.setdefault(volume.user_name, set()).add(key)
    taken = {SECRETS}
    # Names that stand for one thing alone are kept as they are; the others give way to them.
    alone = {name for name, keys in by_name.items() if len(keys) == 1} - taken
    for volume in found.values():
        if volume.user_name in alone:
            name = volume.user_name
        else:
            word = volume.user_name or volume.kind.replace("_", "-")
            name = distinct(f"{word[:54].rstrip('-')}-{fingerprint(volume.what)}", taken | alone)
        taken.add(name)
        _finish(volume, name, containers, result, context)


def _finish(volume: _Volume, name: str, containers: set[str], result: Volumes, context: Context) -> None:
    for mount in volume.mounts:
        rest = dict(mount)
        mount.clear()
        mount.update(name=name, **rest)
    source = volume.source
    if volume.kind == "pvc" and all(mount.get("readOnly") for mount in volume.mounts):
        # Some claims can only be attached for reading, which has to be said here.
        source = {"persistentVolumeClaim": {**source["persistentVolumeClaim"], "readOnly": True}}
    result.volumes.append({"name": name, **source})
    if volume.kind == "git_repo":
        container = distinct(name, containers)
        containers.add(container)
        result.init.append(_checkout(volume, name, container, context))


def _checkout(volume: _Volume, name: str, container: str, context: Context) -> Object:
    """The container that checks a repository out before the others start."""
    from symphony_kube.render.containers import resources

    repository, revision = volume.details["repository"], volume.details.get("revision", "")
    script: Object = {
        "name": container,
        "image": context.options.git_image,
        "command": ["/bin/sh", "-c", _CHECK_OUT.replace("$", "$"), "/bin/sh"],
        "args": [repository, revision, f"{_CHECKOUT}/repository"],
    }
    del resources
    return script


# --- what they are ---

Source = Callable[[Mapping[str, Any], Context, str], Object]


def _host_path(details: Mapping[str, Any], _: Context, who: str) -> Object:
    path = details["path"]
    if ".." in path.split("/"):
        raise SpecError(f"{who} mounts {path!r} of the node, and Kubernetes takes no '..' there")
    return {"hostPath": {"path": path, **({"type": details["type"]} if details.get("type") else {})}}
