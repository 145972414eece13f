"""Fixtures of the tests with real programs.

`scripts/programs` and `scripts/test --with-programs` install the programs, and set
``SYMPHONY_TEST_PROGRAMS`` to their names and ``SYMPHONY_TEST_PROGRAMS_PATH`` to their directories.
Other runs skip the tests.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from symphony.testing import running

__all__ = ["running"]

EXAMPLES = Path(__file__).parents[2] / "examples" / "programs"


@pytest.fixture
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of the program that the module tests, and skip the test without it."""
    name = request.module.PROGRAM
    installed = os.environ.get("SYMPHONY_TEST_PROGRAMS", "").split()
    if name not in installed:
        pytest.skip(f"needs {name}: run scripts/programs {name}")
    directories = os.environ["SYMPHONY_TEST_PROGRAMS_PATH"]
    monkeypatch.setenv("PATH", f"{directories}{os.pathsep}{os.environ['PATH']}")
    return str(name)


@pytest.fixture
def example(program: str, tmp_path: Path) -> Path:
    """Return the path of the experiment file in a copy of the program's example."""
    copy = tmp_path / program
    shutil.copytree(EXAMPLES / program, copy)
    return copy / "experiment.yml"


@pytest.fixture
def wait_for_line(running) -> Callable[..., str]:
    """Return a function that follows the output of a process until a line contains a text."""

    def wait(service, process: str, text: str) -> str:
        for line in service.cluster.iter_logs(service.name, [process], follow=True):
            if text in line.text:
                return line.text
        raise AssertionError(f"no line of {process} contains {text!r}: {service.log(process)}")

    return wait
