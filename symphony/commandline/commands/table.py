"""The table of the commands: each module in a package below is a command.

To add a command, add a module with the name of the command to the package of its group; see
`symphony.commandline.parsing.command.CommandModule`. If the module has an attribute ``CONTROL``,
the views offer the command; see `symphony.views.controls.Control`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from symphony.commandline.parsing.command import CommandModule

if TYPE_CHECKING:
    from symphony.views.controls import Control


class Group(NamedTuple):
    """A group of commands: the package with their modules, and the title in the help.

    The help lists the commands in ``order``, and then the others in alphabetical order.
    """

    package: str
    title: str
    order: tuple[str, ...]


# The groups in the order of the help.
GROUPS = (
    Group("define", "define experiments", ("init", "import", "check", "render", "graph")),
    Group("run", "run experiments", ("launch", "submit", "rerun", "resume")),
    Group(
        "inspect",
        "inspect experiments",
        (
            *("ls", "ps", "top", "describe", "logs", "events", "wait", "ui"),
            *("history", "show", "compare", "forward", "visit"),
        ),
    ),
    Group(
        "change",
        "change running experiments",
        (
            *("up", "diff", "scale", "stop", "start", "restart", "signal"),
            *("debug", "exec", "attach", "cp"),
        ),
    ),
    Group("clean_up", "clean up", ("down", "delete", "prune")),
    Group("set_up", "set up", ("backends", "config", "completion")),
)

# The groups whose commands change experiments that exist.
_CONTROL_PACKAGES = ("change", "clean_up")
# The views show these controls first, and then the others in alphabetical order.
_CONTROL_ORDER = ("start", "restart", "stop", "signal", "scale", "delete")


class CommandTable:
    """The commands whose modules are in the packages of `GROUPS`.

    Listing the commands imports none of them. An alias imports all of them, because it is part of
    the declaration in the module.
    """

    @cached_property
    def titles(self) -> Mapping[str, str]:
        """Maps the names of the commands to the titles of their groups, as the help orders them."""
        return {name: group.title for group in GROUPS for name in _in_order(group, self._modules)}

    @cached_property
    def _modules(self) -> dict[str, str]:
        """Maps the names of the commands to the names of their modules."""
        directory = Path(__file__).parent
        found: dict[str, str] = {}
        for group in GROUPS:
            for file in (directory / group.package).iterdir():
                if file.suffix == ".py" and file.stem != "__init__":
                    found[_command_name(file.stem)] = f"{__package__}.{group.package}.{file.stem}"
        return found

    def load(self, name: str) -> CommandModule:
        """Return the module of a command."""
        return cast(CommandModule, import_module(self._modules[name]))

    @cached_property
    def controls(self) -> dict[str, Control]:
        """Maps the names of the commands that the views offer to their declarations, in the order
        in which the views show them.

        The modules of all commands that change experiments are imported.
        """
        found = {}
        for name, module in self._modules.items():
            if module.split(".")[-2] in _CONTROL_PACKAGES:
                control: Control | None = getattr(self.load(name), "CONTROL", None)
                if control is not None:
                    found[name] = control
        first = [name for name in _CONTROL_ORDER if name in found]
        return {name: found[name] for name in dict.fromkeys([*first, *sorted(found)])}

    def find_alias(self, word: str) -> str | None:
        """Return the name of the command that has this alias, or None if there is none."""
        for name in self._modules:
            if word in self.load(name).COMMAND.aliases:
                return name
        return None


def _command_name(stem: str) -> str:
    """Return the command that a module defines. ``import_`` defines ``import``."""
    return stem.rstrip("_").replace("_", "-")


def _in_order(group: Group, modules: Mapping[str, str]) -> list[str]:
    """Return the commands of a group in the order of the help."""
    package = f"{__package__}.{group.package}."
    names = sorted(name for name, module in modules.items() if module.startswith(package))
    order = {name: index for index, name in enumerate(group.order)}
    return sorted(names, key=lambda name: order.get(name, len(order)))


TABLE = CommandTable()
