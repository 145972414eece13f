"""The table of the commands: each module declares a command, and is imported when it is needed."""

from __future__ import annotations

import argparse
import inspect
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from symphony.commandline import SymphonyParser
from symphony.commandline.commands.table import GROUPS, TABLE
from symphony.commandline.parsing.command import DEFAULT_DRY_RUN

LINE = SymphonyParser(prog="symphony")


def option(verb: str, flag: str) -> argparse.Action | None:
    return LINE.get_subparser(verb)._option_string_actions.get(flag)


@pytest.mark.parametrize("verb", TABLE.titles)
def test_a_module_has_the_arguments_and_the_help_of_a_command(verb: str) -> None:
    module = TABLE.load(verb)
    assert [*inspect.signature(module.add_arguments).parameters] == ["parser"]
    args, line = inspect.signature(module.run).parameters
    assert (args.lstrip("_"), line.lstrip("_")) == ("args", "line")
    assert "For example:" in str(module.run.__doc__)


@pytest.mark.parametrize("verb", TABLE.titles)
def test_every_command_accepts_a_dry_run(verb: str) -> None:
    action = option(verb, "--dry-run")
    assert action is not None
    if TABLE.load(verb).COMMAND.changes:
        assert action.help not in (None, argparse.SUPPRESS)


@pytest.mark.parametrize("verb", TABLE.titles)
def test_json_follows_from_the_declaration(verb: str) -> None:
    action = option(verb, "--json")
    declared = TABLE.load(verb).COMMAND.json
    assert (action.help if action else "") == (f"print {declared}" if declared else "")


def test_dry_run_follows_from_the_declaration() -> None:
    texts = {
        verb: action.help
        for verb in ("stop", "ls", "graph")
        if (action := option(verb, "--dry-run"))
    }
    assert texts == {
        "stop": DEFAULT_DRY_RUN,
        "ls": argparse.SUPPRESS,
        "graph": "with --output, do not write the file",
    }


def test_the_controls_of_the_views_are_the_commands_that_declare_one() -> None:
    declared = {verb for verb in TABLE.titles if hasattr(TABLE.load(verb), "CONTROL")}
    assert {*TABLE.controls} == declared
    assert all(TABLE.load(verb).COMMAND.changes for verb in declared)
    keys = Counter(control.key for control in TABLE.controls.values())
    assert set(keys.values()) == {1}


def test_words_of_commands_are_unique() -> None:
    words = Counter([*TABLE.titles])
    for verb in TABLE.titles:
        words.update(TABLE.load(verb).COMMAND.aliases)
    assert set(words.values()) == {1}
    assert TABLE.find_alias("validate") == "check"
    assert TABLE.find_alias("ls") is None


def test_the_order_of_the_help_names_commands() -> None:
    for group in GROUPS:
        in_group = [verb for verb, title in TABLE.titles.items() if title == group.title]
        assert tuple(in_group[: len(group.order)]) == group.order


IMPORTED = """
import json, sys
from symphony.commandline import SymphonyParser
from symphony.commandline.commands.table import GROUPS
SymphonyParser(prog="symphony").run(sys.argv[1:])
prefix = "symphony.commandline.commands."
names = [name.removeprefix(prefix) for name in sys.modules if name.startswith(prefix)]
groups = tuple(f"{group.package}." for group in GROUPS)
print(json.dumps([name for name in names if name.startswith(groups)]))
"""


@pytest.mark.without_coverage
@pytest.mark.parametrize(
    ("words", "module"),
    [
        (["backends", "--json"], "set_up.backends"),
        (["completion", "bash"], "set_up.completion"),
        (["ps", "--help"], "inspect.ps"),
        (["stop", "--help"], "change.stop"),
    ],
)
def test_a_command_imports_no_other_command(words: list[str], module: str, tmp_path: Path) -> None:
    output = subprocess.check_output(
        [sys.executable, "-c", IMPORTED, *words], text=True, cwd=tmp_path, timeout=60
    )
    assert json.loads(output.splitlines()[-1]) == [module]


def test_the_help_of_all_commands_leaves_each_command_complete() -> None:
    line = SymphonyParser(prog="symphony")
    assert line.run(["--help"]) == 0
    assert "--usage" in line.get_subparser("ps")._option_string_actions
    status = line.find_subparser("status")
    assert status is line.get_subparser("ps")
