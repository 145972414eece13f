"""A process: one command with its environment and its settings."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from symphony.errors import SpecError
from symphony.model.experiment.component import Component, attribute_parsers
from symphony.model.settings import validators
from symphony.model.settings.signatures import SettingOptions
from symphony.model.settings.value_types import (
    ENV,
    ENV_FILES,
    NONEMPTY_TEXT,
    SHELL_LINE,
    SHELL_LINES,
    STRINGS,
    Field,
    field_table,
    parse_fields,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from symphony.model.document_path import DocumentPath
    from symphony.model.experiment.experiment import Experiment
    from symphony.model.experiment.group import ProcessGroup


class ProcessOptions(SettingOptions, total=False):
    """The keyword arguments of `Process`."""

    container_image: str | None
    command: validators.Strings | None
    args: validators.Strings | None
    cmd: str | None
    cmds: validators.Strings | None
    start_dir: str | None
    preamble_cmds: validators.Strings | None


START_DIR = Field(
    name="start_dir",
    type=NONEMPTY_TEXT,
    description="The start directory. A relative path is relative to the start directory of the "
    "enclosing group or experiment.",
)
PREAMBLE_CMDS = Field(
    name="preamble_cmds",
    type=SHELL_LINES,
    description="Shell lines that run before the process in the same shell, in the order cluster, "
    "experiment, group, process.",
)
PROCESS_OPTIONS = field_table(
    Field(
        name="container_image",
        type=NONEMPTY_TEXT,
        description="The container image of the process on Kubernetes.",
    ),
    Field(
        name="command",
        type=STRINGS,
        description="The program: one argument, which is never split, or a list of arguments.",
    ),
    Field(
        name="args",
        type=STRINGS,
        description="The arguments after the command: one argument (never split) or a list. "
        "Without a command, Kubernetes passes them to the entry point of the image, and the other "
        "backends run the first one as the program.",
    ),
    Field(
        name="cmd",
        type=SHELL_LINE,
        description="A shell line that runs instead of a command.",
    ),
    Field(
        name="cmds",
        type=SHELL_LINES,
        description="Shell lines that are joined by && and run instead of a command.",
    ),
    Field(
        name="env",
        type=ENV,
        description="Environment variables of the process. Variables that symphony sets, "
        "such as service addresses, take precedence.",
    ),
    Field(
        name="env_file",
        type=ENV_FILES,
        description="Files with environment variables, in the dotenv format: a path or a list of "
        "paths. The variables in env take precedence.",
    ),
    START_DIR,
    PREAMBLE_CMDS,
)


class Process(Component):
    """One program of an experiment.

    ``command`` is a list of arguments or a string. A string is one argument and is never split.
    ``args`` has the same forms as ``command``. Every element is converted to a string. Instead of
    ``command``, use ``cmd`` for one shell line, or ``cmds`` for several shell lines, which are
    joined by ``&&``. The shell is bash, or sh if bash is not installed. ``start_dir`` is the
    directory in which the process starts. ``preamble_cmds`` contains shell lines that run before
    the command in the same shell, for example to activate an environment. The other keyword
    arguments are the keys of a process in an experiment file, such as ``binds`` and ``ready``, with
    values of the same forms; see `configure`.
    """

    kind: ClassVar[str] = "process"
    option_names: ClassVar[tuple[str, ...]] = tuple(PROCESS_OPTIONS)
    _fields: ClassVar[Mapping[str, Field]] = {
        name: field
        for name, field in PROCESS_OPTIONS.items()
        if name not in ("cmd", "env", "env_file")
    }
    _parsers: ClassVar[Mapping[str, Callable[[Any], Any]]] = attribute_parsers(
        _fields, {"preamble_cmds": list}
    )
    container_image: str | None
    command: list[str] | None
    args: list[str] | None
    cmds: list[str] | None
    start_dir: str | None
    preamble_cmds: list[str]

    def __init__(self, name: str, **options: Unpack[ProcessOptions]) -> None:
        super().__init__(name)
        own = {key: value for key, value in options.items() if key in PROCESS_OPTIONS}
        parsed = parse_fields(PROCESS_OPTIONS, own)
        self._refuse_two_programs(parsed)
        # The values have been validated, so they need not be set one by one.
        vars(self).update(
            container_image=parsed.get("container_image"),
            command=parsed.get("command"),
            args=parsed.get("args"),
            cmds=parsed.get("cmd") or parsed.get("cmds") or None,
            start_dir=parsed.get("start_dir"),
            preamble_cmds=parsed.get("preamble_cmds") or [],
        )
        self._settings.env.update(parsed.get("env", {}))
        self._settings.env_file.extend(parsed.get("env_file", []))
        self._group: ProcessGroup | None = None
        self._experiment: Experiment | None = None
        # The group for which a dispatcher has placed the process. The process must be added to this
        # group later.
        self._placed_with: ProcessGroup | None = None
        if len(own) < len(options):
            others: dict[str, Any] = {
                key: value for key, value in options.items() if key not in own
            }
            self.configure(**others)

    def _set_public(self, name: str, value: object) -> None:
        if value is not None and name in ("cmds", "command", "args"):
            others = ("command", "args") if name == "cmds" else ("cmds",)
            for other in others:
                if getattr(self, other) is not None:
                    raise SpecError(
                        f"process {self.name!r} cannot have {name}, because it has {other}; "
                        f"set {other} to None first"
                    )
        super()._set_public(name, value)

    @property
    def group(self) -> ProcessGroup | None:
        """The group of the process, or None if the process is in no group."""
        return self._group

    @property
    def experiment(self) -> Experiment | None:
        """The experiment to which the process was added, or None. A process in a group has none,
        because the group is in the experiment.
        """
        return self._experiment

    @property
    def path(self) -> str:
        """The path ``group/process``, or ``process`` if the process is in no group."""
        return f"{self.group.name}/{self.name}" if self.group else self.name

    @property
    def document_path(self) -> DocumentPath:
        """The location of the process in an experiment file, as a path of keys."""
        own_path = ("processes", self.name)
        return own_path if self.group is None else (*self.group.document_path, *own_path)

    def dump(self) -> dict[str, Any]:
        """Return the process as it is written in an experiment file, without its name.

        Raises `SpecError` if the program has changed a value in place so that it is invalid.
        """
        self.check_values()
        options = {
            "container_image": self.container_image,
            "command": self.command,
            "args": self.args,
            "cmds": self.cmds,
            "start_dir": self.start_dir,
            "preamble_cmds": self.preamble_cmds or None,
        }
        given = {key: copy.copy(value) for key, value in options.items() if value is not None}
        return {**given, **self._settings.dump()}

    def _refuse_two_programs(self, options: Mapping[str, Any]) -> None:
        if "cmd" in options and "cmds" in options:
            raise SpecError(
                f"process {self.name!r} has cmd and cmds; add the line of cmd to cmds",
                path=("cmd",),
            )
        for shell_option in ("cmd", "cmds"):
            for option in ("command", "args"):
                if shell_option in options and option in options:
                    raise SpecError(
                        f"process {self.name!r} has {shell_option} and {option}; "
                        "give either shell lines or a command with its arguments",
                        path=(shell_option,),
                    )

    def _refuse_other_placement(self, target: str, group: ProcessGroup | None = None) -> None:
        """Raise `SpecError` if a dispatcher placed the process for a group other than ``group``."""
        placed_with = self._placed_with
        if placed_with is not None and placed_with is not group:
            raise SpecError(
                f"process {self.name!r} was assigned to machines with "
                f"process_group={placed_with.name!r}, but is added to {target}; "
                f"add it to the group {placed_with.name!r}, or assign it again"
            )

    def _refuse_pod_setting(self, call: str) -> None:
        if self.group is not None:
            raise SpecError(
                f"process {self.name!r} is in group {self.group.name!r}, whose processes share one "
                f"Pod; call {call} of the group {self.group.name!r} instead"
            )
