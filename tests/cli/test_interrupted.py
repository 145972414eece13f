"""Ctrl-C while the program is still importing its modules."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.conftest import TIMEOUT, Program

# Raises KeyboardInterrupt during the import of a module, or while a class is created. Python before
# 3.12 turns the latter into a RuntimeError.
SCRIPT = """
import sys
from importlib.abc import MetaPathFinder


class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            {statement}


class Field:
    def __set_name__(self, owner, name):
        raise KeyboardInterrupt


sys.meta_path.insert(0, Finder())
sys.argv = ["symphony", "ls"]
from symphony.__main__ import main

sys.exit(main())
"""


@pytest.mark.parametrize(
    "statement", ["raise KeyboardInterrupt", "type('C', (), {'field': Field()})"]
)
@pytest.mark.parametrize(
    "module",
    ["symphony.commandline", "symphony.commandline.parsing.dispatch", "symphony_local.plugin"],
)
def test_message_is_one_line_without_a_traceback(
    program: Program, module: str, statement: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(module=module, statement=statement)],
        env=program.env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "symphony: interrupted\n")
