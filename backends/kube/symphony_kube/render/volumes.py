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
from symphony.model.component import SHARED_MEMORY
from symphony.model.settings import Settings
from symphony_kube.api.labels import SECRETS
from symphony_kube.render.containers import resources
from symphony_kube.render.context import SECRETS_FOLDER, Context, Group
from symphony_kube.render.text import Object, check_object_name, distinct, escaped, fingerprint

_REPOSITORY = "repository"
_CHECKOUT = f"/checkout/{_REPOSITORY}"
# The shell never reads what stands in "$1" to "$3". git makes the folder itself, since it does not trust one that
# belongs to somebody else; it gets its name when it is complete, so that a second try can do it again.
_CHECK_OUT = (
    '[ -d "$3" ] || { rm -rf "$3.new" && git clone -- "$1" "$3.new" && '
    '{ [ -z "$2" ] || git -C "$3.new" checkout "$2" --; } && mv "$3.new" "$3"; }'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Volumes:
    """The volumes of a Pod, the mounts of each of its processes, and the containers that fill volumes first."""

    volumes: list[Object] = field(default_factory=list)
    mounts: dict[str, list[Object]] = field(default_factory=dict)
    init: list[Object] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Volume:
    """One volume: what it is, who first wanted it, and the mounts of it."""

    kind: str
    details: Mapping[str, Any]
    source: Object
    what: list[Any]
    settings: Settings
    mounts: list[Object] = field(default_factory=list)

    @property
    def user_name(self) -> str | None:
        name: str | None = self.details.get("name")
        return name


_NOTHING = Volumes()


def volumes(group: Group, context: Context) -> Volumes:
    """What the processes of a Pod mount. Raises `SpecError` for what cannot be mounted."""
    has_secrets = bool(context.plan.secrets)
    if not has_secrets and not any(process.settings.volumes for process in group.processes):
        return _NOTHING
    result = Volumes()
    if has_secrets:
        secret = {"secretName": context.scope.object_name(SECRETS, "Secret")}
        result.volumes.append({"name": SECRETS, "secret": secret})
    found: dict[str, _Volume] = {}
    for process in group.processes:
        mounts = result.mounts[process.name] = []
        if has_secrets:
            mounts.append({"name": SECRETS, "mountPath": SECRETS_FOLDER, "readOnly": True})
        for given in process.settings.volumes:
            mounts.append(
                _mount(given, process.settings, found, context, f"process {process.path!r}")
            )
    containers = {process.name for process in group.processes}
    for volume, name in _named(found.values()):
        for mount in volume.mounts:
            mount["name"] = name
        result.volumes.append({"name": name, **_source(volume)})
        if volume.kind == "git_repo":
            container = distinct(name, containers)
            containers.add(container)
            result.init.append(_checkout(volume, name, container, context))
    return result


def _mount(
    given: Mapping[str, Any],
    settings: Settings,
    found: dict[str, _Volume],
    context: Context,
    who: str,
) -> Object:
    """A mount that has no name yet; its volume is put among the ``found``."""
    ((kind, details),) = given.items()
    path = details.get("mount_path", SHARED_MEMORY)
    if ":" in path:
        raise SpecError(f"{who} mounts a volume at {path!r}, and Kubernetes takes no ':' there")
    if context.plan.secrets and path.rstrip("/") == SECRETS_FOLDER:
        raise SpecError(
            f"{who} mounts a volume at {path!r}, where the experiment's secrets are; choose another path"
        )
    source = _SOURCES[kind](details, context, who)
    by_place = kind in ("empty_dir", "shared_memory") and "name" not in details
    what = [source, path if by_place else "", details.get("repository"), details.get("revision")]
    volume = _Volume(kind=kind, details=details, source=source, what=what, settings=settings)
    volume = found.setdefault(fingerprint([what, volume.user_name]), volume)
    mount: Object = {"name": "", "mountPath": path}
    if details.get("read_only"):
        mount["readOnly"] = True
    if kind == "git_repo":
        mount["subPath"] = _REPOSITORY
    volume.mounts.append(mount)
    return mount


def _named(found: Any) -> list[tuple[_Volume, str]]:
    """Every volume with its name. One that its user's name stands for alone is called so; others give way to it."""
    names = [volume.user_name for volume in found if volume.user_name]
    kept = {name for name in names if names.count(name) == 1 and name != SECRETS}
    taken = {SECRETS, *kept}
    result = []
    for volume in found:
        name = volume.user_name
        if name not in kept:
            word = name or volume.kind.replace("_", "-")
            name = distinct(f"{word[:54].rstrip('-')}-{fingerprint(volume.what)}", taken)
            taken.add(name)
        result.append((volume, name))
    return result


def _source(volume: _Volume) -> Object:
    if volume.kind != "pvc" or not all(mount.get("readOnly") for mount in volume.mounts):
        return volume.source
    # There are claims that can only be attached for reading, and then it has to be said here too.
    return {"persistentVolumeClaim": {**volume.source["persistentVolumeClaim"], "readOnly": True}}


def _checkout(volume: _Volume, name: str, container: str, context: Context) -> Object:
    """The container that checks a repository out before the others start."""
    arguments = [volume.details["repository"], volume.details.get("revision", ""), _CHECKOUT]
    needs = resources(volume.settings, None)
    return {
        "name": container,
        "image": context.options.git_image,
        "command": ["/bin/sh", "-c", _CHECK_OUT, "/bin/sh"],
        "args": [escaped(argument) for argument in arguments],
        "env": [{"name": "GIT_TERMINAL_PROMPT", "value": "0"}],
        **({"resources": needs} if needs else {}),
        "volumeMounts": [{"name": name, "mountPath": "/checkout"}],
    }


# --- what they are ---


def _nfs(details: Mapping[str, Any], context: Context, who: str) -> Object:
    del context, who
    return {"nfs": {"server": details["server"], "path": details["path"]}}


def _host_path(details: Mapping[str, Any], context: Context, who: str) -> Object:
    del context
    path = details["path"]
    if ".." in path.split("/"):
        raise SpecError(f"{who} mounts {path!r} of the node, and Kubernetes takes no '..' there")
    return {
        "hostPath": {"path": path, **({"type": details["type"]} if details.get("type") else {})}
    }


def _pvc(details: Mapping[str, Any], context: Context, who: str) -> Object:
    del context
    return {
        "persistentVolumeClaim": {
            "claimName": check_object_name(details["claim"], f"{who}: the claim")
        }
    }


def _empty_dir(details: Mapping[str, Any], context: Context, who: str) -> Object:
    del context, who
    medium = {"medium": "Memory"} if details.get("memory") else {}
    size = {"sizeLimit": details["size"]} if "size" in details else {}
    return {"emptyDir": {**medium, **size}}


def _shared_memory(details: Mapping[str, Any], context: Context, who: str) -> Object:
    return _empty_dir({**details, "memory": True}, context, who)


def _secret(details: Mapping[str, Any], context: Context, who: str) -> Object:
    return {"secret": {"secretName": _object(details["secret"], "secret", context, who)}}


def _config(details: Mapping[str, Any], context: Context, who: str) -> Object:
    return {"configMap": {"name": _object(details["config"], "config", context, who)}}


def _object(name: str, kind: str, context: Context, who: str) -> str:
    """What is made by the experiment goes before what is there under that name."""
    return context.made.get((kind, name)) or check_object_name(name, f"{who}: the {kind}")


def _git_repo(details: Mapping[str, Any], context: Context, who: str) -> Object:
    del context
    revision = details.get("revision", "")
    if revision.startswith("-"):
        raise SpecError(
            f"{who} checks out the revision {revision!r}: no branch, tag or commit begins with '-'"
        )
    return {"emptyDir": {}}


_SOURCES: dict[str, Callable[[Mapping[str, Any], Context, str], Object]] = {
    "nfs": _nfs,
    "host_path": _host_path,
    "pvc": _pvc,
    "empty_dir": _empty_dir,
    "shared_memory": _shared_memory,
    "secret": _secret,
    "config": _config,
    "git_repo": _git_repo,
}
