"""The server of ``symphony ui`` in a process of its own."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any

from tests.cli.conftest import Program


class Server:
    """``symphony ui`` in a process of its own. ``data`` is what it prints, and ``address`` is the
    part that contains the token.
    """

    def __init__(self, program: Program, *words: str) -> None:
        self.process = program.popen(
            "ui", "--no-open", "--json", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        self.data: dict[str, Any] = json.loads(line)
        self.address: str = self.data["address"]

    def stop(self) -> int:
        """Stop the server as Ctrl-C does, and return its exit code."""
        self.process.terminate()
        self.process.communicate(timeout=30)
        return self.process.returncode


@contextlib.contextmanager
def serving(program: Program, *words: str) -> Iterator[Server]:
    """Run a server during the block."""
    server = Server(program, *words)
    try:
        yield server
    finally:
        server.stop()
