"""The parsers of a command line: the main parser, and one for each command.

Creating the parsers of all commands takes longer than running most commands, so each parser is
created only when it is needed. The list of all commands needs no arguments.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from symphony.commandline.exit_codes import UsageError
from symphony.commandline.parsing.arguments import (
    COMMON_OPTIONS,
    Commands,
    Parser,
    expand_dry_run,
    help_from_docstring,
)
from symphony.commandline.parsing.backend_options import BACKEND_VARIABLE, BackendOptions
from symphony.commandline.parsing.intermixed import first_argument, split_words
from symphony.errors import NotFound, SpecError, SymphonyError, shown

if TYPE_CHECKING:
    from symphony.commandline.parsing.command import Table

_HELP_OPTIONS = frozenset({"-h", "--help", "--version"})

# Runs a command, and returns the exit code, or None for 0.
Action = Callable[[argparse.Namespace], int | None]


class CommandParsers:
    """The parsers of a command line.

    ``line`` is the command line. It is passed to the commands of ``table``, and its methods
    ``action_<name>`` replace them. ``shows_backend`` returns whether the help describes the options
    that select a backend, and ``configured`` returns the name of the configured one. ``main`` is
    the parser of the words before the command, and ``commands`` contains the parsers of the
    commands that have been created.
    """

    def __init__(
        self,
        line: Any,
        table: Table,
        backend: BackendOptions,
        *,
        prog: str | None,
        shows_backend: Callable[[], bool],
        configured: Callable[[], str],
    ) -> None:
        self._line = line
        self._table = table
        self._backend = backend
        self._shows_backend = shows_backend
        self._configured = configured
        self.main = Parser(prog=prog, add_help=False)
        self._prog = self.main.prog
        _, self.main.description = self._help_text(type(line).__doc__, prog or "symphony")
        self.main.epilog = (
            f"Run '{self._prog} COMMAND --help' for more information about a command."
        )
        _add_version(self.main)
        _add_common_options(self.main, None, show_backend=shows_backend())
        # Each group of commands has a title of its own.
        self.commands: Commands = self.main.add_subparsers(  # type: ignore[assignment]
            metavar="COMMAND",
            title=argparse.SUPPRESS,
            # Otherwise, argparse formats the usage in order to find out the name.
            prog=self._prog,
            parser_class=Parser,
            action=Commands,
        )
        self._takes_remainder: set[str] = set()
        # Maps a command that runs another command to the number of arguments before the latter.
        self._command_indices: dict[str, int] = {}
        # The commands whose parsers do not exist or have no arguments.
        self._pending = dict.fromkeys(table.titles)

    @property
    def verbs(self) -> list[str]:
        """The names of the commands, excluding aliases, in the order in which the help lists
        them.
        """
        parsers = self.commands.choices.values()
        created = dict.fromkeys(parser.get_default("verb") for parser in parsers)
        others = [name for name in created if name not in self._pending]
        return [*self._pending, *others]

    def takes_remainder(self, verb: str | None) -> bool:
        """Return whether a command accepts words after ``--``."""
        return verb in self._takes_remainder

    # --- creating parsers ---

    def add(self, name: str, aliases: Iterable[str], *, remainder: bool) -> argparse.ArgumentParser:
        """Add the command ``name``, which calls the method ``action_<name>`` of the line."""
        aliases = list(aliases)
        self._refuse_taken([name, *aliases])
        method = _action_name(name)
        action: Action | None = getattr(self._line, method, None)
        if not callable(action):
            from symphony.support.names import did_you_mean

            others = [other for other in dir(self._line) if other.startswith("action_")]
            raise SpecError(
                f"the command {shown(name)} calls {shown(method)[1:-1]}(args), which "
                f"{type(self._line).__name__} does not have{did_you_mean(method, others)}"
            )
        parser = self._declare(name, aliases, action, action.__doc__, remainder=remainder)
        _add_common_options(parser, argparse.SUPPRESS, show_backend=self._shows_backend())
        return parser

    def get(self, name: str) -> argparse.ArgumentParser:
        """Return the parser of a command with its arguments. Raises `NotFound` if there is none."""
        self._create(name)
        found: argparse.ArgumentParser | None = self.commands.choices.get(name)
        if found is None:
            from symphony.support.names import did_you_mean

            hint = did_you_mean(name, self.verbs)
            raise NotFound(f"{self._prog} has no command {shown(name)}{hint}")
        return found

    def create_for(self, words: Sequence[str]) -> None:
        """Create the parser for the command in ``words``, which options can precede.

        If there is no such command, declare all of them, because the help and the suggestions need
        their names.
        """
        index = first_argument(self.main, words)
        before = words if index is None else words[:index]
        help_options = [word for word in before if word in _HELP_OPTIONS]
        if help_options[:1] == ["--version"]:
            return
        name = "" if index is None or help_options else words[index]
        if name and name not in self._pending and name not in self.commands.choices:
            name = self._table.find_alias(name) or name
        declared = self.commands.choices.get(name)
        if declared is not None:
            name = declared.get_default("verb")
        if declared is not None or name in self._pending:
            self._create(name)
            return
        for command in self._pending:
            if command not in self.commands.choices:
                self._declare_from_table(command)

    def prepare(self, words: Sequence[str]) -> None:
        """Create the parser for the command in ``words``, with the options of the backend."""
        # A configuration file must not delay or prevent the help and the version.
        self.load_backend_options(words, for_help=_requests_help(words))
        self.create_for(words)

    def load_backend_options(self, words: Sequence[str], *, for_help: bool = False) -> None:
        """Add the options of the backend that ``words`` select to all parsers with arguments."""
        if not self._backend.load(words, self._configured, for_help=for_help):
            return
        show = self._shows_backend()
        self._backend.add_to(self.main, show=show)
        for parser in dict.fromkeys(self.commands.choices.values()):
            if parser.get_default("verb") not in self._pending:
                self._backend.add_to(parser, show=show)

    def _create(self, name: str) -> None:
        """Create the parser of a command with its arguments, unless it exists."""
        if name not in self._pending:
            return
        del self._pending[name]
        parser = self.commands.choices.get(name) or self._declare_from_table(name)
        _add_common_options(parser, argparse.SUPPRESS, show_backend=self._shows_backend())
        module = self._table.load(name)
        if module.COMMAND.command_index is not None:
            self._command_indices[name] = module.COMMAND.command_index
        module.add_arguments(parser)
        module.COMMAND.add_options(parser)
        # The options of the command come first, because they precede those of the backend.
        self._backend.add_to(parser, show=self._shows_backend())

    def _declare_from_table(self, name: str) -> argparse.ArgumentParser:
        module = self._table.load(name)
        command = module.COMMAND
        # A subclass can replace the command.
        own: Action | None = getattr(self._line, _action_name(name), None)
        action = own or (lambda args: module.run(args, self._line))
        doc = module.run.__doc__ if own is None else own.__doc__
        self._refuse_taken(command.aliases)
        return self._declare(name, command.aliases, action, doc, remainder=command.remainder)

    def _declare(
        self,
        name: str,
        aliases: Sequence[str],
        action: Action,
        doc: str | None,
        *,
        remainder: bool,
    ) -> argparse.ArgumentParser:
        """Add a parser without arguments for the command ``name``, which calls ``action``.

        ``doc`` is the help text.
        """
        summary, description = self._help_text(doc, self._prog)
        parser: argparse.ArgumentParser = self.commands.add_parser(
            name,
            aliases=aliases,
            help=summary,
            description=description,
            add_help=False,
        )
        if name in self._table.titles:
            self.commands.groups[name] = self._table.titles[name]
        parser.set_defaults(action=action, verb=name)
        if remainder:
            self._takes_remainder.add(name)
        return parser

    def _refuse_taken(self, words: Sequence[object]) -> None:
        """Raise `SpecError` if a name or an alias of a command is not text or already in use."""
        for word in words:
            if not isinstance(word, str):
                raise SpecError(f"aliases of {words[0]!r} must be text, not {shown(word)}")
            if word in self.commands.choices or word in self._pending:
                raise SpecError(f"{self._prog} already has a command {word!r}; choose another name")

    def _help_text(self, doc: str | None, prog: str) -> tuple[str, str]:
        hidden = () if self._shows_backend() else ("-b",)
        return help_from_docstring(doc or "", prog, without=hidden)

    # --- parsing ---

    def parse(self, words: list[str]) -> tuple[argparse.Namespace, list[str]]:
        """Return the parsed command line, and the words that the parser does not know.

        Raises SystemExit after the output of ``--help`` or ``--version``.
        """
        self.commands.words = words
        args, unknown = self.main.parse_known_args(expand_dry_run(words))
        if _requests_help(words):
            # The word was not an option of symphony but an argument.
            self.load_backend_options(words)
            args, unknown = self.main.parse_known_args(expand_dry_run(words))
        return args, unknown

    def split_command(self, words: list[str]) -> tuple[list[str], list[str] | None]:
        """Return the words before and from the command that a command such as ``exec`` runs.

        The second list is None if the line contains no such command.
        """
        verb_index = first_argument(self.main, words)
        if verb_index is None:
            return words, None
        parser = self.commands.choices.get(words[verb_index])
        number = self._command_indices.get(parser.get_default("verb")) if parser else None
        if parser is None or number is None:
            return words, None
        rest = words[verb_index + 1 :]
        arguments, _ = split_words(parser, rest)
        if len(arguments) <= number:
            return words, None
        start = verb_index + 1 + arguments[number]
        return words[:start], words[start:]

    def with_line(self, error: BaseException, words: Sequence[str]) -> BaseException:
        """Return an error that contains the line to type, if ``words`` is a line of a similar
        command, and ``error`` otherwise.
        """
        index = first_argument(self.main, words) if isinstance(error, SymphonyError) else None
        if index is None or words[index] not in self.commands.choices:
            return error
        from symphony.commandline.parsing.words import line_hint

        verb = self.commands.choices[words[index]].get_default("verb")
        hint = line_hint(verb, words[:index], words[index + 1 :], self._prog)
        return UsageError(hint) if hint else error

    def with_flags(self, text: str, verb: str) -> str:
        """Replace option names in one of the library's error messages with the corresponding flags.

        For example, ``namespace=`` becomes ``--namespace``, and ``force`` becomes ``--force`` if
        the command ``verb`` has this option.
        """
        import re

        text = self._backend.with_flags(text)
        parser = self.commands.choices.get(verb)
        if parser is not None and "--force" in parser._option_string_actions:
            text = re.sub(r"\b(launch with|use) force\b", r"\1 --force", text)
        # Other commands name the command with this option.
        return re.sub(r"\blaunch with queue\b", "launch with --queue", text)


def _requests_help(words: Sequence[str]) -> bool:
    return not _HELP_OPTIONS.isdisjoint(words)


def _action_name(command: str) -> str:
    """Return the name of the method with which a subclass implements a command."""
    return f"action_{command.replace('-', '_')}"


def _add_version(parser: argparse.ArgumentParser) -> None:
    from symphony import __version__

    parser.add_argument(
        "--version",
        action="version",
        version=f"symphony {__version__}",
        help="show the version",
    )


def _add_common_options(
    parser: argparse.ArgumentParser, default: object, *, show_backend: bool
) -> None:
    """Add the options that can appear before or after the command.

    ``default`` is None for the main parser, which parses the words before the command. The command
    parsers suppress defaults, because a default would replace the value of an option given before
    the command. ``show_backend`` determines whether the help describes the backend selection.
    """
    from symphony.config.configuration import DEFAULT_BACKEND

    backend = (
        f"backend that runs the processes (default: ${BACKEND_VARIABLE}, else the "
        f"configured backend, else {DEFAULT_BACKEND})"
    )
    group = parser.add_argument_group(f"{COMMON_OPTIONS}all commands")
    group.add_argument(
        "-h", "--help", action="help", default=argparse.SUPPRESS, help="show this help"
    )
    group.add_argument(
        "-b",
        "--backend",
        default=default,
        metavar="BACKEND",
        help=backend if show_backend else argparse.SUPPRESS,
    )
    group.add_argument(
        "--profile", default=default, metavar="NAME", help="configuration profile to use"
    )
    group.add_argument(
        "--debug",
        action="store_true",
        default=False if default is None else default,
        help="show a traceback if an error occurs",
    )
