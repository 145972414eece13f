"""Completion: what a shell asks while a command line is typed, and the script that makes it ask."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from symphony.commandline.dispatch import ASK

if TYPE_CHECKING:
    from symphony.commandline.dispatch import CommandLine

_SCRIPTS = {
    "bash": """\
# {prog}: completion for bash. Put this into ~/.bashrc:
#   eval "$({prog} completion bash)"
{function}() {{
    local IFS=$'\\n'
    COMPREPLY=($({prog} {ask} "${{COMP_WORDS[@]:1:COMP_CWORD}}" 2>/dev/null))
}}
complete -o default -F {function} {prog}
""",
    "zsh": """\
# {prog}: completion for zsh. Put this into ~/.zshrc, after compinit:
#   eval "$({prog} completion zsh)"
{function}() {{
    local -a found
    found=("${{(@f)$({prog} {ask} "${{(@)words[2,CURRENT]}}" 2>/dev/null)}}")
    if [[ -n "$found" ]]; then compadd -a found; else _files; fi
}}
compdef {function} {prog}
""",
    "fish": """\
# {prog}: completion for fish. Put this into ~/.config/fish/config.fish:
#   {prog} completion fish | source
function {function}
    {prog} {ask} (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null
end
complete -c {prog} -a '({function})'
""",
}
SHELLS = tuple(_SCRIPTS)


def script(shell: str, prog: str) -> str:
    """What a shell has to read once; see `SHELLS`."""
    return _SCRIPTS[shell].format(prog=prog, function=f"_{re.sub('[^a-z0-9]', '_', prog.lower())}", ask=ASK)


def completions(line: CommandLine, words: Sequence[str]) -> list[str]:
    """What the last of ``words`` may become: it is being typed, those before it stand.

    Nothing where a file is wanted, which the shell knows better.
    """
    *before, typed = words or [""]
    if "--" in before:
        return []
    candidates = _candidates(line, before, typed)
    return [word for word in candidates if word.startswith(typed)]


def _candidates(line: CommandLine, before: Sequence[str], typed: str) -> Iterable[str]:
    verb = _first_word(line.master_parser, before)
    parser = line.master_parser if verb is None else line.parser_of(before[verb])
    if parser is None:
        return []
    waiting = _waiting(parser, before)
    if waiting is not None:
        return _values(waiting)
    if typed.startswith("-"):
        return sorted(option for option in parser._option_string_actions if option.startswith("--"))
    if verb is None:
        return line.verbs
    given = _positionals(parser, before[verb + 1 :])
    wanted = [action for action in parser._actions if not action.option_strings and action.help != argparse.SUPPRESS]
    if not wanted:
        return []
    place = len(given)
    last = wanted[-1]
    action = wanted[place] if place < len(wanted) else last if last.nargs in ("*", "+") else None
    known = _NAMES.get(action.dest) if action is not None else None
    if known is None:
        return _values(action) if action is not None else []
    return known(line, [line.master_parser.prog, *given])


def _first_word(parser: argparse.ArgumentParser, words: Sequence[str]) -> int | None:
    """Where the command stands."""
    for place, word in enumerate(words):
        if not word.startswith("-") and _waiting(parser, words[:place]) is None:
            return place
    return None


def _positionals(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    return [
        word for place, word in enumerate(words) if not word.startswith("-") and _waiting(parser, words[:place]) is None
    ]


def _waiting(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.Action | None:
    """The option that the next word is the value of."""
    action = parser._option_string_actions.get(words[-1]) if words else None
    return action if action is not None and action.nargs != 0 else None


def _values(action: argparse.Action) -> Iterable[str]:
    if action.dest == "backend":
        from symphony.plugins import backends

        return [info.name for info in backends()]
    return [str(choice) for choice in action.choices or ()]


def _experiments(line: CommandLine, _: Sequence[str]) -> Iterable[str]:
    return line.cluster.list_experiments()


def _processes(line: CommandLine, given: Sequence[str]) -> Iterable[str]:
    from symphony.commandline import choosing

    return [process.path for process in choosing.experiment(line.cluster, given[1])]


def _of_copies(line: CommandLine, given: Sequence[str]) -> Iterable[str]:
    return [f"{path}:" for path in _processes(line, given)]


_NAMES: Mapping[str, Callable[[CommandLine, Sequence[str]], Iterable[str]]] = {
    "experiment": _experiments,
    "experiments": _experiments,
    "patterns": _experiments,
    "process": _processes,
    "processes": _processes,
    "target": _processes,
    "source": _of_copies,
}
