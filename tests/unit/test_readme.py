"""The README's files are written, its commands run, and what it shows of their output is what they print.

A block whose first line names a file (three backticks, ``yaml hello.yml``) is that file; a ``console`` block is
run line by line in one folder on the local backend.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks() -> list[tuple[str, str, str]]:
    """``(language, file name or "", text)`` of each."""
    return BLOCK.findall(README.read_text(encoding="utf-8"))


def commands(text: str) -> Iterator[tuple[str, list[str]]]:
    """Each command with the lines that are shown of its output."""
    for part in text.split("$ ")[1:]:
        command, *shown = part.splitlines()
        yield command, shown


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the README's files; `symphony` and `python` are those of this environment."""
    for _, name, text in blocks():
        if name:
            (tmp_path / name).write_text(text, encoding="utf-8")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, arguments in {"python": "", "symphony": " -m symphony"}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{arguments} "$@"\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(programs), os.environ["PATH"]]))
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("SYMPHONY_BACKEND", raising=False)
    return tmp_path


def test_every_command_runs_and_prints_what_is_shown(folder: Path) -> None:
    pytest.importorskip("zmq")
    ran = []
    try:
        for language, _, text in blocks():
            for command, shown in commands(text) if language == "console" else ():
                done = subprocess.run(
                    shlex.split(command),
                    cwd=folder,
                    capture_output=True,
                    text=True,
                    timeout=60,
                    stdin=subprocess.DEVNULL,
                )
                assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
                assert not shown or done.stdout.splitlines() == shown, command
                ran.append(command)
    finally:
        delete_all(folder / "state")
    assert {line.split()[1] for line in ran if line.startswith("symphony ")} >= {
        "launch", "ls", "ps", "wait", "logs", "delete", "render", "backends",
    }  # fmt: skip


def test_the_yaml_and_the_python_form_are_one_experiment(folder: Path) -> None:
    from symphony import Experiment

    given: dict[str, object] = {}
    exec(compile((folder / "experiment.py").read_text(), "experiment.py", "exec"), given)
    built = Experiment("hello")
    given["build"](built)  # type: ignore[operator]
    written = Experiment.load_file(folder / "hello.yml").dump_dict()
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


def test_what_is_said_to_be_ignored_is_what_local_ignores() -> None:
    from symphony.host.render import HONOURED
    from symphony.spec.settings import LEVELS

    written = " ".join(README.read_text(encoding="utf-8").split())
    said = written.partition("**Kept and ignored on `local` and `tmux`:**")[2].partition(". `symphony render`")[0]
    ignored = {key for key in LEVELS if key not in HONOURED and not key.startswith("resource_")}
    words = {"tolerations": "tolerations", "labels": "labels", "volumes": "volumes"}
    for key in ignored | {"container_image"}:
        assert words.get(key, f"`{key}`") in said, key
    assert len(said.split(", ")) == len(ignored) + 2  # container_image; CPU and memory in one


def delete_all(state: Path) -> None:
    from symphony import Cluster

    cluster = Cluster.new("local", state_dir=state / "local")
    cluster.delete_batch(cluster.list_experiments())
