"""Shells for the tests of completion: those of the machine, or Debian's, unpacked into the cache.

Packages are downloaded only in CI, or if SYMPHONY_TEST_SHELLS is ``fetch``.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from devcluster import paths, shells
from machines.console import Console, RequirementError, ToolError

FETCH_VARIABLE = "SYMPHONY_TEST_SHELLS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """The program of a shell.

    ``root`` is the directory into which it was unpacked, or None if the shell is installed.
    """

    name: str
    program: Path
    root: Path | None = None

    def env(self) -> dict[str, str]:
        """Return the variables that a shell needs outside of its usual directory."""
        if self.root is None:
            return {}
        functions = [
            path for path in (self.root / "usr/share/zsh/functions").rglob("*") if path.is_dir()
        ]
        libraries = {str(path.parent) for path in (self.root / "usr/lib").rglob("*.so*")}
        return {
            "LD_LIBRARY_PATH": ":".join(sorted(libraries)),
            "FPATH": ":".join(map(str, sorted(functions))),
        }

    def modules(self) -> str:
        """Return a line of configuration with the path of zsh's modules."""
        if self.root is None:
            return ""
        found = next((self.root / "usr/lib").rglob("zsh/*/zsh/zle.so"))
        return f"module_path=({found.parents[1]})\n"


def find(name: str) -> Shell:
    """Return a shell. If there is none, skip the test, or fail in CI."""
    installed = shutil.which(name)
    if installed is not None:
        return Shell(name=name, program=Path(installed))
    locations = paths.find(os.environ, Path.home())
    is_ci = os.environ.get("CI") == "true"
    may_fetch = is_ci or os.environ.get(FETCH_VARIABLE) == "fetch"
    if not may_fetch and not shells.cache_entry(locations.cache).exists():
        pytest.skip(
            f"NOT TESTED IN {name.upper()}: it is not installed; "
            f"{FETCH_VARIABLE}=fetch unpacks it into the cache"
        )
    try:
        root = shells.prepare(locations, console=Console(quiet=True))
    except (RequirementError, ToolError, OSError) as exc:
        message = f"NOT TESTED IN {name.upper()}: it is not installed, and {exc}"
        if is_ci:
            pytest.fail(message)
        pytest.skip(message)
    return Shell(name=name, program=root / "usr/bin" / name, root=root)
