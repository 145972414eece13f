"""Importing compose files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from symphony.errors import SpecError
from symphony.importing import checks, compose_files, service_images
from symphony.importing.addresses import Process, connect
from symphony.importing.dockerfile import Program
from symphony.importing.interpolation import DEFAULT_IS_FIXED, escaped, with_defaults
from symphony.importing.mounts import Mounts, source_of
from symphony.importing.paths import rebased
from symphony.importing.result import Imported
from symphony.importing.service_images import Images
from symphony.model.document.other_formats import known_keys
from symphony.model.document.other_formats.known_keys import (
    health_limits,
    service_names,
    translate,
)
from symphony.model.document.other_formats.translation import Untranslatable
from symphony.model.document.other_formats.values import flag, mapping, signal_name, words
from symphony.model.settings.merging import deep_merged
from symphony.plan.shell import runs_entry_point
from symphony.support.names import suggested_name

# The keys of a service that this package translates, because other keys or files affect them.
_OWN_KEYS = frozenset(
    {"build", "command", "configs", "container_name", "depends_on", "entrypoint", "env_file"}
    | {"image", "labels", "links", "networks", "profiles", "secrets", "stdin_open", "stop_signal"}
    | {"tty", "volumes", "working_dir"}
)
# The keys of a process, and the keys of a service from which they are translated.
_KEYS = {
    "args": "command",
    "binds": "expose",
    "container_image": "image",
    "env": "environment",
    "exposes": "ports",
    "ready": "healthcheck",
    "restart_policy": "restart",
    "start_dir": "working_dir",
    "starts_after": "depends_on",
    "termination_grace_period": "stop_grace_period",
}
# The keys at the top level whose values are mappings, and the forms of some keys of a service.
_MAPPINGS = ("configs", "networks", "secrets", "volumes")
_FORMS: dict[str, tuple[type, ...]] = {
    "configs": (list,),
    "depends_on": (list, Mapping),
    "env_file": (str, list, Mapping),
    "links": (list,),
    "networks": (list, Mapping),
    "profiles": (list,),
    "secrets": (list,),
    "volumes": (list,),
}
# The keys of a service whose translation depends on their values, so that these cannot be
# parameters, and the keys in them of which this is not true.
_FIXED_KEYS: dict[str, tuple[str, ...]] = {
    "build": ("args",),
    "deploy": ("labels", "mode", "placement", "replicas"),
    "env_file": (),
    "healthcheck": ("test",),
    "mem_limit": (),
    "mem_reservation": (),
    "network_mode": (),
    "platform": (),
    "privileged": (),
    "pull_policy": (),
    "read_only": (),
    "restart": (),
    "shm_size": (),
    "stdin_open": (),
    "stop_grace_period": (),
    "stop_signal": (),
    "tmpfs": (),
    "tty": (),
}
# The settings that other backends ignore.
_KUBERNETES_KEYS = frozenset({"container_yml", "node_selector", "pod_yml"})
# The order of the keys in the result.
_FIRST_KEYS = ("replicas", "container_image", "command", "args", "start_dir")
# The label of the services that https://github.com/willfarrell/docker-autoheal restarts.
_AUTOHEAL = "autoheal"
_CONNECTED = "all processes of an experiment can connect to each other"


def read(
    paths: Sequence[Path], *, name: str | None, default_name: str, directory: Path
) -> Imported:
    """Return the experiment that compose files describe, which are merged in the given order.

    ``name`` takes precedence over the name in the files, and ``default_name`` is used if there is
    none. Relative paths in the result are relative to ``directory``. Raises `NotFound` or
    `SpecError` if a file cannot be read.
    """
    imported = Imported(document={"name": name or default_name})
    compose = compose_files.read(paths, imported)
    own_name = suggested_name(
        with_defaults(str(compose.get("name") or ""), imported.document.get("parameters", {}))
    )
    imported.document["name"] = name or own_name or default_name
    base = paths[0].absolute().parent
    processes = _Import(compose, imported, base, directory).run()
    names = {process.name: process.host for process in processes}
    checks.finish(imported, _KEYS, "services", names)
    return imported


class _Import:
    """The import of one compose file."""

    def __init__(
        self, compose: Mapping[str, Any], imported: Imported, base: Path, directory: Path
    ) -> None:
        self._compose = compose
        self._imported = imported
        self._base = base
        self._directory = directory
        self._images = Images(imported, base, directory)
        active = compose_files.variables_in([base / ".env"]).get("COMPOSE_PROFILES", "")
        # The services whose programs are not known, as places in the compose file.
        self._without_program: list[str] = []
        self._active_profiles = set(active.split(","))

    def run(self) -> list[Process]:
        processes = self._processes()
        self._translate_top_level()
        mounts = Mounts(self._compose, self._imported, self._base, self._directory)
        for process in processes:
            self._translate(process, mounts)
        self._report_programs()
        connect(processes, self._imported)
        document = self._imported.document
        if mounts.secrets:
            document["secrets"] = mounts.secrets
        if self._images.described:
            document["images"] = self._images.described
        known = {process.host: process for process in processes}
        for process in processes:
            self._translate_dependencies(process, known)
        document["processes"] = {process.name: _ordered(process.settings) for process in processes}
        return processes

    def _processes(self) -> list[Process]:
        for key in _MAPPINGS:
            _check_form(key, self._compose.get(key), (Mapping,))
        result: dict[str, Process] = {}
        for host, given in self._compose["services"].items():
            name = suggested_name(host)
            if not name or name in result:
                raise SpecError(
                    f"service {host!r} cannot be imported, because its name is not unique or has "
                    "no letter; rename it"
                )
            if given is not None and not isinstance(given, Mapping):
                raise SpecError(f"service {host!r} is not a mapping; correct the compose file")
            for key, forms in _FORMS.items():
                _check_form(f"services.{host}.{key}", (given or {}).get(key), forms)
            result[name] = Process(host=host, name=name, given=dict(given or {}))
        return list(result.values())

    def _translate_top_level(self) -> None:
        known = ("configs", "include", "name", "networks", "secrets", "services", "version")
        for key in self._compose:
            if key not in (*known, "volumes") and not key.startswith("x-"):
                fix = known_keys.EXPERIMENT_KEYS.get(key, "see the documentation")
                self._omit(key, "there is no equivalent", fix)
        if self._compose.get("networks"):
            self._omit("networks", _CONNECTED)

    def _omit(self, where: str, problem: str, fix: str = "nothing to do") -> None:
        self._imported.omit(where, problem, fix)

    def _path(self, path: str) -> str:
        return rebased(path, self._base, self._directory)

    # --- one service ---

    def _translate(self, process: Process, mounts: Mounts) -> None:
        for key in _FIXED_KEYS:
            self._fix(process, key)
        for key, value in process.given.items():
            if key not in _OWN_KEYS and not key.startswith("x-") and value is not None:
                self._translate_key(process, key, value)
        self._translate_autoheal(process)
        _rename_bound_services(process)
        given = process.given
        image = self._images.translate(
            process.where, process.name, given.get("image"), given.get("build")
        )
        if image is not None:
            process.settings["container_image"] = image
        process.image_ports = self._images.ports(given.get("image"), given.get("build"))
        self._translate_command(process)
        self._translate_env_files(process)
        mounts.add_volumes(process.settings, process.where, given.get("volumes"))
        mounts.add_secrets(process.settings, process.where, given.get("secrets"))
        mounts.add_configs(process.settings, process.where, given.get("configs"))
        self._translate_working_dir(process)
        self._translate_terminal(process)
        self._translate_profiles(process)
        self._report_names(process)

    def _fix(self, process: Process, key: str) -> None:
        """Replace the variables in the value of a key by their defaults."""
        value = process.given.get(key)
        fixed = self._with_defaults(value)
        if isinstance(value, Mapping):
            kept = {name: value[name] for name in _FIXED_KEYS[key] if name in value}
            fixed = {**fixed, **kept}
        if fixed == value:
            return
        process.given[key] = fixed
        if fixed == "":
            del process.given[key]
        self._omit(f"{process.where}.{key}", DEFAULT_IS_FIXED, "change it in the result")

    def _with_defaults(self, value: Any) -> Any:
        return with_defaults(value, self._imported.document.get("parameters", {}))

    def _translate_key(self, process: Process, key: str, value: Any) -> None:
        where = f"{process.where}.{key}"
        try:
            translation = translate(key, value, process.name)
        except Untranslatable as exc:
            fixed = self._with_defaults(value)
            if fixed != value:
                self._omit(where, DEFAULT_IS_FIXED, "change it in the result")
                self._translate_key(process, key, fixed)
                return
            example = str(exc)
            fix = f"write for example {example}" if example else "see the documentation"
            self._omit(where, "the value has an unexpected form", fix)
            return
        if translation is None:
            self._omit(where, "the key is not known", "see the documentation")
            return
        for note in translation.notes:
            place = f"{where}.{note.key}" if note.key else where
            self._omit(place, note.problem, note.fix)
        if translation.settings and translation.settings.keys() <= _KUBERNETES_KEYS:
            self._omit(where, "only Kubernetes applies this setting")
        _merge(process.settings, translation.settings)

    def _translate_autoheal(self, process: Process) -> None:
        """Let a test restart a service that the program autoheal restarts.

        compose itself does not restart services whose test fails.
        """
        test = process.settings.get("ready", {}).get("command")
        if test is None or not flag(_labels(process).get(_AUTOHEAL)):
            return
        limits = health_limits(process.given["healthcheck"])
        process.settings["healthy"] = {"command": list(test), **limits}
        if "restart_policy" not in process.settings:
            process.settings["restart_policy"] = "OnFailure"
            place = f"{process.where}.labels.{_AUTOHEAL}"
            self._omit(place, "the process is also restarted after other failures")

    def _translate_command(self, process: Process) -> None:
        """Translate the entry point and the command.

        The command alone is that of the image, which its entry point receives as arguments.
        """
        entrypoint = self._words(process, "entrypoint")
        command = self._words(process, "command")
        image = service_images.short_name(process.given.get("image"))
        if "entrypoint" not in process.given:
            entrypoint, command = self._add_program(process, command)
        if entrypoint:
            process.settings["command"] = entrypoint
        elif "entrypoint" in process.given and command:
            # An empty entry point replaces that of the image.
            process.settings["command"], command = command, []
        elif not command and image in service_images.COMMANDS and "build" not in process.given:
            command = service_images.COMMANDS[image]
        if command:
            process.settings["args"] = command
        if "command" in process.settings:
            return
        if runs_entry_point(command, has_command=False):
            self._without_program.append(process.where)

    def _report_programs(self) -> None:
        if self._without_program:
            self._omit(
                ", ".join(self._without_program),
                "the program is that of the image, which only Kubernetes knows",
                "add command: [...] to run without Kubernetes",
            )

    def _words(self, process: Process, key: str) -> list[str]:
        value = process.given.get(key)
        try:
            return [] if value is None else words(value)
        except (TypeError, ValueError):
            self._omit(f"{process.where}.{key}", "it is not a command", "write a list of words")
            return []

    def _add_program(self, process: Process, command: list[str]) -> tuple[list[str], list[str]]:
        """Return the entry point in the Dockerfile of a service, and its command.

        The command in the Dockerfile is returned if ``command`` is empty.
        """
        build = process.given.get("build")
        program = Program() if build is None else self._images.program(build)
        has_parameters = bool(self._imported.document.get("parameters"))
        entrypoint = [escaped(word, has_parameters=has_parameters) for word in program.entrypoint]
        if entrypoint or (program.command and not command):
            self._omit(
                f"{process.where}.{'command' if command else 'build'}",
                "the program is that in the Dockerfile",
                "change it here, too, if you change it there",
            )
        if not command:
            command = [escaped(word, has_parameters=has_parameters) for word in program.command]
        return entrypoint, command

    def _translate_env_files(self, process: Process) -> None:
        where = f"{process.where}.env_file"
        value = process.given.get("env_file")
        files: list[str] = []
        raw: dict[str, str] = {}
        for item in value if isinstance(value, list) else [value]:
            options = item if isinstance(item, Mapping) else {"path": item}
            if options.get("path") is None:
                continue
            path = str(options["path"])
            is_required = flag(options.get("required", True))
            if not is_required and not (self._base / path).exists():
                self._omit(
                    where,
                    f"{path} does not exist, and a missing file is an error",
                    f"add {path} to env_file if you create it",
                )
            elif options.get("format") == "raw":
                raw.update(self._raw_variables(where, path))
            else:
                files.append(self._path(path))
                process.env_files[path] = _variables(self._base / path)
            if options.get("format") not in (None, "raw"):
                self._omit(f"{where}.format", f"{options['format']!r} is not known", "write env")
        if files:
            process.settings["env_file"] = files[0] if len(files) == 1 else files
        if raw:
            process.settings["env"] = {**raw, **process.settings.get("env", {})}

    def _raw_variables(self, where: str, path: str) -> dict[str, str]:
        """Return the variables in an env file whose values are used as they are."""
        from symphony.model.document.documents import read_text

        if not (self._base / path).is_file():
            self._omit(where, f"{path} does not exist", "create it, and import the file again")
            return {}
        self._omit(where, f"the result contains the values in {path}", "import the file again")
        lines = [line.partition("=") for line in read_text(self._base / path).splitlines()]
        has_parameters = bool(self._imported.document.get("parameters"))
        return {
            key.strip(): escaped(value, has_parameters=has_parameters)
            for key, equals, value in lines
            if equals and not key.lstrip().startswith("#")
        }

    def _translate_working_dir(self, process: Process) -> None:
        """Set the start directory to the directory of this machine that the container has there."""
        given = process.given.get("working_dir")
        has_program = "command" in process.settings or "args" in process.settings
        if not has_program:
            # Only Kubernetes can run the process.
            if given is not None:
                process.settings["start_dir"] = str(given)
            return
        directory = None if given is None else source_of(process.settings, str(given))
        if directory is None:
            directory = self._images.context(process.given.get("build"))
        if directory is None and given is not None:
            process.settings["start_dir"] = str(given)
            return
        path = self._path(os.path.relpath(directory or self._base, self._base))
        if os.path.normpath(path) == ".":
            return
        process.settings["start_dir"] = path
        # On Kubernetes, the process starts in the directory of the image.
        container = {"workingDir": None if given is None else str(given)}
        _merge(process.settings, {"container_yml": container})

    def _translate_terminal(self, process: Process) -> None:
        given = process.given
        if flag(given.get("tty")):
            process.settings["tty"] = True
        elif flag(given.get("stdin_open")):
            self._translate_key(process, "stdin_open", True)
        if given.get("stop_signal") is not None:
            try:
                process.settings["stop_signal"] = signal_name(given["stop_signal"])
            except ValueError:
                problem = f"there is no signal {given['stop_signal']}"
                self._omit(f"{process.where}.stop_signal", problem, "write its name")

    def _translate_profiles(self, process: Process) -> None:
        """Let a parameter switch a process on that belongs to profiles.

        Processes with the same profiles share the parameter. compose runs a service if one of its
        profiles is active, which the parameters of single profiles could not express.
        """
        profiles = list(map(str, process.given.get("profiles") or ()))
        if not profiles:
            return
        words = [re.sub(r"\W", "_", profile) for profile in profiles]
        parameter = f"profile_{'_or_'.join(words)}"
        process.profile = parameter
        parameters = self._imported.document.setdefault("parameters", {})
        where = f"{process.where}.profiles"
        number = process.settings.get("replicas", 1)
        process.settings["replicas"] = f"${{{parameter}}}"
        if {"*", *profiles} & self._active_profiles:
            parameters[parameter] = str(number)
            self._omit(where, f"parameter {parameter} switches the process on")
            return
        parameters[parameter] = "0"
        self._omit(where, "the process is switched off", f"launch --set {parameter}={number}")

    def _report_names(self, process: Process) -> None:
        """Report the keys that only give host names, and the labels."""
        given = process.given
        if given.get("container_name"):
            self._omit(f"{process.where}.container_name", f"the process is {process.name!r}")
        if given.get("links"):
            self._omit(f"{process.where}.links", _CONNECTED)
        networks = given.get("networks")
        for name, network in networks.items() if isinstance(networks, Mapping) else ():
            for key in [key for key in network or {} if key != "aliases"]:
                place = f"{process.where}.networks.{name}.{key}"
                self._omit(place, "there is no equivalent", "use the addresses of services")
        if given.get("labels") and _labels(process).keys() != {_AUTOHEAL}:
            self._omit(
                f"{process.where}.labels",
                "labels of compose often configure other programs",
                "add labels that Kubernetes allows to labels",
            )

    # --- dependencies ---

    def _translate_dependencies(self, process: Process, known: Mapping[str, Process]) -> None:
        value = process.given.get("depends_on") or ()
        where = f"{process.where}.depends_on"
        options = dict(value) if isinstance(value, Mapping) else {str(host): None for host in value}
        for host in process.needed():
            options.setdefault(host, None)
        missing = [host for host in options if host not in known]
        for host in missing:
            self._omit(f"{where}.{host}", f"there is no service {host!r}", "add it")
        found = {host: item for host, item in options.items() if host in known}
        if found:
            self._translate_key(process, "depends_on", found)
        for host in found:
            if known[host].profile is not None and process.profile != known[host].profile:
                fix = "switch it on, too"
                self._omit(f"{where}.{host}", f"{host!r} can be switched off", fix)


def _labels(process: Process) -> dict[str, Any]:
    """Return the labels of a service, or nothing if their form is unexpected."""
    try:
        return mapping(process.given.get("labels") or {})
    except TypeError:
        return {}


def _rename_bound_services(process: Process) -> None:
    """Give the ports of ``expose`` other names than those of ``ports``."""
    settings = process.settings
    if "exposes" in settings and "binds" in settings:
        exposed, bound = settings["exposes"].values(), settings["binds"].values()
        names = service_names(process.name, [*exposed, *bound])
        settings["binds"] = {name: port for name, port in names.items() if port in bound}


def _check_form(where: str, value: Any, forms: tuple[type, ...]) -> None:
    """Raise `SpecError` if a value is neither missing nor of one of the given types."""
    if value is not None and not isinstance(value, forms):
        names = {"list": "a list", "str": "text", "Mapping": "a mapping"}
        expected = " or ".join(names[form.__name__] for form in forms)
        raise SpecError(f"{where} is not {expected}; correct the compose file")


def _variables(path: Path) -> dict[str, str]:
    """Return the variables in an env file, or none if it cannot be read."""
    from symphony.errors import SymphonyError
    from symphony.model.document import env_files

    try:
        return dict(env_files.read(path, os.environ))
    except SymphonyError:
        return {}


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
