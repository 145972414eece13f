"""Importing process-compose files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from symphony.errors import SpecError
from symphony.importing import checks, go_templates, merging
from symphony.importing.compose_files import variables_in
from symphony.importing.interpolation import Interpolation
from symphony.importing.paths import rebased
from symphony.importing.result import Imported
from symphony.model.foreign_keys import Untranslatable, flag, translate
from symphony.names import suggested_name

ENV_FILE = ".env"
_OVERRIDES = ("process-compose.override.yml", "process-compose.override.yaml")
_REPLICA_NUMBER, _PROCESS_NAME = "PC_REPLICA_NUM", "PC_PROC_NAME"
# The template that has the same meaning as a reference to the number of the replica.
_NUMBER = f"{{{{.{_REPLICA_NUMBER}}}}}"
# The shells whose lines `cmd` runs.
_SHELLS = ("sh", "bash")
_OWN_HOSTS = ("127.0.0.1", "0.0.0.0", "::1", "localhost")
# A process for whose line process-compose waits can take any time until it is ready.
_LOG_TIMEOUT_SECONDS = 600
_LOGS = "'symphony logs' shows the output of every process"
# The keys without an equivalent, each with a reason and what the user can do.
_NOTES = {
    "description": ("there is no equivalent", "write a comment"),
    "disable_ansi_colors": (_LOGS, "set NO_COLOR in env"),
    "is_daemon": (
        "a program that puts itself into the background is stopped when its parent exits",
        "let it run in the foreground",
    ),
    "is_elevated": ("the program does not run with sudo", "write sudo in cmd"),
    "launch_timeout_seconds": ("there is no equivalent", "nothing to do"),
    "log_configuration": (_LOGS, "use log_limit for its size"),
    "log_location": (_LOGS, "write 2>&1 | tee FILE in cmd to keep a file"),
    "namespace": ("there is no equivalent", "launch the processes by their names"),
    "schedule": ("a process has no schedule", "launch the experiment with cron"),
    "watch": ("there is no equivalent", "use code, and 'symphony up --watch'"),
}
_OWN_KEYS = frozenset(
    {"availability", "command", "disabled", "entrypoint", "env_file", "environment"}
    | {
        "is_disabled",
        "is_foreground",
        "is_interactive",
        "is_tty",
        "liveness_probe",
        "readiness_probe",
    }
    | {"ready_log_line", "replicas", "vars", "working_dir"}
)
_EXPERIMENT_KEYS = frozenset(
    {"disable_env_expansion", "env_cmds", "environment", "is_strict", "name", "processes", "shell"}
    | {"vars", "version"}
)
# The keys of a process, and the keys in the file from which they are translated.
_KEYS = {
    "cmd": "command",
    "container_yml": "liveness_probe",
    "env": "environment",
    "exposes": "readiness_probe",
    "ready": "readiness_probe",
    "restart_policy": "availability",
    "start_dir": "working_dir",
    "starts_after": "depends_on",
    "stop_command": "shutdown",
    "stop_signal": "shutdown",
    "termination_grace_period": "shutdown",
    "tty": "is_tty",
}


def is_process_compose(path: Path) -> bool:
    """Return whether a file describes processes instead of services.

    Raises `NotFound` or `SpecError` if the file cannot be read.
    """
    contents = _contents(path)
    return isinstance(contents.get("processes"), Mapping) and "services" not in contents


def read(
    paths: Sequence[Path], *, name: str | None, default_name: str, directory: Path
) -> Imported:
    """Return the experiment that process-compose files describe, which are merged in this order.

    ``name`` takes precedence over the name in the files, and ``default_name`` is used if there is
    none. Relative paths in the result are relative to ``directory``. Raises `NotFound` or
    `SpecError` if a file cannot be read.
    """
    imported = Imported(document={})
    base = paths[0].absolute().parent
    contents = _merged_files(paths, imported)
    own_name = suggested_name(str(contents.get("name") or ""))
    imported.document["name"] = name or own_name or default_name
    names = _Import(contents, imported, base, directory).run()
    checks.finish(imported, _KEYS, "processes", names)
    imported.omit(
        paths[0].name,
        "the file names no container images",
        "add container_image to each process to run it on Kubernetes",
    )
    return imported


def _contents(path: Path) -> dict[str, Any]:
    from symphony.model.documents import from_yaml, read_text

    data, _ = from_yaml(path, read_text(path), lambda *_: True, merging.TAGS)
    return dict(data) if isinstance(data, Mapping) else {}


def _merged_files(paths: Sequence[Path], imported: Imported) -> dict[str, Any]:
    """Return the contents of files, the files that they extend, and the file that overrides one."""
    override = _override(paths)
    if override is not None:
        imported.omit(override.name, "its settings are merged into the result")
        paths = [*paths, override]
    result: dict[str, Any] = {}
    for path in paths:
        for contents in _with_extended(path, ()):
            processes = merging.merged(
                result.get("processes"), contents.get("processes"), ("services",)
            )
            result = {**merging.merged(result, contents | {"processes": None})}
            result["processes"] = processes
    return dict(merging.without_tags(result))


def _with_extended(path: Path, seen: tuple[Path, ...]) -> list[dict[str, Any]]:
    """Return the contents of a file, after those of the files that it extends."""
    if path.resolve() in seen:
        raise SpecError(f"{path}: the file extends itself; remove extends")
    contents = _contents(path)
    extended = contents.pop("extends", None)
    if not extended:
        return [contents]
    return [*_with_extended(path.parent / str(extended), (*seen, path.resolve())), contents]


def _override(paths: Sequence[Path]) -> Path | None:
    if len(paths) > 1 or paths[0].stem != "process-compose":
        return None
    candidates = [paths[0].parent / name for name in _OVERRIDES]
    return next((path for path in candidates if path.is_file()), None)


class _Import:
    """The import of the merged contents of process-compose files."""

    def __init__(
        self, contents: Mapping[str, Any], imported: Imported, base: Path, directory: Path
    ) -> None:
        self._contents = contents
        self._imported = imported
        self._base = base
        self._directory = directory
        self._interpolation = Interpolation(imported)
        self._values = variables_in([base / ENV_FILE])
        self._expands = not flag(contents.get("disable_env_expansion"))
        self._vars = _texts(contents.get("vars"))
        self._ends_with: list[str] = []

    def run(self) -> dict[str, str]:
        """Translate the processes, and return their names in the file by those in the result."""
        processes: dict[str, dict[str, Any]] = {}
        names: dict[str, str] = {}
        for host, given in self._contents["processes"].items():
            name = suggested_name(host)
            if not name or name in processes:
                raise SpecError(
                    f"process {host!r} cannot be imported, because its name is not unique or has "
                    "no letter; rename it"
                )
            if not isinstance(given, Mapping):
                raise SpecError(f"process {host!r} is not a mapping; correct the file")
            names[name] = host
            processes[name] = self._process(host, name, given)
        document = self._imported.document
        document.update(self._experiment_settings())
        finished = self._interpolation.finished({**document, "processes": processes})
        parameters = self._interpolation.parameters
        document.clear()
        document["name"] = finished.pop("name")
        if parameters:
            document["parameters"] = parameters
        document.update(finished)
        return names

    def _experiment_settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = {}
        if self._base != self._directory:
            settings["start_dir"] = rebased(".", self._base, self._directory)
        if (self._base / ENV_FILE).is_file():
            settings["env_file"] = rebased(ENV_FILE, self._base, self._directory)
        environment = self._environment("environment", self._contents.get("environment"), {})
        if environment:
            settings["env"] = environment
        commands = self._contents.get("env_cmds")
        for key, command in commands.items() if isinstance(commands, Mapping) else ():
            line = f'export {key}="$({self._shell_line(str(command))})"'
            settings.setdefault("preamble_cmds", []).append(line)
        if self._ends_with:
            settings["ends_with"] = self._ends_with
        if len(self._ends_with) > 1:
            self._omit("availability.exit_on_end", "the experiment ends after the last of them")
        self._report_other_keys()
        return settings

    def _report_other_keys(self) -> None:
        """Report the keys at the top level that have no equivalent."""
        shell = self._contents.get("shell")
        for key in shell if isinstance(shell, Mapping) else ():
            if key not in ("shell_command", "shell_argument"):
                self._omit(f"shell.{key}", "there is no equivalent")
        for key in self._contents:
            if key not in _EXPERIMENT_KEYS and not key.startswith("x-"):
                problem, fix = _NOTES.get(key, ("there is no equivalent", "nothing to do"))
                self._omit(key, problem, fix)

    def _omit(self, where: str, problem: str, fix: str = "nothing to do") -> None:
        self._imported.omit(where, problem, fix)

    # --- values ---

    def _text(self, where: str, text: str, variables: Mapping[str, str]) -> str:
        """Return a value in which parameters replace the variables and templates."""
        if self._expands and "$" in text:
            text = re.sub(rf"\$\{{{_REPLICA_NUMBER}\}}|\${_REPLICA_NUMBER}\b", _NUMBER, text)
            text = self._interpolation.replaced(text, self._values)
        return self._rendered(where, text, variables)

    def _shell_line(self, text: str) -> str:
        """Return a shell line. The shell replaces the variables when it runs the line."""
        return self._interpolation.shell_line(text) if self._expands else text

    def _command(self, where: str, text: str, variables: Mapping[str, str]) -> str:
        return self._rendered(where, self._shell_line(text), variables)

    def _rendered(self, where: str, text: str, variables: Mapping[str, str]) -> str:
        if "{{" not in text:
            return text

        def value(name: str) -> str | None:
            if name in variables:
                return variables[name]
            if name in self._vars:
                self._interpolation.parameters[name] = self._vars[name]
                return f"${{{name}}}"
            return None

        result, unknown = go_templates.rendered(text, value)
        for template in unknown:
            self._omit(where, f"the template {template} is not replaced", "write its value")
        return result

    def _environment(self, where: str, value: Any, variables: Mapping[str, str]) -> dict[str, str]:
        pairs = merging.key_values(value or {})
        return {
            key: self._text(where, "" if item is None else str(item), variables)
            for key, item in pairs.items()
        }

    # --- one process ---

    def _process(self, host: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        where = f"processes.{host}"
        settings: dict[str, Any] = {}
        replicas = int(given["replicas"]) if str(given.get("replicas", "")).isdecimal() else 1
        if replicas > 1:
            settings["replicas"] = replicas
        variables = {
            _REPLICA_NUMBER: "${index}" if replicas > 1 else "0",
            _PROCESS_NAME: host,
            **_texts(given.get("vars")),
        }
        settings.update(self._program(where, given, variables))
        if given.get("working_dir"):
            text = self._text(f"{where}.working_dir", str(given["working_dir"]), variables)
            settings["start_dir"] = text
        env = self._environment(f"{where}.environment", given.get("environment"), variables)
        for key in (_REPLICA_NUMBER, _PROCESS_NAME):
            if key in str(given):
                env.setdefault(key, variables[key])
        if env:
            settings["env"] = env
        if given.get("env_file"):
            files = (
                given["env_file"] if isinstance(given["env_file"], list) else [given["env_file"]]
            )
            settings["env_file"] = [
                rebased(str(file), self._base, self._directory) for file in files
            ]
        self._readiness(where, name, given, variables, settings)
        self._availability(where, name, given, settings)
        self._switch(where, name, given, replicas, settings)
        if any(flag(given.get(key)) for key in ("is_tty", "is_interactive", "is_foreground")):
            settings["tty"] = True
        for key, value in given.items():
            if key not in _OWN_KEYS and not key.startswith("x-"):
                self._other_key(f"{where}.{key}", key, value, settings)
        return settings

    def _program(
        self, where: str, given: Mapping[str, Any], variables: Mapping[str, str]
    ) -> dict[str, Any]:
        command = given.get("command")
        if not command:
            words = [
                self._text(where, str(word), variables) for word in given.get("entrypoint") or ()
            ]
            return {"command": words} if words else {}
        line = self._command(f"{where}.command", str(command), variables)
        shell = self._contents.get("shell")
        options = shell if isinstance(shell, Mapping) else {}
        program = str(options.get("shell_command") or "bash")
        if Path(program).name in _SHELLS:
            return {"cmd": line}
        argument = str(options.get("shell_argument") or "-c")
        return {"command": [program, argument, line]}

    def _other_key(self, where: str, key: str, value: Any, settings: dict[str, Any]) -> None:
        if key in _NOTES:
            if value not in ("false", "no", None):
                self._omit(where, *_NOTES[key])
            return
        if key not in ("depends_on", "shutdown"):
            self._omit(where, "the key is not known", "see the documentation")
            return
        try:
            translation = translate(key, value, "")
        except Untranslatable as exc:
            self._omit(where, "the value has an unexpected form", f"write for example {exc}")
            return
        if translation is None:
            return
        for note in translation.notes:
            self._omit(where, note.problem, note.fix)
        settings.update(translation.settings)
        if isinstance(settings.get("stop_command"), str):
            settings["stop_command"] = self._shell_line(settings["stop_command"])

    def _availability(
        self, where: str, name: str, given: Mapping[str, Any], settings: dict[str, Any]
    ) -> None:
        value = given.get("availability")
        if not isinstance(value, Mapping):
            return
        where = f"{where}.availability"
        if flag(value.get("exit_on_end")):
            self._ends_with.append(name)
        if value.get("restart") == "exit_on_failure":
            self._imported.document["on_failure"] = "stop"
            self._omit(
                where, "the failure of any process stops the others, and not only of this one"
            )
        if flag(value.get("exit_on_skipped")):
            self._omit(f"{where}.exit_on_skipped", "there is no equivalent")
        limits = {
            key: value[key]
            for key in ("restart", "max_restarts", "backoff_seconds")
            if key in value
        }
        try:
            translation = translate("availability", {**limits}, name)
        except Untranslatable:
            self._omit(where, "the value has an unexpected form", "write restart_policy: OnFailure")
            return
        if (
            translation is not None
            and limits.get("restart", "exit_on_failure") != "exit_on_failure"
        ):
            settings.update(translation.settings)

    def _switch(
        self,
        where: str,
        name: str,
        given: Mapping[str, Any],
        replicas: int,
        settings: dict[str, Any],
    ) -> None:
        """Let a parameter switch on a process that process-compose does not start itself."""
        is_disabled = flag(given.get("is_disabled", given.get("disabled")))
        if not is_disabled and not flag(given.get("is_foreground")):
            return
        parameter = "run_" + name.replace("-", "_")
        self._interpolation.parameters[parameter] = "0"
        settings["replicas"] = f"${{{parameter}}}"
        key = "disabled" if is_disabled else "is_foreground"
        fix = f"launch --set {parameter}={replicas}"
        self._omit(f"{where}.{key}", "the process is switched off", fix)

    # --- probes ---

    def _readiness(
        self,
        where: str,
        name: str,
        given: Mapping[str, Any],
        variables: Mapping[str, str],
        settings: dict[str, Any],
    ) -> None:
        line = given.get("ready_log_line")
        if line:
            settings["ready"] = {"log": str(line), "timeout": _LOG_TIMEOUT_SECONDS}
        for key, add in (
            ("readiness_probe", self._add_test),
            ("liveness_probe", self._add_liveness),
        ):
            probe = given.get(key)
            if probe is None:
                continue
            try:
                add(f"{where}.{key}", name, probe, variables, settings)
            except (TypeError, ValueError, AttributeError, KeyError):
                fix = "write for example ready: {command: [check.sh], timeout: 30}"
                self._omit(f"{where}.{key}", "the value has an unexpected form", fix)

    def _add_test(
        self,
        where: str,
        name: str,
        probe: Mapping[str, Any],
        variables: Mapping[str, str],
        settings: dict[str, Any],
    ) -> None:
        period = max(1, int(probe.get("period_seconds", 10)))
        failures = max(1, int(probe.get("failure_threshold", 3)))
        timeout = int(probe.get("initial_delay_seconds", 0)) + period * failures
        if int(probe.get("success_threshold", 1)) > 1:
            self._omit(f"{where}.success_threshold", "one success is enough")
        if "timeout_seconds" in probe:
            self._omit(f"{where}.timeout_seconds", "symphony sets the time limit of one test")
        ready: dict[str, Any]
        if probe.get("exec"):
            ready = {"command": self._test_command(where, probe["exec"], variables)}
        else:
            http = probe["http_get"]
            port = self._port(where, http, variables)
            settings["exposes"] = {name: port}
            ready = {"http": [name, self._text(where, str(http.get("path") or "/"), variables)]}
            if str(http.get("host") or "127.0.0.1") not in _OWN_HOSTS:
                self._omit(f"{where}.http_get.host", "the test runs against the process itself")
            if http.get("scheme", "http") != "http" or http.get("headers"):
                fix = "use ready.command with curl"
                self._omit(f"{where}.http_get", "the test is a GET request without headers", fix)
            if str(http.get("status_code", "200")) != "200":
                self._omit(f"{where}.http_get.status_code", "the codes 200 to 399 are accepted")
        settings["ready"] = {**ready, "timeout": max(60, timeout)}

    def _add_liveness(
        self,
        where: str,
        _name: str,
        probe: Mapping[str, Any],
        variables: Mapping[str, str],
        settings: dict[str, Any],
    ) -> None:
        fields: dict[str, Any] = {}
        if probe.get("exec"):
            fields["exec"] = {"command": self._test_command(where, probe["exec"], variables)}
        else:
            http = probe["http_get"]
            path = self._text(where, str(http.get("path") or "/"), variables)
            fields["httpGet"] = {"port": self._port(where, http, variables), "path": path}
        for key, field in {
            "initial_delay_seconds": "initialDelaySeconds",
            "period_seconds": "periodSeconds",
            "timeout_seconds": "timeoutSeconds",
            "failure_threshold": "failureThreshold",
        }.items():
            if key in probe:
                fields[field] = int(probe[key])
        settings["container_yml"] = {"livenessProbe": fields}
        self._omit(where, "only Kubernetes restarts a process whose test fails")

    def _test_command(
        self, where: str, test: Mapping[str, Any], variables: Mapping[str, str]
    ) -> list[str]:
        line = self._command(where, str(test["command"]), variables)
        if test.get("working_dir"):
            path = self._text(where, str(test["working_dir"]), variables)
            line = f"cd {shlex.quote(path)} && {line}"
        return ["sh", "-c", line]

    def _port(self, where: str, http: Mapping[str, Any], variables: Mapping[str, str]) -> Any:
        port = http.get("port") or (443 if http.get("scheme") == "https" else 80)
        text = self._text(where, str(port), variables)
        return int(text) if text.isdecimal() else text


def _texts(value: Any) -> dict[str, str]:
    items = value.items() if isinstance(value, Mapping) else ()
    return {str(key): "" if item is None else str(item) for key, item in items}
