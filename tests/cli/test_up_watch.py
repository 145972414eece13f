"""``up --watch``: edits of the code and of the experiment file until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from symphony import SpecError, Unreachable
from symphony.commandline import SymphonyParser
from symphony.commandline.commands.change.up import RETRY_SECONDS, _follow_edits
from tests.cli.conftest import TIMEOUT, Program

EXPERIMENT = """
from settings import NUMBER

def build(exp):
    exp.code = "project"
    exp.new_process("p", command=["sh", "-c", "cat text; exec sleep 1000"], env={"N": str(NUMBER)})
    exp.new_process("other", command=["sleep", "1000"]).code(False)
"""


def test_each_edit_changes_the_experiment_until_ctrl_c(program: Program) -> None:
    directory = program.directory
    project = directory / "project"
    project.mkdir()
    (project / "text").write_text("first\n")
    (directory / "settings.py").write_text("NUMBER = 1\n")
    (directory / "exp.py").write_text(EXPERIMENT)
    # The command itself writes to this file of the code, so its changes have no effect.
    output = project / "output"
    with output.open("w") as stream:
        process = program.popen("up", "exp.py", "--watch", stdout=stream, stderr=stream)
    try:
        read_until(output, "watching 3 files of exp; press Ctrl-C to stop\n", process)
        edit(directory, "project/text", "second\n")
        read_until(output, "changed exp on local: 1 restarted, 1 unchanged\n", process)
        edit(directory, "settings.py", "NUMBER = x\n")
        read_until(output, "NameError: name 'x' is not defined\n", process)
        edit(directory, "settings.py", "NUMBER = 2\n")
        read_until(output, "changed exp on local: 1 restarted, 1 unchanged\n", process, 2)
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT) == 130
    finally:
        process.kill()
    lines = output.read_text().splitlines()
    assert lines[-1] == "symphony: stopped watching; 'exp' keeps running"
    assert [line for line in lines if line.startswith("changed:")] == [
        "changed: project/text",
        "changed: settings.py",
        "changed: settings.py",
    ]
    assert program.cluster.describe_process("exp", "other").state.value == "running"


def edit(directory: Path, name: str, text: str) -> None:
    """Change a file in one step. Otherwise, the empty file could be noticed as another change."""
    other = directory / "edited"
    other.write_text(text)
    other.replace(directory / name)


def read_until(output: Path, text: str, process: subprocess.Popen[str], count: int = 1) -> None:
    """Wait until the output contains a text that many times."""
    import time

    deadline = time.monotonic() + TIMEOUT
    while output.read_text().count(text) < count:
        assert process.poll() is None, output.read_text()
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.02)


class Watched:
    """Files whose changes are given."""

    def __init__(self, *changes: list[str]) -> None:
        self.changes = list(changes)
        self.waits: list[float | None] = []

    def wait(self, seconds: float | None) -> list[str]:
        self.waits.append(seconds)
        if not self.changes:
            raise KeyboardInterrupt
        return self.changes.pop(0)

    def load(self) -> None:
        pass


def test_an_outage_is_reported_once_and_the_change_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = SymphonyParser(prog="symphony")
    errors: list[Exception | None] = [
        Unreachable("away"),
        Unreachable("away"),
        None,
        SpecError("wrong"),
    ]

    def up(*_: Any) -> None:
        error = errors.pop(0)
        if error is not None:
            raise error

    monkeypatch.setattr("symphony.commandline.commands.change.up._up", up)
    watched: Any = Watched(["/x"], [], [], ["/y"])
    with pytest.raises(KeyboardInterrupt):
        _follow_edits(line, watched, argparse.Namespace())
    assert watched.waits == [None, RETRY_SECONDS, RETRY_SECONDS, None, None]
    shown = capsys.readouterr().err.splitlines()
    assert shown == [
        "changed: /x",
        "symphony: error: away",
        "changed: /y",
        "symphony: error: wrong",
    ]
