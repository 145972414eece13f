"""A command line with one command per ``action_<name>`` method: parsing, dispatch and errors."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, NoReturn

from symphony.commandline import exit_codes
from symphony.commandline.output.closed_streams import replace_closed_streams
from symphony.commandline.parsing.arguments import COMPLETE_COMMAND, split_remainder
from symphony.commandline.parsing.backend_options import (
    BackendOptions,
    hints_for_backend_options,
    refuse_other_backend,
    requested_backend,
    selecting_options,
)
from symphony.commandline.parsing.command_parsers import CommandParsers
from symphony.errors import SpecError, shown, with_filename
from symphony.support.argument_checks import CHECKS, Check, check_methods
from symphony.support.ignored_interrupts import raise_ignored_interrupts

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.commandline.parsing.command import Table
    from symphony.config import Configuration
    from symphony.hookspecs import BackendInfo

# A completion that takes longer is cancelled, because the shell does not respond during a
# completion.
COMPLETION_TIMEOUT_SECONDS = 5.0


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
        self._backend = BackendOptions()
        self._parsers = CommandParsers(
            self,
            self.table,
            self._backend,
            prog=prog,
            shows_backend=lambda: self.goes_by_backend or not self.has_custom_cluster,
            configured=lambda: self.configuration.backend,
        )
        self.master_parser = self._parsers.main
        self.subparsers = self._parsers.commands
        self.prog = self.master_parser.prog
        self._options_were_read = False

    @property
    def backend_info(self) -> BackendInfo | None:
        """The backend whose options the parsers have, or None if it is not known."""
        return self._backend.info

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
        """The configuration by files, variables, the program and the command line."""
        from symphony.config import SymphonyConfig

        return SymphonyConfig().current()

    @property
    def backend_options(self) -> dict[str, object]:
        """The backend options on the command line, as keyword arguments for the `Cluster`."""
        self._options_were_read = True
        return {option.name: value for option, value in self._backend.given(self.args)}

    @property
    def has_custom_cluster(self) -> bool:
        """True if a subclass overrides `create_cluster`."""
        return getattr(self.create_cluster, "__func__", None) is not CommandLine.create_cluster

    @property
    def cluster_arguments(self) -> list[str]:
        """The words that must be added to another command so that it finds the same experiments."""
        import shlex

        typed: dict[str, object] = {"-b": self.args.backend, "--profile": self.args.profile}
        for option, value in self._backend.given(self.args):
            if option.where:
                typed[option.flags[-1]] = value
        words: list[str] = []
        for flag, value in typed.items():
            if value:
                words += [flag, shlex.quote(str(value))]
        return words

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
        typed, requested = self._requested_backend()
        refuse_other_backend(cluster, typed, requested, self.prog)
        if not self._options_were_read:
            self._backend.refuse(self.args, self.prog)
        return cluster

    @property
    def names_backend(self) -> bool:
        """True if the command works on the selected backend only.

        This is the case if the command line names the backend, selects it with a profile or
        contains one of its options, or if a subclass creates the cluster.
        """
        if self.has_custom_cluster or any(True for _ in self._backend.given(self.args)):
            return True
        return self._requested_backend()[1] is not None

    def _requested_backend(self) -> tuple[str, str | None]:
        return requested_backend(self.args, lambda: self.configuration)

    def add_subparser(
        self, name: str, aliases: Iterable[str] = (), *, remainder: bool | None = None
    ) -> argparse.ArgumentParser:
        """Add the command ``name``, which calls ``action_<name>(args)``.

        The docstring of ``action_<name>`` is the command's help. ``action_<name>`` returns the exit
        code, or None for 0. The command accepts words after ``--`` unless ``remainder`` is false.
        """
        return self._parsers.add(name, aliases, remainder=remainder is not False)

    def get_subparser(self, name: str) -> argparse.ArgumentParser:
        """Return the parser for a command, for example to add arguments to it."""
        return self._parsers.get(name)

    @property
    def verbs(self) -> list[str]:
        """The names of the commands, excluding aliases, in the order in which the help lists
        them.
        """
        return self._parsers.verbs

    def find_subparser(self, word: str) -> argparse.ArgumentParser | None:
        """Return the parser for the command with this name or alias, or None if there is none."""
        self._parsers.create_for([word])
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

    @property
    def changes_something(self) -> bool:
        """True if the command of this command line can change something.

        Such a command accepts only complete names of experiments, processes and runs, so that it
        never acts on a guess. The commands of a subclass count as commands that change something.
        """
        verb = str(getattr(self.args, "verb", ""))
        return verb not in self.table.titles or self.table.load(verb).COMMAND.changes

    # --- running a command line ---

    def main(self, argv: Sequence[str] | None = None) -> NoReturn:
        """Run ``argv``, by default this process's arguments, and exit with the resulting code."""
        raise_ignored_interrupts()
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
        self._parsers.prepare(words)
        if remainder is None:
            words, remainder = self._parsers.split_command(words)
            if remainder is not None:
                # The options of the other command do not select a backend.
                self._parsers.prepare(words)
        try:
            args, unknown = self._parsers.parse(words)
        except SystemExit as exc:  # The output of --help or --version has been printed.
            return int(exc.code or 0)
        args.remainder = remainder or []
        args.has_remainder = remainder is not None
        self.args = args
        verb = getattr(args, "verb", None)
        if self._backend.error is not None and verb != "config":
            raise self._backend.error
        if verb != "config":
            _report_untrusted_files(self.configuration)
        parser = self.master_parser if verb is None else self.subparsers.choices[verb]
        if unknown:
            parser.option_hints = _option_hints(verb, self.prog)
        parser.refuse_unknown(unknown)
        if remainder is not None and not self._parsers.takes_remainder(verb):
            parser.error("no arguments are accepted after --")
        if verb is None:
            self.master_parser.print_help()
            return exit_codes.OK
        return args.action(args) or exit_codes.OK

    def _complete(self, words: Sequence[str]) -> int:
        """Print completions for a shell. Errors in the command line are not reported."""
        from symphony.commandline.output.terminal import print_text
        from symphony.commandline.parsing.completion import completions
        from symphony.errors import SymphonyError

        self._parsers.load_backend_options(words)
        typed = selecting_options(words)
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
        exc = self.explained_error(self._parsers.with_line(exc, argv))
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
            verb = getattr(self.args, "verb", "")
            text = self._parsers.with_flags(exit_codes.error_message(error), verb)
            line = f"{self.prog}: error: {text}"
        print_note(line)

    def explained_error(self, error: BaseException) -> BaseException:
        """Return the error that is reported for ``error``, which can contain more information."""
        return error


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


def _report_untrusted_files(configuration: Configuration) -> None:
    """Print a note for each configuration file that is ignored, at least in part."""
    from symphony.commandline.output.terminal import print_note

    for file in configuration.untrusted_files():
        print_note(str(file))


def _option_hints(verb: str | None, prog: str) -> dict[str, str]:
    """Return a mapping from options that a command does not have to hints."""
    from symphony.commandline.parsing.words import option_hints

    hints = hints_for_backend_options()
    if verb is None:
        hints.update(dict.fromkeys(("-v", "-V"), "; use --version"))
    else:
        hints.update(option_hints(verb, f"{prog} {verb}"))
    return hints


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
