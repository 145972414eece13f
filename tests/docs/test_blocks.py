"""What the documents show is so: the blocks of every page are written, run and read (see `runner_blocks`)."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.docs.runner_pages import check_page, page_named, page_names
from tests.docs.runner_place import ROOT, programs_here


@pytest.mark.parametrize("name", page_names())
def test_what_the_page_shows_is_so(name: str, tmp_path: Path) -> None:
    check_page(name, tmp_path, programs_here(), KUBECONFIG=str(tmp_path / "no.kubeconfig"))


@pytest.mark.parametrize("need", ["tmux", "zmq"])
def test_what_pages_need_is_here(need: str) -> None:
    """Loud where blocks were left out for want of a program; a failure in CI."""
    wanting = [name for name in page_names() if need in page_named(name).needs]
    if wanting and need not in programs_here():
        say = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        say(f"NOT TESTED for want of {need}: blocks of {', '.join(wanting)}")


def test_most_commands_run() -> None:
    """No page is switched off silently: of what all of them show, most is run, and what is not says why."""
    table, ran, shown = [], 0, 0
    for page in map(page_named, page_names()):
        run = [block for block in page.blocks if not block.not_run]
        commands = (
            sum(len(block.commands) for block in page.blocks),
            sum(len(block.commands) for block in run),
        )
        shown, ran = shown + commands[0], ran + commands[1]
        table.append(
            f"{page.name}: {len(run)} of {len(page.blocks)} blocks, {commands[1]} of {commands[0]} commands"
        )
    print("\n".join(table))
    assert ran >= 0.8 * shown, f"only {ran} of {shown} commands"


@pytest.mark.parametrize("name", page_names())
def test_what_is_not_run_says_why(name: str) -> None:
    for block in page_named(name).blocks:
        if block.not_run:
            assert len(re.findall(r"\w+", block.not_run)) >= 3, (
                f"{name}:{block.line}: say why it is not run"
            )


def test_the_yaml_and_the_python_form_of_the_readme_are_one_experiment(tmp_path: Path) -> None:
    from symphony import Experiment

    readme = page_named("README.md")
    texts = {block.title: block.text for block in readme.blocks}
    (tmp_path / "hello.yml").write_text(texts["hello.yml"])
    given: dict[str, object] = {}
    exec(compile(texts["experiment.py"], "experiment.py", "exec"), given)
    built = Experiment("hello")
    given["build"](built)  # type: ignore[operator]
    written = Experiment.load_file(tmp_path / "hello.yml").dump_dict()
    for process in written["processes"].values():  # one argument list, written in two ways
        process["command"], process["args"] = process["command"][:1], process["command"][1:]
    assert_same(built.dump_dict(), written)


def assert_same(one: object, other: object) -> None:
    if isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    else:
        assert one == other


def test_the_readme_shows_the_verbs_of_every_day() -> None:
    readme = page_named("README.md")
    commands = [
        command.text.split()
        for block in readme.blocks
        for command in block.commands
        if not block.not_run
    ]
    verbs = {words[1] for words in commands if words[0] == "symphony"}
    assert verbs >= {"launch", "ls", "ps", "wait", "logs", "delete", "render", "backends"}


def test_what_is_said_to_be_ignored_is_what_local_ignores() -> None:
    from symphony.host.render import HONOURED
    from symphony.model.settings import SETTINGS

    written = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    said = written.partition("**Ignored on `local` and `tmux`:**")[2].partition(
        ". `symphony render`"
    )[0]
    ignored = {key for key in SETTINGS if key not in HONOURED and not key.startswith("resource_")}
    words = {"tolerations": "tolerations", "labels": "labels", "volumes": "volumes"}
    for key in ignored | {"container_image"}:
        assert words.get(key, f"`{key}`") in said, key
    assert len(said.split(", ")) == len(ignored) + 2  # container_image; CPU and memory in one
