"""The golden screens (`tests.cli.screens`): tables and help on terminals and in a pipe."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Program, cleaned_up
from tests.cli.screens import GOLDEN, SCREENS, parts, screen, short_directory, stage


@pytest.fixture(scope="module")
def staged() -> Iterator[Program]:
    with short_directory() as directory, cleaned_up(Program(directory)) as program:
        stage(program)
        yield program


@pytest.mark.parametrize("name", SCREENS)
def test_screen(staged: Program, name: str) -> None:
    assert screen(staged, SCREENS[name]) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["ls", "ps", "ps-of-long-names", "backends", "config-show"])
def test_tables_fit_the_terminal(name: str) -> None:
    for title, text in parts((GOLDEN / f"{name}.txt").read_text(encoding="utf-8")).items():
        plain = [re.sub("␛[^m]*m", "", line) for line in text.splitlines()]
        assert title == "a pipe" or max(map(len, plain)) <= int(title.split()[0])


def test_help_on_a_terminal(program: Program) -> None:
    screen = program.terminal("--help", width=60)
    assert screen.finish() == 0
    assert screen.shown.replace("\r\n", "\n") == golden_help("symphony")["60 columns"]


def test_help_in_a_pipe(program: Program) -> None:
    shown = program.process("launch", "-b", "kube", "--help").stdout
    assert shown == golden_help("launch-on-kube")["80 columns"]
    assert program.ok("ps", "--help", COLUMNS="60") == golden_help("ps")["60 columns"]


def golden_help(name: str) -> dict[str, str]:
    return parts((GOLDEN / "help" / f"{name}.txt").read_text(encoding="utf-8"))
