"""The one tree of errors.

    SymphonyError
    ├── SpecError (also a ValueError)   the description is wrong; nothing was started
    ├── PluginError                     a backend cannot be found, loaded or trusted
    ├── NotFound                        no such experiment, process, group or service
    ├── AlreadyExists                   that name is live; it was left alone
    ├── Unsupported                     this backend cannot do that
    └── BackendError                    the backend failed
        ├── LaunchFailed                a launch failed and took back what it had made
        └── Unreachable                 the backend does not answer

A message says what is wrong, where, and how to mend it, in one line. An error of a foreign library is
translated in one place of each adapter and kept as ``__cause__``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


class SymphonyError(Exception):
    """The root of everything that symphony raises on purpose."""


class SpecError(SymphonyError, ValueError):
    """The description of an experiment is wrong.

    ``path`` leads to the wrong place in the file form, from the root: ``("processes", "db", "env")``.
    """

    def __init__(self, message: str, *, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


class PluginError(SymphonyError):
    """A backend cannot be found, loaded or trusted."""


class NotFound(SymphonyError):
    """There is no experiment, process, group or service of that name."""


class AlreadyExists(SymphonyError):
    """A live experiment has that name; it was left alone."""


class Unsupported(SymphonyError):
    """This backend cannot do that."""


class BackendError(SymphonyError):
    """The backend failed."""


class LaunchFailed(BackendError):
    """A launch failed; what it had started was taken back.

    ``trouble`` says that the backend was away, or had trouble of its own: what was to be launched may be right.
    """

    def __init__(self, message: str = "", *, trouble: bool = False) -> None:
        super().__init__(message)
        self.trouble = trouble


class Unreachable(BackendError):
    """The backend does not answer."""


@contextmanager
def error_path(*path: str | int) -> Iterator[None]:
    """Put ``path`` before the path of every `SpecError` that passes."""
    try:
        yield
    except SpecError as exc:
        exc.path = path + exc.path
        raise


@contextmanager
def with_filename(path: str | os.PathLike[str]) -> Iterator[None]:
    """Name ``path`` in every `OSError` that passes and names no file: a write that finds the disk full knows none."""
    try:
        yield
    except OSError as exc:
        if exc.filename is None:
            exc.filename = os.fspath(path)
        raise
