"""The initial environment of a process, as ``/proc`` shows it."""

from __future__ import annotations

import os
import re
import time

from symphony.supervised.processes.identity import is_in_exec
from symphony.support.data_classes import dataclass

# The maximum time to wait for a process in execve(2) to get its new environment. The call usually
# takes microseconds, but can take much longer on a busy machine.
EXEC_TIMEOUT_SECONDS = 5.0
_EXEC_POLL_SECONDS = 0.001
_READ_BYTES = 1 << 16
# An entry that is not an assignment.
_OVERWRITTEN = re.compile(rb"\0[^=\0]*\0")


@dataclass(frozen=True, slots=True)
class Environment:
    r"""The initial environment of a process.

    ``block`` contains NUL-terminated entries. Scans of all processes of the machine need one
    variable of each, so it is searched and not split.

    >>> environment = Environment(b"A=1\0B=\0")
    >>> environment.get("A"), environment.get("B"), environment.get("C"), environment.is_intact
    ('1', '', None, True)
    >>> environment = Environment(b"server *:6379\0\0\0A=1\0")
    >>> environment.variables, environment.get("A"), environment.is_intact
    ({'A': '1'}, '1', False)
    """

    block: bytes

    def get(self, name: str) -> str | None:
        """Return the value of a variable, or None if it is not set."""
        block = b"\0" + self.block
        start = f"\0{name}=".encode()
        position = block.rfind(start)
        if position < 0:
            return None
        value, _, _ = block[position + len(start) :].partition(b"\0")
        return os.fsdecode(value)

    @property
    def variables(self) -> dict[str, str]:
        """All variables."""
        pairs = [entry.partition(b"=") for entry in self.block.split(b"\0")]
        found = {name: value for name, separator, value in pairs if separator}
        return {os.fsdecode(name): os.fsdecode(value) for name, value in found.items()}

    @property
    def is_intact(self) -> bool:
        """False if the environment is empty, or if the program has overwritten a part of it.

        Programs that change their process title, such as redis-server, overwrite the memory that
        contains the environment with their title and NUL bytes.
        """
        return self.block.endswith(b"\0") and not _OVERWRITTEN.search(b"\0" + self.block)


def read_environment(pid: int) -> Environment | None:
    """Return the initial environment of a process, or None if it cannot be read."""
    try:
        block = _read_block(pid)
    except OSError:
        return None
    return Environment(block)


def _read_block(pid: int) -> bytes:
    """Return the contents of ``/proc/PID/environ``.

    A process in the middle of execve(2) has an empty environment. In this case, wait until the call
    has finished, but at most `EXEC_TIMEOUT_SECONDS`.
    """
    block = _read_file(pid)
    if block:
        return block
    deadline = time.monotonic() + EXEC_TIMEOUT_SECONDS
    while is_in_exec(pid) and time.monotonic() < deadline:
        time.sleep(_EXEC_POLL_SECONDS)
    return _read_file(pid)


def _read_file(pid: int) -> bytes:
    # Scans of all processes call this function often, and os.open is faster than a file object.
    descriptor = os.open(f"/proc/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while block := os.read(descriptor, _READ_BYTES):
            content += block
    finally:
        os.close(descriptor)
    return content
