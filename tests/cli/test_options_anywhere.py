"""Options between the arguments of a command."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony.commandline.parsing.arguments import Parser
from symphony.commandline.parsing.intermixed import arguments_first
from tests.cli.conftest import Program

CREW = {name: {"cmd": f"echo {name}"} for name in ("learner", "agent")}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """One program for all tests: none of them changes anything."""
    made = Program(tmp_path_factory.mktemp("anywhere"))
    for name in ("a", "b"):
        made.run(name, CREW)
    yield made
    for name in ("a", "b"):
        made.cluster.delete(name)


BOTH = ["agent   | agent", "learner | learner"]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("logs a -f agent", ["agent"]),
        ("logs a --tail 3 learner", ["learner"]),
        ("logs a learner --tail 3 agent", BOTH),
        ("logs --tail=3 a learner -b local agent", BOTH),
        ("-b local logs a -fb local learner agent", BOTH),
        ("logs a -fblocal learner --since 1h agent", BOTH),
    ],
)
def test_logs(program: Program, words: str, shown: list[str]) -> None:
    # The order of lines that two processes write at the same time is not defined.
    done = program(*words.split())
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, shown), done.stderr


@pytest.mark.parametrize(
    "words",
    [
        "delete a --dry-run b",
        "delete a b --dry-run",
        "delete --dry-run a -b local b",
        "delete-batch a --dry-run '[b]'",
    ],
)
def test_delete(program: Program, words: str) -> None:
    done = program(*shlex.split(words))
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "would delete a succeeded: 2 succeeded",
        "would delete b succeeded: 2 succeeded",
    ]


def test_words_after_two_dashes_are_unchanged(program: Program) -> None:
    words = ["submit", "--name", "c", "--dry-run", "--json", "--", "echo", "--name", "x", "-b", "y"]
    done = program(*words)
    assert done.returncode == 0
    assert '"--name",\n' in done.stdout


def test_negative_numbers_options_with_several_values_and_remainders() -> None:
    parser = Parser(prog="mine")
    parser.add_argument("first", type=int)
    parser.add_argument("rest", nargs="*", type=int)
    parser.add_argument("--pair", nargs=2)
    parser.add_argument("--some", nargs="*")
    parser.add_argument("-v", action="count", default=0)
    parsed = parser.parse_args(["-1", "-v", "-2", "--pair", "x", "y", "3", "-vv", "--some"])
    assert vars(parsed) == {"first": -1, "rest": [-2, 3], "pair": ["x", "y"], "some": [], "v": 3}
    assert parser.parse_args(["--some", "x", "-v", "1", "2"]).some == ["x"]
    assert parser.parse_args(["1", "-v", "2", "--some", "--", "-3"]).rest == [2, -3]
    parser.add_argument("command", nargs=argparse.REMAINDER)
    words = ["1", "-v", "--pair", "x", "-v"]
    assert arguments_first(parser, words) == words


def test_subcommands_of_a_command() -> None:
    parser = Parser(prog="mine")
    below = parser.add_subparsers().add_parser("pull", add_help=False)
    below.add_argument("names", nargs="+")
    below.add_argument("--to")
    parsed = parser.parse_args(["pull", "a", "--to", "x", "b"])
    assert (parsed.names, parsed.to) == (["a", "b"], "x")


def plain_parser() -> argparse.ArgumentParser:
    """Return a parser that requires arguments before options."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("first")
    parser.add_argument("second", nargs="?")
    parser.add_argument("rest", nargs="*")
    parser.add_argument("-f", "--flag", action="store_true")
    parser.add_argument("-n", "--number", type=int)
    return parser


OPTIONS = st.sampled_from(
    [["-f"], ["--flag"], ["-n", "3"], ["-n3"], ["-fn", "-3"], ["--number=-3"]]
)
ARGUMENTS = st.lists(st.sampled_from(["a", "b", "-1", "-", "a b", ""]), min_size=1, max_size=4)


@given(ARGUMENTS, st.lists(st.tuples(OPTIONS, st.integers(0, 4)), max_size=3))
def test_the_position_of_options_does_not_matter(
    arguments: list[str], options: list[tuple[list[str], int]]
) -> None:
    parts = [[word] for word in arguments]
    for words, index in options:
        parts.insert(index, words)
    typed = [word for part in parts for word in part]
    inserted = [part for part in parts if part in [words for words, _ in options]]
    in_order = [*arguments, *(word for part in inserted for word in part)]
    found = plain_parser().parse_args(arguments_first(plain_parser(), typed))
    assert vars(found) == vars(plain_parser().parse_args(in_order))
