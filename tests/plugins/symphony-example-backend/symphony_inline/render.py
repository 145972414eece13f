"""Rendering a plan as the commands that the backend runs. The functions do no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symphony.cluster import Manifest
from symphony.errors import SpecError
from symphony.model.document.files import to_yaml
from symphony.plan.ignored import Ignored, ignored_settings
from symphony.plan.resolve import Plan, PlannedProcess

# The settings that this backend supports. A dry run lists all others as ignored.
HONOURED = frozenset({"env", "binds", "connects", "exposes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineCommand:
    """The command of one process. ``env`` is added to the environment of the launcher."""

    name: str
    group: str | None
    argv: list[str]
    directory: str
    env: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineManifest(Manifest):
    """The commands in the order in which they run."""

    experiment: str
    commands: tuple[InlineCommand, ...]
    ignored: tuple[Ignored, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest as a dictionary that can be written as JSON."""
        processes = {}
        for command in self.commands:
            processes[command.name] = {
                "command": command.argv,
                "directory": command.directory,
                "env": command.env,
            }
        return {
            "experiment": self.experiment,
            "processes": processes,
            "ignored": {item.setting: list(item.processes) for item in self.ignored},
        }

    def __str__(self) -> str:
        return to_yaml(self.to_dict())


def render(plan: Plan, working_directory: Path) -> InlineManifest:
    """Return the manifest of a plan. Relative paths are relative to ``working_directory``."""
    return InlineManifest(
        experiment=plan.experiment,
        commands=tuple(_command(plan, process, working_directory) for process in plan),
        ignored=ignored_settings(plan, HONOURED),
    )


def _command(plan: Plan, process: PlannedProcess, working_directory: Path) -> InlineCommand:
    base = plan.base_dir or working_directory
    return InlineCommand(
        name=process.name,
        group=process.group,
        argv=_argv(process),
        directory=str(base / (process.start_dir or "")),
        env=plan.environment(process),
    )


def _argv(process: PlannedProcess) -> list[str]:
    if process.cmds is not None:
        return ["/bin/sh", "-c", " && ".join([*process.preamble_cmds, *process.cmds])]
    if process.command is None:
        raise SpecError(f"process {process.path!r} has no command; set command=, cmd= or cmds=")
    argv = [*process.command, *process.args]
    if process.preamble_cmds:
        # The shell runs the preamble and then replaces itself with the command.
        return ["/bin/sh", "-c", " && ".join([*process.preamble_cmds, 'exec "$@"']), "sh", *argv]
    return argv
