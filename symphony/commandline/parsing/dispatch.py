"""A command line with one command per ``action_<name>`` method: parsing, dispatch and errors."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NoReturn

from symphony.commandline import exit_codes
from symphony.commandline.exit_codes import UsageError
from symphony.commandline.output.closed_streams import replace_closed_streams
from symphony.commandline.parsing.arguments import (
    COMMON_OPTIONS,
    COMPLETE_COMMAND,
    Commands,
    Formatter,
    NumberOption,
    Parser,
    expand_dry_run,
    help_from_docstring,
    split_remainder,
)
from symphony.commandline.parsing.intermixed import first_argument, split_words
from symphony.errors import NotFound, SpecError, shown, with_filename
from symphony.support.argument_checks import CHECKS, Check, check_methods

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.commandline.parsing.command import Table
    from symphony.config import Configuration
    from symphony.hookspecs import BackendInfo, Option

BACKEND_VARIABLE = "SYMPHONY_BACKEND"
# The option of `check` that names backends, and the name that stands for all of them.
TARGET_OPTION = "--target"
ALL_BACKENDS = "all"
# A completion that takes longer is cancelled, because the shell does not respond during a
# completion.
COMPLETION_TIMEOUT_SECONDS = 5.0

_HELP_OPTIONS = frozenset({"-h", "--help", "--version"})


class CommandLine:
    """The base class of `SymphonyParser`. It has no commands of its own.

    ``args`` is the parsed command line. ``args.remainder`` contains the words after the first
    ``--``, unchanged. ``args.has_remainder`` is true if the command line contains ``--``.
    """

    args: argparse.Namespace
    # A subclass sets this attribute to true if its `create_cluster` uses `backend_name` and
    # `backend_options`. In that case, the help describes -b.
    goes_by_backend: ClassVar[bool] = False
    # The commands, apart from those that a subclass adds with `add_subparser`.
    table: ClassVar[Table]

    def __init__(self, prog: str | None = None) -> None:
        if prog is not None and not (isinstance(prog, str) and prog.isprintable() and prog):
            raise SpecError(f"prog must be the name of a program, not {shown(prog)}")
        self.args = argparse.Namespace(backend=None, profile=None, debug=False)
        self.master_parser = Parser(prog=prog, add_help=False)
        self.prog = self.master_parser.prog
        _, description = self._help_text(type(self).__doc__, prog or "symphony")
        self.master_parser.description = description
        self.master_parser.epilog = (
            f"Run '{self.prog} COMMAND --help' for more information about a command."
        )
        self._add_version()
        _add_common_options(self.master_parser, None, show_backend=self._shows_backend)
        # Each group of commands has a title of its own.
        self.subparsers: Commands = self.master_parser.add_subparsers(  # type: ignore[assignment]
            metavar="COMMAND",
            title=argparse.SUPPRESS,
            # Otherwise, argparse formats the usage in order to find out the name.
            prog=self.prog,
            parser_class=Parser,
            action=Commands,
        )
        self._takes_remainder: set[str] = set()
        # Maps a command that runs another command to the number of arguments before the latter.
        self._command_indices: dict[str, int] = {}
        # The commands whose parsers do not exist or have no arguments.
        self._pending = dict.fromkeys(self.table.titles)
        self.backend_info: BackendInfo | None = None
        self._options: tuple[Option, ...] = ()
        self._configuration_error: Exception | None = None
        self._options_were_read = False

    def _add_version(self) -> None:
        from symphony import __version__

        self.master_parser.add_argument(
            "--version",
            action="version",
            version=f"symphony {__version__}",
            help="show the version",
        )

    def _help_text(self, doc: str | None, prog: str) -> tuple[str, str]:
        hidden = () if self._shows_backend else ("-b",)
        return help_from_docstring(doc or "", prog, without=hidden)

    # --- methods that a subclass overrides or calls ---

    def create_cluster(self) -> Cluster:
        """Return the cluster that the commands use.

        By default, the backend is the value of ``-b``, else the backend in the configuration, else
        ``local``. A subclass can return a cluster with another backend. `UsageError` is then raised
        if ``-b`` or a profile requests a different backend, or if the subclass ignores a backend
        option on the command line. This error is raised before the command does anything.
        """
        from symphony.cluster import Cluster

        return Cluster.new(self.backend_name, **self.backend_options)

    @property
    def backend_name(self) -> str:
        """The backend that ``-b`` requests, or else the configured backend."""
        return self.args.backend or self.configuration.backend

    @property
    def configuration(self) -> Configuration:
        """What is configured by files, variables, the program and the command line."""
        from symphony.config import SymphonyConfig

        return SymphonyConfig().current()

    @property
    def backend_options(self) -> dict[str, object]:
        """The backend options on the command line, as keyword arguments for the `Cluster`."""
        self._options_were_read = True
        return {option.name: value for option, value in self._given_options()}

    @property
    def has_custom_cluster(self) -> bool:
        """True if a subclass overrides `create_cluster`."""
        return getattr(self.create_cluster, "__func__", None) is not CommandLine.create_cluster

    @property
    def _shows_backend(self) -> bool:
        """True if the help describes the options that select a backend."""
        return self.goes_by_backend or not self.has_custom_cluster

    @property
    def cluster_arguments(self) -> list[str]:
        """The words that must be added to another command so that it finds the same experiments."""
        import shlex

        typed: dict[str, object] = {"-b": self.args.backend, "--profile": self.args.profile}
        for option, value in self._given_options():
            if option.where:
                typed[option.flags[-1]] = value
        words: list[str] = []
        for flag, value in typed.items():
            if value:
                words += [flag, shlex.quote(str(value))]
        return words

    def _given_options(self) -> Iterator[tuple[Option, object]]:
        """Yield the backend options on the command line, with their values."""
        for option in self._options:
            value = getattr(self.args, _destination(option), None)
            if value is not None:
                yield option, value

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster on which the command works, created when it is first used.

        Raises `UsageError` if a subclass returns a cluster that contradicts the command line.
        """
        return self.selected_cluster

    @cached_property
    def selected_cluster(self) -> Cluster:
        """The cluster of the backend that the command line or the configuration selects."""
        if not self.has_custom_cluster:
            return self.create_cluster()
        self._options_were_read = False
        cluster = self.create_cluster()
        self._refuse_other_backend(cluster)
        if not self._options_were_read:
            self._refuse_ignored_options()
        return cluster

    def _refuse_other_backend(self, cluster: Cluster) -> None:
        """Raise `UsageError` if the command line requests a backend other than the cluster's.

        Without this check, a command such as ``delete`` would act on a cluster that was not
        requested.
        """
        typed, requested = self._requested_backend()
        backend = getattr(cluster, "backend", None)
        if requested is None or backend is None or requested == backend:
            return
        raise UsageError(
            f"{typed} requests the {requested} backend, but {self.prog} uses its own cluster "
            f"on {backend}; remove {typed}"
        )

    @property
    def names_backend(self) -> bool:
        """True if the command works on the selected backend only.

        This is the case if the command line names the backend, selects it with a profile or
        contains one of its options, or if a subclass creates the cluster.
        """
        if self.has_custom_cluster or any(True for _ in self._given_options()):
            return True
        return self._requested_backend()[1] is not None

    def _requested_backend(self) -> tuple[str, str | None]:
        """Return the words that request a backend, and the name of that backend.

        The name is None if the command line requests no backend.
        """
        from symphony.cluster.plugins import find_backend

        if self.args.backend:
            return f"-b {self.args.backend}", find_backend(self.args.backend).name
        configuration = self.configuration
        profile = self.args.profile
        if profile and configuration.profile_of("backend") == profile:
            return f"--profile {profile}", find_backend(configuration.backend).name
        return "", None

    def _refuse_ignored_options(self) -> None:
        """Raise `UsageError` if backend options were given that `create_cluster` did not read."""
        for option, _ in self._given_options():
            flag = option.flags[-1]
            backend = self.backend_info.name if self.backend_info else "chosen"
            raise UsageError(
                f"{flag} is an option of the {backend} backend, but {self.prog} creates its "
                "cluster without it (its create_cluster() does not use backend_options); "
                f"remove {flag}"
            )

    def add_subparser(
        self, name: str, aliases: Iterable[str] = (), *, remainder: bool | None = None
    ) -> argparse.ArgumentParser:
        """Add the command ``name``, which calls ``action_<name>(args)``.

        The docstring of ``action_<name>`` is the command's help. ``action_<name>`` returns the exit
        code, or None for 0. The command accepts words after ``--`` unless ``remainder`` is false.
        """
        aliases = list(aliases)
        self._refuse_taken([name, *aliases])
        method = _action_name(name)
        action: Callable[[argparse.Namespace], int | None] | None = getattr(self, method, None)
        if not callable(action):
            from symphony.support.names import did_you_mean

            others = [other for other in dir(self) if other.startswith("action_")]
            raise SpecError(
                f"the command {shown(name)} calls {shown(method)[1:-1]}(args), which "
                f"{type(self).__name__} does not have{did_you_mean(method, others)}"
            )
        parser = self._declare(
            name, aliases, action, action.__doc__, remainder=remainder is not False
        )
        _add_common_options(parser, argparse.SUPPRESS, show_backend=self._shows_backend)
        return parser

    def _declare(
        self,
        name: str,
        aliases: Sequence[str],
        action: Callable[[argparse.Namespace], int | None],
        doc: str | None,
        *,
        remainder: bool,
    ) -> argparse.ArgumentParser:
        """Add a parser without arguments for the command ``name``, which calls ``action``.

        ``doc`` is the help text.
        """
        summary, description = self._help_text(doc, self.prog)
        parser: argparse.ArgumentParser = self.subparsers.add_parser(
            name,
            aliases=aliases,
            help=summary,
            description=description,
            add_help=False,
        )
        if name in self.table.titles:
            self.subparsers.groups[name] = self.table.titles[name]
        parser.set_defaults(action=action, verb=name)
        if remainder:
            self._takes_remainder.add(name)
        return parser

    def _refuse_taken(self, words: Sequence[object]) -> None:
        """Raise `SpecError` if a name or an alias of a command is not text or already in use."""
        for word in words:
            if not isinstance(word, str):
                raise SpecError(f"aliases of {words[0]!r} must be text, not {shown(word)}")
            if word in self.subparsers.choices or word in self._pending:
                raise SpecError(f"{self.prog} already has a command {word!r}; choose another name")

    def get_subparser(self, name: str) -> argparse.ArgumentParser:
        """Return the parser for a command, for example to add arguments to it."""
        self._create_parser(name)
        found: argparse.ArgumentParser | None = self.subparsers.choices.get(name)
        if found is None:
            from symphony.support.names import did_you_mean

            hint = did_you_mean(name, self.verbs)
            raise NotFound(f"{self.prog} has no command {shown(name)}{hint}")
        return found

    @property
    def verbs(self) -> list[str]:
        """The names of the commands, excluding aliases, in the order in which the help lists
        them.
        """
        parsers = self.subparsers.choices.values()
        created = dict.fromkeys(parser.get_default("verb") for parser in parsers)
        others = [name for name in created if name not in self._pending]
        return [*self._pending, *others]

    def find_subparser(self, word: str) -> argparse.ArgumentParser | None:
        """Return the parser for the command with this name or alias, or None if there is none."""
        self._create_parsers_for([word])
        found: argparse.ArgumentParser | None = self.subparsers.choices.get(word)
        return found

    def complete_names(
        self,
        action: argparse.Action,  # noqa: ARG002
        given: Sequence[str],  # noqa: ARG002
    ) -> Iterable[str] | None:
        """Return the names that ``action`` accepts, or None if it does not accept a name.

        ``given`` contains the arguments that precede ``action``.
        """
        return None

    # --- the parsers of the commands ---
    # Creating the parsers of all commands takes longer than running most commands, so each
    # parser is created only when it is needed. The list of all commands needs no arguments.

    def _declare_from_table(self, name: str) -> argparse.ArgumentParser:
        module = self.table.load(name)
        command = module.COMMAND
        # A subclass can replace the command.
        own = getattr(self, _action_name(name), None)
        action = own or (lambda args: module.run(args, self))
        doc = module.run.__doc__ if own is None else own.__doc__
        self._refuse_taken(command.aliases)
        return self._declare(name, command.aliases, action, doc, remainder=command.remainder)

    @property
    def changes_something(self) -> bool:
        """True if the command of this command line can change something.

        Such a command accepts only complete names of experiments, processes and runs, so that it
        never acts on a guess. The commands of a subclass count as commands that change something.
        """
        verb = str(getattr(self.args, "verb", ""))
        return verb not in self.table.titles or self.table.load(verb).COMMAND.changes

    def _create_parser(self, name: str) -> None:
        """Create the parser of a command with its arguments, unless it exists."""
        if name not in self._pending:
            return
        del self._pending[name]
        parser = self.subparsers.choices.get(name) or self._declare_from_table(name)
        _add_common_options(parser, argparse.SUPPRESS, show_backend=self._shows_backend)
        module = self.table.load(name)
        if module.COMMAND.command_index is not None:
            self._command_indices[name] = module.COMMAND.command_index
        module.add_arguments(parser)
        module.COMMAND.add_options(parser)
        # The options of the command come first, because they precede those of the backend.
        self._add_options(parser)

    def _create_parsers_for(self, words: Sequence[str]) -> None:
        """Create the parser for the command in ``words``, which options can precede.

        If there is no such command, declare all of them, because the help and the suggestions need
        their names.
        """
        index = first_argument(self.master_parser, words)
        before = words if index is None else words[:index]
        help_options = [word for word in before if word in _HELP_OPTIONS]
        if help_options[:1] == ["--version"]:
            return
        name = "" if index is None or help_options else words[index]
        if name and name not in self._pending and name not in self.subparsers.choices:
            name = self.table.find_alias(name) or name
        declared = self.subparsers.choices.get(name)
        if declared is not None:
            name = declared.get_default("verb")
        if declared is not None or name in self._pending:
            self._create_parser(name)
            return
        for command in self._pending:
            if command not in self.subparsers.choices:
                self._declare_from_table(command)

    def _load_backend_options(self, words: Sequence[str], *, for_help: bool = False) -> None:
        """Add the backend's options to all parsers.

        The backend is the one that the command line ``words`` requests, or else the configured one.
        If ``for_help`` is true, only the command line and SYMPHONY_BACKEND determine the backend,
        and no configuration file is read. A configuration error is stored and raised later, so that
        ``config path`` is still available. A backend that cannot be loaded is reported when the
        cluster is created.
        """
        from symphony.cluster.plugins import find_backend
        from symphony.config import SymphonyConfig
        from symphony.config.configuration import DEFAULT_BACKEND
        from symphony.errors import PluginError, SymphonyError

        options = _first_options(words)
        SymphonyConfig().set_command_line(options)
        self._configuration_error = None
        try:
            if for_help:
                variable = os.environ.get(BACKEND_VARIABLE)
                info = find_backend(options.get("--backend") or variable or DEFAULT_BACKEND)
            else:
                info = find_backend(self.configuration.backend)
        except PluginError:
            return
        except SymphonyError as exc:
            self._configuration_error = exc
            return
        self.backend_info = info
        self._options = info.options
        self._add_options(self.master_parser)
        for parser in dict.fromkeys(self.subparsers.choices.values()):
            if parser.get_default("verb") not in self._pending:
                self._add_options(parser)

    def _add_options(self, parser: argparse.ArgumentParser) -> None:
        backend = self.backend_info.name if self.backend_info else ""
        verb = parser.get_default("verb")
        options = [item for item in self._options if not item.commands or verb in item.commands]
        _add_backend_options(parser, options, backend, show=self._shows_backend)

    # --- running a command line ---

    def main(self, argv: Sequence[str] | None = None) -> NoReturn:
        """Run ``argv``, by default this process's arguments, and exit with the resulting code."""
        sys.exit(self.run(sys.argv[1:] if argv is None else argv))

    def run(self, argv: Sequence[str]) -> int:
        """Run one command line and return the exit code.

        An error is reported on standard error as one line.
        """
        replace_closed_streams()
        try:
            code = self._run(argv)
            with with_filename(exit_codes.STANDARD_OUTPUT):
                sys.stdout.flush()
        except BrokenPipeError:
            _discard_output()
            return exit_codes.OUTPUT_CLOSED
        except (Exception, KeyboardInterrupt) as exc:
            return self._report_error(exc, argv)
        return code

    def _run(self, argv: Sequence[str]) -> int:
        _replace_unencodable_characters()
        if argv and argv[0] == COMPLETE_COMMAND:
            return self._complete(argv[1:])
        words, remainder = split_remainder(argv)
        self._create_parsers(words)
        if remainder is None:
            words, remainder = self._split_command(words)
            if remainder is not None:
                # The options of the other command do not select a backend.
                self._create_parsers(words)
        try:
            args, unknown = self._parse(words)
        except SystemExit as exc:  # The output of --help or --version has been printed.
            return int(exc.code or 0)
        args.remainder = remainder or []
        args.has_remainder = remainder is not None
        self.args = args
        verb = getattr(args, "verb", None)
        if self._configuration_error is not None and verb != "config":
            raise self._configuration_error
        if verb != "config":
            self._report_untrusted_files()
        parser = self.master_parser if verb is None else self.subparsers.choices[verb]
        if unknown:
            parser.option_hints = self._option_hints(verb)
        parser.refuse_unknown(unknown)
        if remainder is not None and verb not in self._takes_remainder:
            parser.error("no arguments are accepted after --")
        if verb is None:
            self.master_parser.print_help()
            return exit_codes.OK
        return args.action(args) or exit_codes.OK

    def _create_parsers(self, words: list[str]) -> None:
        """Create the parser for the command in ``words``, with the options of the backend."""
        # A configuration file must not delay or prevent the help and the version.
        self._load_backend_options(words, for_help=_requests_help(words))
        self._create_parsers_for(words)

    def _parse(self, words: list[str]) -> tuple[argparse.Namespace, list[str]]:
        """Return the parsed command line, and the words that the parser does not know.

        Raises SystemExit after the output of ``--help`` or ``--version``.
        """
        self.subparsers.words = words
        args, unknown = self.master_parser.parse_known_args(expand_dry_run(words))
        if _requests_help(words):
            # The word was not an option of symphony but an argument.
            self._load_backend_options(words)
            args, unknown = self.master_parser.parse_known_args(expand_dry_run(words))
        return args, unknown

    def _split_command(self, words: list[str]) -> tuple[list[str], list[str] | None]:
        """Return the words before and from the command that a command such as ``exec`` runs.

        The second list is None if the line contains no such command.
        """
        verb_index = first_argument(self.master_parser, words)
        if verb_index is None:
            return words, None
        parser = self.subparsers.choices.get(words[verb_index])
        number = self._command_indices.get(parser.get_default("verb")) if parser else None
        if parser is None or number is None:
            return words, None
        rest = words[verb_index + 1 :]
        arguments, _ = split_words(parser, rest)
        if len(arguments) <= number:
            return words, None
        start = verb_index + 1 + arguments[number]
        return words[:start], words[start:]

    def _option_hints(self, verb: str | None) -> dict[str, str]:
        """Return a mapping from options that a command does not have to hints."""
        from symphony.commandline.parsing.words import option_hints

        hints = _hints_for_backend_options()
        if verb is not None:
            hints.update(option_hints(verb, f"{self.prog} {verb}"))
        return hints

    def _report_untrusted_files(self) -> None:
        """Print a note for each configuration file that is ignored, at least in part."""
        from symphony.commandline.output.terminal import print_note

        for file in self.configuration.untrusted_files():
            print_note(str(file))

    def _complete(self, words: Sequence[str]) -> int:
        """Print completions for a shell. Errors in the command line are not reported."""
        from symphony.commandline.output.terminal import print_text
        from symphony.commandline.parsing.completion import completions
        from symphony.errors import SymphonyError

        self._load_backend_options(words)
        typed = _first_options(words)
        self.args.backend = typed.get("--backend")
        self.args.profile = typed.get("--profile")
        try:
            with _exit_after(COMPLETION_TIMEOUT_SECONDS):
                found = completions(self, words)
                # A shell can take an empty line for a completion.
                if found:
                    print_text("\n".join(found))
        except SymphonyError:
            return exit_codes.FAILED
        return exit_codes.OK

    def _report_error(self, exc: BaseException, argv: Sequence[str]) -> int:
        """Print an error, with its traceback if ``--debug`` is set, and return the exit code."""
        from symphony.commandline.output.terminal import print_note

        exc = exit_codes.unwrap_interruption(exc)
        if self.args.debug or "--debug" in split_remainder(argv)[0]:
            import traceback

            print_note("".join(traceback.format_exception(exc)), end="")
        exc = self.explained_error(exc)
        # The reader of a pipe has exited, or the terminal was closed.
        with contextlib.suppress(OSError):
            self.print_error(exc)
        if isinstance(exc, OSError):
            # Without this call, Python would try again to write the remaining output at exit.
            _discard_output()
        return exit_codes.exit_code(exc)

    def print_error(self, error: BaseException) -> None:
        """Print an error as one line."""
        from symphony.commandline.output.terminal import print_note

        if isinstance(error, KeyboardInterrupt):
            line = f"{self.prog}: {exit_codes.error_message(error)}"
        else:
            line = f"{self.prog}: error: {self._with_flags(exit_codes.error_message(error))}"
        print_note(line)

    def explained_error(self, error: BaseException) -> BaseException:
        """Return the error that is reported for ``error``, which can contain more information."""
        return error

    def _with_flags(self, text: str) -> str:
        """Replace option names in one of the library's error messages with the corresponding flags.

        For example, ``namespace=`` becomes ``--namespace``, and ``force`` becomes ``--force``.
        """
        import re

        for option in self._options:
            text = re.sub(rf"\b{option.name}=(?=[\s,;]|$)", option.flags[-1], text)
        verb = self.subparsers.choices.get(getattr(self.args, "verb", ""))
        if verb is not None and "--force" in verb._option_string_actions:
            text = re.sub(r"\blaunch with force\b", "launch with --force", text)
        return text


# The checks for the annotations of the methods that a program with its own commands calls.
METHOD_CHECKS = {
    **CHECKS,
    "argparse.ArgumentParser": Check(
        lambda value: isinstance(value, argparse.ArgumentParser),
        "a parser, such as the result of add_subparser",
    ),
    "Sequence[str]": CHECKS["Sequence[str]"]._replace(expected="a list of words"),
}
check_methods(CommandLine, METHOD_CHECKS)


def _action_name(command: str) -> str:
    """Return the name of the method with which a subclass implements a command."""
    return f"action_{command.replace('-', '_')}"


def _requests_help(words: Sequence[str]) -> bool:
    return not _HELP_OPTIONS.isdisjoint(words)


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


def _first_options(words: Sequence[str]) -> dict[str, str]:
    """Return the values of ``-b`` and ``--profile``, which affect how other words are parsed.

    If ``check`` has only one target and no ``-b``, the target acts as ``-b``.
    """
    finder = argparse.ArgumentParser(
        add_help=False, allow_abbrev=False, exit_on_error=False, formatter_class=Formatter
    )
    finder.add_argument("-b", "--backend", dest="--backend")
    finder.add_argument("--profile", dest="--profile")
    finder.add_argument(TARGET_OPTION, dest=TARGET_OPTION, action="append", default=[])
    try:
        found, _ = finder.parse_known_args(words)
    except argparse.ArgumentError:
        # The value of an option is missing. The main parser reports this error.
        return {}
    values = vars(found)
    targets = values.pop(TARGET_OPTION)
    if len(targets) == 1 and targets[0] != ALL_BACKENDS and "," not in targets[0]:
        values["--backend"] = values["--backend"] or targets[0]
    return {option: value for option, value in values.items() if value}


def _hints_for_backend_options() -> dict[str, str]:
    """Return a mapping from each option of each backend to a hint that names the backend."""
    from symphony.cluster.plugins import installed_backends

    hints: dict[str, str] = {}
    for info in installed_backends():
        hint = f"; it is an option of the {info.name} backend: add -b {info.name}"
        for option in info.options:
            hints.update(dict.fromkeys(option.flags, hint))
    return hints


def _destination(option: Option) -> str:
    return f"option_{option.name}"


def _add_backend_options(
    parser: argparse.ArgumentParser, options: Sequence[Option], backend: str, *, show: bool
) -> None:
    """Add a backend's options, except those that the command already has."""
    if not options:
        return
    group = parser.add_argument_group(f"{COMMON_OPTIONS}the {backend} backend")
    for option in options:
        taken = {flag: parser._option_string_actions.get(flag) for flag in option.flags}
        flags = [flag for flag, action in taken.items() if action is None]
        for action in taken.values():
            if isinstance(action, NumberOption):
                action.other_destination = _destination(option)
        if not flags:
            continue
        text = option.help if show else argparse.SUPPRESS
        if option.switch:
            group.add_argument(
                *flags,
                dest=_destination(option),
                action="store_true",
                default=argparse.SUPPRESS,
                help=text,
            )
        else:
            group.add_argument(
                *flags,
                dest=_destination(option),
                metavar=option.metavar,
                choices=option.choices or None,
                default=argparse.SUPPRESS,
                help=text,
            )


def _replace_unencodable_characters() -> None:
    """Make the output streams replace characters that they cannot encode, to avoid an error."""
    import io

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


@contextlib.contextmanager
def _exit_after(seconds: float) -> Iterator[None]:
    """Exit without a message if the block takes longer than ``seconds`` seconds.

    Outside the main thread, the block has no time limit.
    """
    import signal
    import threading

    # Only the main thread can set signal handlers.
    is_main_thread = threading.current_thread() is threading.main_thread()
    if not hasattr(signal, "setitimer") or not is_main_thread:
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda *_: sys.exit(exit_codes.FAILED))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _discard_output() -> None:
    """Discard buffered standard output, so that Python reports no error at exit."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (AttributeError, OSError, ValueError):
        # Standard output is missing or is not a file.
        pass
