"""Modules of the user do not replace those that symphony imports."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

# On this system, not all modules of the standard library exist.
MODULES = [
    name
    for name in (*sys.stdlib_module_names, "yaml", "pluggy", "psutil")
    if not name.startswith("_") and find_spec(name) is not None
]


@pytest.fixture
def directory(tmp_path):
    """Return a directory with a module for each name in the standard library that Python does not
    import at its start.
    """
    code = "import runpy, sys; print(*sys.modules)"
    imported = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    for name in set(MODULES).difference(imported):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('shadowed {name}')")
    (tmp_path / "e.yml").write_text("name: e\nprocesses: {p: {cmd: 'echo $PYTHONPATH'}}\n")
    # The experiment of this file uses a module that has the name of one of symphony's.
    (tmp_path / "secrets.py").write_text("WORD = 'mine'")
    (tmp_path / "e.py").write_text(
        "from secrets import WORD\n"
        "def build(exp):\n    exp.new_process('p', cmd=f'echo {WORD} $PYTHONPATH')\n"
    )
    return tmp_path


def symphony(directory, *arguments, module=False):
    start = (
        [sys.executable, "-m", "symphony"]
        if module
        else [Path(sys.executable).with_name("symphony")]
    )
    env = {
        **os.environ,
        "PYTHONPATH": str(directory),
        "XDG_STATE_HOME": str(directory / "state"),
    }
    return subprocess.run(
        [*start, *arguments], cwd=directory, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("file", "output", "module"), [("e.yml", "", False), ("e.py", "mine ", True)]
)
def test_modules_of_the_user_do_not_stop_commands_or_the_supervisor(
    directory, file, output, module
):
    launched = symphony(directory, "launch", file, "--follow", module=module)
    assert (launched.returncode, launched.stdout) == (0, f"{output}{directory}\n"), launched.stderr
    deleted = symphony(directory, "delete", "-f", "e", module=module)
    assert deleted.returncode == 0, deleted.stderr
