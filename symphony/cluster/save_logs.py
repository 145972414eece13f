"""Saving the log of each process to a file in a directory that the user selects."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path

from symphony.errors import unusable_path_errors, with_filename
from symphony.log_blocks import LogBlock
from symphony.log_text import to_bytes
from symphony.support.replace_file import replace_file

MAX_CONCURRENT_READS = 8
MAX_OPEN_LOG_FILES = 128


def save_once(
    directory: str | os.PathLike[str], names: Sequence[str], read: Callable[[str], Iterable[str]]
) -> dict[str, Path]:
    """Write the log of each process to a file, and return a mapping from process names to paths.

    ``read`` returns the log of the process with the given name, in pieces. An existing file is
    replaced once the new file is complete.
    """
    files = _log_files(directory, names)

    def save(name: str) -> None:
        replace_file(files[name], map(to_bytes, read(name)))

    with ThreadPoolExecutor(max_workers=MAX_CONCURRENT_READS) as pool:
        # Iterating over the results raises the first error that occurred in a thread.
        for _ in pool.map(save, names):
            pass
    return files


def save_following(
    directory: str | os.PathLike[str], names: Sequence[str], blocks: Iterable[LogBlock]
) -> dict[str, Path]:
    """Write the output of each process to its file until ``blocks`` is exhausted.

    Existing files are emptied first. Return a mapping from process names to paths.
    """
    files = _log_files(directory, names)
    for path in files.values():
        path.write_text("")
    with _LogWriters() as writers:
        for block in blocks:
            path = files[block.process]
            with with_filename(path):
                _write(writers.get(path), to_bytes(block.text))
    return files


def _write(file: FileIO, data: bytes) -> None:
    """Write all data. If the disk becomes full, a write stores a part before the next one fails."""
    written = file.write(data)
    while written < len(data):
        written += file.write(data[written:])


def _log_files(directory: str | os.PathLike[str], names: Sequence[str]) -> dict[str, Path]:
    parent = Path(directory)
    with unusable_path_errors(parent, "used as the directory of the logs"):
        parent.mkdir(parents=True, exist_ok=True)
    return {name: parent / f"{name}.log" for name in names}


class _LogWriters:
    """Log files that are open for appending.

    At most `MAX_OPEN_LOG_FILES` files are open at once. The least recently used file is closed
    first.
    """

    def __init__(self) -> None:
        self._files: OrderedDict[Path, FileIO] = OrderedDict()

    def __enter__(self) -> _LogWriters:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def get(self, path: Path) -> FileIO:
        """Return the unbuffered file for ``path``, opening it if necessary."""
        if path in self._files:
            self._files.move_to_end(path)
            return self._files[path]
        if len(self._files) >= MAX_OPEN_LOG_FILES:
            _, oldest = self._files.popitem(last=False)
            oldest.close()
        file = path.open("ab", buffering=0)
        self._files[path] = file
        return file
