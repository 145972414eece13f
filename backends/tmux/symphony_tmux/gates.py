"""The FIFOs between a supervisor and the keepers of its windows: a gate for each, and one for all their reports."""

from __future__ import annotations

import contextlib
import os
import select
from pathlib import Path

from symphony_tmux.keeper import SCRIPT, Report, reports

# No process has such a name.
KEEPER, REPORTS = ".keeper", ".reports"
_CHUNK = 1 << 16


class Gates:
    """The folder of a run that holds them. Each is open here as long as the supervisor lives: keepers see it end."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / KEEPER).write_text(SCRIPT)
        self._folder = str(folder)
        self._open: dict[str, int] = {}
        self._reports = _fifo(f"{folder}/{REPORTS}")
        self._rest = b""

    def fileno(self) -> int:
        """What is readable when there are reports."""
        return self._reports

    def prepare(self, process: str) -> None:
        """Make the gate of a process, closed."""
        if process not in self._open:
            self._open[process] = _fifo(f"{self._folder}/{process}")
            return
        with contextlib.suppress(BlockingIOError):  # what its last keeper did not wait for
            os.read(self._open[process], _CHUNK)

    def release(self, process: str) -> None:
        """Let the keeper of a process, which has ended, go."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._open[process], b"\n")

    def hear(self, timeout: float = 0.0) -> list[Report]:
        """What keepers have reported; where that is nothing, what they do within ``timeout`` seconds."""
        poll = select.poll()
        poll.register(self._reports, select.POLLIN)
        poll.poll(timeout * 1000)
        with contextlib.suppress(BlockingIOError):
            self._rest += os.read(self._reports, _CHUNK)
        whole, _, self._rest = self._rest.rpartition(b"\n")
        return reports(whole.decode())


def _fifo(path: str) -> int:
    """A FIFO, open at both ends: nobody who opens it waits for us, and it never ends while we live."""
    os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
