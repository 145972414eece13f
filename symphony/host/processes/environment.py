"""The initial environment of a process, as ``/proc`` shows it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from symphony.host.processes.identity import is_in_exec

# The maximum time to wait for a process in execve(2) to get its new environment. The call usually
# takes microseconds, but can take much longer on a busy machine.
EXEC_TIMEOUT_SECONDS = 5.0
_EXEC_POLL_SECONDS = 0.001
_READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Environment:
    """The initial environment of a process.

    ``is_intact`` is false if the environment is empty, or if the program has overwritten at least a
    part of it. Programs that change their process title, such as redis-server, overwrite the memory
    that contains the environment with their title and NUL bytes.
    """

    variables: dict[str, str]
    is_intact: bool


def read_environment(pid: int) -> Environment | None:
    """Return the initial environment of a process, or None if it cannot be read."""
    try:
        block = _read_block(pid)
    except OSError:
        return None
    return _parse(block)


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


def _parse(block: bytes) -> Environment:
    r"""Return the environment that a block of NUL-terminated entries contains.

    >>> _parse(b"A=1\0B=\0")
    Environment(variables={'A': '1', 'B': ''}, is_intact=True)
    >>> _parse(b"server *:6379\0\0\0A=1\0")
    Environment(variables={'A': '1'}, is_intact=False)
    """
    variables: dict[str, str] = {}
    is_intact = block.endswith(b"\0")
    for entry in block.removesuffix(b"\0").split(b"\0"):
        name, separator, value = entry.partition(b"=")
        if separator:
            variables[os.fsdecode(name)] = os.fsdecode(value)
        else:
            is_intact = False
    return Environment(variables, is_intact)
