"""Collect all errors of a document instead of stopping at the first one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

from symphony.errors import SpecError
from symphony.model.document_path import DocumentPath


class ErrorCollector:
    """The errors found in a document, in the order in which they were added.

    There is at most one error for each path, because several copies of a process can have the same
    error.
    """

    def __init__(self) -> None:
        self.errors: list[SpecError] = []
        self._current_path: DocumentPath = ()
        self._reported: set[DocumentPath] = set()
        self._unusable: list[DocumentPath] = []

    def at(self, *keys: str | int) -> AbstractContextManager[object, bool]:
        """Return a context manager that adds a `SpecError` from its block, and then continues.

        ``keys`` are prepended to the paths of the errors in the block.
        """
        return _Context(self, keys)

    def enter(self, path: DocumentPath) -> DocumentPath:
        """Append ``path`` to the current path, and return the previous path."""
        outer_path = self._current_path
        self._current_path = (*outer_path, *path)
        return outer_path

    def leave(self, outer_path: DocumentPath) -> None:
        """Restore the path that `enter` returned."""
        self._current_path = outer_path

    def add(self, error: SpecError) -> None:
        """Add an error, whose path is relative to the current path."""
        error.path = (*self._current_path, *error.path)
        if error.path in self._reported:
            return
        if any(_is_related(error.path, path) for path in self._unusable):
            return
        self._reported.add(error.path)
        self.errors.append(error)

    def add_unusable(self, error: SpecError) -> None:
        """Add an error, and ignore later errors in the same value, because they follow from it."""
        self.add(error)
        self._unusable.append(error.path)


class _Context:
    """A context manager for a part of a document that adds its first error to a collector."""

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
