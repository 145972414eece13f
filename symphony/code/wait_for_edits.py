"""Waiting for edits of code and of other files, with the library watchfiles.

The library only reports that something has changed in a directory. Which files belong to the code
is determined by listing them again, so that files that git or ``.symphonyignore`` ignores have no
effect. The directories with ignored files are not watched, because programs can write to them all
the time.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.code.listing import list_directories, list_files
from symphony.errors import BackendError, PluginError, SymphonyError
from symphony.model.settings.code import CodeSource, code_source

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

    from symphony.model import Experiment

# Changes are reported when there was no other change for this long, or after the longer time. The
# library wakes up this often, which takes less than a thousandth of a processor.
_STEP_MILLISECONDS = 100
_DEBOUNCE_MILLISECONDS = 2000
_MAX_UNRELATED = 10_000
# The library replaces bytes that are not UTF-8 by this character.
_REPLACEMENT = "\ufffd"

# The identity of the content of a file. A file that cannot be read has an error message instead.
_Mark = tuple[int, ...] | str
# The device and the inode of a directory.
_Identity = tuple[int, int]


class FileWatcher:
    """Waits until files of an experiment change.

    The files are those of its code, and further files, such as the experiment file. Changes between
    two calls of `wait` are never lost.
    """

    def __init__(self) -> None:
        check_library()
        self._sources: frozenset[tuple[Path, CodeSource]] = frozenset()
        self._files: frozenset[Path] = frozenset()
        self._marks: dict[str, _Mark] = {}
        self._directories: dict[str, _Identity] = {}
        self._notify: RustNotify | None = None
        self._outputs = frozenset(_output_files())
        # Paths that are known not to belong to the code.
        self._unrelated: set[str] = set()

    @property
    def count(self) -> int:
        """The number of files."""
        return len(self._marks)

    def follow(self, files: Iterable[Path], experiment: Experiment | None = None) -> None:
        """Replace the files. Changes of a file that was known before are still reported."""
        self._files = frozenset(files)
        if experiment is not None:
            self._sources = frozenset(_code_directories(experiment))
        marks = self._scan()
        self._marks = {path: self._marks.get(path, mark) for path, mark in marks.items()}

    def wait(self, seconds: float | None = None) -> list[str]:
        """Return the paths of the files that have changed, as soon as there are any.

        The result is empty if none has changed after ``seconds``. Raises KeyboardInterrupt after
        Ctrl-C.
        """
        # After a call of `follow`, changes can already be known.
        changed = self._take_changes()
        while not changed:
            paths = self._next_paths(seconds)
            if paths is None:
                return []
            if not self._unrelated.issuperset(paths):
                changed = self._take_changes()
                self._note_unrelated(paths, changed)
        return changed

    def close(self) -> None:
        """Stop watching."""
        if self._notify is not None:
            self._notify.close()

    def _next_paths(self, seconds: float | None) -> set[str] | None:
        """Return the paths that the library reports, or None after ``seconds``."""
        if self._notify is None:
            raise BackendError("there are no files to watch")
        timeout = 0 if seconds is None else max(1, round(seconds * 1000))
        found = self._notify.watch(_DEBOUNCE_MILLISECONDS, _STEP_MILLISECONDS, timeout, None)
        if found == "signal":
            raise KeyboardInterrupt
        if isinstance(found, str):
            return None
        return {path for _, path in found}

    def _note_unrelated(self, paths: Collection[str], changed: Collection[str]) -> None:
        if changed or len(self._unrelated) > _MAX_UNRELATED:
            # The files that contain the patterns may have changed.
            self._unrelated.clear()
        for path in paths:
            is_known = path in self._marks or path in self._directories
            if not is_known and _REPLACEMENT not in path:
                self._unrelated.add(path)

    def _take_changes(self) -> list[str]:
        """Return the files that differ from those at the previous call."""
        before, self._marks = self._marks, self._scan()
        names = {*before, *self._marks}
        return sorted(name for name in names if before.get(name) != self._marks.get(name))

    def _scan(self) -> dict[str, _Mark]:
        """Return all files, and watch their directories."""
        while True:
            marks, directories = self._list()
            if directories == self._directories:
                return marks
            # Files can be created before their directory is watched, so it is listed again.
            self._watch(directories)

    def _watch(self, directories: dict[str, _Identity]) -> None:
        from watchfiles._rust_notify import RustNotify

        self._directories = {}
        try:
            notify = RustNotify(sorted(directories), False, False, 0, False, True)
        except FileNotFoundError:
            # A directory was removed in the meantime.
            return
        except OSError as exc:
            raise BackendError(
                f"{len(directories)} directories cannot be watched: {exc}; raise the limits "
                "fs.inotify.max_user_watches and max_user_instances, or exclude directories in "
                ".symphonyignore"
            ) from exc
        self.close()
        self._notify = notify
        self._directories = directories

    def _list(self) -> tuple[dict[str, _Mark], dict[str, _Identity]]:
        """Return all files, and the directories in which files can appear.

        The path of a directory can lead to another one later, for example through a link.
        """
        marks: dict[str, _Mark] = {}
        directories = {str(path.parent) for path in self._files}
        for path in self._files:
            marks[str(path)] = _mark_of_path(path)
        for directory, source in self._sources:
            root = str(directory)
            if directory.is_symlink():
                directories.add(str(directory.parent))
            try:
                for file in list_files(directory, source):
                    # A file to which this program writes would otherwise change without end.
                    if (file.info.st_dev, file.info.st_ino) not in self._outputs:
                        marks[f"{root}/{file.path}"] = _mark(file.info)
                directories.update(list_directories(directory, source))
            except (SymphonyError, OSError) as exc:
                # The next command reports the error, too.
                marks[root] = str(exc)
            directories.update(os.path.dirname(path) for path in marks)  # noqa: PTH120
        identities: dict[str, _Identity] = {}
        for name in filter(_is_encodable, directories):
            with contextlib.suppress(OSError):
                info = os.stat(name)  # noqa: PTH116
                if stat.S_ISDIR(info.st_mode):
                    identities[name] = (info.st_dev, info.st_ino)
        return marks, identities


def check_library() -> None:
    """Raise `PluginError` if the library is not installed."""
    try:
        import watchfiles._rust_notify  # noqa: F401
    except ModuleNotFoundError as exc:
        from symphony.support.install_hints import install_command

        raise PluginError(
            f"--watch needs the package 'watchfiles'; install it with: {install_command('watch')}"
        ) from exc


def _code_directories(experiment: Experiment) -> Iterator[tuple[Path, CodeSource]]:
    base = experiment.base_dir or Path.cwd()
    for process in experiment.list_all_processes():
        source = code_source(process)
        if source is not None:
            yield Path(os.path.abspath(base / source.path)), source  # noqa: PTH100


def _output_files() -> Iterator[tuple[int, int]]:
    """Yield the device and the inode of the files to which the output of this program goes."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            info = os.fstat(descriptor)
            yield info.st_dev, info.st_ino


def _mark(info: os.stat_result) -> _Mark:
    return (info.st_mtime_ns, info.st_size, info.st_mode, info.st_ino)


def _mark_of_path(path: Path) -> _Mark:
    try:
        return _mark(path.stat())
    except OSError as exc:
        return str(exc)


def _is_encodable(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
