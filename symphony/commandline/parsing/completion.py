"""Completion: what may come next in a command line that is being typed, as a shell asks for it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from symphony.commandline.parsing import completion_cache
from symphony.commandline.parsing.completion_scripts import (
    FILES,
    FOLDERS,
)
from symphony.commandline.parsing.intermixed import TypedOption, split_words

if TYPE_CHECKING:
    from symphony.commandline.parsing.dispatch import CommandLine
    from symphony.plan.topology import Service

# What a value is by the word that stands for it in the help, where the value is a path.
_PATHS = {
    "FILE": FILES,
    "FILE|EXPERIMENT": FILES,
    "SOURCE": FILES,
    "TARGET": FILES,
    "DIRECTORY": FOLDERS,
}


def completions(line: CommandLine, words: Sequence[str]) -> list[str]:
    """What the last of ``words`` may become: it is being typed, those before it stand.

    `FILES` or `FOLDERS` at the end say that a path may stand there too.
    """
    *before, typed = words or [""]
    if "--" in before:
        return [FILES]
    option, equals, value = typed.partition("=")
    if equals and option.startswith("--"):
        found = _candidates(line, [*before, option], value)
        return [
            word if word.startswith(":") else f"{option}={word}"
            for word in _beginning_with(found, value)
        ]
    return _beginning_with(_candidates(line, before, typed), typed)


def _beginning_with(candidates: Iterable[str], typed: str) -> list[str]:
    """The candidates that begin so; of a process in a group else its own name, which is enough."""
    paths: list[str] = []
    words: list[str] = []
    for word in candidates:
        (paths if word in (FILES, FOLDERS) else words).append(word)
    found = [word for word in words if word.startswith(typed)]
    if not found and typed and "/" not in typed:
        own = (word.rpartition("/")[2] for word in words if "/" in word)
        found = [word for word in own if word.startswith(typed)]
    return [*found, *paths]


def _candidates(line: CommandLine, before: Sequence[str], typed: str) -> Iterable[str]:
    verb = _first_word(line.master_parser, before)
    parser = line.master_parser if verb is None else line.find_subparser(before[verb])
    if parser is None:
        return []
    arguments, options = split_words(parser, before)
    _take_values(line, options, before)
    waiting = _waiting(options, before)
    if waiting is not None:
        return _values(waiting)
    if typed.startswith("-"):
        return sorted(_shown_options(parser))
    if verb is None:
        return line.verbs
    given = [before[place] for place in arguments if place > verb]
    wanted = [
        action
        for action in parser._actions
        if not action.option_strings and action.help != argparse.SUPPRESS
    ]
    if not wanted:
        return []
    place = len(given)
    last = wanted[-1]
    action = wanted[place] if place < len(wanted) else last if last.nargs in ("*", "+") else None
    return [] if action is None else _words_for(line, action, [line.master_parser.prog, *given])


def _shown_options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if action.help != argparse.SUPPRESS:
            yield from (option for option in action.option_strings if option.startswith("--"))


def _take_values(line: CommandLine, options: Iterable[TypedOption], words: Sequence[str]) -> None:
    """Let the options of the backend that were typed hold: they say where experiments are."""
    for option in options:
        action, value = option.action, option.value
        if action is None or not action.dest.startswith("option_"):
            continue
        if action.nargs == 0:
            setattr(line.args, action.dest, True)
        elif value is not None or option.values:
            setattr(line.args, action.dest, words[option.place + 1] if value is None else value)


def _first_word(parser: argparse.ArgumentParser, words: Sequence[str]) -> int | None:
    """Where the command stands."""
    arguments, _ = split_words(parser, words)
    return next(iter(arguments), None)


def _waiting(options: Sequence[TypedOption], words: Sequence[str]) -> argparse.Action | None:
    """The option that the next word is the value of."""
    last = options[-1] if options else None
    if last is None or last.action is None or last.place != len(words) - 1:
        return None
    return last.action if last.action.nargs != 0 and last.value is None else None


def _values(action: argparse.Action) -> Iterable[str]:
    """What the value of an option may be."""
    if action.metavar == "BACKEND":
        from symphony.cluster.plugins import installed_backends

        return [info.name for info in installed_backends()]
    if action.dest == "profile":
        from symphony.config import SymphonyConfig

        return SymphonyConfig().profiles()
    return [*map(str, action.choices or ()), *_paths(action)]


def _words_for(line: CommandLine, action: argparse.Action, given: Sequence[str]) -> Iterable[str]:
    """What may stand where ``action`` is wanted, after the words that were given."""
    from symphony.errors import SymphonyError

    paths = _paths(action)
    known = _NAMES.get(f"{action.metavar} {action.dest}") or _NAMES.get(str(action.metavar))
    if known is None:
        return [*map(str, action.choices or ()), *paths]
    try:
        what = [known.__name__, *([] if known is _experiments else given[1:2])]
        return [*completion_cache.cached_names(line, what, lambda: known(line, given)), *paths]
    except SymphonyError:  # no such experiment, or nobody who could tell
        return paths


def _paths(action: argparse.Action) -> list[str]:
    found = _PATHS.get(str(action.metavar))
    return [] if found is None else [found]


def _experiments(line: CommandLine, _: Sequence[str]) -> Iterable[str]:
    return line.cluster.list_experiments()


def _processes(line: CommandLine, given: Sequence[str]) -> Iterable[str]:
    from symphony.commandline.commands.resolve_names import resolve_experiment

    return [process.path for process in resolve_experiment(line.cluster, given[1])]


def _services(line: CommandLine, given: Sequence[str]) -> Sequence[Service]:
    from symphony.commandline.commands.resolve_names import resolve_experiment

    name = resolve_experiment(line.cluster, given[1]).name
    return line.cluster.describe_topology(name).services


def _exposed(line: CommandLine, given: Sequence[str]) -> Iterable[str]:
    return [service.name for service in _services(line, given) if service.exposed]


def _targets(line: CommandLine, given: Sequence[str]) -> Iterable[str]:
    return [*_processes(line, given), *(service.name for service in _services(line, given))]


def _of_copies(line: CommandLine, given: Sequence[str]) -> Iterable[str]:
    return [f"{path}:" for path in _processes(line, given)]


# By the word that stands for it in the help, and where that is not enough by its place in the arguments too.
_NAMES: Mapping[str, Callable[[CommandLine, Sequence[str]], Iterable[str]]] = {
    "EXPERIMENT": _experiments,
    "FILE|EXPERIMENT": _experiments,
    "PATTERN": _experiments,
    "PROCESS": _processes,
    "PROCESS target": _targets,
    "SERVICE": _exposed,
    "SOURCE": _of_copies,
    "TARGET": _of_copies,
}
