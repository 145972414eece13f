"""Run the code blocks of all pages on this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from symphony import Experiment
from symphony.model.settings.table import SETTINGS
from symphony.supervised.render import HONOURED
from tests.docs.runner import ROOT, check_page, installed_programs, page_names, read_page


@pytest.mark.parametrize("name", page_names())
def test_blocks_of_page(name: str, tmp_path: Path) -> None:
    check_page(name, tmp_path, installed_programs(), KUBECONFIG=str(tmp_path / "no.kubeconfig"))


@pytest.mark.parametrize("need", ["tmux", "zmq"])
def test_needs_of_pages_are_installed(need: str) -> None:
    """Skip with a message, or fail in CI, if blocks are skipped because a program is missing."""
    pages = [name for name in page_names() if need in read_page(name).needs]
    if pages and need not in installed_programs():
        report = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        report(f"NOT TESTED because {need} is missing: blocks of {', '.join(pages)}")


def test_most_commands_are_run() -> None:
    blocks = [block for name in page_names() for block in read_page(name).blocks]
    shown = sum(len(block.commands) for block in blocks)
    run = sum(len(block.commands) for block in blocks if not block.not_run)
    assert run >= 0.8 * shown, f"only {run} of {shown} commands are run"


@pytest.mark.parametrize("name", page_names())
def test_blocks_that_are_not_run_have_a_reason(name: str) -> None:
    for block in read_page(name).blocks:
        if block.not_run:
            assert len(re.findall(r"\w+", block.not_run)) >= 3, f"{name}:{block.line}"


def test_yaml_and_python_of_the_readme_describe_the_same_experiment(tmp_path: Path) -> None:
    texts = {block.title: block.text for block in read_page("README.md").blocks}
    (tmp_path / "hello.yml").write_text(texts["hello.yml"])
    names: dict[str, object] = {}
    exec(compile(texts["experiment.py"], "experiment.py", "exec"), names)
    built = Experiment("hello")
    names["build"](built)  # type: ignore[operator]
    loaded = Experiment.load_file(tmp_path / "hello.yml").dump_dict()
    for process in loaded["processes"].values():
        # The file has one list for the command and its arguments.
        process["command"], process["args"] = process["command"][:1], process["command"][1:]
    assert_equal(built.dump_dict(), loaded)


def assert_equal(one: object, other: object) -> None:
    if isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    else:
        assert one == other


def test_readme_shows_the_most_important_commands() -> None:
    commands = [
        command.text.split()
        for block in read_page("README.md").blocks
        for command in block.commands
        if not block.not_run
    ]
    verbs = {words[1] for words in commands if words[0] == "symphony"}
    assert verbs >= {"launch", "ls", "ps", "wait", "logs", "delete", "render", "backends"}


def test_readme_lists_the_ignored_settings() -> None:
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    listed = text.partition("`local` and `tmux` ignore ")[2].partition(". `symphony")[0]
    ignored = {key for key in SETTINGS if key not in HONOURED and not key.startswith("resource_")}
    words = {"tolerations": "tolerations", "labels": "labels", "volumes": "volumes"}
    for key in ignored | {"container_image"}:
        assert words.get(key, f"`{key}`") in listed, key
    # The list also contains the image, and CPU and memory in one element.
    elements = listed.replace("` and `", "`, `").split(", ")
    assert len(elements) == len(ignored) + 2
