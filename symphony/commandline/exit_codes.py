"""Exit codes, and the conversion of exceptions to exit codes and one-line messages."""

from __future__ import annotations

import os

from symphony.errors import BackendError, LaunchFailed, SymphonyError

OK = 0
FAILED = 1
USAGE_ERROR = 2
BACKEND_ERROR = 3
TIMED_OUT = 124  # As timeout(1), and as an experiment that has exceeded its deadline.
INTERRUPTED = 130  # 128 + SIGINT, as in a shell
OUTPUT_CLOSED = 141  # 128 + SIGPIPE: the reader has closed the pipe

# Error messages use this name for standard output, for example when it is redirected to a file on a
# full disk.
STANDARD_OUTPUT = "standard output"


class Terminated(KeyboardInterrupt):
    """The command received a signal other than SIGINT, and must exit as after Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class UsageError(SymphonyError):
    """The command line is invalid."""


def unwrap_interruption(exc: BaseException) -> BaseException:
    """Return the KeyboardInterrupt that caused ``exc``, or ``exc`` if it has a different cause.

    Before version 3.12, Python wraps a KeyboardInterrupt in a RuntimeError if the interrupt arrives
    while a class is being created.
    """
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, KeyboardInterrupt):
            return cause
        cause = cause.__cause__
    return exc


def exit_code(exc: BaseException) -> int:
    """Return the exit code for an error.

    A launch that the backend rejects is a usage error, for example if the experiment requests more
    GPUs than exist. Other backend failures have a separate exit code, because the user's input does
    not cause them.
    """
    if isinstance(exc, Terminated):
        return signal_exit_code(exc.number)
    if isinstance(exc, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(exc, LaunchFailed) and not exc.trouble:
        return USAGE_ERROR
    if isinstance(exc, BackendError):
        return BACKEND_ERROR
    if isinstance(exc, SymphonyError):
        return USAGE_ERROR
    # An error of the operating system, such as ETIMEDOUT, has a number.
    if isinstance(exc, TimeoutError) and exc.errno is None:
        return TIMED_OUT
    return BACKEND_ERROR if _is_system_error(exc) else FAILED


def signal_exit_code(number: int) -> int:
    """Return the exit code of a command that exits because of a signal, as in a shell."""
    return 128 + number


def error_message(exc: BaseException) -> str:
    """Return a one-line message for an error."""
    if isinstance(exc, Terminated):
        import signal

        return f"terminated by {signal.Signals(exc.number).name}"
    if isinstance(exc, KeyboardInterrupt):
        return "interrupted"
    if isinstance(exc, OSError) and _is_system_error(exc):
        return one_line(_system_error_message(exc))
    if isinstance(exc, (SymphonyError, TimeoutError)):
        return one_line(str(exc))
    return one_line(
        f"unexpected {type(exc).__name__}: {exc}; run it again with --debug for the traceback"
    )


def one_line(text: str) -> str:
    """Join the nonempty lines of ``text`` with spaces."""
    return " ".join(part.strip() for part in text.splitlines() if part.strip())


def _is_system_error(exc: BaseException) -> bool:
    return isinstance(exc, OSError) and not isinstance(exc, TimeoutError)


def _system_error_message(exc: OSError) -> str:
    """Return the operating system's message, preceded by the names of the affected files, if any.

    If the error occurred because the working directory is missing, return a message that states
    this instead.
    """
    names = [
        os.fsdecode(name)
        for name in (exc.filename, exc.filename2)
        if isinstance(name, (str, bytes)) and name
    ]
    reason = exc.strerror or str(exc)
    if names:
        return f"{' to '.join(names)}: {reason}"
    if isinstance(exc, FileNotFoundError) and _working_directory_is_missing():
        return "the working directory no longer exists; change to one that exists"
    return reason


def _working_directory_is_missing() -> bool:
    """Return whether the working directory has been removed.

    Errors from functions that need the working directory do not mention that it is missing.
    """
    from pathlib import Path

    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False
