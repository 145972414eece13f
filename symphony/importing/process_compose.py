"""Importing process-compose files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from symphony.errors import SpecError
from symphony.importing import checks, merge_compose_files
from symphony.importing.compose_files import variables_in
from symphony.importing.interpolation import DEFAULT_IS_FIXED, Interpolation, with_defaults
from symphony.importing.merge_compose_files import mapped
from symphony.importing.paths import rebased
from symphony.importing.process_compose_probes import add_probes
from symphony.importing.process_compose_values import PROCESS_NAME, REPLICA_NUMBER, Values, texts
from symphony.importing.result import Imported
from symphony.model.document.other_formats.known_keys import translate
from symphony.model.document.other_formats.translation import Untranslatable
from symphony.model.document.other_formats.values import flag
from symphony.support.names import suggested_name

ENV_FILE = ".env"
_OVERRIDES = ("process-compose.override.yml", "process-compose.override.yaml")
# The shells whose lines `cmd` runs.
_SHELLS = ("sh", "bash")
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
    "env": "environment",
    "exposes": "readiness_probe",
    "healthy": "liveness_probe",
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
    file = _Import(contents, imported, base, directory)
    imported.document["name"] = name or suggested_name(file.own_name()) or default_name
    names = file.run()
    checks.finish(imported, _KEYS, "processes", names)
    imported.omit(
        paths[0].name,
        "the file names no container images",
        "add container_image to each process to run it on Kubernetes",
    )
    return imported


def _contents(path: Path) -> dict[str, Any]:
    from symphony.model.document.documents import from_yaml, read_text

    data, _ = from_yaml(path, read_text(path), lambda *_: True, merge_compose_files.TAGS)
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
            processes = merge_compose_files.merged(
                result.get("processes"), contents.get("processes"), ("services",)
            )
            result = {**merge_compose_files.merged(result, contents | {"processes": None})}
            result["processes"] = processes
    return dict(merge_compose_files.without_tags(result))


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


# The keys of a process whose values decide what they mean, and the keys in them of which this is
# not true.
_FIXED_KEYS: dict[str, tuple[str, ...]] = {
    "availability": (),
    "depends_on": (),
    "disabled": (),
    "env_file": (),
    "is_disabled": (),
    "is_foreground": (),
    "is_interactive": (),
    "is_tty": (),
    "liveness_probe": ("exec", "http_get"),
    "readiness_probe": ("exec", "http_get"),
    "replicas": (),
    "shutdown": ("command",),
}


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
        self._values = Values(
            where="",
            imported=imported,
            interpolation=self._interpolation,
            environ=variables_in([base / ENV_FILE]),
            expands=not flag(contents.get("disable_env_expansion")),
            file_variables=texts(contents.get("vars")),
        )
        self._ends_with: list[str] = []

    def own_name(self) -> str:
        """Return the name in the file, or an empty text."""
        return str(
            self._interpolation.resolved(self._values.text(self._contents.get("name") or ""))
        )

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
        values = self._values.below("environment")
        environment = values.environment(self._contents.get("environment"))
        if environment:
            settings["env"] = environment
        commands = self._contents.get("env_cmds")
        for key, command in commands.items() if isinstance(commands, Mapping) else ():
            line = f'export {key}="$({self._values.shell_line(command)})"'
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

    # --- one process ---

    def _process(self, host: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        where = f"processes.{host}"
        settings: dict[str, Any] = {}
        given = self._with_fixed_values(given, self._values.at(where))
        replicas = int(given["replicas"]) if str(given.get("replicas", "")).isdecimal() else 1
        if replicas > 1:
            settings["replicas"] = replicas
        variables = {
            REPLICA_NUMBER: "${index}" if replicas > 1 else "0",
            PROCESS_NAME: host,
            **texts(given.get("vars")),
        }
        values = self._values.at(where, variables)
        settings.update(self._program(given, values))
        if given.get("working_dir"):
            settings["start_dir"] = values.below("working_dir").text(given["working_dir"])
        env = values.below("environment").environment(given.get("environment"))
        for key in (REPLICA_NUMBER, PROCESS_NAME):
            if key in str(given):
                env.setdefault(key, variables[key])
        if env:
            settings["env"] = env
        files = given.get("env_file") or []
        if files:
            settings["env_file"] = [
                rebased(str(file), self._base, self._directory)
                for file in (files if isinstance(files, list) else [files])
            ]
        add_probes(settings, name, given, values)
        self._availability(where, name, given, settings)
        self._switch(where, name, given, replicas, settings)
        if any(flag(given.get(key)) for key in ("is_tty", "is_interactive", "is_foreground")):
            settings["tty"] = True
        for key, value in given.items():
            if key not in _OWN_KEYS and not key.startswith("x-"):
                self._other_key(f"{where}.{key}", key, value, settings)
        return settings

    def _with_fixed_values(self, given: Mapping[str, Any], values: Values) -> dict[str, Any]:
        """Return a process in which defaults replace the variables that cannot be parameters."""

        def default(text: str) -> str:
            is_variable = "$" in text or "{{" in text
            return self._interpolation.resolved(values.text(text)) if is_variable else text

        result = dict(given)
        for key in [key for key in _FIXED_KEYS if key in given]:
            value = given[key]
            fixed = with_defaults(mapped(value, default), self._interpolation.parameters)
            if isinstance(value, Mapping):
                fixed |= {name: value[name] for name in _FIXED_KEYS[key] if name in value}
            if fixed != value:
                result[key] = fixed
                values.below(key).omit(DEFAULT_IS_FIXED, "change it in the result")
        return result

    def _program(self, given: Mapping[str, Any], values: Values) -> dict[str, Any]:
        command = given.get("command")
        if not command:
            words = [
                values.below("entrypoint").text(word) for word in given.get("entrypoint") or ()
            ]
            return {"command": words} if words else {}
        line = values.below("command").shell_line(command)
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
            settings["stop_command"] = self._values.shell_line(settings["stop_command"])

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
