"""The volumes, secrets and configs of compose files."""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from symphony.importing.interpolation import with_defaults
from symphony.importing.paths import rebased
from symphony.importing.result import Imported
from symphony.model.document.other_formats.values import COLON, translate_volume
from symphony.support.names import suggested_name

_SECRETS_DIRECTORY = "/run/secrets"
# A file with such a name or contents becomes a secret.
_SECRET_NAME = re.compile(
    r"\.(env|key|pem|p12|htpasswd)\b|secret|passw|token|credential", re.IGNORECASE
)
_PRIVATE_KEY = "PRIVATE KEY-----"
# The names of files in a ConfigMap, and the size up to which a file is mounted as one.
_KEY = re.compile(r"[-\w.]+", re.ASCII)
_MAX_FILE_BYTES = 128 * 1024
# The keys of a volume that `translate_volume` reads, and those without an effect here.
_VOLUME_KEYS = frozenset({"consistency", "type", "source", "target", "read_only"})
_OTHER_TYPES = ("cluster", "image", "npipe")
_VOLUME_OPTIONS = frozenset({"", "cached", "consistent", "delegated", "ro", "rw", "z", "Z"})


class Mounts:
    """The volumes, secrets and configs that a compose file declares at its top level.

    Relative paths in the compose file are relative to ``base``, and those in the result to
    ``directory``. ``secrets`` contains the secrets of the experiment.
    """

    def __init__(
        self, compose: Mapping[str, Any], imported: Imported, base: Path, directory: Path
    ) -> None:
        self._imported = imported
        self._base = base
        self._directory = directory
        self._volumes: dict[str, Any] = dict(compose.get("volumes") or {})
        self.secrets = self._files("secrets", compose.get("secrets"))
        self._configs = self._files("configs", compose.get("configs"))
        self._report_volumes()

    def _path(self, path: str) -> str:
        return rebased(path, self._base, self._directory)

    def _files(self, key: str, declared: Any) -> dict[str, str]:
        """Return the files of the secrets or configs. The others are reported."""
        files: dict[str, str] = {}
        for name, item in (declared if isinstance(declared, Mapping) else {}).items():
            options = item if isinstance(item, Mapping) else {}
            if isinstance(options.get("file"), str):
                files[name] = self._path(self._with_defaults(options["file"]))
            else:
                self._imported.omit(f"{key}.{name}", "only a file is supported", "write a file")
        return files

    def _report_volumes(self) -> None:
        for name, item in self._volumes.items():
            for key in (item or {}) if isinstance(item, Mapping) else ():
                if key not in ("name", "external") and not key.startswith("x-"):
                    self._imported.omit(
                        f"volumes.{name}.{key}",
                        f"symphony does not create volume {name!r}",
                        "set the option where you create the volume",
                    )

    # --- volumes ---

    def add_volumes(self, settings: dict[str, Any], where: str, value: Any) -> None:
        """Add the volumes of a service to the settings of its process."""
        where = f"{where}.volumes"
        volumes = value if isinstance(value, list) else [value]
        for item in volumes if value else ():
            fixed = self._with_defaults(item)
            if isinstance(fixed, Mapping) and fixed.get("type") in _OTHER_TYPES:
                problem = f"a volume of type {fixed['type']} has no equivalent"
                self._imported.omit(where, problem, "copy its files into the image")
                continue
            try:
                volume = translate_volume(fixed)
                subpath = self._report_options(where, fixed)
            except (TypeError, ValueError, AttributeError, KeyError):
                problem = f"{item!r} has an unexpected form"
                self._imported.omit(where, problem, "add it to volumes")
                continue
            ((kind, details),) = volume.items()
            if fixed != item:
                self._keep_references(where, item, kind, details)
            if kind == "host_path" and self._add_file(settings, where, details):
                continue
            if subpath:
                _set_subpath(settings, details["mount_path"], subpath)
            self._complete(where, kind, details)
            settings.setdefault("volumes", []).append(volume)

    def _with_defaults(self, value: Any) -> Any:
        return with_defaults(value, self._imported.document.get("parameters", {}))

    def _keep_references(self, where: str, item: Any, kind: str, details: dict[str, Any]) -> None:
        """Write the references in a volume to parameters again, if paths in it are absolute.

        Whether a volume is a path or the name of a volume depends on the default.
        """
        if isinstance(item, Mapping):
            source, target = str(item.get("source") or ""), str(item["target"])
        else:
            source, target, *_ = [*COLON.split(str(item)), ""]
            source, target = (source, target) if target else ("", source)
        details["mount_path"] = target
        if kind == "host_path" and os.path.isabs(details["path"]):  # noqa: PTH117
            details["path"] = source
        elif "${" in source:
            known = details.get("path", details.get("claim"))
            problem = (
                f"{known} of {target} is the default of a variable, which no parameter changes"
            )
            if known is None:
                problem = (
                    f"{source} of {target} has no default, and the directory is empty at first"
                )
            self._imported.omit(where, problem, "change it in the result")

    def _report_options(self, where: str, item: Any) -> str:
        """Report the options of a volume that have no equivalent. Return its subpath, if any."""
        if not isinstance(item, Mapping):
            self._report_short_options(where, str(item))
            return ""
        given = {key: value for key, value in item.items() if key not in _VOLUME_KEYS}
        details = {key: dict(given.pop(key, None) or {}) for key in ("bind", "volume", "tmpfs")}
        details["tmpfs"].pop("size", None)
        subpath = details["volume"].pop("subpath", "")
        options = [f"{key}.{name}" for key, item in details.items() for name in item]
        # A missing directory is created by default.
        for option in [*given, *options]:
            if option != "bind.create_host_path":
                problem = f"{option} of {item['target']} has no equivalent"
                self._imported.omit(where, problem, "set it in pod_yml or container_yml")
        return str(subpath)

    def _report_short_options(self, where: str, volume: str) -> None:
        """Report the options in a volume such as ``data:/data:nocopy``."""
        _, _, rest = volume.partition(":/")
        target, _, options = rest.partition(":")
        for option in options.split(","):
            if option not in _VOLUME_OPTIONS:
                problem = f"{option} of /{target} has no equivalent"
                self._imported.omit(where, problem, "set it in pod_yml or container_yml")

    def _complete(self, where: str, kind: str, details: dict[str, Any]) -> None:
        if kind == "host_path":
            if not details["path"].startswith("$"):
                # A path on a node is absolute.
                path = os.path.expanduser(details["path"])  # noqa: PTH111
                details["path"] = os.path.normpath(self._base / path)
            self._imported.omit(
                where,
                f"local and tmux do not mount {details['mount_path']}, and Kubernetes mounts "
                f"{details['path']} of the node",
                "use the path on this machine there, and an image or another volume on Kubernetes",
            )
        elif kind == "pvc":
            details["claim"] = self._claim(details["claim"])
            self._imported.omit(
                where,
                f"symphony does not create volume {details['claim']!r}",
                f"create the PersistentVolumeClaim {details['claim']!r} on Kubernetes",
            )
        else:
            self._imported.omit(
                where,
                f"local and tmux do not mount {details['mount_path']}",
                "use the path on this machine there",
            )

    def _add_file(self, settings: dict[str, Any], where: str, details: Mapping[str, Any]) -> bool:
        """Mount a small text file beside the compose file on Kubernetes, whose nodes lack it.

        Return whether the volume is such a file.
        """
        if os.path.isabs(details["path"]) or details["path"].startswith(("~", "$")):  # noqa: PTH117
            return False
        path = self._base / os.path.normpath(details["path"])
        relative = os.path.relpath(path, self._base)
        text = _text_of_small_file(path)
        volume_name = suggested_name(relative)
        if not text or not volume_name or not _KEY.fullmatch(path.name):
            return False
        mount_path = details["mount_path"]
        is_secret = _SECRET_NAME.search(path.name) is not None or _PRIVATE_KEY in text
        kind = "secret" if is_secret else "config"
        _set_subpath(settings, mount_path, path.name)
        files = {path.name: self._path(relative)}
        volume = {kind: volume_name, "mount_path": mount_path, "files": files}
        settings.setdefault("volumes", []).append({kind: volume})
        self._imported.omit(
            where,
            f"{mount_path} is a copy of the file on Kubernetes, which the process cannot change, "
            "and local and tmux do not mount it",
            "use the path on this machine there",
        )
        return True

    def _claim(self, claim: str) -> str:
        """Return the name of a volume, which the top level of the compose file can set."""
        for name, item in self._volumes.items():
            if suggested_name(name) == claim and isinstance(item, Mapping) and item.get("name"):
                return suggested_name(str(item["name"])) or claim
        return claim

    # --- secrets and configs ---

    def add_secrets(self, settings: dict[str, Any], where: str, value: Any) -> None:
        """Mount the secrets of a service, which are files in ``/run/secrets``, on Kubernetes."""
        where = f"{where}.secrets"
        files: dict[str, str] = {}
        for item in value or ():
            source, target = _source_and_target(item)
            fix = f"local and tmux: read $SYMPHONY_SECRETS_DIR/{source}"
            self._imported.omit(
                where, f"the file is {_SECRETS_DIRECTORY}/{source} only on Kubernetes", fix
            )
            self._report_file_options(where, item)
            if source not in self.secrets:
                continue
            if "/" in target:
                problem = f"the file is not {target}"
                self._imported.omit(where, problem, "mount it with volumes: [secret: {...}]")
            else:
                files[target or source] = self.secrets[source]
        if files:
            name = "-".join(sorted(map(suggested_name, files)))[:63].strip("-")
            volume = {"secret": name, "mount_path": _SECRETS_DIRECTORY, "files": files}
            settings.setdefault("volumes", []).append({"secret": volume})

    def add_configs(self, settings: dict[str, Any], where: str, value: Any) -> None:
        """Mount the configs of a service, which are single files."""
        where = f"{where}.configs"
        for item in value or ():
            source, target = _source_and_target(item)
            self._report_file_options(where, item)
            path = posixpath.join("/", target or source)
            if source not in self._configs:
                self._imported.omit(
                    where,
                    f"there is no file for {path}",
                    "write the file, and use volumes: [config: {...}]",
                )
                continue
            name = posixpath.basename(path)
            _set_subpath(settings, path, name)
            volume = {
                "config": suggested_name(source) or "config",
                "mount_path": path,
                "files": {name: self._configs[source]},
            }
            settings.setdefault("volumes", []).append({"config": volume})
            problem, fix = f"local and tmux do not mount {path}", "use the path on this machine"
            self._imported.omit(where, problem, fix)

    def _report_file_options(self, where: str, item: Any) -> None:
        options = item.keys() - {"source", "target"} if isinstance(item, Mapping) else ()
        for option in sorted(options):
            self._imported.omit(f"{where}.{option}", "there is no equivalent", "use volumes")


def _source_and_target(item: Any) -> tuple[str, str]:
    """Return the name of a secret or config, and its path in the container, if it is set."""
    if not isinstance(item, Mapping):
        return str(item), ""
    return str(item.get("source", "")), str(item.get("target") or "")


def _text_of_small_file(path: Path) -> str:
    """Return the text in a small file, or an empty text if it is not one or can be executed."""
    try:
        status = path.stat()
        is_mountable = stat.S_ISREG(status.st_mode) and not status.st_mode & 0o111
        if not is_mountable or status.st_size > _MAX_FILE_BYTES:
            return ""
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _set_subpath(settings: dict[str, Any], mount_path: str, subpath: str) -> None:
    """Mount one file or directory of a volume on Kubernetes."""
    container = settings.setdefault("container_yml", {})
    mounts = container.setdefault("volumeMounts", [])
    mounts.append({"mountPath": mount_path, "subPath": subpath})


def source_of(settings: Mapping[str, Any], path: str) -> str | None:
    """Return the directory of this machine that is mounted at a path in the container."""
    for volume in settings.get("volumes", ()):
        details = volume.get("host_path")
        if details is None or details["path"].startswith("$"):
            continue
        mount_path = PurePosixPath(details["mount_path"])
        if PurePosixPath(path).is_relative_to(mount_path):
            rest = PurePosixPath(path).relative_to(mount_path)
            return os.path.normpath(os.path.join(details["path"], rest))  # noqa: PTH118
    return None
