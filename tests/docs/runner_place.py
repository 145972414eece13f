"""Where a page of the documents runs: a folder, programs, variables; and what it leaves running is ended."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
_DELETED_WITHIN = 60.0  # seconds
_PROGRAM = "#!/bin/sh\nexec '{python}' \"$@\"\n"
_SYMPHONY = "#!{python}\nimport sys\nfrom symphony.__main__ import main\nsys.exit(main())\n"
# Variables of whoever runs the tests that would change what a page does.
_THEIRS = (
    "SYMPHONY_",
    "KUBE",
    "TMUX",
    "PYTHON",
    "XDG_",
    "LC_",
    "NO_COLOR",
    "FORCE_COLOR",
    "DOCKER_",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a page runs: its folder, one for the runner, and the environment of both its processes."""

    folder: Path
    scratch: Path
    env: Mapping[str, str]


@contextmanager
def a_place(folder: Path, **env: str) -> Iterator[Place]:
    """A fresh place for a page below ``folder``. Its tmux servers end with it.

    The folder of the page has the project's examples in it. Variables that are given come on top of the others.
    """
    names = ("page", "bin", "home", "scratch")
    mine, programs, home, scratch = (folder / name for name in names)
    for new in (mine, programs, home, scratch):
        new.mkdir()
    shutil.copytree(
        ROOT / "examples", mine / "examples", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name, text in {"python": _PROGRAM, "python3": _PROGRAM, "symphony": _SYMPHONY}.items():
        (programs / name).write_text(text.format(python=sys.executable))
        (programs / name).chmod(0o755)
    with _tmux_sockets() as sockets:
        yield Place(
            folder=mine,
            scratch=scratch,
            env={
                **{key: value for key, value in os.environ.items() if not key.startswith(_THEIRS)},
                "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
                "HOME": str(home),
                "SYMPHONY_STATE_DIR": str(folder / "state"),
                "XDG_CONFIG_HOME": str(home / ".config"),
                "TMUX_TMPDIR": str(sockets),
                "TERM": "xterm",
                "COLUMNS": "100",
                "LC_ALL": "C.UTF-8",
                **env,
            },
        )


@contextmanager
def _tmux_sockets() -> Iterator[Path]:
    """A folder for the sockets of tmux servers, which end with it. A socket's path may have some 100 characters."""
    folder = Path(tempfile.mkdtemp(prefix="sy-", dir="/tmp"))
    try:
        yield folder
    finally:
        for socket in folder.glob("tmux-*/*"):
            subprocess.run(
                ["tmux", "-S", str(socket), "kill-server"], check=False, capture_output=True
            )
        shutil.rmtree(
            folder, ignore_errors=True
        )  # a server that is ending removes its socket itself


@cache
def programs_here() -> frozenset[str]:
    """What of the needs of pages this machine has, apart from a cluster and what comes with it."""
    found = {"tmux": shutil.which("tmux") and find_spec("libtmux"), "zmq": find_spec("zmq")}
    return frozenset(name for name, there in found.items() if there)


def delete_what_is_left(place: Place) -> None:
    """Stop the experiments that still run on this machine in the page's state folder."""
    for backend in ("local", "tmux"):
        state = Path(place.env["SYMPHONY_STATE_DIR"]) / backend
        if state.is_dir() and any(not entry.name.startswith(".") for entry in state.iterdir()):
            subprocess.run(
                ["symphony", "delete-batch", "--all", "--force", "-b", backend],
                cwd=place.scratch,
                env={**place.env, "SYMPHONY_CONFIG": ""},
                check=True,
                capture_output=True,
                timeout=_DELETED_WITHIN,
            )
