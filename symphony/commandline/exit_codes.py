"""Exit codes, and the one line that an error becomes."""

from __future__ import annotations

import os

from symphony.errors import BackendError, LaunchFailed, SymphonyError

OK = 0
FAILED = 1
USAGE_ERROR = 2
BACKEND_ERROR = 3
INTERRUPTED = 130  # as a shell says for SIGINT: 128 + 2
OUTPUT_CLOSED = 141  # the reader of a pipe went away: 128 + SIGPIPE

# What is named where it cannot be written to: it may be a file, on a disk that is full.
STANDARD_OUTPUT = "standard output"


class UsageError(SymphonyError):
    """The command line itself is wrong."""


def unwrap_interruption(exc: BaseException) -> BaseException:
    """What an error is about: Ctrl-C, where that is what caused it.

    Python before 3.12 hides one in a RuntimeError where it comes as a class is made.
    """
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            return cause
        cause = cause.__cause__
    return exc


def exit_code(exc: BaseException) -> int:
    """The exit code for an error.

    A launch that was refused is bad input (too few GPUs, a program that cannot run), other trouble of the
    backend's is not the user's.
    """
    if isinstance(exc, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(exc, BackendError):
        return USAGE_ERROR if isinstance(exc, LaunchFailed) and not exc.trouble else BACKEND_ERROR
    if isinstance(exc, SymphonyError):
        return USAGE_ERROR
    return BACKEND_ERROR if _of_the_system(exc) else FAILED


def _of_the_system(exc: BaseException) -> bool:
    return isinstance(exc, OSError) and not isinstance(exc, TimeoutError)


def error_message(exc: BaseException) -> str:
    """What to say of an error, in one line."""
    if isinstance(exc, KeyboardInterrupt):
        return "interrupted"
    if isinstance(exc, OSError) and _of_the_system(exc):
        return one_line(_said(exc))
    if isinstance(exc, (SymphonyError, TimeoutError)):
        return one_line(str(exc))
    return one_line(
        f"unexpected {type(exc).__name__}: {exc}; run it again with --debug for the traceback"
    )


def _said(exc: OSError) -> str:
    """What to say of an error of the system: after the file or the two files that it is about, where it tells."""
    names = [
        os.fsdecode(name)
        for name in (exc.filename, exc.filename2)
        if isinstance(name, (str, bytes)) and name
    ]
    if not names and isinstance(exc, FileNotFoundError) and _nowhere():
        return "the working folder is not there any more; cd to one that is"
    where = f"{' to '.join(names)}: " if names else ""
    return f"{where}{exc.strerror or exc}"


def _nowhere() -> bool:
    """Whether the folder that this program works in was removed: what asks for it fails and does not say so."""
    from pathlib import Path

    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def one_line(text: str) -> str:
    """Text without line breaks."""
    return " ".join(part.strip() for part in text.splitlines() if part.strip())
