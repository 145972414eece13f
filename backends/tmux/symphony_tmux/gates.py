"""The FIFOs between a supervisor and the keepers of its windows: a gate for each keeper, and one
FIFO for all reports.
"""

from __future__ import annotations

import contextlib
import os
import select
from pathlib import Path

from symphony.support.replace_file import replace_file
from symphony_tmux.keeper import SCRIPT, Report, reports

# These names are not valid process names, so they cannot be the names of gates.
KEEPER, REPORTS = ".keeper", ".reports"
_CHUNK = 1 << 16


class Gates:
    """The directory that contains a run's FIFOs. The supervisor holds each FIFO open, so that
    keepers notice when the supervisor exits. If it was killed, a new supervisor opens them again.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(mode=0o700, exist_ok=True)
        # The keepers of a killed supervisor are still reading the previous file.
        replace_file(directory / KEEPER, [SCRIPT.encode()])
        self._directory = str(directory)
        self._open: dict[str, int] = {}
        self._reports = _fifo(f"{directory}/{REPORTS}")
        self._rest = b""

    def fileno(self) -> int:
        """Return a descriptor that is readable when there are reports."""
        return self._reports

    def prepare(self, process: str) -> None:
        """Create a closed gate for a process, or close its existing gate."""
        self.adopt(process)
        with contextlib.suppress(BlockingIOError):  # A previous keeper may have left a line unread.
            os.read(self._open[process], _CHUNK)

    def adopt(self, process: str) -> None:
        """Open the gate's FIFO for a process of a killed supervisor.

        The keeper and the process then continue to wait at the gate.
        """
        if process not in self._open:
            self._open[process] = _fifo(f"{self._directory}/{process}")

    def close(self, process: str) -> None:
        """Remove the gate of a process that will not be started again."""
        descriptor = self._open.pop(process, None)
        if descriptor is not None:
            os.close(descriptor)
        # A killed supervisor can have created the gate.
        Path(self._directory, process).unlink(missing_ok=True)

    def release(self, process: str) -> None:
        """Release the keeper of a process that has exited."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._open[process], b"\n")

    def read_reports(self, timeout: float = 0.0) -> list[Report]:
        """Return the reports that have arrived from keepers.

        If there are none, wait up to ``timeout`` seconds for reports.
        """
        poll = select.poll()
        poll.register(self._reports, select.POLLIN)
        poll.poll(timeout * 1000)
        with contextlib.suppress(BlockingIOError):
            self._rest += os.read(self._reports, _CHUNK)
        lines, _, self._rest = self._rest.rpartition(b"\n")
        return reports(lines.decode())


def _fifo(path: str) -> int:
    """Create a FIFO, and return a descriptor that keeps both ends open.

    Therefore, opening the FIFO never blocks while this process is running. A killed supervisor can
    have created the FIFO.
    """
    with contextlib.suppress(FileExistsError):
        os.mkfifo(path, 0o600)
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
