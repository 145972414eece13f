"""Listing the files, directories and symbolic links for a build context, without changing them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from symphony.code import ignore
from symphony.errors import SpecError
from symphony.model.experiment.images import ContextEntry
from symphony.model.limits import MAX_DIRECTORY_LEVELS, TOO_MANY_DIRECTORIES
from symphony.support.names import did_you_mean, join_names


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file, directory or symbolic link: its absolute path ``source`` and its file status
    ``info``.
    """

    source: str
    info: os.stat_result

    @property
    def kind(self) -> int:
        """The type of the file, as `stat.S_IFMT` returns it."""
        return stat.S_IFMT(self.info.st_mode)


def scan_entry(entry: ContextEntry, own: Path) -> Iterator[tuple[str, SourceFile]]:
    """Yield a path in the context and a `SourceFile` for ``entry`` itself and, if it is a
    directory, for each item in it. Each directory precedes its contents. The directory ``own`` and
    the items that the entry's ``.dockerignore`` file excludes are omitted.

    If the entry itself is a symbolic link, it is resolved. Symbolic links inside the entry are
    kept. Files that disappear during the scan are skipped, as are sockets, devices and other
    special files. Raises `SpecError` if the entry does not exist, is neither a file nor a
    directory, is inside ``own``, or has an invalid ``.dockerignore`` file. Raises OSError if the
    entry cannot be read.
    """
    source = Path(entry.path)
    try:
        info = source.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise _missing(entry) from None
    if not (stat.S_ISDIR(info.st_mode) or stat.S_ISREG(info.st_mode)):
        raise SpecError(f"context entry {entry.name!r}: {source} is neither a file nor a directory")
    home = source.resolve()
    if home.is_relative_to(own.resolve()):
        raise SpecError(
            f"context entry {entry.name!r}: {source} is inside the directory in which the "
            "context is collected"
        )
    yield entry.name, SourceFile(source=str(home), info=info)
    if stat.S_ISDIR(info.st_mode):
        yield from _Walk(entry.name, home, own).all()


def _missing(entry: ContextEntry) -> SpecError:
    source = Path(entry.path)
    siblings: list[str] = []
    if source.parent.is_dir():
        siblings = sorted(item.name for item in source.parent.iterdir())
    hint = did_you_mean(source.name, siblings)
    if not hint and siblings:
        hint = f"; its directory has: {join_names(siblings)}"
    return SpecError(f"context entry {entry.name!r}: no file or directory {source}{hint}")


class _Walk:
    """A walk through a directory. It omits the files that the directory's ``.dockerignore`` file
    excludes.
    """

    def __init__(self, name: str, root: Path, own: Path) -> None:
        self._name = name
        self._root = str(root)
        self._ignore = _ignored(root)
        info = own.stat()
        self._own = (info.st_dev, info.st_ino)

    def all(self) -> Iterator[tuple[str, SourceFile]]:
        return self._directory(self._root, "", None, [])

    def _directory(
        self,
        source: str,
        path: str,
        above: ignore.Matches | None,
        pending: list[tuple[str, SourceFile]],
    ) -> Iterator[tuple[str, SourceFile]]:
        """Yield the included contents of the directory ``source`` and its subdirectories.
        ``pending`` contains the excluded directories above the current item. They are yielded only
        if they contain an included item.
        """
        if path.count("/") > MAX_DIRECTORY_LEVELS:
            raise SpecError(f"context entry {self._name!r}: {TOO_MANY_DIRECTORIES}")
        for child in children(source):
            below = f"{path}{child.name}"
            found = _lstat_source(child.path)
            if found is None or (found.info.st_dev, found.info.st_ino) == self._own:
                continue
            matches = self._ignore.matches(below, above)
            excluded = self._ignore.excludes(matches)
            pending.append((f"{self._name}/{below}", found))
            if not excluded:
                yield from pending
                pending.clear()
            if found.kind == stat.S_IFDIR and (
                not excluded or self._ignore.may_include_again(below)
            ):
                yield from self._directory(child.path, f"{below}/", matches, pending)
            if pending:
                pending.pop()


def children(directory: str) -> list[os.DirEntry[str]]:
    """Return the entries of a directory, sorted by name, or an empty list if the directory has
    disappeared.
    """
    try:
        with os.scandir(directory) as found:
            return sorted(found, key=lambda child: child.name)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _lstat_source(path: str) -> SourceFile | None:
    try:
        found = SourceFile(source=path, info=os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found if found.kind in {stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK} else None


def _ignored(root: Path) -> ignore.Ignore:
    file = root / ignore.FILE
    try:
        text = file.read_text(encoding="utf-8-sig", errors="surrogateescape")
    except FileNotFoundError:
        return ignore.Ignore()
    return ignore.parse(text, str(file))
