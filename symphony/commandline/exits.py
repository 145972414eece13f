"""Exit codes, and the one line that an error becomes."""

from __future__ import annotations

from symphony.errors import BackendError, LaunchFailed, SymphonyError

OK = 0
FAILED = 1
WRONG_USE = 2
BACKEND = 3
INTERRUPTED = 130  # as a shell says for SIGINT: 128 + 2
CLOSED = 141  # the reader of a pipe went away: 128 + SIGPIPE


class UsageError(SymphonyError):
    """The command line itself is wrong."""


def told(exc: BaseException) -> BaseException:
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
        return WRONG_USE if isinstance(exc, LaunchFailed) else BACKEND
    if isinstance(exc, SymphonyError):
        return WRONG_USE
    return BACKEND if _of_the_system(exc) else FAILED


def _of_the_system(exc: BaseException) -> bool:
    return isinstance(exc, OSError) and not isinstance(exc, TimeoutError)


def message(exc: BaseException) -> str:
    """What to say of an error, in one line."""
    if isinstance(exc, KeyboardInterrupt):
        return "interrupted"
    if isinstance(exc, OSError) and _of_the_system(exc):
        where = f"{exc.filename}: " if exc.filename else ""
        return one_line(f"{where}{exc.strerror or exc}")
    if isinstance(exc, (SymphonyError, TimeoutError)):
        return one_line(str(exc))
    return one_line(f"unexpected {type(exc).__name__}: {exc}; run it again with --debug for the traceback")


def one_line(text: str) -> str:
    """Text without line breaks."""
    return " ".join(part.strip() for part in text.splitlines() if part.strip())
