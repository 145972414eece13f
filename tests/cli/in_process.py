"""Run the command line in the process of the tests.

This is much faster than starting an interpreter for each call. The caller sees the same result as
from ``subprocess.run``: the exit code, standard output and standard error. Afterwards the
environment, the working directory, ``sys.path``, the standard streams (also those of child
processes) and the modules imported from the working directory are restored.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import BinaryIO
from unittest import mock

import pytest

import symphony
from symphony.__main__ import main
from symphony.commandline.parsing import dispatch
from symphony.config import SymphonyConfig

# Variables that an interpreter reads only when it starts.
# A call that changes one of them needs a process of its own.
_READ_AT_START = re.compile(r"PYTHON(?!PYCACHEPREFIX|DONTWRITEBYTECODE|UNBUFFERED)|LC_|LANG|TZ")
# The warnings that an interpreter ignores by default.
_IGNORED_WARNINGS = (
    DeprecationWarning,
    ImportWarning,
    PendingDeprecationWarning,
    ResourceWarning,
)
_PROGRAM = Path(symphony.__file__).with_name("__main__.py")


def is_possible(env: Mapping[str, str]) -> bool:
    """Return whether a call with the environment ``env`` can run in the process of the tests."""
    if threading.current_thread() is not threading.main_thread():
        # Another thread may depend on the working directory and the environment.
        return False
    changed = set(env.items()) ^ set(os.environ.items())
    return not any(_READ_AT_START.match(name) for name, _ in changed)


def run(
    args: Sequence[str],
    *,
    env: Mapping[str, str] = os.environ,
    cwd: Path,
    input: str = "",
    timeout: float,
    script: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run ``symphony ARGS``, or a Python script with these arguments.

    The test fails if the call takes longer than ``timeout`` seconds.
    """
    argv = [str(script or _PROGRAM), *args]
    directory = cwd if script is None else script.parent
    with contextlib.ExitStack() as stack:
        stdin = stack.enter_context(tempfile.TemporaryFile())
        stdout = stack.enter_context(tempfile.TemporaryFile())
        stderr = stack.enter_context(tempfile.TemporaryFile())
        stdin.write(input.encode())
        stdin.seek(0)
        with (
            _time_limit(timeout, args),
            _restored_interpreter(cwd),
            _working_directory(cwd),
            mock.patch.dict(os.environ, env, clear=True),
            mock.patch.object(sys, "argv", argv),
            mock.patch.object(sys, "path", [str(directory), *sys.path]),
            mock.patch.object(dispatch, "COMPLETION_TIMEOUT_SECONDS", timeout),
            _standard_streams(stdin, stdout, stderr),
        ):
            code = _exit_code(script)
        return subprocess.CompletedProcess(
            argv, code, stdout=_content(stdout), stderr=_content(stderr)
        )


def _exit_code(script: Path | None) -> int:
    """Call the program and return the exit code that its process would have."""
    SymphonyConfig().reset()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            for category in _IGNORED_WARNINGS:
                warnings.simplefilter("ignore", category)
            if script is None:
                code = main()
            else:
                code = 0
                runpy.run_path(str(script), run_name="__main__")
            sys.stdout.flush()
            return code
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            return exc.code or 0
        print(exc.code, file=sys.stderr)
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    finally:
        SymphonyConfig().reset()


@contextlib.contextmanager
def _standard_streams(stdin: BinaryIO, stdout: BinaryIO, stderr: BinaryIO) -> Iterator[None]:
    """Redirect the streams of `sys` and the descriptors 0, 1 and 2, which children inherit."""
    saved = [os.dup(descriptor) for descriptor in range(3)]
    streams = (
        io.TextIOWrapper(io.FileIO(0, closefd=False), encoding="utf-8"),
        io.TextIOWrapper(io.BufferedWriter(io.FileIO(1, "w", closefd=False)), encoding="utf-8"),
        io.TextIOWrapper(
            io.BufferedWriter(io.FileIO(2, "w", closefd=False)),
            encoding="utf-8",
            errors="backslashreplace",
            line_buffering=True,
        ),
    )
    try:
        for descriptor, file in enumerate((stdin, stdout, stderr)):
            os.dup2(file.fileno(), descriptor)
        with (
            mock.patch.object(sys, "stdin", streams[0]),
            mock.patch.object(sys, "stdout", streams[1]),
            mock.patch.object(sys, "stderr", streams[2]),
        ):
            yield
    finally:
        for stream in streams:
            with contextlib.suppress(OSError, ValueError):
                stream.close()
        for descriptor, original in enumerate(saved):
            os.dup2(original, descriptor)
            os.close(original)


@contextlib.contextmanager
def _working_directory(directory: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(before)


@contextlib.contextmanager
def _restored_interpreter(directory: Path) -> Iterator[None]:
    """Restore signal handlers, and forget the modules that are imported from ``directory``.

    The next call may find other files there.
    """
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            origin = getattr(sys.modules[name], "__file__", None)
            if origin is not None and Path(origin).is_relative_to(directory):
                del sys.modules[name]
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _time_limit(seconds: float, args: Sequence[str]) -> Iterator[None]:
    def fail(_number: int, _frame: FrameType | None) -> None:
        pytest.fail(f"symphony {' '.join(args)} did not finish within {seconds} seconds")

    # pytest-timeout uses the same timer for the whole test.
    before = signal.signal(signal.SIGALRM, fail)
    remaining, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, remaining, interval)
        signal.signal(signal.SIGALRM, before)


def _content(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode().replace("\r\n", "\n").replace("\r", "\n")
