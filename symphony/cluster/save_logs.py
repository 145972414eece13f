"""Logs as files: one for each process, in a folder of the user's."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

from symphony.errors import with_filename
from symphony.status import LogLine

# How many logs are asked for at once, and how many files are open at once.
AT_ONCE = 8
OPEN_FILES = 128


def save_into(
    folder: str | os.PathLike[str], names: Sequence[str], read: Callable[[str], str]
) -> dict[str, Path]:
    """Write what ``read`` returns for each name to its file; a file is replaced once the new one is whole."""
    files = _files(folder, names)

    def save(name: str) -> None:
        _replace(files[name], read(name))

    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        for _ in pool.map(save, names):
            pass
    return files


def follow_into(
    folder: str | os.PathLike[str], names: Sequence[str], lines: Iterable[LogLine]
) -> dict[str, Path]:
    """Write lines to the files of their processes as they come, until there are no more."""
    files = _files(folder, names)
    for path in files.values():
        path.write_text("")
    with _Open() as opened:
        for line in lines:
            with with_filename(files[line.process]):
                opened.file(files[line.process]).write(f"{line.text}\n")
    return files


def _files(folder: str | os.PathLike[str], names: Sequence[str]) -> dict[str, Path]:
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    return {name: place / f"{name}.log" for name in names}


def _replace(path: Path, text: str) -> None:
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with with_filename(path):
            with made.open("w", encoding="utf-8", newline="") as file:
                file.write(text)
            made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


class _Open:
    """Files that are being added to; of many, those that were written to last are kept open."""

    def __init__(self) -> None:
        self._files: OrderedDict[Path, TextIO] = OrderedDict()

    def __enter__(self) -> _Open:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def file(self, path: Path) -> TextIO:
        """A file to add to, line by line."""
        if path in self._files:
            self._files.move_to_end(path)
            return self._files[path]
        if len(self._files) >= OPEN_FILES:
            self._files.popitem(last=False)[1].close()
        self._files[path] = path.open("a", encoding="utf-8", buffering=1, newline="")
        return self._files[path]
