"""What is shown at 60, 80 and 160 columns and in a pipe, as the golden files have it (`tests.cli.screens`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Program, running
from tests.cli.screens import GOLDEN, SCREENS, WIDTHS, parts, screen, short_folder, stage


@pytest.fixture(scope="module")
def shown(cache: Path) -> Iterator[Program]:
    with short_folder() as folder, running(Program(folder, cache)) as program:
        stage(program)
        yield program


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_is_the_golden_one(shown: Program, name: str) -> None:
    assert screen(shown, SCREENS[name]) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["ls", "ps", "ps-of-long-names", "backends", "config-show"])
def test_tables_fit(name: str) -> None:
    for title, text in parts((GOLDEN / f"{name}.txt").read_text(encoding="utf-8")).items():
        plain = [re.sub("␛[^m]*m", "", line) for line in text.splitlines()]
        assert title == "a pipe" or max(map(len, plain)) <= int(title.split()[0])


@pytest.mark.parametrize("width", WIDTHS)
def test_the_program_shows_that_help_on_a_terminal(program: Program, width: int) -> None:
    screen = program.terminal("--help", width=width)
    assert screen.finish() == 0
    assert screen.shown.replace("\r\n", "\n") == helped("symphony")[f"{width} columns"]


def test_the_program_shows_that_help_in_a_pipe(program: Program) -> None:
    assert program.ok("launch", "-b", "kube", "--help") == helped("launch-on-kube")["80 columns"]
    assert program.ok("ps", "--help", COLUMNS="60") == helped("ps")["60 columns"]


def helped(name: str) -> dict[str, str]:
    return parts((GOLDEN / "help" / f"{name}.txt").read_text(encoding="utf-8"))
