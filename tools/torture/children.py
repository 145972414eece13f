"""Child processes that run a Python function, such as a command of symphony.

A child is forked from this program, which has already imported symphony. It therefore starts much
faster than a new interpreter, so that many more rounds fit into the same time.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

# The exit code of a program that Ctrl-C has ended.
INTERRUPTED_CODE = 128 + signal.SIGINT
_ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A child that does not exit within this time has failed. A busy machine needs much less.
CHILD_TIMEOUT_SECONDS = 120.0


class Child:
    """A forked process. Its output is in the files ``<path>.out`` and ``<path>.err``."""

    def __init__(self, function: Callable[[], int], path: Path) -> None:
        self._path = path
        # The child may be killed before it has done anything.
        for suffix in (".out", ".err"):
            path.with_suffix(suffix).touch()
        self.started = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        # Until the child has its own handlers, it has those of this program.
        earlier = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING_SIGNALS)
        self.pid = os.fork()
        if self.pid == 0:
            _run(function, path)
        signal.pthread_sigmask(signal.SIG_SETMASK, earlier)
        self._handle = os.pidfd_open(self.pid)
        self._exit_code: int | None = None

    @property
    def output(self) -> str:
        """Return what the child has written to standard output."""
        return self._path.with_suffix(".out").read_text(encoding="utf-8", errors="replace")

    @property
    def errors(self) -> str:
        """Return what the child has written to standard error."""
        return self._path.with_suffix(".err").read_text(encoding="utf-8", errors="replace")

    def poll(self, timeout: float = 0.0) -> int | None:
        """Return the exit code, or None if the child still runs after ``timeout`` seconds.

        The exit code is ``-n`` if signal n has killed the child.
        """
        if self._exit_code is None and select.select([self._handle], [], [], timeout)[0]:
            _, status = os.waitpid(self.pid, 0)
            self._exit_code = os.waitstatus_to_exitcode(status)
            os.close(self._handle)
        return self._exit_code

    def wait(self, timeout: float = CHILD_TIMEOUT_SECONDS) -> int:
        """Return the exit code. Raises TimeoutError if the child does not exit in time."""
        code = self.poll(timeout)
        if code is None:
            raise TimeoutError(f"{self._path.name} still runs after {timeout:g} s")
        return code

    def send(self, number: int) -> None:
        """Send a signal to the child, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the child, if it still runs."""
        self.send(signal.SIGKILL)
        self.wait()


def _run(function: Callable[[], int], path: Path) -> None:
    """Call the function in the forked process, and exit with the code that it returns."""
    code = 1
    try:
        # Ctrl-C in the terminal is sent to the process group of this program only.
        os.setsid()
        for number in _ENDING_SIGNALS:
            handler = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, handler)
        _redirect(path)
        code = function() if _receives_signals() else INTERRUPTED_CODE
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _receives_signals() -> bool:
    """Receive signals from now on. Return False if Ctrl-C has come before."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING_SIGNALS)
    except KeyboardInterrupt:
        return False
    return True


def _redirect(path: Path) -> None:
    """Redirect the standard streams to the files of the child."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    streams = (
        os.open(os.devnull, os.O_RDONLY),
        os.open(path.with_suffix(".out"), flags, 0o600),
        os.open(path.with_suffix(".err"), flags, 0o600),
    )
    for descriptor, stream in enumerate(streams):
        os.dup2(stream, descriptor)
        os.close(stream)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(  # noqa: SIM115
        2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False
    )
