"""The description of a running experiment, and of one with processes under a debugger.

A process under a debugger has a variable that contains its ordinary settings, so that any command
can put it back, whatever happens to the one that has changed it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.cluster.debug.python_command import PythonCommand, parse_arguments, parse_lines
from symphony.errors import BackendError, SpecError, SymphonyError

if TYPE_CHECKING:
    from symphony.model import Experiment

DEBUG_VARIABLE = "SYMPHONY_UNDER_DEBUGGER"
# A process that waits for a debugger is not ready, and the user can take any time.
_READY_TIMEOUT_SECONDS = 7 * 24 * 3600
_PROGRAM_KEYS = ("command", "args", "cmds")
# The settings that differ while a process is under a debugger.
# A process does not answer while it is stopped at a breakpoint.
_ANY_FAILURES = 10**9
_CHANGED_KEYS = (*_PROGRAM_KEYS, "ready", "healthy", "tty")


def described_experiment(record: Mapping[str, Any]) -> Experiment:
    """Return the experiment of a record; see `symphony.archive.run_record.launch_record`.

    Raises BackendError if the record cannot be read.
    """
    from symphony.model import Experiment
    from symphony.model.document.scaling import Source
    from symphony.model.experiment.given_options import GivenOptions

    try:
        experiment = Experiment.load_dict(record["definition"])
    except SymphonyError as exc:
        name = record["experiment"]
        raise BackendError(f"the record of experiment {name!r} cannot be read: {exc}") from exc
    experiment.base_dir = Path(record["base_directory"])
    experiment.file = record.get("file")
    source = record.get("source")
    experiment.source = None if source is None else Source.from_dict(source)
    experiment.given = GivenOptions.from_dict(record.get("given"))
    return experiment


def python_command(experiment: Experiment, process: str) -> PythonCommand:
    """Return the command of a process. Raises SpecError if it does not run a Python program."""
    description = _find_process(experiment.dump_dict(), process)
    words = [*(description.get("command") or ()), *(description.get("args") or ())]
    lines: Sequence[str] = description.get("cmds") or ()
    if lines:
        found = parse_lines(lines)
        command = None if found is None else found[1]
    else:
        command = parse_arguments(words)
    if command is not None:
        return command
    import shlex

    text = " && ".join(lines) if lines else shlex.join(words)
    problem = f"runs {text!r}, which does not begin with Python and one program"
    if not text:
        problem = "has no command of its own"
    raise SpecError(
        f"process {process!r} {problem}; use a command such as python3 main.py, or call "
        f"debugpy.listen(5678) in the program and run: symphony forward {experiment.name} "
        f"{process} 5678"
    )


def under_debugger(
    experiment: Experiment, process: str, module: Sequence[str], session: str, *, tty: bool = False
) -> Experiment:
    """Return an experiment in which a process runs under a debugger.

    ``module`` contains the name of the debugger's module and its arguments. ``session`` identifies
    the change; see `debug_sessions`. With ``tty``, the process has a terminal. The process has any
    time to become ready, and counts as ready if its test searches its log. No number of failed
    health tests stops it. Raises SpecError if it does not run a Python program.
    """
    command = python_command(experiment, process)
    definition = experiment.dump_dict()
    description = _find_process(definition, process)
    before = {key: description[key] for key in _CHANGED_KEYS if key in description}
    if "cmds" in description:
        lines = list(description["cmds"])
        found = parse_lines(lines)
        if found is not None:
            lines[found[0]] = command.line(module)
        description["cmds"] = lines
    else:
        description.pop("args", None)
        description["command"] = command.arguments(module)
    ready = description.pop("ready", None) or {}
    # On some backends, a change waits for the log, which can depend on the user.
    if ready and "log" not in ready:
        description["ready"] = {**ready, "timeout": _READY_TIMEOUT_SECONDS}
    healthy = _health_test(experiment, process)
    if healthy is not None:
        description["healthy"] = {**healthy, "failures": _ANY_FAILURES}
    if tty:
        description["tty"] = True
    marker = json.dumps({"session": session, "before": before})
    description["env"] = {**description.get("env", {}), DEBUG_VARIABLE: marker}
    return _with_definition(experiment, definition)


def _health_test(experiment: Experiment, process: str) -> dict[str, Any] | None:
    """Return the health test of a process, which can be that of its group, or None."""
    found = next(item for item in experiment.list_all_processes() if item.name == process)
    if found.settings.healthy is None and found.group is not None:
        return found.group.settings.healthy
    return found.settings.healthy


def debug_sessions(definition: Mapping[str, Any]) -> dict[str, str]:
    """Return the processes under a debugger, with the identifiers of the changes."""
    markers = {name: _marker(description) for name, description in _processes(definition)}
    return {name: marker["session"] for name, marker in markers.items() if marker is not None}


def without_debugger(
    experiment: Experiment, processes: Collection[str] | None = None
) -> Experiment:
    """Return an experiment in which processes, by default all, have their ordinary settings."""
    definition = experiment.dump_dict()
    for name, description in _processes(definition):
        marker = _marker(description)
        if marker is None or (processes is not None and name not in processes):
            continue
        for key in _CHANGED_KEYS:
            description.pop(key, None)
        description.update(marker["before"])
        del description["env"][DEBUG_VARIABLE]
        if not description["env"]:
            del description["env"]
    return _with_definition(experiment, definition)


def _marker(description: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the content of the variable of a process under a debugger, or None."""
    try:
        marker = json.loads(description.get("env", {})[DEBUG_VARIABLE])
        return {"session": str(marker["session"]), "before": dict(marker["before"])}
    except (KeyError, TypeError, ValueError):
        return None


def _with_definition(experiment: Experiment, definition: Mapping[str, Any]) -> Experiment:
    from symphony.model import Experiment

    changed = Experiment.load_dict(definition)
    changed.base_dir = experiment.base_dir
    changed.file = experiment.file
    changed.source = experiment.source
    changed.given = experiment.given
    changed.recorded_code = experiment.recorded_code
    return changed


def _find_process(definition: Mapping[str, Any], process: str) -> dict[str, Any]:
    return dict(_processes(definition))[process]


def _processes(definition: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names and descriptions of all processes, including those in groups."""
    for name, description in definition["processes"].items():
        if "processes" in description:
            yield from _processes(description)
        else:
            yield name, description
