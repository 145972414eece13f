"""Following the files of an experiment for ``up --watch``."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from symphony.code.wait_for_edits import FileWatcher
from symphony.commandline.output.terminal import print_note
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.model import Experiment

_MAX_NAMES = 4
# A change is a repetition if it follows an update within this time.
REPETITION_SECONDS = 2.0
REPETITIONS_WITHOUT_DELAY = 3
LONGEST_DELAY_SECONDS = 60.0
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


class RepeatedChanges:
    """Delays the reaction to files that change again after each restart.

    Processes that write to files of the code would otherwise be restarted without end. The delay
    doubles with each repetition. It ends when another file changes.
    """

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._count = 0
        self._updated = 0.0

    def note_update(self) -> None:
        """Record that the experiment has been updated."""
        self._updated = time.monotonic()

    def delay_after(self, changed: Sequence[str]) -> float:
        """Return how many seconds to wait before the next update because of some files."""
        is_repeated = bool(self._names) and self._names.issuperset(changed)
        if not is_repeated or time.monotonic() > self._updated + REPETITION_SECONDS:
            self._names, self._count = frozenset(changed), 0
            return 0.0
        self._count += 1
        excess = self._count - REPETITIONS_WITHOUT_DELAY
        return 0.0 if excess <= 0 else min(LONGEST_DELAY_SECONDS, float(2**excess))

    def wait(self, watched: WatchedExperiment, changed: Sequence[str]) -> list[str]:
        """Wait if files change repeatedly. Return all files that have changed in the meantime."""
        names = set(changed)
        delay = self.delay_after(changed)
        if not delay:
            return sorted(names)
        print_note(
            f"{join_names(relative_names(changed), limit=_MAX_NAMES)} changed again right after "
            f"{self._count} restarts, so the next one waits for {delay:g} s; if the processes "
            "write to it, add it to .symphonyignore"
        )
        deadline = time.monotonic() + delay
        while names <= self._names and (seconds := deadline - time.monotonic()) > 0:
            names.update(watched.wait(seconds))
        return sorted(names)


def relative_names(paths: Sequence[str]) -> list[str]:
    """Return the paths, which are relative to the working directory if possible."""
    here = Path.cwd()
    return [_relative_name(path, here) for path in paths]


def _relative_name(path: str, directory: Path) -> str:
    return os.path.relpath(path, directory) if Path(path).is_relative_to(directory) else path


def changed_line(paths: Sequence[str]) -> str:
    """Return a line with the paths."""
    return f"changed: {join_names(relative_names(paths), limit=_MAX_NAMES)}"


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
