"""A command line with one sub-command per ``action_<name>`` method: parsing, dispatch, errors."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NoReturn

from symphony.commandline import exit_codes
from symphony.commandline.parsing.arguments import (
    COMMON_OPTIONS,
    Parser,
    expand_dry_run,
    help_from_docstring,
    split_remainder,
)
from symphony.errors import with_filename

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.hookspecs import BackendInfo, Option

BACKEND_VARIABLE = "SYMPHONY_BACKEND"
DEFAULT_BACKEND = "local"
# After this many seconds a shell gets no answer: nobody looks at a dead prompt for longer.
COMPLETION_TIMEOUT_SECONDS = 5.0
COMPLETE_COMMAND = (
    "__complete"  # how a shell that completes begins; see `symphony.commandline.parsing.completion`
)


class CommandLine:
    """The machinery below `SymphonyParser`: what every verb has, and none of the verbs.

    ``args`` is the parsed command line. ``args.remainder`` has what follows the first ``--``, untouched;
    ``args.has_remainder`` says whether there was one.
    """

    args: argparse.Namespace
    # For a subclass whose own `create_cluster` goes by `backend_name` and `backend_options`: its help has -b, too.
    goes_by_backend: ClassVar[bool] = False

    def __init__(self, prog: str | None = None) -> None:
        self.args = argparse.Namespace(backend=None, profile=None, debug=False)
        self.master_parser = Parser(prog=prog, add_help=False)
        self.prog = self.master_parser.prog
        self.master_parser.description = self._help_text(type(self).__doc__, prog or "symphony")[1]
        self.master_parser.epilog = f"{self.prog} COMMAND --help tells more of a command."
        self._add_version()
        _add_common(self.master_parser, None, tell=self._tells_backend)
        self.subparsers = self.master_parser.add_subparsers(
            metavar="COMMAND", title="commands", parser_class=Parser
        )
        self._takes_remainder: set[str] = set()
        self._unmade: dict[str, Callable[[], object]] = {}
        self._aliases: dict[str, tuple[str, ...]] = {}
        self.backend_info: BackendInfo | None = None
        self._options: tuple[Option, ...] = ()
        self._misconfigured: Exception | None = None
        self._options_taken = False

    def _add_version(self) -> None:
        from symphony import __version__

        self.master_parser.add_argument(
            "--version",
            action="version",
            version=f"symphony {__version__}",
            help="show the version",
        )

    def _help_text(self, doc: str | None, prog: str) -> tuple[str, str]:
        return help_from_docstring(doc or "", prog, without=() if self._tells_backend else ("-b",))

    # --- what a subclass overrides or calls ---

    def create_cluster(self) -> Cluster:
        """The cluster that the verbs talk to: that of ``-b``, else the one that is configured, else ``local``.

        Where a subclass makes another, a ``-b``, a profile or an option of a backend that asks for one elsewhere is
        refused (`UsageError`) before anything is done.
        """
        from symphony.cluster import Cluster

        return Cluster.new(self.backend_name, **self.backend_options)

    @property
    def backend_name(self) -> str:
        """The backend that was asked for."""
        from symphony.config import SymphonyConfig

        return self.args.backend or SymphonyConfig().backend

    @property
    def backend_options(self) -> dict[str, object]:
        """The options of that backend that were given, as its `Cluster` takes them."""
        self._options_taken = True
        given = (
            (option.name, getattr(self.args, _place(option), None)) for option in self._options
        )
        return {name: value for name, value in given if value is not None}

    @property
    def given_flags(self) -> list[str]:
        """The options of that backend that were given, as they are typed."""
        return [
            item.flags[-1]
            for item in self._options
            if getattr(self.args, _place(item), None) is not None
        ]

    @property
    def has_custom_cluster(self) -> bool:
        """Whether a subclass makes the cluster."""
        return getattr(self.create_cluster, "__func__", None) is not CommandLine.create_cluster

    @property
    def _tells_backend(self) -> bool:
        """Whether the help tells that a backend can be chosen."""
        return self.goes_by_backend or not self.has_custom_cluster

    @property
    def cluster_arguments(self) -> list[str]:
        """The words of this command line that another one needs to find the same experiments."""
        import shlex

        typed: dict[str, object] = {"-b": self.args.backend, "--profile": self.args.profile}
        typed.update(
            (item.flags[-1], getattr(self.args, _place(item), None))
            for item in self._options
            if item.where
        )
        return [
            word
            for flag, value in typed.items()
            if value
            for word in (flag, shlex.quote(str(value)))
        ]

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster, made when it is first used. Raises `UsageError` where it is not the one that was asked for."""
        if not self.has_custom_cluster:
            return self.create_cluster()
        from symphony.commandline.parsing import custom_cluster

        self._options_taken = False
        cluster = self.create_cluster()
        custom_cluster.refuse_another(self, cluster)
        if not self._options_taken:
            custom_cluster.refuse_options(self)
        return cluster

    def add_subparser(
        self, name: str, aliases: Iterable[str] = (), *, remainder: bool = False
    ) -> argparse.ArgumentParser:
        """Add the command ``name``, which calls ``action_<name>(args)``; that method's docstring is its help.

        An action returns its exit code, or None for 0. ``remainder`` lets it take what follows ``--``.
        """
        action: Callable[[argparse.Namespace], int | None] = getattr(
            self, f"action_{name.replace('-', '_')}"
        )
        summary, description = self._help_text(action.__doc__, self.prog)
        parser: argparse.ArgumentParser = self.subparsers.add_parser(
            name,
            aliases=[*aliases, *self._aliases.get(name, ())],
            help=summary,
            description=description,
            add_help=False,
        )
        parser.set_defaults(action=action, verb=name)
        _add_common(parser, argparse.SUPPRESS, tell=self._tells_backend)
        self._add_options(parser)
        if remainder:
            self._takes_remainder.add(name)
        return parser

    def _offer(self, name: str, make: Callable[[], object], *aliases: str) -> None:
        """Have a command whose parser is made by ``make`` when it is needed, which is by `add_subparser`."""
        self._unmade[name] = make
        self._aliases[name] = aliases

    def get_subparser(self, name: str) -> argparse.ArgumentParser:
        """The parser of a command, to add arguments to."""
        self._make(name)
        found: argparse.ArgumentParser = self.subparsers.choices[name]
        return found

    @property
    def verbs(self) -> list[str]:
        """The commands, in the order of the help; without their short names."""
        made = dict.fromkeys(
            parser.get_default("verb") for parser in self.subparsers.choices.values()
        )
        return [*self._unmade, *(name for name in made if name not in self._unmade)]

    def find_subparser(self, word: str) -> argparse.ArgumentParser | None:
        """The parser of a command, by its name or a short one; None where there is none."""
        self._make_for([word])
        found: argparse.ArgumentParser | None = self.subparsers.choices.get(word)
        return found

    # Making all parsers takes longer than most verbs do, so only that of the verb that runs is made.

    def _make(self, name: str) -> None:
        make = self._unmade.pop(name, None)
        if make is not None:
            make()

    def _make_for(self, words: Sequence[str]) -> None:
        """Make the parser of the command that is the first word; where it is none, all, for help and near misses."""
        word = words[0] if words else ""
        asked = next((name for name, aliases in self._aliases.items() if word in aliases), word)
        known = asked in self._unmade or asked in self.subparsers.choices
        for name in [asked] if known else list(self._unmade):
            self._make(name)

    def _take_options(self, words: Sequence[str]) -> None:
        """Add the options of the backend that ``words`` ask for; what is wrong with it shows when it is opened."""
        from symphony.cluster.plugins import find_backend
        from symphony.config import SymphonyConfig
        from symphony.errors import PluginError, SymphonyError

        config = SymphonyConfig()
        config.set_command_line(_first_options(words))
        self._misconfigured = None
        try:
            found = find_backend(config.backend)
        except PluginError:
            return
        except SymphonyError as exc:  # help is given all the same
            self._misconfigured = exc
            return
        self.backend_info, self._options = found, found.options
        for parser in (self.master_parser, *dict.fromkeys(self.subparsers.choices.values())):
            self._add_options(parser)

    def _add_options(self, parser: argparse.ArgumentParser) -> None:
        backend = self.backend_info.name if self.backend_info else ""
        _add_options(parser, self._options, backend, tell=self._tells_backend)

    # --- running ---

    def main(self, argv: Sequence[str] | None = None) -> NoReturn:
        """Run the command line of this process, or ``argv``, and exit with its code."""
        sys.exit(self.run(sys.argv[1:] if argv is None else argv))

    def run(self, argv: Sequence[str]) -> int:
        """Run one command line; its exit code. What goes wrong is one line on standard error."""
        try:
            code = self._run(argv)
            if sys.stdout is not None:
                with with_filename(exit_codes.STANDARD_OUTPUT):
                    sys.stdout.flush()
        except BrokenPipeError:
            _drop_output()
            return exit_codes.OUTPUT_CLOSED
        except (Exception, KeyboardInterrupt) as exc:
            return self._failed(exc, argv)
        return code

    def _complete(self, words: Sequence[str]) -> int:
        """Answer a shell that completes; what is wrong is no matter for it."""
        from symphony.commandline.parsing.completion import completions
        from symphony.errors import SymphonyError

        self._take_options(words)
        typed = _first_options(words)
        self.args.backend, self.args.profile = typed.get("--backend"), typed.get("--profile")
        try:
            with _ending_after(COMPLETION_TIMEOUT_SECONDS):
                print(*completions(self, words), sep="\n")
        except SymphonyError:
            return exit_codes.FAILED
        return exit_codes.OK

    def _run(self, argv: Sequence[str]) -> int:
        _tolerate_any_text()
        if argv and argv[0] == COMPLETE_COMMAND:
            return self._complete(argv[1:])
        words, remainder = split_remainder(argv)
        self._take_options(words)
        self._make_for(words)
        try:
            args, extra = self.master_parser.parse_known_args(expand_dry_run(words))
        except SystemExit as exc:  # --help and --version have printed
            return int(exc.code or 0)
        args.remainder, args.has_remainder = remainder or [], remainder is not None
        self.args = args
        verb = getattr(args, "verb", None)
        if self._misconfigured is not None and verb != "config":
            raise self._misconfigured
        parser = self.master_parser if verb is None else self.subparsers.choices[verb]
        if extra:
            parser.elsewhere = _options_elsewhere()
        parser.refuse_extra(extra)
        if remainder is not None and verb not in self._takes_remainder:
            parser.error("nothing can follow -- here")
        if verb is None:
            self.master_parser.print_help()
            return exit_codes.OK
        return args.action(args) or exit_codes.OK

    def _failed(self, exc: BaseException, argv: Sequence[str]) -> int:
        exc = exit_codes.unwrap_interruption(exc)
        if self.args.debug or "--debug" in split_remainder(argv)[0]:
            import traceback

            traceback.print_exception(exc)
        try:
            if isinstance(exc, KeyboardInterrupt):
                print(f"{self.prog}: interrupted", file=sys.stderr)
            else:
                print(
                    f"{self.prog}: error: {self._as_typed(exit_codes.error_message(exc))}",
                    file=sys.stderr,
                )
        except BrokenPipeError:
            pass
        if isinstance(exc, OSError):
            _drop_output()  # what could not be written would be tried again at exit
        return exit_codes.exit_code(exc)

    def _as_typed(self, text: str) -> str:
        """A message that names options as they are typed: ``--namespace``, not ``namespace=``; ``--force``."""
        import re

        for option in self._options:
            text = re.sub(rf"\b{option.name}=(?=[\s,;]|$)", option.flags[-1], text)
        verb = self.subparsers.choices.get(getattr(self.args, "verb", ""))
        if verb is not None and "--force" in verb._option_string_actions:
            text = re.sub(r"\blaunch with force\b", "launch with --force", text)
        return text


def _add_common(parser: argparse.ArgumentParser, default: object, *, tell: bool) -> None:
    """Options that stand before the command or after it; after it only what is given counts.

    ``tell`` is whether the help has those that choose a backend.
    """
    backend = f"where processes run (default: ${BACKEND_VARIABLE}, else as configured, else {DEFAULT_BACKEND})"
    group = parser.add_argument_group(f"{COMMON_OPTIONS}every command")
    group.add_argument(
        "-h", "--help", action="help", default=argparse.SUPPRESS, help="show this help"
    )
    group.add_argument(
        "-b",
        "--backend",
        default=default,
        metavar="BACKEND",
        help=backend if tell else argparse.SUPPRESS,
    )
    group.add_argument(
        "--profile", default=default, metavar="NAME", help="the profile of the configuration"
    )
    group.add_argument(
        "--debug",
        action="store_true",
        default=False if default is None else default,
        help="show the traceback of an error",
    )


def _first_options(words: Sequence[str]) -> dict[str, str]:
    """The last ``-b`` and ``--profile``, before anything is parsed: they decide what can be parsed."""
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    finder.add_argument("-b", "--backend", dest="--backend")
    finder.add_argument("--profile", dest="--profile")
    try:
        found = vars(finder.parse_known_args(words)[0])
    except argparse.ArgumentError:  # one without a name: told when all is parsed
        return {}
    return {option: value for option, value in found.items() if value}


def _options_elsewhere() -> dict[str, str]:
    """By option of any backend, a hint that says whose it is."""
    from symphony.cluster.plugins import installed_backends

    return {
        flag: f"; it is an option of the {info.name} backend: add -b {info.name}"
        for info in installed_backends()
        for option in info.options
        for flag in option.flags
    }


def _place(option: Option) -> str:
    return f"option_{option.name}"


def _add_options(
    parser: argparse.ArgumentParser, options: Sequence[Option], backend: str, *, tell: bool
) -> None:
    """Give a parser the options of a backend. One that a command has itself is left to it."""
    if not options:
        return
    group = parser.add_argument_group(f"{COMMON_OPTIONS}the {backend} backend")
    for option in options:
        flags = [flag for flag in option.flags if flag not in parser._option_string_actions]
        if not flags:
            continue
        text = option.help if tell else argparse.SUPPRESS
        if option.switch:
            group.add_argument(
                *flags,
                dest=_place(option),
                action="store_true",
                default=argparse.SUPPRESS,
                help=text,
            )
        else:
            group.add_argument(
                *flags,
                dest=_place(option),
                metavar=option.metavar,
                choices=option.choices or None,
                default=argparse.SUPPRESS,
                help=text,
            )


def _tolerate_any_text() -> None:
    """Let output that the terminal's encoding cannot carry be replaced, instead of ending the program."""
    import io

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


@contextlib.contextmanager
def _ending_after(seconds: float) -> Iterator[None]:
    """End this program if what is done within takes longer, silently."""
    import signal
    import threading

    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    before = signal.signal(signal.SIGALRM, lambda *_: sys.exit(exit_codes.FAILED))
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _drop_output() -> None:
    """Send what is still buffered nowhere, or Python would complain about it at exit."""
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
    except (AttributeError, OSError, ValueError):
        pass
