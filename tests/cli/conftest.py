"""Fixtures that run the command line: in this process, in a process or in a pseudo-terminal."""

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

TIMEOUT = 60  # seconds
# A shell command that never exits by itself.
FOREVER = "exec sleep 1000"
# The same for a shell that handles signals with `trap`, which it does after the current `sleep`.
LOOP = "while :; do sleep 0.05; done"
# The first line of a script whose completion must not be interrupted on a busy machine.
PATIENT = (
    "from symphony.commandline.parsing import dispatch; "
    f"dispatch.COMPLETION_TIMEOUT_SECONDS = {TIMEOUT}"
)
# Variables of the developer's environment that would change what the program does.
_REMOVED_VARIABLES = {
    *VARIABLES,
    FILE_VARIABLE,
    "NO_COLOR",
    "COLUMNS",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONUNBUFFERED",
}


def write_pid(path: Path) -> str:
    """Return the beginning of a shell command that writes its process ID to a file."""
    return f"echo $$ >{path}.part; mv {path}.part {path}; "


def after_exit(path: Path) -> str:
    """Return the beginning of a shell command that waits until a process is gone.

    Another command writes the ID of that process to ``path`` (`write_pid`).
    """
    is_written = f"until [ -e {path} ]; do sleep 0.05; done"
    is_gone = f"while kill -0 `cat {path}` 2>&-; do sleep 0.05; done"
    return f"{is_written}; {is_gone}; "


class Program:
    """``symphony`` with a state directory, a configuration and a cache of its own.

    A call runs in the process of the tests. `process`, `popen` and `terminal` start a process,
    for tests of signals, pipes, terminals and the exit of the process.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory / "state"
        inherited = {
            key: value for key, value in os.environ.items() if key not in _REMOVED_VARIABLES
        }
        self.env = {
            **inherited,
            "SYMPHONY_STATE_DIR": str(self.state),
            "XDG_CONFIG_HOME": str(directory / "config"),
            "XDG_CACHE_HOME": str(directory / "cache"),
            "TERM": "xterm",
        }
        self.terminals: list[Terminal] = []

    def __call__(
        self, *args: object, input: str = "", script: Path | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run ``symphony`` or a Python script with captured output.

        A process is started only if a variable requires it, for example PYTHONPATH.
        """
        environment = {**self.env, **env}
        if not in_process.is_possible(environment):
            return self.process(*args, input=input, script=script, **env)
        return in_process.run(
            [str(arg) for arg in args],
            env=environment,
            cwd=self.directory,
            input=input,
            timeout=TIMEOUT,
            script=script,
        )

    def process(
        self, *args: object, input: str = "", script: Path | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run ``symphony`` or a Python script in a process of its own."""
        return subprocess.run(
            self.argv(*args, script=script),
            input=input,
            capture_output=True,
            text=True,
            env={**self.env, **env},
            cwd=self.directory,
            timeout=TIMEOUT,
        )

    def argv(self, *args: object, script: Path | None = None) -> list[str]:
        """Return the command that runs ``symphony`` or a Python script."""
        program = ["-m", "symphony"] if script is None else [str(script)]
        return [sys.executable, *program, *map(str, args)]

    def ok(self, *args: object, **env: str) -> str:
        """Run a command that must succeed and print nothing on standard error.

        Return its standard output.
        """
        done = self(*args, **env)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def json(self, *args: object, code: int = 0) -> Any:
        """Run a command with ``--json`` and return the data that it prints."""
        done = self(*args, "--json")
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    def popen(
        self, *args: object, script: Path | None = None, **options: Any
    ) -> subprocess.Popen[str]:
        """Start ``symphony`` or a Python script in a process of its own."""
        return subprocess.Popen(
            self.argv(*args, script=script), env=self.env, cwd=self.directory, text=True, **options
        )

    def terminal(self, *args: object, width: int = 80, **env: str) -> Terminal:
        """Start ``symphony`` in a pseudo-terminal."""
        started = Terminal(
            self.argv(*args), env={**self.env, **env}, cwd=self.directory, width=width
        )
        self.terminals.append(started)
        return started

    def file(self, name: str, processes: dict[str, Any], /, **rest: Any) -> Path:
        """Write an experiment file in JSON, which is YAML too, and return its path.

        A process that is text is a shell command.
        """
        described = {
            key: {"cmd": value} if isinstance(value, str) else value
            for key, value in processes.items()
        }
        path = self.directory / f"{name}.yml"
        path.write_text(json.dumps({"name": name, **rest, "processes": described}))
        return path

    def launch(self, name: str, processes: dict[str, Any], /, **rest: Any) -> str:
        """Launch an experiment and return its name."""
        # If a test fails, its experiment must not prevent the launch of the second run.
        self.ok("launch", self.file(name, processes, **rest), "--force")
        return name

    def run(self, name: str, processes: dict[str, Any], /, **rest: Any) -> str:
        """Launch an experiment, wait until it has finished, and return its name."""
        self.launch(name, processes, **rest)
        self.cluster.wait(name, timeout=TIMEOUT)
        return name

    @property
    def cluster(self) -> Cluster:
        """The same experiments in the library."""
        return Cluster.new("local", state_dir=self.state / "local")

    def state_entries(self) -> list[str]:
        """Return the names in the state directory, without the lock for launches."""
        root = self.state / "local"
        if not root.is_dir():
            return []
        return sorted(path.name for path in root.iterdir() if path.name != ".lock")


@contextlib.contextmanager
def cleaned_up(program: Program) -> Iterator[Program]:
    """Close all terminals and delete all experiments at the end."""
    try:
        yield program
    finally:
        for terminal in program.terminals:
            terminal.close()
        cluster = program.cluster
        for name in cluster.list_experiments():
            cluster.delete(name, at_once=True)


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    with cleaned_up(Program(tmp_path)) as made:
        yield made
