"""Recognizing commands that run Python, and running their program under a module, such as pdb."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_INTERPRETER = re.compile(r"(?:.*/)?python(?:[0-9]+(?:\.[0-9]+)*)?")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*")
# The options of Python with one letter. Those in the second constant take an argument.
_FLAGS = frozenset("bBdEiIOPqRsSuvx")
_OPTIONS_WITH_ARGUMENT = frozenset("XW")
_TARGET_OPTIONS = frozenset("mc")
_LONG_OPTION_WITH_ARGUMENT = "--check-hash-based-pycs"
# A word of a shell line with another character could be expanded or split by the shell.
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:=,+@%^-]+")
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)
_REDIRECTION = re.compile(r"[<>]&|&>")
_FURTHER_COMMAND = re.compile(r"[;&\n]|\|\|")


@dataclass(frozen=True, slots=True)
class PythonCommand:
    """A command that runs a Python program.

    ``start`` contains the words up to the options of Python, such as ``python3 -u``, and ``target``
    the words that name the program: a script, or ``-m`` or ``-c`` with its argument if this
    argument is in the same word. ``rest`` contains all further words, which is text if the command
    is a shell line. ``interpreter`` is the word that names Python.
    """

    start: tuple[str, ...]
    target: tuple[str, ...]
    rest: tuple[str, ...] | str
    interpreter: str

    @property
    def is_code(self) -> bool:
        """True if the program is an argument of ``-c``."""
        return self.target[0] == "-c"

    def arguments(self, module: Sequence[str]) -> list[str]:
        """Return the command that runs the program under ``module``, such as ``("pdb",)``."""
        return [*self.start, "-m", *module, *self.target, *self.rest]

    def line(self, module: Sequence[str]) -> str:
        """Do the same as `arguments` for a shell line."""
        return f"{' '.join([*self.start, '-m', *module, *self.target])}{self.rest!s}"


def parse_arguments(words: Sequence[str]) -> PythonCommand | None:
    """Return the parts of a command, or None if it does not run a Python program.

    >>> parse_arguments(["env", "A=1", "python3", "-um", "train"]).arguments(["pdb"])
    ['env', 'A=1', 'python3', '-u', '-m', 'pdb', '-m', 'train']
    >>> parse_arguments(["bash", "train.sh"])
    """
    found = _split(words, wrappers=("env",))
    if found is None:
        return None
    count, start, target, interpreter = found
    return PythonCommand(tuple(start), tuple(target), tuple(words[count:]), interpreter)


def parse_line(line: str) -> PythonCommand | None:
    """Return the parts of a shell line, or None if it does not run exactly one Python program.

    The words up to the program must not contain characters that have a meaning for the shell.

    >>> parse_line("exec python3 main.py $RATE | tee out").line(["pdb"])
    'exec python3 -m pdb main.py $RATE | tee out'
    >>> parse_line("python3 prepare.py; python3 main.py")
    """
    matches = list(re.finditer(r"\S+", line))
    words = []
    for match in matches:
        if not _PLAIN_WORD.fullmatch(match[0]):
            break
        words.append(match[0])
    # The program itself can be in quotes, but the words before it are kept as they are.
    if len(words) < len(matches):
        words.append(matches[len(words)][0])
    found = _split(words, wrappers=("exec", "env"))
    unquoted = _REDIRECTION.sub("", _QUOTED.sub("", line.strip()))
    if found is None or _FURTHER_COMMAND.search(unquoted):
        return None
    count, start, target, interpreter = found
    return PythonCommand(tuple(start), tuple(target), line[matches[count - 1].end() :], interpreter)


def parse_lines(lines: Sequence[str]) -> tuple[int, PythonCommand] | None:
    """Return the only one of several shell lines that runs a Python program, with its index."""
    parsed = [(index, parse_line(line)) for index, line in enumerate(lines)]
    found = [(index, command) for index, command in parsed if command is not None]
    return found[0] if len(found) == 1 else None


def _split(
    words: Sequence[str], *, wrappers: Sequence[str]
) -> tuple[int, list[str], list[str], str] | None:
    """Return the number of words up to the program, these words in two parts, and the word that
    names Python.
    """
    count = 0
    while count < len(words) and (words[count] in wrappers or _ASSIGNMENT.fullmatch(words[count])):
        count += 1
    if count == len(words) or not _INTERPRETER.fullmatch(words[count]):
        return None
    interpreter = words[count]
    count += 1
    start = list(words[:count])
    while count < len(words):
        word = words[count]
        count += 1
        if not word.startswith("-"):
            return count, start, [word], interpreter
        if word == _LONG_OPTION_WITH_ARGUMENT:
            start += words[count - 1 : count + 1]
            count += 1
            continue
        kind, index = _last_option(word)
        if kind in _TARGET_OPTIONS:
            if index > 1:
                start.append(word[:index])
            argument = word[index + 1 :]
            target = [f"-{kind}", argument] if argument else [f"-{kind}"]
            # Without its argument, the option is not complete.
            is_complete = bool(argument) or count < len(words)
            return (count, start, target, interpreter) if is_complete else None
        if kind == "":
            return None
        start.append(word)
        if kind in _OPTIONS_WITH_ARGUMENT and index == len(word) - 1:
            start += words[count : count + 1]
            count += 1
    return None


def _last_option(word: str) -> tuple[str, int]:
    """Return the last option in a word, such as ``m`` in ``-um``, and its position.

    All further characters are the argument of this option. The option is empty if the word does not
    consist of options with which Python runs a program.
    """
    for index, letter in enumerate(word[1:], 1):
        if letter in _TARGET_OPTIONS or letter in _OPTIONS_WITH_ARGUMENT:
            return letter, index
        if letter not in _FLAGS:
            return "", index
    return (word[-1], len(word) - 1) if len(word) > 1 else ("", 0)
