"""Making a folder hold just what was found, by as little work as is right.

A file is a hard link to its source where that is possible: it costs nothing, and it is the source, however that is
written to. An editor that replaces the file by a new one leaves the link on the old one; so each time link and source
are compared, and linked anew where they are two. Nothing here writes into a linked file or changes its mode.

Across file systems, and where the system allows no link, it is a copy. A copy is kept while its source's inode, size
and times are those that were noted when it was made; a source that was written to so shortly before that its times
might not tell of the next change is not noted, and copied again.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from symphony.addons.docker.scan import Found, children

# How old a source's times must be, in seconds, before they tell of every change: the coarsest clock of a file system.
SETTLED = 2.0
# Where a hard link cannot be made: another file system, too many of them, none there, or none of others' files.
_NO_LINK = frozenset(
    {
        errno.EXDEV,
        errno.EMLINK,
        errno.EPERM,
        errno.EACCES,
        errno.ENOTSUP,
        errno.EOPNOTSUPP,
        errno.ENOSYS,
    }
)

# By path in the context: what source and copy were when the copy was made.
Notes = dict[str, list[list[int]]]


def clear(target: Path, wanted: Mapping[str, Found], anew: frozenset[str]) -> None:
    """Remove what is not wanted, what is of another kind than is wanted, and all of the entries ``anew``."""

    def visit(folder: str, path: str, keep: bool) -> None:
        os.chmod(folder, 0o700)
        for child in children(folder):
            below = f"{path}{child.name}"
            want = wanted.get(below) if keep and below not in anew else None
            kind = stat.S_IFMT(os.lstat(child.path).st_mode)
            stays = want is not None and want.kind == kind
            if kind == stat.S_IFDIR:
                visit(child.path, f"{below}/", stays)
            if not stays:
                (os.rmdir if kind == stat.S_IFDIR else os.unlink)(child.path)

    visit(str(target), "", keep=True)


class Filling:
    """Makes what is wanted, over what is there already; ``notes`` are on its copies, and counted is what was done."""

    def __init__(self, target: Path, notes: Notes) -> None:
        self._target = str(target)
        self._before = notes
        self.notes: Notes = {}
        self.files = self.linked = self.copied = 0

    def fill(self, wanted: dict[str, Found]) -> None:
        """Make all of it; a source that vanished since it was found is left out."""
        make = {stat.S_IFDIR: self._folder, stat.S_IFLNK: self._symlink, stat.S_IFREG: self._file}
        for path, found in wanted.items():
            place = f"{self._target}/{path}"
            with _vanishing(place):
                make[found.kind](path, place, found)
        # Modes come last, inner ones first: in a folder that nobody may write to, nothing could be made.
        for path, found in reversed(wanted.items()):
            if found.kind == stat.S_IFDIR:
                os.chmod(f"{self._target}/{path}", stat.S_IMODE(found.info.st_mode))
        os.chmod(self._target, 0o755)

    def _folder(self, _path: str, place: str, _found: Found) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(place, 0o700)

    def _symlink(self, _path: str, place: str, found: Found) -> None:
        leads_to = Path(found.source).readlink()
        if not Path(place).is_symlink() or Path(place).readlink() != leads_to:
            _remove(place)
            Path(place).symlink_to(leads_to)

    def _file(self, path: str, place: str, found: Found) -> None:
        there = _lstat(place)
        same = there is not None and (there.st_dev, there.st_ino) == (
            found.info.st_dev,
            found.info.st_ino,
        )
        if not same and not self._kept(path, found, there):
            _remove(place)
            if self._link(found.source, place):
                self.linked += 1
            else:
                self._copy(path, place, found)
                self.copied += 1
        self.files += 1

    def _kept(self, path: str, found: Found, there: os.stat_result | None) -> bool:
        noted = self._before.get(path)
        if there is None or noted != [_signature(found.info), _signature(there)]:
            return False
        self.notes[path] = noted
        return True

    def _link(self, source: str, place: str) -> bool:
        try:
            os.link(source, place)
        except OSError as exc:
            if exc.errno not in _NO_LINK:
                raise
            return False
        return True

    def _copy(self, path: str, place: str, found: Found) -> None:
        begun = time.time()
        shutil.copy2(found.source, place)
        if max(found.info.st_mtime, found.info.st_ctime) < begun - SETTLED:
            self.notes[path] = [_signature(found.info), _signature(os.lstat(place))]


def _signature(info: os.stat_result) -> list[int]:
    """What changes whenever a file's content does."""
    return [info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]


def _lstat(place: str) -> os.stat_result | None:
    try:
        return os.lstat(place)
    except FileNotFoundError:
        return None


def _remove(place: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(place)


@contextlib.contextmanager
def _vanishing(place: str) -> Iterator[None]:
    """Leave out what belongs at ``place`` where its source vanished since it was found."""
    try:
        yield
    except FileNotFoundError:
        if not os.path.isdir(os.path.dirname(place)):
            raise  # it is not the source that is not there
        _remove(place)
