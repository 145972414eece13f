"""The errors that symphony raises.

    SymphonyError
    ├── SpecError (also a ValueError)   the experiment or the configuration is invalid
    ├── PluginError                     a backend cannot be found or loaded
    ├── NotFound                        no such experiment, process, group or service
    ├── AlreadyExists                   an experiment of that name exists
    ├── Unsupported                     the backend cannot do this
    └── BackendError                    the backend failed
        ├── LaunchFailed                a launch failed and was rolled back
        └── Unreachable                 the backend does not respond

The message of an error is one line. It states the problem, its location and the fix. Each module
that adapts another library converts that library's errors in a single place, and keeps the original
error as ``__cause__``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class SymphonyError(Exception):
    """The base class of symphony's own errors."""


class SpecError(SymphonyError, ValueError):
    """An experiment's description, the configuration or an argument is invalid.

    Nothing was started. ``path`` contains the keys and indices that lead from the root of the file
    to the error, such as ``("processes", "db", "env")``.
    """

    def __init__(self, message: str, *, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


class PluginError(SymphonyError):
    """A backend cannot be found or loaded."""


class NotFound(SymphonyError):
    """The requested experiment, process, group or service does not exist."""


class AlreadyExists(SymphonyError):
    """The name belongs to a running or saved experiment. That experiment was not changed."""


class Unsupported(SymphonyError):
    """The backend does not support the operation."""


class BackendError(SymphonyError):
    """A backend operation failed."""


class LaunchFailed(BackendError):
    """A launch failed. Everything that the launch had started was removed.

    ``trouble`` is true if the backend failed or did not respond. In this case, the experiment
    itself may be correct, and a later launch may succeed. ``path`` contains the keys that lead from
    the root of the file to the value that this machine cannot satisfy.
    """

    def __init__(
        self, message: str = "", *, trouble: bool = False, path: tuple[str | int, ...] = ()
    ) -> None:
        super().__init__(message)
        self.trouble = trouble
        self.path = path


class LaunchIncomplete(LaunchFailed):
    """A launch was cut after it had started processes, which keep running.

    The launch can be continued with `Cluster.up`.
    """


class Unreachable(BackendError):
    """The backend does not respond."""


# The maximum length of a value in an error message, in characters.
_MAX_SHOWN_LENGTH = 120


def shown(value: object) -> str:
    """Return the representation of a value for an error message: one line of limited length.

    In contrast to `repr`, this function never raises an error. Python refuses to convert integers
    with thousands of digits, and an object's own representation can fail or have several lines.
    """
    try:
        text = repr(value)
    except Exception:
        return f"a value of type {type(value).__name__}"
    if len(text) > _MAX_SHOWN_LENGTH:
        text = f"{text[:_MAX_SHOWN_LENGTH]}..."
    if text.isprintable():
        return text
    return " ".join(printable(text).split())


def printable(text: str) -> str:
    """Return a text in which spaces replace the characters that are not printable."""
    if text.isprintable():
        return text
    return "".join(map(_printable_character, text))


def _printable_character(character: str) -> str:
    return character if character.isprintable() else " "


def dotted(path: Iterable[str | int]) -> str:
    """Return keys and indices as one line for an error message, such as ``processes.db.env``."""
    return ".".join(shown_name(str(key)) for key in path)


def shown_name(name: str) -> str:
    """Return a name or a path for an error message: unchanged if it is one line, else as `shown`
    does.
    """
    return name if name.isprintable() else shown(name)


@contextmanager
def error_path(*path: str | int) -> Iterator[None]:
    """Prepend ``path`` to the ``path`` of each `SpecError` that is raised inside the block."""
    try:
        yield
    except SpecError as exc:
        exc.path = path + exc.path
        raise


@contextmanager
def default_error_path(*path: str | int) -> Iterator[None]:
    """Set the ``path`` of each `SpecError` that is raised inside the block and has none."""
    try:
        yield
    except SpecError as exc:
        exc.path = exc.path or path
        raise


@contextmanager
def unusable_path_errors(path: str | os.PathLike[str], action: str) -> Iterator[None]:
    """Raise `SpecError` if the block cannot use ``path``, for example because it is a directory.

    ``action`` describes the failed action in the message, such as ``"written"``. Other errors, such
    as the error for a full disk, are raised unchanged.
    """
    try:
        yield
    except (
        FileExistsError,
        FileNotFoundError,
        IsADirectoryError,
        NotADirectoryError,
        PermissionError,
    ) as exc:
        name = os.fspath(path) if exc.filename is None else exc.filename
        raise SpecError(f"{name}: cannot be {action}: {exc.strerror}") from exc


@contextmanager
def with_filename(path: str | os.PathLike[str]) -> Iterator[None]:
    """Use ``path`` as the file name of an `OSError` that the block raises without a file name.

    Some errors, such as the error for a full disk, contain no file name.
    """
    try:
        yield
    except OSError as exc:
        if exc.filename is None:
            exc.filename = os.fspath(path)
        raise
