"""Collecting all errors in a document instead of stopping at the first error."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

from symphony.errors import SpecError
from symphony.model.document_path import DocumentPath


class ErrorCollector:
    """The errors found in a document, in the order in which they were added.

    Several copies of a process can have the same error, so only one error is kept for each path.
    """

    def __init__(self) -> None:
        self.errors: list[SpecError] = []
        self._current_path: DocumentPath = ()
        self._reported: set[DocumentPath] = set()
        self._unusable: list[DocumentPath] = []

    def at(self, *keys: str | int) -> AbstractContextManager[object, bool]:
        """Return a context manager that collects and suppresses a `SpecError` raised in its block.

        ``keys`` are prepended to the paths of the errors in the block.
        """
        return _Context(self, keys)

    def enter(self, path: DocumentPath) -> DocumentPath:
        """Append ``path`` to the current path, and return the previous path."""
        outer_path = self._current_path
        self._current_path = (*outer_path, *path)
        return outer_path

    def leave(self, outer_path: DocumentPath) -> None:
        """Restore ``outer_path``, which `enter` returned, as the current path."""
        self._current_path = outer_path

    def add(self, error: SpecError) -> None:
        """Add an error, whose path must be relative to the current path.

        Ignore the error if there is already one with the same path, or if it concerns an unusable
        value.
        """
        error.path = (*self._current_path, *error.path)
        if error.path in self._reported:
            return
        if any(_is_related(error.path, path) for path in self._unusable):
            return
        self._reported.add(error.path)
        self.errors.append(error)

    def add_unusable(self, error: SpecError) -> None:
        """Add an error that makes the value at its path unusable.

        Ignore later errors about this value, its parts and the values that contain it.
        """
        self.add(error)
        self._unusable.append(error.path)


class _Context:
    """A context manager that adds the first error in one part of a document to a collector."""

    def __init__(self, collector: ErrorCollector, path: DocumentPath) -> None:
        self._collector = collector
        self._path = path

    def __enter__(self) -> None:
        self._outer_path = self._collector.enter(self._path)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        is_collected = isinstance(error, SpecError)
        if isinstance(error, SpecError):
            self._collector.add(error)
        self._collector.leave(self._outer_path)
        return is_collected


def _is_related(path: DocumentPath, other: DocumentPath) -> bool:
    """Return whether one of two paths is a prefix of the other."""
    length = min(len(path), len(other))
    return path[:length] == other[:length]
