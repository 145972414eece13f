"""The commands of pages run in forks of a server, and behave like processes."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docs.runner import Sandbox, create_sandbox, delete_experiments

FOREVER = 'name: exp\nprocesses: {a: {cmd: "echo up; exec sleep 1000"}}\n'


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Sandbox]:
    with create_sandbox(tmp_path) as sandbox:
        (sandbox.directory / "exp.yml").write_text(FOREVER)
        yield sandbox
        delete_experiments(sandbox)


def start(
    sandbox: Sandbox, *args: str, program: str = "bin/symphony", **env: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(sandbox.directory.parent / program), *args],
        cwd=sandbox.directory,
        env={**sandbox.environment, **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["ls", "--json"], ""),
        (["ps", "no such"], ""),
        (["render", "exp.yml"], ""),
        (["render", "-"], FOREVER),
        (["render", ""], ""),
        (["graph", "exp.yml", "--no-such"], ""),
        (["ps", "\udcff"], ""),
        (["--version"], ""),
    ],
)
def test_a_command_prints_the_same_as_a_process(
    sandbox: Sandbox, args: list[str], text: str
) -> None:
    results: list[tuple[Any, ...]] = []
    for program in ("bin/symphony", "lib/symphony"):
        with start(sandbox, *args, program=program) as process:
            results.append((*process.communicate(text, timeout=60), process.returncode))
    assert results[0] == results[1]


@contextmanager
def follow(sandbox: Sandbox) -> Iterator[subprocess.Popen[str]]:
    """Follow the log of a process that never exits. Its first line has been read."""
    with start(sandbox, "launch", "exp.yml") as launch:
        launch.communicate(timeout=60)
    with start(sandbox, "logs", "-f", "exp") as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "up\n"
        yield following


def test_a_signal_reaches_the_command(sandbox: Sandbox) -> None:
    with follow(sandbox) as following:
        following.send_signal(signal.SIGINT)
        assert following.wait(timeout=60) == 130


def test_a_command_is_killed_with_its_client(sandbox: Sandbox) -> None:
    with follow(sandbox) as following:
        following.kill()
        # No process has the other end of the pipe open any more.
        assert following.communicate(timeout=60)[0] == ""


def test_a_command_with_a_variable_of_python_is_a_process(sandbox: Sandbox) -> None:
    with start(sandbox, "ls", PYTHONPROFILEIMPORTTIME="1") as process:
        assert "import time:" in process.communicate(timeout=60)[1]
