"""Importing compose files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from symphony.errors import SpecError, SymphonyError
from symphony.importing.host_names import HostNames, Line, Service
from symphony.importing.interpolation import Interpolation
from symphony.importing.paths import rebased
from symphony.importing.result import Imported
from symphony.model import foreign_keys, validators
from symphony.model.foreign_keys import Untranslatable, translate, translate_volume, words
from symphony.model.settings import deep_merged
from symphony.model.value_types import STOP_SIGNAL
from symphony.names import service_env_name, suggested_name

# The commands and ports of images whose own command a compose file usually does not repeat.
_IMAGE_COMMANDS = {
    "memcached": ["memcached"],
    "mongo": ["mongod"],
    "nats": ["nats-server"],
    "nginx": ["nginx", "-g", "daemon off;"],
    "redis": ["redis-server"],
    "valkey": ["valkey-server"],
}
_IMAGE_PORTS = {
    "clickhouse-server": 8123,
    "elasticsearch": 9200,
    "etcd": 2379,
    "mariadb": 3306,
    "memcached": 11211,
    "minio": 9000,
    "mongo": 27017,
    "mysql": 3306,
    "nats": 4222,
    "nginx": 80,
    "postgres": 5432,
    "rabbitmq": 5672,
    "redis": 6379,
    "valkey": 6379,
}
_OVERRIDES = ("compose.override.yml", "compose.override.yaml", "docker-compose.override.yml")
# The keys of a service that this module translates, because other keys or files affect them.
_OWN_KEYS = frozenset(
    {"build", "command", "entrypoint", "env_file", "image", "labels", "secrets", "volumes"}
    | {"stop_signal", "working_dir"}
)
# A larger directory is not listed in the build context.
_MAX_CONTEXT_ENTRIES = 200
# The order of the keys in the result.
_FIRST_KEYS = (
    "replicas",
    "container_image",
    "command",
    "args",
    "preamble_cmds",
    "cmd",
    "start_dir",
)


def read(path: Path, *, name: str | None, default_name: str, directory: Path) -> Imported:
    """Return the experiment that a compose file describes.

    ``name`` takes precedence over the name in the file, and ``default_name`` is used if there is
    none. Relative paths in the result are relative to ``directory``. Raises `NotFound` or
    `SpecError` if the file cannot be read.
    """
    from symphony.model.documents import from_yaml, read_text

    data, _ = from_yaml(path, read_text(path), lambda *_: True)
    if not isinstance(data, Mapping) or not isinstance(data.get("services"), Mapping):
        raise SpecError(f"{path}: the file has no services; give a compose file or a Procfile")
    base = path.absolute().parent
    interpolation = Interpolation(_variables(base))
    compose = interpolation.document(data)
    imported = Imported(document={})
    title = name or suggested_name(str(compose.get("name") or "")) or default_name
    imported.document["name"] = title
    for reference in interpolation.unsupported:
        imported.omit(reference, "there is no equivalent", "replace it by a parameter")
    if interpolation.parameters:
        imported.document["parameters"] = interpolation.parameters
    _Import(compose, imported, base, directory).run()
    for override in _OVERRIDES:
        if (base / override).exists():
            imported.omit(override, "the file was not read", "add its settings to the result")
    _remove_errors(imported)
    _remove_unused_parameters(imported.document)
    return imported


def _remove_unused_parameters(document: dict[str, Any]) -> None:
    """Remove the parameters to which no value refers, because their values were left out."""
    text = json.dumps({key: value for key, value in document.items() if key != "parameters"})
    used = set(re.findall(r"\$\{(\w+)", text))
    parameters = document.get("parameters", {})
    for name in [name for name in parameters if name not in used]:
        del parameters[name]
    # Without parameters, a dollar sign before a brace is not doubled.
    if not parameters and "$${" not in text:
        document.pop("parameters", None)


def _variables(base: Path) -> dict[str, str]:
    """Return the variables in the file ``.env``, from which compose takes the values."""
    from symphony.model import env_files

    path = base / ".env"
    return env_files.read(path, os.environ) if path.is_file() else {}


@dataclass(kw_only=True)
class _Process:
    """A service of the compose file and the process for it.

    ``host`` is the name of the service in the compose file, and ``name`` that of the process.
    """

    host: str
    name: str
    given: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> str:
        return f"services.{self.host}"

    @property
    def image(self) -> str:
        """The last part of the name of the image, without its tag."""
        image = str(self.given.get("image") or "").partition("@")[0]
        return image.rpartition("/")[2].partition(":")[0]

    @property
    def is_replicated(self) -> bool:
        return bool(self.settings.get("replicas", 1) != 1)

    @property
    def argv(self) -> list[str]:
        return [*self.settings.get("command", ()), *self.settings.get("args", ())]


class _Import:
    """The import of one compose file."""

    def __init__(
        self, compose: Mapping[str, Any], imported: Imported, base: Path, directory: Path
    ) -> None:
        self._compose = compose
        self._imported = imported
        self._base = base
        self._directory = directory
        self._images: dict[str, Any] = {}
        self._secrets: dict[str, str] = {}

    def run(self) -> None:
        processes = self._processes()
        self._translate_top_level()
        for process in processes:
            self._translate(process)
        self._connect(processes)
        document = self._imported.document
        if self._secrets:
            document["secrets"] = self._secrets
        if self._images:
            document["images"] = self._images
        known = {process.name for process in processes}
        for process in processes:
            self._remove_unknown_dependencies(process, known)
        document["processes"] = {process.name: _ordered(process.settings) for process in processes}

    def _processes(self) -> list[_Process]:
        result: dict[str, _Process] = {}
        for host, given in self._compose["services"].items():
            name = suggested_name(host)
            if not name or name in result:
                raise SpecError(
                    f"service {host!r} cannot be imported, because its name is not unique or has "
                    "no letter; rename it"
                )
            if given is not None and not isinstance(given, Mapping):
                raise SpecError(f"service {host!r} is not a mapping; correct the compose file")
            result[name] = _Process(host=host, name=name, given=dict(given or {}))
        return list(result.values())

    def _translate_top_level(self) -> None:
        for key, value in self._compose.items():
            if key in ("name", "services", "version", "volumes") or key.startswith("x-"):
                continue
            if key == "secrets" and isinstance(value, Mapping):
                for name, secret in value.items():
                    if isinstance(secret, Mapping) and isinstance(secret.get("file"), str):
                        self._secrets[name] = self._path(secret["file"])
                    else:
                        self._omit(f"secrets.{name}", "only a file is supported", "write a file")
            elif key == "networks":
                self._omit(key, "all processes of an experiment can connect to each other")
            else:
                fix = foreign_keys.EXPERIMENT_KEYS.get(key, "see the documentation")
                self._omit(key, "there is no equivalent", fix)

    def _omit(self, where: str, problem: str, fix: str = "nothing to do") -> None:
        self._imported.omit(where, problem, fix)

    def _path(self, path: str) -> str:
        return rebased(path, self._base, self._directory)

    # --- one service ---

    def _translate(self, process: _Process) -> None:
        for key, value in process.given.items():
            if key in _OWN_KEYS or key.startswith("x-") or value is None:
                continue
            where = f"{process.where}.{key}"
            try:
                translation = translate(key, value, process.name)
            except Untranslatable as exc:
                example = str(exc)
                fix = f"write for example {example}" if example else "see the documentation"
                self._omit(where, "the value has an unexpected form", fix)
                continue
            if translation is None:
                self._omit(where, "the key is not known", "see the documentation")
                continue
            for note in translation.notes:
                self._omit(where, note.problem, note.fix)
            _merge(process.settings, translation.settings)
        self._translate_image(process)
        self._translate_command(process)
        self._translate_env_file(process)
        self._translate_stop_signal(process)
        self._translate_volumes(process)
        self._translate_working_dir(process)
        if process.given.get("labels"):
            self._omit(
                f"{process.where}.labels",
                "labels of compose often configure other programs",
                "add labels that Kubernetes allows to labels",
            )
        for secret in process.given.get("secrets") or ():
            source = secret.get("source", "") if isinstance(secret, Mapping) else secret
            self._omit(
                f"{process.where}.secrets",
                f"the file is not /run/secrets/{source}",
                f"read $SYMPHONY_SECRETS_DIR/{source}",
            )

    def _translate_command(self, process: _Process) -> None:
        given: dict[str, list[str]] = {}
        for key in ("entrypoint", "command"):
            value = process.given.get(key)
            try:
                given[key] = [] if value is None else words(value)
            except (TypeError, ValueError):
                self._omit(f"{process.where}.{key}", "it is not a command", "write a list of words")
        entrypoint, command = given.get("entrypoint", []), given.get("command", [])
        if entrypoint:
            process.settings["command"] = entrypoint
            if command:
                process.settings["args"] = command
        elif command:
            process.settings["command"] = command
        elif process.image in _IMAGE_COMMANDS:
            process.settings["command"] = _IMAGE_COMMANDS[process.image]
        else:
            self._omit(
                process.where,
                "the command is that of the image, which only Kubernetes knows",
                "add command: [...] to run the process on local and tmux",
            )

    def _translate_env_file(self, process: _Process) -> None:
        value = process.given.get("env_file")
        files: list[str] = []
        for item in value if isinstance(value, list) else [value]:
            path = item.get("path") if isinstance(item, Mapping) else item
            if path is None:
                continue
            is_optional = isinstance(item, Mapping) and str(item.get("required")).lower() == "false"
            if is_optional and not (self._base / str(path)).exists():
                self._omit(
                    f"{process.where}.env_file",
                    f"{path} does not exist, and a missing file is an error",
                    f"add {path} to env_file if you create it",
                )
                continue
            files.append(self._path(str(path)))
        if files:
            process.settings["env_file"] = files[0] if len(files) == 1 else files

    def _translate_stop_signal(self, process: _Process) -> None:
        value = process.given.get("stop_signal")
        if value is None:
            return
        try:
            process.settings["stop_signal"] = STOP_SIGNAL.parse(value, "stop_signal")
        except SpecError as exc:
            self._omit(f"{process.where}.stop_signal", str(exc), "set stop_command")

    # --- directories and images ---

    def _translate_volumes(self, process: _Process) -> None:
        where = f"{process.where}.volumes"
        value = process.given.get("volumes") or []
        for item in value if isinstance(value, list) else [value]:
            try:
                volume = translate_volume(item)
            except (TypeError, ValueError, AttributeError, KeyError):
                self._omit(where, f"{item!r} has an unexpected form", "add it to volumes")
                continue
            ((kind, details),) = volume.items()
            if kind == "host_path" and not details["path"].startswith("$"):
                # A path on a node is absolute.
                path = os.path.expanduser(details["path"])  # noqa: PTH111
                details["path"] = os.path.normpath(self._base / path)
            if kind == "pvc":
                self._omit(
                    where,
                    f"symphony does not create volume {details['claim']!r}",
                    f"create the PersistentVolumeClaim {details['claim']!r} on Kubernetes",
                )
            else:
                self._omit(
                    where,
                    f"local and tmux do not mount {details['mount_path']}",
                    "use the path on this machine there",
                )
            process.settings.setdefault("volumes", []).append(volume)

    def _translate_working_dir(self, process: _Process) -> None:
        """Set the start directory to the directory of this machine that the container has there."""
        given = process.given.get("working_dir")
        directory = None if given is None else self._source_of(process, str(given))
        context = self._context(process)
        if directory is None and context is not None:
            directory = context
        if directory is None:
            if given is not None:
                process.settings["start_dir"] = str(given)
            elif self._base != self._directory:
                process.settings["start_dir"] = self._path(".")
            return
        if os.path.abspath(directory) == str(self._directory):  # noqa: PTH100
            return
        process.settings["start_dir"] = self._path(os.path.relpath(directory, self._base))
        self._omit(
            f"{process.where}.working_dir",
            f"start_dir is {process.settings['start_dir']} on this machine",
            f"on Kubernetes, {'remove start_dir' if given is None else f'set start_dir: {given}'}",
        )

    def _source_of(self, process: _Process, path: str) -> str | None:
        """Return the directory of this machine that is mounted at a path in the container."""
        for volume in process.settings.get("volumes", ()):
            details = volume.get("host_path")
            if details is None or details["path"].startswith("$"):
                continue
            mount_path = PurePosixPath(details["mount_path"])
            if PurePosixPath(path).is_relative_to(mount_path):
                rest = PurePosixPath(path).relative_to(mount_path)
                return os.path.normpath(os.path.join(details["path"], rest))  # noqa: PTH118
        return None

    def _context(self, process: _Process) -> str | None:
        """Return the directory from which the image of a service is built, if there is one."""
        build = process.given.get("build")
        context = build.get("context", ".") if isinstance(build, Mapping) else build
        if not isinstance(context, str) or not (self._base / context).is_dir():
            return None
        return os.path.normpath(self._base / context)

    def _translate_image(self, process: _Process) -> None:
        image = process.given.get("image")
        build = process.given.get("build")
        if build is None:
            if image is not None:
                process.settings["container_image"] = str(image)
            return
        where = f"{process.where}.build"
        context = self._context(process)
        if context is None:
            process.settings["container_image"] = str(image or process.name)
            self._omit(where, "the context is not a directory", "add the image to images")
            return
        repository = _repository(str(image or process.name), process.name)
        process.settings["container_image"] = repository
        options = build if isinstance(build, Mapping) else {}
        entries = sorted(set(os.listdir(context)) - {".git"})
        if len(entries) > _MAX_CONTEXT_ENTRIES:
            self._omit(where, f"{context} has many files", "add them to context_directories")
            entries = []
        else:
            self._omit(
                where,
                "context_directories lists the files that exist now",
                "add new files; set the registry in the name of the image",
            )
        relative = os.path.relpath(context, self._base)
        dockerfile = str(options.get("dockerfile", "Dockerfile"))
        self._images[repository] = {
            "dockerfile": self._path(os.path.normpath(Path(relative) / dockerfile)),
            "context_directories": [
                {"name": entry, "path": self._path(os.path.normpath(Path(relative) / entry))}
                for entry in entries
            ],
            **_build_options(options),
        }
        for key in options.keys() - {"context", "dockerfile", "args", "target", "platforms"}:
            self._omit(f"{where}.{key}", "there is no equivalent", "use build_options")

    # --- services and their addresses ---

    def _connect(self, processes: list[_Process]) -> None:
        """Declare the services, and replace their host names by variables."""
        texts = {
            process.host: [*process.settings.get("env", {}).values(), *process.argv]
            for process in processes
        }
        every_text = [text for own in texts.values() for text in own]
        mentioned = HostNames(
            Service(host=process.host, name=process.name, port=None) for process in processes
        ).ports(every_text)
        services = []
        for process in processes:
            declared = {**process.settings.get("exposes", {}), **process.settings.get("binds", {})}
            port = next(iter(declared.values()), None)
            if port is None:
                port = mentioned.get(process.host, _IMAGE_PORTS.get(process.image))
            name = f"{process.name}-0" if process.is_replicated else process.name
            if port is not None:
                services.append(Service(host=process.host, name=name, port=port))
        hosts = HostNames(services)
        connected: set[str] = set()
        for process in processes:
            for service in self._replace_hosts(process, hosts):
                if service.host != process.host:
                    connected.add(service.host)
                    connects = process.settings.setdefault("connects", [])
                    if service.name not in connects:
                        connects.append(service.name)
        by_host = {service.host: service for service in services}
        for process in processes:
            if process.host in connected:
                bound = process.settings.setdefault("binds", {})
                bound.setdefault(process.name, by_host[process.host].port)
            self._number_services(process)
        self._free_repeated_ports(processes)

    def _free_repeated_ports(self, processes: list[_Process]) -> None:
        """Let symphony choose the port if another service has it.

        In a compose file, every container has ports of its own.
        """
        owners: dict[Any, str] = {}
        for process in processes:
            for key in ("exposes", "binds"):
                services = process.settings.get(key, {})
                for name, port in services.items():
                    if port is None or owners.setdefault(port, name) == name:
                        continue
                    services[name] = None
                    variable = f"$SYMPH_{service_env_name(name)}_PORT"
                    self._omit(
                        f"{process.where}.{'ports' if key == 'exposes' else 'expose'}",
                        f"port {port} is that of service {owners[port]!r}",
                        f"let the program listen on {variable}",
                    )

    def _replace_hosts(self, process: _Process, hosts: HostNames) -> list[Service]:
        """Replace host names by variables, and return the services that the process mentions."""
        lines: list[Line] = []
        env = process.settings.get("env", {})
        for key, value in [*env.items()]:
            line = hosts.variable(key, value)
            if line is not None:
                lines.append(line)
                del env[key]
        if lines:
            process.settings["preamble_cmds"] = [line.text for line in lines]
        if not env:
            process.settings.pop("env", None)
        command = hosts.command(process.argv)
        if command is not None:
            lines.append(command)
            process.settings["cmd"] = command.text
            for key in ("command", "args"):
                process.settings.pop(key, None)
        return [service for line in lines for service in line.services]

    def _number_services(self, process: _Process) -> None:
        """Give each replica services of its own, because two processes cannot bind one service."""
        if not process.is_replicated:
            return
        for key in ("binds", "exposes"):
            services = process.settings.get(key)
            if services:
                process.settings[key] = {f"{name}-${{index}}": None for name in services}
                self._omit(
                    f"{process.where}.ports",
                    "each replica has its own service and port, and the load is not balanced",
                    f"let the program listen on $SYMPH_{service_env_name(process.name)}_..._PORT",
                )

    def _remove_unknown_dependencies(self, process: _Process, known: set[str]) -> None:
        awaited = process.settings.get("starts_after", {})
        for name in [name for name in awaited if name not in known]:
            del awaited[name]
            self._omit(f"{process.where}.depends_on", f"there is no service {name!r}", "add it")
        if not awaited:
            process.settings.pop("starts_after", None)


def _repository(image: str, default: str) -> str:
    """Return the name of an image without its tag, or ``default`` if it is not valid."""
    name = image.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    if colon and "/" not in tag:
        name = head
    try:
        return validators.repository(name)
    except SpecError:
        return default


def _build_options(build: Mapping[str, Any]) -> dict[str, list[str]]:
    options: list[str] = []
    given = build.get("args") or {}
    if isinstance(given, Mapping):
        given = [f"{key}={value}" if value is not None else key for key, value in given.items()]
    for argument in given:
        options += ["--build-arg", str(argument)]
    if build.get("target"):
        options += ["--target", str(build["target"])]
    if build.get("platforms"):
        options.append(f"--platform={','.join(map(str, build['platforms']))}")
    return {"build_options": options} if options else {}


def _merge(settings: dict[str, Any], other: Mapping[str, Any]) -> None:
    """Add settings. Mappings are merged at every depth, and lists are joined."""
    for key, value in other.items():
        existing = settings.get(key)
        if isinstance(existing, list) and isinstance(value, list):
            settings[key] = [*existing, *value]
        elif isinstance(existing, dict) and isinstance(value, dict):
            settings[key] = deep_merged(existing, value)
        else:
            settings[key] = value


def _ordered(settings: dict[str, Any]) -> dict[str, Any]:
    first = {key: settings[key] for key in _FIRST_KEYS if key in settings}
    return {**first, **settings}


def _remove_errors(imported: Imported) -> None:
    """Remove the values that an experiment cannot have, and add an omission for each."""
    from symphony.model import Experiment
    from symphony.model.load import load_experiment

    parameters = imported.document.get("parameters", {})
    values = {name: "1" for name, value in parameters.items() if value is None}
    while True:
        try:
            errors = load_experiment(Experiment, imported.document, values).errors
        except SymphonyError as exc:
            errors = [SpecError(str(exc))]
        removed = False
        for error in errors:
            problem, _, fix = str(error).partition("; ")
            where = ".".join(map(str, error.path))
            if _remove(imported.document, error.path):
                removed = True
                imported.omit(where, problem, fix or "correct it and add it")
        if not removed:
            if errors:
                raise SpecError(f"the result is not valid: {errors[0]}")
            return


def _remove(document: Any, path: tuple[str | int, ...]) -> bool:
    """Remove the setting of a process to which a path leads. Return whether it existed."""
    if len(path) < 3 or path[0] != "processes":
        return False
    process = document["processes"].get(path[1])
    return isinstance(process, dict) and process.pop(path[2], None) is not None
