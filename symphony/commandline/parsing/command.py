"""The declaration of a command, from which its options, its help and its completion follow."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Protocol

from symphony.support.data_classes import dataclass

DEFAULT_DRY_RUN = "show what would be done; change nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """The properties of a command that the command line must know.

    The declaration is ``COMMAND`` in the module of the command; see `CommandModule`. The file of
    the module has the name of the command, and its package is the group of the command.

    A command with ``changes`` can change something. It accepts only complete names of experiments,
    processes and runs, so that it never acts on a guess, and it must obey ``args.dry_run``.

    Every command accepts ``--dry-run``, so that scripts can add it to any command. ``dry_run`` is
    the help text. By default, the help of a command that changes nothing omits the option, because
    it has no effect.

    ``json`` states what ``--json`` prints. If it is empty, the command has no such option.

    The command accepts words after ``--`` if ``remainder`` is set. If ``command_index`` is also
    set, the words after that many arguments are such words even without ``--``.

    ``no_tool`` states why agents cannot call the command. If it is empty, the command is a tool;
    see `symphony.commandline.tools`.
    """

    # The help lists the command without its aliases.
    aliases: tuple[str, ...] = ()
    changes: bool = False
    dry_run: str = ""
    json: str = ""
    remainder: bool = False
    command_index: int | None = None
    no_tool: str = ""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add ``--dry-run`` and ``--json``, unless the arguments of the command include them."""
        known = parser._option_string_actions
        if "--dry-run" not in known:
            text = self.dry_run or (DEFAULT_DRY_RUN if self.changes else argparse.SUPPRESS)
            parser.add_argument("--dry-run", action="store_true", help=text)
        if self.json and "--json" not in known:
            parser.add_argument("--json", action="store_true", help=f"print {self.json}")


class CommandModule(Protocol):
    """A module that defines a command."""

    COMMAND: Command

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command, apart from those that follow from `Command`."""

    def run(self, args: argparse.Namespace, line: Any) -> int | None:
        """Run the command, and return the exit code, or None for 0.

        ``line`` is the command line. The docstring is the help text of the command.
        """


class Table(Protocol):
    """The commands of a command line. Their modules are imported when they are needed."""

    @property
    def titles(self) -> Mapping[str, str]:
        """Maps the names of the commands to the titles of their groups, as the help orders them."""

    def load(self, name: str) -> CommandModule:
        """Return the module of a command."""

    def find_alias(self, word: str) -> str | None:
        """Return the name of the command that has this alias, or None if there is none."""
