"""The words of other programs: the commands and options that they stand for exist."""

from __future__ import annotations

import argparse
import re
import shlex

import pytest

from symphony.commandline import SymphonyParser
from symphony.commandline.parsing.words import COMMANDS, OPTIONS, command_hint, option_hints

LINE = SymphonyParser(prog="symphony")
PARSERS = {verb: LINE.get_subparser(verb) for verb in LINE.verbs}


def refuse_unknown_options(parser: argparse.ArgumentParser, words: list[str]) -> None:
    for word in words:
        if word.startswith("-") and word != "--":
            assert word in parser._option_string_actions, (parser.prog, word)


@pytest.mark.parametrize("word", COMMANDS)
def test_the_hint_for_a_command_names_existing_commands_and_options(word: str) -> None:
    assert LINE.find_subparser(word) is None
    suggestions = re.findall(r"'symphony ([^']+)'", command_hint(word, "symphony"))
    assert suggestions
    for suggestion in suggestions:
        verb, *words = shlex.split(suggestion)
        if verb.startswith("-"):
            assert verb in LINE.master_parser._option_string_actions
        elif verb != "COMMAND":
            refuse_unknown_options(PARSERS[verb], words)


@pytest.mark.parametrize("verb", OPTIONS)
def test_the_hint_for_an_option_names_existing_options(verb: str) -> None:
    known = PARSERS[verb]._option_string_actions
    for option, hint in option_hints(verb, f"symphony {verb}").items():
        assert option not in known
        words = re.findall(r"(?<= )--?[a-z][-a-z]*", hint)
        if "add -b kube" not in hint and "as in -- sh" not in hint:
            refuse_unknown_options(PARSERS[verb], words)


@pytest.mark.parametrize(
    ("alias", "verb"),
    [
        ("list", "ls"),
        ("status", "ps"),
        ("port-forward", "forward"),
        ("validate", "check"),
        ("delete-batch", "delete"),
        ("db", "delete"),
    ],
)
def test_a_word_with_the_same_meaning_is_an_alias(alias: str, verb: str) -> None:
    assert LINE.find_subparser(alias) is PARSERS[verb]


def test_the_commands_that_change_something_are_known() -> None:
    """The names in all other commands can be completed."""
    reading = {verb for verb in LINE.verbs if not changes_something(verb)}
    assert reading == {
        *("check", "render", "graph", "diff", "backends", "completion"),
        *("ls", "ps", "top", "ui", "describe", "logs", "events", "wait", "forward", "visit"),
        *("history", "show", "compare"),
    }


def changes_something(verb: str) -> bool:
    line = SymphonyParser(prog="symphony")
    line.args.verb = verb
    return line.changes_something


def test_an_experiment_file_is_not_a_command() -> None:
    assert command_hint("rl.yml", "lab") == "use 'lab launch rl.yml'"
    assert command_hint("frobnicate", "lab") == ""


def test_a_command_without_a_group_comes_last_in_the_help() -> None:
    class Lab(SymphonyParser):
        def setup(self) -> None:
            """Add a command."""
            self.add_subparser("calibrate")

        def action_calibrate(self, _: argparse.Namespace) -> None:
            """Calibrate the robot."""

    lab = Lab(prog="lab")
    lab.run(["--version"])
    groups = list(lab.subparsers.grouped().items())
    assert groups[0][0] == "define experiments"
    assert groups[-1] == ("other commands", ["calibrate"])
