"""Ctrl-C while the program is still being put together: one line, whatever it comes between."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.conftest import TIMEOUT, Program

# Raises KeyboardInterrupt where it is imported, or where a class of it is made (which Python before 3.12 hides).
START = """
import sys
from importlib.abc import MetaPathFinder


class Finder(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            {what}


class Field:
    def __set_name__(self, owner, name):
        raise KeyboardInterrupt


sys.meta_path.insert(0, Finder())
sys.argv = ["symphony", "ls"]
from symphony.__main__ import main

sys.exit(main())
"""


@pytest.mark.parametrize("what", ["raise KeyboardInterrupt", "type('C', (), {'field': Field()})"])
@pytest.mark.parametrize(
    "module",
    ["symphony.commandline", "symphony.commandline.parsing.dispatch", "symphony_local.plugin"],
)
def test_it_is_one_line_and_no_traceback(program: Program, module: str, what: str) -> None:
    code = START.format(module=module, what=what)
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=program.env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "symphony: interrupted\n")
