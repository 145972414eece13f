"""Support for options between a command's arguments, as in ``logs rl --tail 3 learner``.

For an optional or repeated argument, argparse takes values only from the words before the next
option, and reports the arguments after that option as unknown. If all arguments come first,
argparse accepts the options in any order, so this module moves the arguments to the front.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from symphony.support.data_classes import dataclass

# An argument with one of these values for ``nargs`` consumes all words that follow, even options.
_TAKES_THE_REST = (argparse.REMAINDER, argparse.PARSER)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedOption:
    """An option on a command line.

    ``index`` is the index of the option's word, and ``values`` is the number of words after it that
    are values of the option. ``action`` is None if the parser does not know the option. ``value``
    is the value that the option's word contains, for example, ``3`` in ``--tail=3``.
    """

    index: int
    action: argparse.Action | None
    value: str | None
    values: int = 0

    @property
    def end(self) -> int:
        """The index after the last word that belongs to the option."""
        return self.index + 1 + self.values


def split_words(
    parser: argparse.ArgumentParser, words: Sequence[str]
) -> tuple[list[int], list[TypedOption]]:
    """Return the indices of the arguments, and the options, as ``parser`` interprets ``words``."""
    kinds = ""
    for word in words:
        kinds += "A" if parser._parse_optional(word) is None else "O"
    arguments: list[int] = []
    options: list[TypedOption] = []
    index = 0
    while index < len(words):
        if kinds[index] == "A":
            arguments.append(index)
            index += 1
            continue
        action, value = _find_action(parser, words[index])
        values = 0
        if action is not None and value is None:
            values = _count_values(parser, action, kinds[index + 1 :])
        option = TypedOption(index=index, action=action, value=value, values=values)
        options.append(option)
        index = option.end
    return arguments, options


def first_argument(parser: argparse.ArgumentParser, words: Sequence[str]) -> int | None:
    """Return the index of the first argument, or None if ``words`` contains only options."""
    arguments, _ = split_words(parser, words)
    return arguments[0] if arguments else None


def _find_action(
    parser: argparse.ArgumentParser, word: str
) -> tuple[argparse.Action | None, str | None]:
    """Return the action for an option and the value that the option's word contains, if any.

    A word such as ``-fn3`` contains several options. The last option in the word takes the value.
    """
    known = parser._option_string_actions
    if word in known:
        return known[word], None
    name, equals, value = word.partition("=")
    if name in known:
        return known[name], value if equals else None
    prefix = word[0]
    if word[1] == prefix:  # a long option
        return None, None
    for index, letter in enumerate(word[1:], 1):
        action = known.get(prefix + letter)
        if action is None or action.nargs != 0:
            attached = word[index + 1 :].removeprefix("=")
            return action, attached or None
    return known[prefix + word[-1]], None


def _count_values(parser: argparse.ArgumentParser, action: argparse.Action, kinds: str) -> int:
    """Return how many of the words that follow an option are values of the option."""
    found = re.match(parser._get_nargs_pattern(action), kinds)
    return 0 if found is None else len(found[1])


def arguments_first(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Return the words with all arguments before all options.

    If the words contain ``--``, the arguments are placed after ``--``, and the options before it.
    If one of the parser's arguments consumes all words that follow, ``words`` is returned
    unchanged.
    """
    for action in parser._actions:
        if not action.option_strings and action.nargs in _TAKES_THE_REST:
            return list(words)
    end = words.index("--") if "--" in words else len(words)
    indices, options = split_words(parser, words[:end])
    arguments = [words[index] for index in indices]
    others: list[str] = []
    for option in options:
        others += words[option.index : option.end]
    if end == len(words):
        return [*arguments, *others]
    return [*others, "--", *arguments, *words[end + 1 :]]
