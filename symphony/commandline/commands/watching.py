"""Following the files of an experiment for ``up --watch``."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from symphony.code.watch import FileWatcher
from symphony.names import join_names

if TYPE_CHECKING:
    from symphony.model import Experiment

_MAX_NAMES = 4
# The modules in these directories are not part of the experiment.
_LIBRARIES = ("site-packages", "dist-packages")


class WatchedExperiment:
    """An experiment file that is loaded again after edits.

    The files are the experiment file, the modules in its directory that it imports, and the files
    of the code.
    """

    def __init__(self, file: Path, load: Callable[[], Experiment]) -> None:
        self._file = file.absolute()
        self._load = load
        self._modules: dict[str, Path] = {}
        self._watcher = FileWatcher()
        self._watcher.follow([self._file])

    def __enter__(self) -> WatchedExperiment:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._watcher.close()

    @property
    def count(self) -> int:
        """The number of files."""
        return self._watcher.count

    def load(self) -> Experiment:
        """Load the experiment as its files are now. Raises the errors of the files."""
        for name in self._modules:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        before = frozenset(sys.modules)
        writes_bytecode = not sys.dont_write_bytecode
        # Python would use the compiled module if an edit within a second keeps the size.
        sys.dont_write_bytecode = True
        experiment = None
        try:
            experiment = self._load()
        finally:
            sys.dont_write_bytecode = not writes_bytecode
            imported = dict(_imported_modules(self._file.parent, before))
            # After an error, the modules that were not imported again can contain it.
            self._modules = imported if experiment is not None else {**self._modules, **imported}
            self._watcher.follow([self._file, *self._modules.values()], experiment)
        return experiment

    def wait(self, seconds: float | None) -> list[str]:
        """Return the files that have changed, or an empty list after ``seconds``."""
        return self._watcher.wait(seconds)


def changed_line(paths: Sequence[str]) -> str:
    """Return a line with the paths, which are relative to the working directory if possible."""
    here = Path.cwd()
    names = []
    for path in paths:
        is_below = Path(path).is_relative_to(here)
        names.append(os.path.relpath(path) if is_below else path)
    return f"changed: {join_names(names, limit=_MAX_NAMES)}"


def _imported_modules(directory: Path, before: Collection[str]) -> Iterator[tuple[str, Path]]:
    """Yield the modules in a directory, except libraries, that were imported in addition."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        # A submodule of a library that was in use before must not be imported twice.
        if name in before or name.partition(".")[0] in before or not file:
            continue
        path = Path(file)
        if path.is_relative_to(directory) and not set(_LIBRARIES).intersection(path.parts):
            yield name, path
