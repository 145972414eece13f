"""The help of all commands. ``python -m tests.cli.screens help`` writes the golden files again."""

from __future__ import annotations

import pytest

from symphony.commandline import SymphonyParser
from symphony.commandline.parsing.arguments import Parser, summary_of
from tests.cli.screens import GOLDEN, HELP, VERBS, help_screen, parts

FILES = {name: GOLDEN / "help" / f"{name}.txt" for name in HELP}


@pytest.mark.parametrize("name", HELP)
def test_help_is_the_golden_one(name: str) -> None:
    assert help_screen(HELP[name]) == FILES[name].read_text(encoding="utf-8")


@pytest.mark.parametrize("name", HELP)
def test_help_fits_the_terminal_and_has_an_example(name: str) -> None:
    for title, text in parts(FILES[name].read_text(encoding="utf-8")).items():
        assert max(map(len, text.splitlines())) <= int(title.split()[0])
        assert "\n  symphony " in text or '"$(symphony ' in text


def test_there_is_a_file_for_each_command_and_no_other() -> None:
    assert {path.stem for path in (GOLDEN / "help").iterdir()} == set(HELP)
    assert set(VERBS) < set(HELP)


def test_the_summary_of_each_command_is_a_whole_sentence() -> None:
    line = SymphonyParser(prog="symphony")
    parsers = {verb: line.get_subparser(verb) for verb in VERBS}
    shown = {action.dest: action.help or "" for action in line.subparsers._choices_actions}
    assert shown == {verb: summary_of(parsers[verb].description or "") for verb in VERBS}
    assert [verb for verb in VERBS if not shown[verb].endswith(".")] == []


@pytest.mark.parametrize(
    ("description", "summary"),
    [
        ("Train all\nagents. Then stop.\n\nFor example:\n  mine train", "Train all agents."),
        ("Read files (e.g. images) once. Slow.", "Read files (e.g. images) once."),
        ("Train agents\n\nSlowly.", "Train agents"),
        ("", ""),
    ],
)
def test_a_summary_is_the_first_sentence_in_one_line(description: str, summary: str) -> None:
    assert summary_of(description) == summary


def test_usage_names_required_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    parser = Parser(prog="mine")
    parser.add_argument("-m", "--must", required=True)
    parser.add_argument("--may")
    parser.add_argument("file", nargs="+")
    assert (
        parser.format_usage() == "usage: mine [options] --must MUST\n            file [file ...]\n"
    )
    assert "-m, --must MUST" in parser.format_help()
