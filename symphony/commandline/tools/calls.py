"""Run commands in child processes, with limits on their time and their output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import anyio

from symphony.support.import_path import own_import_path

if TYPE_CHECKING:
    from symphony.cluster.backend.scope import Scope

# How long an interrupted command may take to exit. A launch removes what it has created.
GRACE_SECONDS = 5.0
PROGRESS_SECONDS = 5.0
_CHUNK = 65536
# Python would search the current directory first if it ran a module.
_PROGRAM = "import sys; sys.path[:] = {path!r}; from {module} import main; sys.exit(main())"
_MODULE = "symphony.commandline.tools.scoped_call"

# Receives how many seconds a command has been running, and the last line that it has reported.
Report = Callable[[float, str], Awaitable[None]]


class Output:
    """The output of a command, of which only the beginning or, with ``keeps_end``, the end is kept.

    ``size`` is the number of bytes of the whole output.
    """

    def __init__(self, limit: int, *, keeps_end: bool) -> None:
        self.size = 0
        self._limit = limit
        self._keeps_end = keeps_end
        self._kept = bytearray()

    @property
    def is_cut(self) -> bool:
        """True if a part of the output is missing."""
        return self.size > self._limit

    @property
    def text(self) -> str:
        """The kept output in complete lines, if it contains any."""
        kept = self._kept[-self._limit :] if self._keeps_end else self._kept[: self._limit]
        text = kept.decode(errors="replace")
        if self.is_cut and "\n" in text:
            text = text.partition("\n")[2] if self._keeps_end else text.rpartition("\n")[0]
        return text

    def add(self, data: bytes) -> None:
        """Add the next bytes."""
        self.size += len(data)
        self._kept += data
        # Whole chunks are dropped, because each removal copies the rest.
        if len(self._kept) > self._limit + 2 * _CHUNK:
            if self._keeps_end:
                del self._kept[: -self._limit]
            else:
                del self._kept[self._limit :]


class Finished(NamedTuple):
    """A command that has exited. ``was_stopped`` is true if it was interrupted after its time."""

    exit_code: int
    output: Output
    errors: Output
    seconds: float
    was_stopped: bool


def scoped_program(scope: Scope) -> list[str]:
    """Return the words that run a command within a scope. The words of the command follow them."""
    fields = {
        "patterns": list(scope.patterns),
        "origin": scope.origin,
        "read_only": scope.read_only,
    }
    code = _PROGRAM.format(path=own_import_path(), module=_MODULE)
    return [sys.executable, "-c", code, json.dumps(fields)]


async def run(
    words: Sequence[str], *, limit: int, keeps_end: bool, seconds: float, report: Report
) -> Finished:
    """Run a command, and return its output and exit code.

    The command is interrupted, as with Ctrl-C, after ``seconds`` and if this task is cancelled.
    """
    start = time.monotonic()
    # A task that is cancelled meanwhile would not know the process.
    with anyio.CancelScope(shield=True):
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    output, errors = Output(limit, keeps_end=keeps_end), Output(limit, keeps_end=True)
    readers = [
        asyncio.ensure_future(_read(process.stdout, output)),
        asyncio.ensure_future(_read(process.stderr, errors)),
    ]
    reporter = asyncio.ensure_future(_report_regularly(report, start, errors))
    was_stopped = False
    try:
        # A child of the command can keep its output open.
        done = asyncio.ensure_future(process.wait())
        finished, _ = await asyncio.wait([done], timeout=seconds)
        was_stopped = not finished
        if not was_stopped:
            await asyncio.wait(readers, timeout=1)
    finally:
        reporter.cancel()
        if process.returncode is None:
            await _interrupt(process)
        for reader in readers:
            reader.cancel()
    return Finished(process.returncode or 0, output, errors, time.monotonic() - start, was_stopped)


async def _read(stream: asyncio.StreamReader | None, output: Output) -> None:
    while stream is not None and (data := await stream.read(_CHUNK)):
        output.add(data)


async def _report_regularly(report: Report, start: float, errors: Output) -> None:
    while True:
        await asyncio.sleep(PROGRESS_SECONDS)
        lines = errors.text.strip().splitlines()
        await report(time.monotonic() - start, lines[-1] if lines else "")


async def _interrupt(process: asyncio.subprocess.Process) -> None:
    """Interrupt a command, and kill it if it does not exit."""
    # The task can have been cancelled.
    with anyio.CancelScope(shield=True):
        for number in (signal.SIGINT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, number)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), GRACE_SECONDS)
                return
