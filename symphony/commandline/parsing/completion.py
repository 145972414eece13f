"""Shell completion: the words that can replace or continue the last word in a command line.

The argcomplete library is not used: importing it slows down each completion by about 10 ms, and it
offers no arguments after an option that appears between arguments.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from symphony.commandline.parsing.completion_scripts import COMPLETE_DIRECTORIES, COMPLETE_FILES
from symphony.commandline.parsing.intermixed import TypedOption, first_argument, split_words

if TYPE_CHECKING:
    from symphony.config import Configuration

# Maps the metavar of an argument to the kind of path that the argument accepts.
_PATH_COMPLETIONS = {
    "FILE": COMPLETE_FILES,
    "FILE|EXPERIMENT": COMPLETE_FILES,
    "SOURCE": COMPLETE_FILES,
    "TARGET": COMPLETE_FILES,
    "DIRECTORY": COMPLETE_DIRECTORIES,
}


class Completable(Protocol):
    """A command line that can be completed."""

    @property
    def args(self) -> argparse.Namespace:
        """The parsed options."""

    @property
    def configuration(self) -> Configuration:
        """The configuration, also by the options that were parsed."""

    @property
    def master_parser(self) -> argparse.ArgumentParser:
        """The parser for the words before the command."""

    @property
    def verbs(self) -> Sequence[str]:
        """The names of the commands."""

    def find_subparser(self, word: str) -> argparse.ArgumentParser | None:
        """Return the parser for a command, or None if the command does not exist."""

    def complete_names(self, action: argparse.Action, given: Sequence[str]) -> Iterable[str] | None:
        """Return the names that ``action`` accepts, or None if it does not accept a name.

        ``given`` contains the arguments that precede ``action``.
        """


def completions(line: Completable, words: Sequence[str]) -> list[str]:
    """Return the possible completions of the last word in ``words``.

    If a path is also possible, the last item is `COMPLETE_FILES` or `COMPLETE_DIRECTORIES`, and the
    shell completes the path.
    """
    *before, typed = words or [""]
    if "--" in before:
        return [COMPLETE_FILES]
    option, equals, value = typed.partition("=")
    if not equals or not option.startswith("--"):
        return _with_prefix(_candidates(line, before, typed), typed)
    found = _with_prefix(_candidates(line, [*before, option], value), value)
    words = []
    for word in found:
        is_path = word in (COMPLETE_FILES, COMPLETE_DIRECTORIES)
        words.append(word if is_path else f"{option}={word}")
    return words


def _with_prefix(candidates: Iterable[str], prefix: str) -> list[str]:
    """Return the candidates that begin with ``prefix``.

    If there are none, remove the groups from the process names, and return the names that begin
    with ``prefix``. These names are valid, because a process can be named without its group.

    Candidates that request a path, such as `COMPLETE_FILES`, are always kept, and come last.
    """
    paths: list[str] = []
    words: list[str] = []
    for word in candidates:
        if word in (COMPLETE_FILES, COMPLETE_DIRECTORIES):
            paths.append(word)
        else:
            words.append(word)
    # A shell would show other words unchanged, and could not insert them into the command line.
    words = [word for word in words if word.isprintable()]
    found = [word for word in words if word.startswith(prefix)]
    if not found and prefix and "/" not in prefix:
        names = [word.rpartition("/")[2] for word in words if "/" in word]
        found = [name for name in names if name.startswith(prefix)]
    return [*found, *paths]


def _candidates(line: Completable, before: Sequence[str], typed: str) -> Iterable[str]:
    """Return the words that can follow the words in ``before``."""
    verb = first_argument(line.master_parser, before)
    parser = line.master_parser if verb is None else line.find_subparser(before[verb])
    if parser is None:
        return []
    line.args.verb = parser.get_default("verb")
    arguments, options = split_words(parser, before)
    _store_backend_options(line, options, before)
    unfinished = _option_without_value(options, before)
    if unfinished is not None:
        return _option_values(line, unfinished)
    if typed.startswith("-"):
        return sorted(_long_options(parser))
    if verb is None:
        return line.verbs
    given = [before[index] for index in arguments if index > verb]
    action = _next_argument(parser, len(given))
    if action is None:
        return []
    names = line.complete_names(action, given)
    if names is None:
        names = _choices(action)
    return [*names, *_path_completions(action)]


def _store_backend_options(
    line: Completable, options: Iterable[TypedOption], words: Sequence[str]
) -> None:
    """Store backend options in ``line.args``, because they determine which experiments exist."""
    for option in options:
        action = option.action
        if action is None or not action.dest.startswith("option_"):
            continue
        if action.nargs == 0:
            setattr(line.args, action.dest, True)
        elif option.value is not None:
            setattr(line.args, action.dest, option.value)
        elif option.values:
            setattr(line.args, action.dest, words[option.index + 1])


def _option_without_value(
    options: Sequence[TypedOption], words: Sequence[str]
) -> argparse.Action | None:
    """Return the option whose value is the next word, or None if the next word is not a value."""
    if not options:
        return None
    last = options[-1]
    if last.index != len(words) - 1 or last.value is not None:
        return None
    if last.action is None or last.action.nargs == 0:
        return None
    return last.action


def _long_options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if action.help != argparse.SUPPRESS:
            yield from (option for option in action.option_strings if option.startswith("--"))


def _option_values(line: Completable, action: argparse.Action) -> Iterable[str]:
    """Return the possible values for an option."""
    if action.metavar == "BACKEND":
        from symphony.cluster.plugins import installed_backends

        return [info.name for info in installed_backends()]
    if action.dest == "profile":
        return line.configuration.profiles()
    return [*_choices(action), *_path_completions(action)]


def _next_argument(parser: argparse.ArgumentParser, number: int) -> argparse.Action | None:
    """Return the argument that follows the first ``number`` arguments, or None if there is none."""
    arguments = [
        action
        for action in parser._actions
        if not action.option_strings and action.help != argparse.SUPPRESS
    ]
    if number < len(arguments):
        return arguments[number]
    if arguments and arguments[-1].nargs in ("*", "+"):
        return arguments[-1]
    return None


def _choices(action: argparse.Action) -> list[str]:
    return [str(choice) for choice in action.choices or ()]


def _path_completions(action: argparse.Action) -> list[str]:
    found = _PATH_COMPLETIONS.get(str(action.metavar))
    return [] if found is None else [found]
