"""All errors that symphony raises.

    SymphonyError
    ├── SpecError (also a ValueError)   the experiment or the configuration is wrong
    ├── PluginError                     a backend cannot be found or loaded
    ├── NotFound                        no such experiment, process, group or service
    ├── AlreadyExists                   an experiment of that name is running
    ├── Unsupported                     the backend cannot do this
    └── BackendError                    the backend failed
        ├── LaunchFailed                a launch failed and was rolled back
        └── Unreachable                 the backend does not respond

The message of an error is one line. It contains the problem, its position and the solution. Each
adapter translates the errors of other libraries in a single place and keeps the original error as
``__cause__``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


class SymphonyError(Exception):
    """The base class of all errors that symphony raises."""


class SpecError(SymphonyError, ValueError):
    """The description of an experiment or the configuration is invalid. Nothing was started.

    ``path`` is the position of the error in the file form of the experiment, from the root, such as
    ``("processes", "db", "env")``.
    """

    def __init__(self, message: str, *, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


class PluginError(SymphonyError):
    """A backend cannot be found or loaded."""


class NotFound(SymphonyError):
    """The requested experiment, process, group or service does not exist."""


class AlreadyExists(SymphonyError):
    """The name is in use by a running or saved experiment, which was not changed."""


class Unsupported(SymphonyError):
    """The backend does not support the operation."""


class BackendError(SymphonyError):
    """An operation of the backend failed."""


class LaunchFailed(BackendError):
    """A launch failed. Everything that the launch had started was removed.

    ``trouble`` is true if the backend failed or did not respond. In this case, the experiment
    itself can be correct, and a later launch can succeed.
    """

    def __init__(self, message: str = "", *, trouble: bool = False) -> None:
        super().__init__(message)
        self.trouble = trouble


class Unreachable(BackendError):
    """The backend does not respond."""


@contextmanager
def error_path(*path: str | int) -> Iterator[None]:
    """Insert ``path`` before the path of each `SpecError` that is raised inside the context."""
    try:
        yield
    except SpecError as exc:
        exc.path = path + exc.path
        raise


@contextmanager
def with_filename(path: str | os.PathLike[str]) -> Iterator[None]:
    """Set ``path`` as the file name of each `OSError` in the context that has no file name.

    Some errors, such as an error for a write to a full disk, contain no file name.
    """
    try:
        yield
    except OSError as exc:
        if exc.filename is None:
            exc.filename = os.fspath(path)
        raise
