"""Real shells for tests of completion: the machine's, else Debian's unpacked into the cache.

Nothing is fetched but in CI, or where SYMPHONY_TEST_SHELLS=fetch asks for it.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from devcluster import paths, shells
from devcluster.console import Console, Failure, Refusal

FETCH = "SYMPHONY_TEST_SHELLS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """A shell's program; ``root`` is where it was unpacked to, None for one that is installed."""

    name: str
    program: Path
    root: Path | None = None

    def env(self) -> dict[str, str]:
        """What a shell needs that is not where it was made for."""
        if self.root is None:
            return {}
        functions = sorted(
            path for path in (self.root / "usr/share/zsh/functions").rglob("*") if path.is_dir()
        )
        libraries = sorted({str(path.parent) for path in (self.root / "usr/lib").rglob("*.so*")})
        return {"LD_LIBRARY_PATH": ":".join(libraries), "FPATH": ":".join(map(str, functions))}

    def modules(self) -> str:
        """The line that tells zsh where its modules are."""
        if self.root is None:
            return ""
        found = next((self.root / "usr/lib").rglob("zsh/*/zsh/zle.so"))
        return f"module_path=({found.parents[1]})\n"


def find(name: str) -> Shell:
    """A shell; without it the test is skipped with a loud word, and fails in CI."""
    installed = shutil.which(name)
    if installed is not None:
        return Shell(name=name, program=Path(installed))
    folders = paths.find(os.environ, Path.home())
    ci = os.environ.get("CI") == "true"
    if not ci and os.environ.get(FETCH) != "fetch" and not shells.place(folders.cache).exists():
        pytest.skip(
            f"NOT TESTED IN {name.upper()}: it is not installed; {FETCH}=fetch unpacks it into the cache"
        )
    try:
        root = shells.gather(folders, console=Console(quiet=True))
    except (Refusal, Failure, OSError) as exc:
        say = pytest.fail if ci else pytest.skip
        say(f"NOT TESTED IN {name.upper()}: it is not installed, and {exc}")
    return Shell(name=name, program=root / "usr/bin" / name, root=root)
