"""From a plan to what will run. Pure: data in, data out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symphony.cluster import Manifest
from symphony.errors import SpecError
from symphony.model.files import to_yaml
from symphony.plan.resolve import Ignored, Plan, PlannedProcess, ignored_settings

# Everything else that a user may set is kept, not honoured, and listed by the dry run.
HONOURED = frozenset({"env", "binds", "connects", "exposes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One process. ``env`` lies over the launcher's own environment."""

    name: str
    group: str | None
    argv: list[str]
    folder: str
    env: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineManifest(Manifest):
    """The commands in the order in which they will run."""

    experiment: str
    commands: tuple[Command, ...]
    ignored: tuple[Ignored, ...]

    def to_dict(self) -> dict[str, Any]:
        """The manifest as JSON knows it."""
        return {
            "experiment": self.experiment,
            "processes": {
                command.name: {
                    "command": command.argv,
                    "folder": command.folder,
                    "env": command.env,
                }
                for command in self.commands
            },
            "ignored": {item.setting: list(item.processes) for item in self.ignored},
        }

    def __str__(self) -> str:
        return to_yaml(self.to_dict())


def render(plan: Plan, here: Path) -> InlineManifest:
    """What ``plan`` becomes; ``here`` is where relative folders begin."""
    return InlineManifest(
        experiment=plan.experiment,
        commands=tuple(_command(plan, process, here) for process in plan),
        ignored=ignored_settings(plan, HONOURED),
    )


def _command(plan: Plan, process: PlannedProcess, here: Path) -> Command:
    return Command(
        name=process.name,
        group=process.group,
        argv=_argv(process),
        folder=str((plan.base_dir or here) / (process.start_dir or "")),
        env=plan.environment(process),
    )


def _argv(process: PlannedProcess) -> list[str]:
    if process.cmds is not None:
        return ["/bin/sh", "-c", " && ".join([*process.preamble_cmds, *process.cmds])]
    if process.command is None:
        raise SpecError(f"process {process.path!r} has no command; give it command=, cmd= or cmds=")
    argv = [*process.command, *process.args]
    if process.preamble_cmds:
        return ["/bin/sh", "-c", " && ".join([*process.preamble_cmds, 'exec "$@"']), "sh", *argv]
    return argv
