"""The exit codes of processes that are not children of this process.

A process that was started by a killed supervisor belongs to the guardian of this supervisor, which
collects its exit status and records it in a file. If the guardian was killed too, the process
belongs to the init process. Since Linux 6.15, the kernel reports the exit status to every program
that had opened a pidfd in time; see PIDFD_GET_INFO in ioctl_pidfd(2). On older systems, the exit
status can only be read from ``/proc``, until the parent has collected it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from pathlib import Path

from symphony.supervised.processes.identity import ProcessId, read_exit_status

# struct pidfd_info: the mask of the requested values, other values, and the exit status.
_PIDFD_INFO = struct.Struct("=Q52xi")
_PIDFD_INFO_EXIT = 1 << 3
# _IOWR(0xFF, 11, struct pidfd_info); see ioctl(2).
_PIDFD_GET_INFO = (3 << 30) | (_PIDFD_INFO.size << 16) | (0xFF << 8) | 11


def exit_code(process: ProcessId, pidfd: int | None) -> int | None:
    """Return the exit code of a process that has exited, or None if it is not known.

    The exit code is 128 + n if signal n killed the process. ``pidfd`` was opened while the process
    was running. The result can be None until the init process has collected the exit status.
    """
    status = read_exit_status(process)
    if status is None and pidfd is not None:
        status = _status_of_pidfd(pidfd)
    if status is None:
        return None
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


class ExitRecord:
    """The exits that guardians have recorded; see `symphony.supervised.supervisor.guardian`.

    Each line consists of the pid, the creation time and the exit code of a process.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._codes: dict[ProcessId, int] = {}
        self._offset = 0

    def code(self, process: ProcessId) -> int | None:
        """Return the exit code of a process, or None if its exit is not recorded."""
        if process not in self._codes:
            self._read_new()
        return self._codes.get(process)

    def _read_new(self) -> None:
        try:
            with self._path.open("rb") as file:
                # A guardian empties a large file.
                is_shorter = os.fstat(file.fileno()).st_size < self._offset
                file.seek(0 if is_shorter else self._offset)
                content = file.read()
                lines, _, _ = content.rpartition(b"\n")
                self._offset = file.tell() - len(content) + len(lines) + bool(lines)
        except OSError:
            return
        for line in lines.splitlines():
            with contextlib.suppress(ValueError):
                pid, birth, code = map(int, line.split())
                self._codes[ProcessId(pid, float(birth))] = code


def _status_of_pidfd(pidfd: int) -> int | None:
    info = bytearray(_PIDFD_INFO.pack(_PIDFD_INFO_EXIT, 0))
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    mask, status = _PIDFD_INFO.unpack(info)
    return status if mask & _PIDFD_INFO_EXIT else None
