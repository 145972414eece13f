"""The two processes in which a page runs: a bash for its commands, a Python for its Python."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SERVE_PYTHON = Path(__file__).with_name("runner_python.py")
# Reads the number of a command and runs its file in this shell, so that cd and export persist; then reports its exit
# code. What it starts in the background has no descriptor of the conversation.
_SERVE_SHELL = """
while IFS= read -r number <&{orders}; do
    . "$SCRATCH/$number.sh" >"$SCRATCH/$number.out" 2>"$SCRATCH/$number.err" {orders}<&- {answers}>&-
    echo $? >&{answers}
done
"""


class ChildFailed(Exception):
    """A child did not do what it was told: it took too long, or it ended."""


class Child:
    """A process that leads a group of its own, and takes orders and gives answers in lines."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        self._rest = b""
        try:
            self._process = subprocess.Popen(
                self.argv(orders, answers),
                cwd=folder,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(orders, answers),
                start_new_session=True,
            )
        finally:
            os.close(orders)
            os.close(answers)

    def argv(self, orders: int, answers: int) -> list[str]:
        """The command of the process, which reads one descriptor and writes the other."""
        raise NotImplementedError

    def ask(self, order: str, seconds: float) -> str:
        """Give an order and return the answer. Raises ChildFailed when there is none within that time."""
        try:
            os.write(self._orders, f"{order}\n".encode())
        except BrokenPipeError:
            raise ChildFailed("the process that ran the blocks before has ended") from None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._rest:
            if not select.select([self._answers], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise ChildFailed(f"not done after {seconds:.0f} s")
            read = os.read(self._answers, 65536)
            if not read:
                raise ChildFailed("it ended the process that runs the blocks of its page")
            self._rest += read
        answer, _, self._rest = self._rest.partition(b"\n")
        return answer.decode()

    def close(self) -> None:
        """End the process, and what it has started and left in its group."""
        os.close(self._orders)
        os.close(self._answers)
        # Until it is waited for, its number is that of its group and of nobody else.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What came of a command: its exit code, and standard output followed by standard error."""

    exit_code: int
    printed: str


class Shell(Child):
    """A bash that runs one command after another."""

    def __init__(self, folder: Path, env: Mapping[str, str], scratch: Path) -> None:
        self._scratch = scratch
        self._count = 0
        super().__init__(folder, {**env, "SCRATCH": str(scratch)})

    def argv(self, orders: int, answers: int) -> list[str]:
        return [
            "bash",
            "--noprofile",
            "--norc",
            "-c",
            _SERVE_SHELL.format(orders=orders, answers=answers),
        ]

    def run(self, command: str, seconds: float) -> Done:
        """Run it to its end. Raises ChildFailed, with what it had printed by then."""
        self._count += 1
        here = self._scratch / str(self._count)
        here.with_suffix(".sh").write_text(f"{command}\n", encoding="utf-8")
        try:
            code = int(self.ask(here.name, seconds))
        except ChildFailed as exc:
            raise ChildFailed(f"{exc}; it printed:\n{self._printed(here)}") from None
        return Done(exit_code=code, printed=self._printed(here))

    def _printed(self, here: Path) -> str:
        files = (here.with_suffix(suffix) for suffix in (".out", ".err"))
        return "".join(
            file.read_text(encoding="utf-8", errors="replace") for file in files if file.exists()
        )


class Interpreter(Child):
    """A Python that runs one block after another in one namespace."""

    def argv(self, orders: int, answers: int) -> list[str]:
        return [sys.executable, str(_SERVE_PYTHON), str(orders), str(answers)]

    def run(self, code: str, page: str, line: int, seconds: float) -> str:
        """Run a block that begins at a line of a page; return what went wrong, or nothing. Raises ChildFailed."""
        answer: Any = json.loads(
            self.ask(json.dumps({"code": code, "page": page, "line": line}), seconds)
        )
        return str(answer)
