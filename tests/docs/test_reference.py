"""Test the generated reference pages: they match the code and are complete."""

from __future__ import annotations

import argparse
import copy
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs import command_line, examples, experiment_file, md, pages, parity
from symphony import Cluster
from symphony.cluster.plugins import installed_backends
from symphony.commandline import SymphonyParser
from symphony.model.document import schema
from symphony.model.settings.setting_types import VOLUME_KINDS
from symphony.model.settings.table import SETTINGS
from symphony.supervised.render import HONOURED
from symphony.testing import BackendContract

API = pages.REFERENCE / "api"


def test_generated_pages_match_the_code() -> None:
    assert pages.outdated() == [], "write them again with scripts/docs pages"


def test_missing_and_changed_pages_are_outdated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "REFERENCE", tmp_path / "docs" / "reference")
    monkeypatch.setattr(pages, "PAGES", {"one.md": lambda: "# One\n"})
    assert pages.write() == [Path("docs/reference/one.md")]
    assert pages.outdated() == pages.write() == []
    (tmp_path / "docs" / "reference" / "one.md").write_text("# Two\n")
    assert pages.outdated() == [Path("docs/reference/one.md")]


# --- commands ---


@pytest.fixture(scope="module")
def sections() -> dict[str, str]:
    """The section of each command on the page."""
    head, *rest = re.split(r"(?m)^## ", command_line.page())
    return {"": head, **{section.partition("\n")[0]: section for section in rest}}


def test_every_command_has_its_options_and_no_others(sections: dict[str, str]) -> None:
    line = SymphonyParser(prog="symphony")
    for verb in line.verbs:
        parser = line.get_subparser(verb)
        assert f"[`{verb}`](#{verb})" in sections[""]
        for word, alias in line.subparsers.choices.items():
            assert alias is not parser or word == verb or f"`{word}`" in sections[verb]
        text = sections[verb] + sections["Options of every command"]
        for flag, action in parser._option_string_actions.items():
            assert action.help == argparse.SUPPRESS or f"`{flag}" in text, (verb, flag)
        documented = re.findall(r"(?m)^\| `(--?[-\w]+)", sections[verb])
        assert set(documented) <= set(parser._option_string_actions)


def test_options_of_backends_are_documented(sections: dict[str, str]) -> None:
    options = [option for info in installed_backends() for option in info.options]
    flags = [flag for option in options for flag in option.flags]
    assert flags
    for flag in flags:
        assert f"`{flag}" in sections["Options of every command"]


def test_blocks_fit_a_terminal(sections: dict[str, str]) -> None:
    for section in sections.values():
        for block in re.findall(r"```text\n(.*?)```", section, re.DOTALL):
            assert max(map(len, block.splitlines())) <= md.TERMINAL_COLUMNS, block


# --- the experiment file ---


def keys(value: Any) -> Iterator[str]:
    """Yield all keys of an experiment file, except the kinds of volumes."""
    if isinstance(value, dict):
        is_mapping = value.get("additionalProperties") is False
        if is_mapping and set(value["properties"]) != set(VOLUME_KINDS):
            yield from value["properties"]
        for item in value.values():
            yield from keys(item)
    elif isinstance(value, list):
        for item in value:
            yield from keys(item)


def test_every_key_has_a_description() -> None:
    rows = re.findall(r"(?m)^\| (?:\[)?`(\w+)`.* \| (.*) \|$", experiment_file.page())
    descriptions = dict(rows)
    assert set(descriptions) == set(keys(schema.build()))
    assert all(descriptions.values())
    for kind in VOLUME_KINDS:
        assert f"\n#### {kind}\n" in experiment_file.page()


@pytest.mark.parametrize(
    "path", ["processes", "$defs/setting-binds", "$defs/setting-ready/anyOf/0/properties/log"]
)
def test_key_without_description_is_an_error(path: str) -> None:
    built = copy.deepcopy(schema.build())
    value = built if "$defs" in path else built["properties"]
    for step in path.split("/"):
        value = value[int(step) if step.isdecimal() else step]
    del value["description"]
    key = re.split("[/-]", path)[-1]
    with pytest.raises(experiment_file.Undescribed, match=f"key '{key}'"):
        experiment_file.page(built)


def test_defaults_are_documented() -> None:
    page = experiment_file.page()
    for row in (
        "`termination_grace_period`](#termination_grace_period) | duration | `30s`",
        "| duration | `60` |",
        "`mount_path` | absolute path | required",
        "`[7000, 8999]`",
    ):
        assert row in page


def test_every_setting_has_a_valid_example() -> None:
    assert set(examples.SETTINGS) == set(SETTINGS)
    for key in examples.SETTINGS:
        assert key in examples.body(key)
    with examples.experiment() as experiment:
        assert [image.repository for image in experiment.list_images()] == ["registry.example/rl"]
        volumes = {f"volumes.{kind}" for kind in VOLUME_KINDS}
        assert set(parity.settings_of(experiment)) >= volumes


# --- the comparison of backends ---


def test_page_lists_all_contract_tests() -> None:
    tests = parity.contract(pages.ROOT)
    assert [test.name for test in tests] == [
        name for name in vars(BackendContract) if name.startswith("test_")
    ]
    page = parity.page(pages.ROOT)
    for test in tests:
        assert f"| {md.text(test.description)} |" in page
        assert test.section


def test_page_lists_all_settings() -> None:
    page = parity.page(pages.ROOT)
    rows = re.findall(r"(?m)^\| `([\w.]+)` \| (\w+) \| (\w+) \| (\w+) \| (\w+) \|$", page)
    assert {name.partition(".")[0] for name, *_ in rows} == {*SETTINGS, "container_image"}
    for name, local, tmux, *_ in rows:
        is_supported = name in HONOURED or name.partition(".")[0] in HONOURED
        assert local == tmux == ("yes" if is_supported else "ignored")


def test_settings_have_the_names_of_dry_runs(tmp_path: Path) -> None:
    experiment = Cluster.new("local", state_dir=tmp_path).new_experiment("one")
    experiment.new_process("a", command="true").add_label("team", "red")
    assert parity.settings_of(experiment) == ["labels"]


CONTRACT = """
class BackendContract:
    # --- one ---
    def test_first_rule_holds(self): ...
    def test_second_rule_holds(self):
        '''The second rule holds in other words.'''
        self.can("exec")
"""


@pytest.mark.parametrize(
    ("tests", "cells"),
    [
        (None, ["not tested", "not tested"]),
        ("class TestIt(BackendContract): ...", ["yes", "yes"]),
        (
            "class Base(testing.BackendContract): ...\n"
            "class TestIt(Base):\n"
            " def test_first_rule_holds(self): ...",
            ["differs", "yes"],
        ),
        ("class TestIt(BackendContract):\n test_first_rule_holds = None", ["no", "yes"]),
        (
            "class TestIt(BackendContract):\n"
            " @pytest.mark.skip(reason='too slow')\n"
            " def test_second_rule_holds(self): ...",
            ["yes", "skipped: too slow"],
        ),
        (
            "@pytest.mark.xfail(reason='later')\nclass TestIt(BackendContract): ...",
            ["not yet: later"] * 2,
        ),
        (
            "pytestmark = [pytest.mark.skipif(True, reason='no tool')]\n"
            "class TestIt(BackendContract): ...",
            ["skipped: no tool"] * 2,
        ),
        ("@pytest.mark.client\nclass TestIt(BackendContract): ...", ["yes", "yes"]),
    ],
)
def test_exceptions_from_the_contract_are_shown(
    tmp_path: Path, tests: str | None, cells: list[str]
) -> None:
    contract = tmp_path / "symphony" / "testing" / "contract.py"
    contract.parent.mkdir(parents=True)
    contract.write_text(CONTRACT)
    backend = tmp_path / "tests" / "backends" / "local"
    backend.mkdir(parents=True)
    if tests is not None:
        (backend / "test_contract.py").write_text(tests)
    found = parity.contract(tmp_path)
    assert [(test.description, test.capability) for test in found] == [
        ("First rule holds.", None),
        ("The second rule holds in other words.", "exec"),
    ]
    reasons = parity.exceptions(tmp_path, "local")
    assert [parity.cell(test, "local", reasons) for test in found] == cells


def test_missing_capability_is_shown() -> None:
    test = parity.ContractTest(name="test_x", section="one", description="X.", capability="debug")
    assert [parity.cell(test, name, {}) for name in parity.BACKENDS] == ["yes", "yes", "yes", "no"]


# --- the Python API ---

PUBLIC_MODULES = (
    "symphony",
    "symphony.commandline",
    "symphony.kube",
    "symphony.local",
    "symphony.tmux",
    "symphony.addons",
    "symphony.addons.zmq",
    "symphony.testing",
)
ALIASES = {
    "symphony.kube.Process": "symphony.Process",
    "symphony.kube.ProcessGroup": "symphony.ProcessGroup",
    "symphony.local.Process": "symphony.Process",
    "symphony.local.ProcessGroup": "symphony.ProcessGroup",
    "symphony.tmux.Process": "symphony.Process",
    "symphony.tmux.ProcessGroup": "symphony.ProcessGroup",
    "symphony.addons.zmq.ZmqPusher": "symphony.addons.zmq.ZmqPush",
    "symphony.addons.zmq.ZmqPuller": "symphony.addons.zmq.ZmqPull",
    "symphony.engine.Cluster": "symphony.Cluster",
    "symphony.engine.SymphonyConfig": "symphony.SymphonyConfig",
    "symphony.engine.AddressBook": "symphony.AddressBook",
}
# Names in other modules that are also part of the documented API.
OTHER_NAMES = {
    "symphony.cluster.WatchedStatuses",
    "symphony.cluster.backend.Access",
    "symphony.cluster.backend.Backend",
    "symphony.cluster.backend.ForwardRequest",
    "symphony.cluster.backend.LaunchRequest",
    "symphony.cluster.backend.NamedProcess",
    "symphony.cluster.backend.Place",
    "symphony.cluster.backend.ProcessRequest",
    "symphony.cluster.backend.RecordedRuns",
    "symphony.cluster.backend.Selection",
    "symphony.cluster.backend.WaitGoal",
    "symphony.cluster.backend.Watch",
    "symphony.cluster.running.Running",
    "symphony.hookspecs.BackendInfo",
    "symphony.hookspecs.Option",
    "symphony.hookspecs.hookimpl",
    "symphony.supervised.cluster.HostCluster",
    "symphony.log_blocks.LogBlock",
    "symphony.plan.changes.Changes",
    "symphony.plan.changes.ProcessChange",
    "symphony.plan.changes.SettingChange",
    "symphony.archive.archive.Run",
    "symphony.archive.archived_usage.RecordedUsage",
    "symphony.archive.archived_usage.Statistics",
    "symphony.status.ReasonCode",
}


def load(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def test_every_public_name_is_documented_once() -> None:
    public = {
        f"{module}.{name}"
        for module in PUBLIC_MODULES
        for name in importlib.import_module(module).__all__
    }
    documented = [
        name
        for page in sorted(API.glob("*.md"))
        for name in re.findall(r"(?m)^::: (\S+)$", page.read_text())
    ]
    assert sorted(documented) == sorted((public - set(ALIASES)) | OTHER_NAMES)
    assert all(load(name) for name in OTHER_NAMES)


def test_aliases_are_the_same_objects() -> None:
    for name, original in ALIASES.items():
        assert load(name) is load(original)
    engine = importlib.import_module("symphony.engine")
    assert {f"symphony.engine.{name}" for name in engine.__all__} <= set(ALIASES)


# --- Markdown ---


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("with --force, -f or --dry-run=server", "with `--force`, `-f` or `--dry-run=server`"),
        ("--with-secrets FILE writes", "`--with-secrets FILE` writes"),
        ("a -- b, a-b and a - b", "a -- b, a-b and a - b"),
        ("*.py <x> [y]", r"\*.py \<x\> \[y\]"),
        ("$HOME, ${index} and A_B", "`$HOME`, `${index}` and `A_B`"),
        ("or {name: port or null}", "or `{name: port or null}`"),
        ("_x_ and a_b", r"\_x\_ and a_b"),
    ],
)
def test_plain_text_is_escaped(text: str, markdown: str) -> None:
    assert md.text(text) == markdown


def test_bar_in_a_cell_is_escaped() -> None:
    assert md.table(("a", "b"), [("x|y", "")]) == "| a | b |\n| --- | --- |\n| x\\|y |  |"


@pytest.mark.parametrize(
    ("docstring", "markdown"),
    [
        (
            "Do it.\n\nFor example:\n  symphony ls\n  symphony ps rl\n\nEnd.",
            "Do it.\n\nFor example:\n\n```text\nsymphony ls\nsymphony ps rl\n```\n\nEnd.",
        ),
        ("Add.\n\n>>> add(1,\n... 2)\n3\n", "Add.\n\n```pycon\n>>> add(1,\n... 2)\n3\n```\n"),
        ("No example: none.\nNext line.", "No example: none.\nNext line."),
    ],
)
def test_examples_in_docstrings_become_blocks(docstring: str, markdown: str) -> None:
    assert md.fence_examples(docstring) == markdown


def test_names_in_docstrings_become_links() -> None:
    paths = {"Process": "symphony.Process"}
    assert md.link_names("A `Process`, ``Process``, `process` or `Process.name`.", paths) == (
        "A [`Process`][symphony.Process], ``Process``, `process` or `Process.name`."
    )
