"""Driving the real program: in a pipe, and in a pseudo-terminal."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from symphony.cluster import Cluster
from symphony.config.locations import FILE_VARIABLE, VARIABLES
from tests.cli import in_process
from tests.cli.terminal import Terminal

TIMEOUT = 60
FOREVER = "while :; do sleep 0.05; done"
# What a script of one's own begins with whose completion may take its time, as on a machine that is busy.
PATIENT = f"from symphony.commandline.parsing import dispatch; dispatch.COMPLETION_TIMEOUT_SECONDS = {TIMEOUT}"


def telling(place: Path) -> str:
    """The beginning of a shell line that tells in a file which process it is."""
    return f"echo $$ >{place}.part; mv {place}.part {place}; "


def after_the_end(place: Path) -> str:
    """The beginning of a shell line that waits until the process has ended, and been seen to, which tells there."""
    return f"until [ -e {place} ]; do sleep 0.05; done; while kill -0 `cat {place}` 2>&-; do sleep 0.05; done; "


class Program:
    """``symphony`` with a state directory of its own; each call is a process of its own."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        mine = {
            "SYMPHONY_STATE_DIR": str(self.state),
            "PYTHONPYCACHEPREFIX": str(cache),
            "TERM": "xterm",
        }
        mine["XDG_CONFIG_HOME"], mine["XDG_CACHE_HOME"] = (
            str(folder / "config"),
            str(folder / "cache"),
        )
        theirs = (
            *VARIABLES,
            FILE_VARIABLE,
            "NO_COLOR",
            "COLUMNS",
            "PYTHONDONTWRITEBYTECODE",
            "PYTHONUNBUFFERED",
        )
        self.env = {
            **{key: value for key, value in os.environ.items() if key not in theirs},
            **mine,
        }
        self.terminals: list[Terminal] = []
        self._begin = ["-m", "symphony"]

    def complete_slowly(self) -> None:
        """Let completion take its time, as on a machine that is busy."""
        self._begin = [
            "-c",
            f"{PATIENT}; from symphony.__main__ import main; raise SystemExit(main())",
        ]

    def argv(self, *args: object) -> list[str]:
        return [sys.executable, *self._begin, *map(str, args)]

    def __call__(
        self, *args: object, input: str = "", **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run with captured output, in the process of the tests if that makes no difference."""
        if self._begin != ["-m", "symphony"] or not in_process.is_possible({**self.env, **env}):
            return self.process(*args, input=input, **env)
        return in_process.run(
            [str(arg) for arg in args],
            env={**self.env, **env},
            cwd=self.folder,
            input=input,
            timeout=TIMEOUT,
        )

    def process(
        self, *args: object, input: str = "", **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run in a process of its own, with pipes for input and output."""
        return subprocess.run(
            self.argv(*args),
            input=input,
            capture_output=True,
            text=True,
            env={**self.env, **env},
            cwd=self.folder,
            timeout=TIMEOUT,
        )

    def ok(self, *args: object, **env: str) -> str:
        """Run in a pipe what must succeed, without a word on standard error; its output."""
        done = self(*args, **env)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def json(self, *args: object, code: int = 0) -> Any:
        done = self(*args, "--json")
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    def popen(self, *args: object, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.argv(*args), env=self.env, cwd=self.folder, text=True, **options
        )

    def terminal(self, *args: object, width: int = 80, **env: str) -> Terminal:
        """Start in a pseudo-terminal."""
        started = Terminal(self.argv(*args), env={**self.env, **env}, cwd=self.folder, width=width)
        self.terminals.append(started)
        return started

    def file(self, name: str, processes: dict[str, Any], /, **rest: Any) -> Path:
        """An experiment's file (JSON is YAML); a process that is text is a shell line."""
        described = {
            key: {"cmd": value} if isinstance(value, str) else value
            for key, value in processes.items()
        }
        path = self.folder / f"{name}.yml"
        path.write_text(json.dumps({"name": name, **rest, "processes": described}))
        return path

    def launched(self, name: str, processes: dict[str, Any], /, **rest: Any) -> str:
        """Launch an experiment; its name."""
        self.ok("launch", self.file(name, processes, **rest))
        return name

    def ended(self, name: str, processes: dict[str, Any], /, **rest: Any) -> str:
        """Launch an experiment that has ended by the time this returns; its name."""
        self.launched(name, processes, **rest)
        self.cluster.wait(name, timeout=TIMEOUT)
        return name

    @property
    def cluster(self) -> Cluster:
        """The same experiments, by the library."""
        return Cluster.new("local", state_dir=self.state / "local")

    def left(self) -> list[str]:
        """What stands in the state directory, but for the lock of launches."""
        root = self.state / "local"
        return (
            sorted(path.name for path in root.iterdir() if path.name != ".lock")
            if root.is_dir()
            else []
        )


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where compiled modules are kept, so that only the first run compiles."""
    return tmp_path_factory.mktemp("pycache")


@contextlib.contextmanager
def running(program: Program) -> Iterator[Program]:
    """Leave nothing of what the program launched."""
    try:
        yield program
    finally:
        for terminal in program.terminals:
            terminal.close()
        cluster = program.cluster
        for name in cluster.list_experiments():
            cluster.stop(name, at_once=True)  # type: ignore[attr-defined]
            cluster.delete(name)


@pytest.fixture
def program(tmp_path: Path, cache: Path) -> Iterator[Program]:
    with running(Program(tmp_path, cache)) as made:
        yield made
