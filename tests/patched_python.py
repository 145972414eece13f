"""A Python that runs a statement before each module."""

from __future__ import annotations

import sys
from pathlib import Path

_PROGRAM = """\
#!{python}
import os, runpy, sys
if sys.argv[1] != "-m":
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
sys.executable = __file__
sys.path[0] = os.getcwd()
exec({code!r})
del sys.argv[:2]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def patched_python(path: Path, code: str) -> str:
    """Write a Python that executes ``code`` before a module that it runs as a program.

    The modules that the program runs with ``sys.executable`` do the same. A module with the name
    ``sitecustomize`` would not always have this effect, because distributions have such a module.
    """
    path.write_text(_PROGRAM.format(python=sys.executable, code=code), encoding="utf-8")
    path.chmod(0o700)
    return str(path)
