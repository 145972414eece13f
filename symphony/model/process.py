"""A process: one command with its environment and what it needs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from symphony.errors import SpecError, error_path
from symphony.model import validators
from symphony.model.component import Component

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from symphony.model.experiment import Experiment
    from symphony.model.group import ProcessGroup


class ProcessOptions(TypedDict, total=False):
    """The keywords of `Process`."""

    container_image: str | None
    command: validators.Strings | None
    args: validators.Strings | None
    cmd: str | None
    cmds: validators.Strings | None
    env: Mapping[str, object] | None
    start_dir: str | None
    preamble_cmds: validators.Strings | None


OPTIONS = tuple(ProcessOptions.__annotations__)


class Process(Component):
    """One program of an experiment.

    ``command`` is a string (one argv element, never split) or a list; ``args`` likewise, and every element
    becomes a string. ``cmd`` is one shell line instead, ``cmds`` several joined by ``&&``: a shell runs them,
    ``/bin/sh`` in a container, bash (sh where there is none) locally. ``start_dir`` is the folder it starts in,
    ``preamble_cmds`` are shell lines run before it in the same shell, such as the activation of an environment.
    """

    _what = "process"

    def __init__(self, name: str, **options: Unpack[ProcessOptions]) -> None:
        super().__init__(name)
        validators.refuse_unknown(options, OPTIONS, f"process {name!r}")
        given: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
        self.container_image = _maybe(given, "container_image", validators.path)
        self.command = _maybe(given, "command", validators.strings)
        self.args = _maybe(given, "args", validators.strings)
        self.cmds = _shell_lines(name, given)
        self.start_dir = _maybe(given, "start_dir", validators.path)
        self.preamble_cmds = _maybe(given, "preamble_cmds", validators.lines) or []
        self.group: ProcessGroup | None = None
        self.experiment: Experiment | None = None
        # The group that was placed for it before it is in any, by a dispatcher.
        self.placed_with: ProcessGroup | None = None
        if "env" in given:
            with error_path("env"):
                self.set_envs(given["env"])

    @property
    def path(self) -> str:
        """``group/process``, or ``process`` where it is in no group."""
        return f"{self.group.name}/{self.name}" if self.group else self.name

    def dump(self) -> dict[str, Any]:
        """The process in its file form, without its name."""
        own = {
            "container_image": self.container_image,
            "command": self.command,
            "args": self.args,
            "cmds": self.cmds,
            "start_dir": self.start_dir,
            "preamble_cmds": self.preamble_cmds or None,
        }
        given = {key: copy.copy(value) for key, value in own.items() if value is not None}
        return {**given, **self._settings.dump()}

    def _refuse_unplaced(self, where: str, group: ProcessGroup | None = None) -> None:
        """Refuse to be put where the placement would be lost that was made for it."""
        placed = self.placed_with
        if placed is not None and placed is not group:
            raise SpecError(
                f"process {self.name!r} was assigned to machines with process_group={placed.name!r}, and is added to "
                f"{where}: add it to the group {placed.name!r}, or assign it again as it is to be"
            )

    def _of_pod(self, call: str) -> None:
        if self.group is not None:
            raise SpecError(
                f"process {self.name!r} is in group {self.group.name!r}, which starts, ends and is placed as one: "
                f"call {call} of the group {self.group.name!r} instead"
            )


def _maybe(given: dict[str, Any], key: str, read: Any) -> Any:
    if key not in given:
        return None
    with error_path(key):
        return read(given[key], key)


def _shell_lines(name: str, given: dict[str, Any]) -> list[str] | None:
    if "cmd" in given and "cmds" in given:
        raise SpecError(
            f"process {name!r} has cmd and cmds: put the one line into cmds", path=("cmd",)
        )
    key = "cmd" if "cmd" in given else "cmds"
    if key not in given:
        return None
    clash = next((other for other in ("command", "args") if other in given), None)
    if clash:
        raise SpecError(
            f"process {name!r} has {key} and {clash}: give a shell line or an argument list",
            path=(key,),
        )
    with error_path(key):
        if key == "cmd":
            return validators.lines(validators.text(given[key], key), key)
        return validators.lines(given[key], key) or None
