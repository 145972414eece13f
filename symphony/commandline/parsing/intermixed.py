"""Telling a command's options from its arguments, wherever they stand: ``logs rl --tail 3 learner``.

argparse fills an argument that may be repeated, or left out, from the first words that stand together, and then
takes those behind an option for too many. With all arguments first it takes what people type.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass

# What stands for all words behind it, options among them: where it begins, nothing may be moved.
_THE_REST = (argparse.REMAINDER, argparse.PARSER)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedOption:
    """An option as it was typed: where its word stands, and how many behind it are its values.

    ``action`` is what takes it, None where nothing does; ``value`` is what its own word holds (``3`` of ``--tail=3``).
    """

    place: int
    action: argparse.Action | None
    value: str | None
    values: int = 0

    @property
    def end(self) -> int:
        """The place behind its last word."""
        return self.place + 1 + self.values


def split_words(
    parser: argparse.ArgumentParser, words: Sequence[str]
) -> tuple[list[int], list[TypedOption]]:
    """The places of the arguments, and the options with their values, as ``parser`` would tell them apart."""
    kinds = "".join("A" if parser._parse_optional(word) is None else "O" for word in words)
    arguments: list[int] = []
    options: list[TypedOption] = []
    place = 0
    while place < len(words):
        if kinds[place] == "A":
            arguments.append(place)
            place += 1
            continue
        action, value = _meant(parser, words[place])
        taken = (
            0 if action is None or value is not None else _taken(parser, action, kinds[place + 1 :])
        )
        options.append(TypedOption(place=place, action=action, value=value, values=taken))
        place = options[-1].end
    return arguments, options


def _meant(parser: argparse.ArgumentParser, word: str) -> tuple[argparse.Action | None, str | None]:
    """What takes an option, and the value in its own word; of ``-fn3``, several in one, what takes the last."""
    known = parser._option_string_actions
    name, equals, value = word.partition("=")
    if word in known or name in known:
        return (known[word], None) if word in known else (known[name], value if equals else None)
    if word[1] == word[0]:
        return None, None
    for place, letter in enumerate(word[1:], 1):
        action = known.get(word[0] + letter)
        if action is None or action.nargs != 0:
            return action, word[place + 1 :].removeprefix("=") or None
    return known[word[0] + word[-1]], None


def _taken(parser: argparse.ArgumentParser, action: argparse.Action, kinds: str) -> int:
    """How many of the words behind an option are its values."""
    found = re.match(parser._get_nargs_pattern(action), kinds)
    return 0 if found is None else len(found[1])


def arguments_first(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """The same words with all arguments before all options, or behind them after a ``--`` where one was typed."""
    if any(not action.option_strings and action.nargs in _THE_REST for action in parser._actions):
        return list(words)
    end = words.index("--") if "--" in words else len(words)
    places, options = split_words(parser, words[:end])
    arguments = [words[place] for place in places]
    others = [words[place] for option in options for place in range(option.place, option.end)]
    return (
        [*arguments, *others]
        if end == len(words)
        else [*others, "--", *arguments, *words[end + 1 :]]
    )
