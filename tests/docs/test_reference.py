"""The reference pages: in step with the code, whole, and refusing to be silent about a key."""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from docs import command_line, examples, experiment_file, md, pages, parity
from symphony import Cluster
from symphony.cluster.plugins import installed_backends
from symphony.commandline import SymphonyParser
from symphony.host.render import HONOURED
from symphony.model import schema
from symphony.model.settings import SETTINGS, VOLUME_KINDS
from symphony.testing import BackendContract

API = pages.REFERENCE / "api"


def test_the_pages_say_what_the_code_says() -> None:
    assert pages.outdated() == [], "write them again: scripts/docs pages"


def test_a_page_that_is_missing_is_out_of_date(
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
def commands() -> dict[str, str]:
    """The section of each command."""
    head, *sections = re.split(r"(?m)^## ", command_line.page())
    return {"": head, **{section.partition("\n")[0]: section for section in sections}}


def test_every_command_is_there_with_all_that_it_takes(commands: dict[str, str]) -> None:
    line = SymphonyParser(prog="symphony")
    for verb in line.verbs:
        parser = line.get_subparser(verb)
        assert f"[`{verb}`](#{verb})" in commands[""]
        for word, made in line.subparsers.choices.items():
            assert made is not parser or word == verb or f"`{word}`" in commands[verb]
        told = commands[verb] + commands["Options of every command"]
        for flag, action in parser._option_string_actions.items():
            assert action.help == argparse.SUPPRESS or f"`{flag}" in told, (verb, flag)


def test_all_that_is_told_is_taken(commands: dict[str, str]) -> None:
    line = SymphonyParser(prog="symphony")
    for verb in line.verbs:
        told = re.findall(r"(?m)^\| `(--?[-\w]+)", commands[verb])
        assert set(told) <= set(line.get_subparser(verb)._option_string_actions)


def test_every_option_of_a_backend_is_there(commands: dict[str, str]) -> None:
    flags = [
        flag for info in installed_backends() for option in info.options for flag in option.flags
    ]
    assert flags
    for flag in flags:
        assert f"`{flag}" in commands["Options of every command"]


def test_what_is_shown_as_on_a_terminal_fits_one(commands: dict[str, str]) -> None:
    for section in commands.values():
        for block in re.findall(r"```text\n(.*?)```", section, re.DOTALL):
            assert max(map(len, block.splitlines())) <= md.WIDTH, block


# --- the experiment file ---


def keys(given: Any) -> Iterator[str]:
    """All keys of an experiment's file, however deep, but for the kinds of volumes."""
    if isinstance(given, dict):
        if given.get("additionalProperties") is False and set(given["properties"]) != set(
            VOLUME_KINDS
        ):
            yield from given["properties"]
        for item in given.values():
            yield from keys(item)
    elif isinstance(given, list):
        for item in given:
            yield from keys(item)


def test_every_key_is_there_and_described() -> None:
    rows = re.findall(r"(?m)^\| (?:\[)?`(\w+)`.* \| (.*) \|$", experiment_file.page())
    told = dict(rows)
    assert set(told) == set(keys(schema.build()))
    assert all(told.values())
    for kind in VOLUME_KINDS:
        assert f"\n#### {kind}\n" in experiment_file.page()


@pytest.mark.parametrize(
    "place", ["processes", "$defs/setting-binds", "$defs/setting-ready/anyOf/0/properties/log"]
)
def test_a_key_without_a_description_is_refused(place: str) -> None:
    built = copy.deepcopy(schema.build())
    found = built if "$defs" in place else built["properties"]
    for step in place.split("/"):
        found = found[int(step) if step.isdecimal() else step]
    del found["description"]
    with pytest.raises(experiment_file.Undescribed, match=f"key '{re.split('[/-]', place)[-1]}'"):
        experiment_file.page(built)


def test_defaults_are_told() -> None:
    page = experiment_file.page()
    for row in (
        "`termination_grace_period`](#termination_grace_period) | whole number | `30`",
        "| number | `60` |",
    ):
        assert row in page
    assert "`mount_path` | absolute path | required" in page
    assert "`[7000, 8999]`" in page


def test_every_setting_has_an_example_that_loads() -> None:
    assert set(examples.SETTINGS) == set(SETTINGS)
    for key in examples.SETTINGS:
        assert key in examples.body(key)
    with examples.experiment() as experiment:
        assert [image.repository for image in experiment.list_images()] == ["registry.example/rl"]
        assert set(parity.settings_of(experiment)) >= {f"volumes.{kind}" for kind in VOLUME_KINDS}


# --- what each backend does ---


def test_the_tests_of_the_contract_are_those_that_run() -> None:
    promises = parity.contract(pages.ROOT)
    assert [promise.test for promise in promises] == [
        name for name in vars(BackendContract) if name.startswith("test_")
    ]
    page = parity.page(pages.ROOT)
    for promise in promises:
        assert f"| {md.text(promise.says)} |" in page
        assert promise.section


def test_every_setting_is_there_with_what_becomes_of_it() -> None:
    page = parity.page(pages.ROOT)
    rows = {
        row[0]: row[1:]
        for row in re.findall(r"(?m)^\| `([\w.]+)` \| (\w+) \| (\w+) \| (\w+) \|$", page)
    }
    assert {name.partition(".")[0] for name in rows} == {*SETTINGS, "container_image"}
    for name, (local, tmux, _) in rows.items():
        honoured = name in HONOURED or name.partition(".")[0] in HONOURED
        assert (local, tmux) == ((("yes",) if honoured else ("ignored",)) * 2)


def test_what_is_ignored_is_what_a_dry_run_lists(tmp_path: Path) -> None:
    experiment = Cluster.new("local", state_dir=tmp_path).new_experiment("one")
    experiment.new_process("a", command="true").add_label("team", "red")
    assert parity.settings_of(experiment) == ["labels"]


CONTRACT = """
class BackendContract:
    # --- one ---
    def test_a_thing_holds(self): ...
    def test_another_holds(self):
        '''Another holds, in words of its own.'''
        self.can("exec")
"""


def project(tmp_path: Path, bound: str | None) -> Path:
    (tmp_path / "symphony" / "testing").mkdir(parents=True)
    (tmp_path / "symphony" / "testing" / "contract.py").write_text(CONTRACT)
    folder = tmp_path / "tests" / "backends" / "local"
    folder.mkdir(parents=True)
    if bound is not None:
        (folder / "test_contract.py").write_text(bound)
    return tmp_path


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        (None, ["not tested", "not tested"]),
        ("class TestIt(BackendContract): ...", ["yes", "yes"]),
        ("class Base(testing.BackendContract): ...\nclass TestIt(Base):\n def test_a_thing_holds(self): ...",
         ["in its own way", "yes"]),
        ("class TestIt(BackendContract):\n test_a_thing_holds = None", ["no", "yes"]),
        ("class TestIt(BackendContract):\n @pytest.mark.skip(reason='too slow')\n def test_another_holds(self): ...",
         ["yes", "skipped: too slow"]),
        ("@pytest.mark.xfail(reason='later')\nclass TestIt(BackendContract): ...", ["not yet: later"] * 2),
        ("pytestmark = [pytest.mark.skipif(True, reason='no tool')]\nclass TestIt(BackendContract): ...",
         ["skipped: no tool"] * 2),
        ("@pytest.mark.client\nclass TestIt(BackendContract): ...", ["yes", "yes"]),
    ],
)  # fmt: skip
def test_what_a_backend_does_not_hold_to_is_told(
    tmp_path: Path, bound: str | None, said: list[str]
) -> None:
    root = project(tmp_path, bound)
    against = parity.exceptions(root, "local")
    promises = parity.contract(root)
    assert [promise.says for promise in promises] == [
        "A thing holds.",
        "Another holds, in words of its own.",
    ]
    assert [promise.needs for promise in promises] == [None, "exec"]
    assert [parity.cell(promise, "local", against) for promise in promises] == said


def test_what_a_backend_does_not_claim_it_does_not_do(tmp_path: Path) -> None:
    promise = parity.Promise(test="test_x", section="one", says="X.", needs="forward")
    assert [parity.cell(promise, name, {}) for name in parity.BACKENDS] == ["no", "no", "yes"]


# --- the Python API ---

PUBLIC = ("symphony", "symphony.commandline", "symphony.kube", "symphony.tmux", "symphony.addons",
          "symphony.addons.zmq", "symphony.testing")  # fmt: skip


def public() -> set[str]:
    """All public names, but for those that are there by another path too."""
    names = {
        f"{module}.{name}" for module in PUBLIC for name in importlib.import_module(module).__all__
    }
    return {name for name in names if name not in ANOTHER_PATH}


ANOTHER_PATH = {
    "symphony.kube.Process": "symphony.Process",
    "symphony.kube.ProcessGroup": "symphony.ProcessGroup",
    "symphony.tmux.Process": "symphony.Process",
    "symphony.tmux.ProcessGroup": "symphony.ProcessGroup",
    "symphony.addons.zmq.ZmqPusher": "symphony.addons.zmq.ZmqPush",
    "symphony.addons.zmq.ZmqPuller": "symphony.addons.zmq.ZmqPull",
    "symphony.engine.Cluster": "symphony.Cluster",
    "symphony.engine.SymphonyConfig": "symphony.SymphonyConfig",
    "symphony.engine.AddressBook": "symphony.AddressBook",
}
FOR_BACKENDS = {
    "symphony.hookspecs.BackendInfo",
    "symphony.hookspecs.Option",
    "symphony.hookspecs.hookimpl",
    "symphony.host.cluster.HostCluster",
}


def found(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def test_every_public_name_is_on_one_page_and_no_other_is() -> None:
    told = [
        name
        for page in sorted(API.glob("*.md"))
        for name in re.findall(r"(?m)^::: (\S+)$", page.read_text())
    ]
    assert sorted(told) == sorted(public() | FOR_BACKENDS)


def test_what_is_left_out_is_another_path() -> None:
    for name, same in ANOTHER_PATH.items():
        assert found(name) is found(same)
    engine = importlib.import_module("symphony.engine")
    assert {f"symphony.engine.{name}" for name in engine.__all__} <= set(ANOTHER_PATH)


def test_all_that_is_told_of_backends_is_there() -> None:
    assert all(found(name) for name in FOR_BACKENDS)


# --- words ---


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("with --force, -f or --dry-run=server", "with `--force`, `-f` or `--dry-run=server`"),
        ("--with-secrets FILE writes", "`--with-secrets FILE` writes"),
        ("a -- b, a-b and a - b", "a -- b, a-b and a - b"),
        ("*.py <x> [y]", r"\*.py \<x\> \[y\]"),
        (
            "$HOME, ${index} and SYMPHONY_SECRETS_DIR",
            "`$HOME`, `${index}` and `SYMPHONY_SECRETS_DIR`",
        ),
        ("or {name: port or null}", "or `{name: port or null}`"),
        ("_x_ and a_b", r"\_x\_ and a_b"),
    ],
)
def test_words_are_shown_as_they_are(words: str, shown: str) -> None:
    assert md.text(words) == shown


def test_a_bar_does_not_end_a_cell() -> None:
    assert md.table(("a", "b"), [("x|y", "")]) == "| a | b |\n| --- | --- |\n| x\\|y |  |"


def test_examples_of_docstrings_become_blocks() -> None:
    assert md.fenced("Do it.\n\nFor example:\n  symphony ls\n  symphony ps rl\n\nEnd.") == (
        "Do it.\n\nFor example:\n\n```text\nsymphony ls\nsymphony ps rl\n```\n\nEnd."
    )
    assert (
        md.fenced("Add.\n\n>>> add(1,\n... 2)\n3\n")
        == "Add.\n\n```pycon\n>>> add(1,\n... 2)\n3\n```\n"
    )
    assert md.fenced("No example: none.\nNext line.") == "No example: none.\nNext line."


def test_names_in_docstrings_lead_to_their_places() -> None:
    places = {"Process": "symphony.Process"}
    assert md.linked("A `Process`, ``Process``, `process` or `Process.name`.", places) == (
        "A [`Process`][symphony.Process], ``Process``, `process` or `Process.name`."
    )


def test_the_schema_file_is_where_the_page_says() -> None:
    assert json.loads(schema.path().read_text())["title"] == "symphony experiment"
