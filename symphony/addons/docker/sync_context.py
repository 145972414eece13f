"""Make a directory contain exactly the given files, with as few operations as possible.

If possible, a file is a hard link to its source. A hard link requires no additional space, and
every write to the source is visible through the link. However, if an editor replaces the source
file, the link still refers to the old file. Each synchronization therefore checks whether the link
still refers to the source, and creates the link again if it does not. This module never writes to a
linked file or changes its mode.

If a hard link is impossible, for example across file systems, the file is copied. A copy is kept
as long as the inode, size and timestamps of both the copy and its source equal the recorded values.
If a source changed so recently that another change might leave its timestamps unchanged, nothing is
recorded, and the next synchronization copies the file again.

No library is used for this purpose, because libraries for synchronizing directories copy every
file. They neither create hard links nor detect that a link refers to an old version of its source.
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

from symphony.addons.docker.scan import SourceFile, children

# The age in seconds after which a source's timestamps reliably reveal any further change. The value
# is the coarsest timestamp resolution of common file systems.
SETTLED_SECONDS = 2.0
# The errors that indicate that a hard link is impossible: the source is on another file system or
# has too many links, hard links are not supported, or the file belongs to another user.
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

# Maps the path of each copy in the context to the signatures of the source and of the copy, which
# are recorded when the file is copied.
Notes = dict[str, list[list[int]]]


def clear(target: Path, wanted: Mapping[str, SourceFile], forced: frozenset[str]) -> None:
    """Remove everything in ``target`` that is not in ``wanted`` or that has a different file type
    in ``wanted``, and everything that belongs to the entries in ``forced``.
    """

    def visit(directory: str, path: str, keep: bool) -> None:
        os.chmod(directory, 0o700)  # noqa: PTH101
        for child in children(directory):
            below = f"{path}{child.name}"
            want = wanted.get(below) if keep and below not in forced else None
            kind = stat.S_IFMT(os.lstat(child.path).st_mode)
            stays = want is not None and want.kind == kind
            if kind == stat.S_IFDIR:
                visit(child.path, f"{below}/", stays)
            if not stays:
                (os.rmdir if kind == stat.S_IFDIR else os.unlink)(child.path)

    visit(str(target), "", keep=True)


class ContextSync:
    """A helper that creates the wanted files and replaces those that are outdated. ``notes``
    describes the copies. The attributes ``files``, ``linked`` and ``copied`` are the numbers of all
    regular files, of new hard links and of new copies.
    """

    def __init__(self, target: Path, notes: Notes) -> None:
        self._target = str(target)
        self._before = notes
        self.notes: Notes = {}
        self.files = self.linked = self.copied = 0

    def fill(self, wanted: dict[str, SourceFile]) -> None:
        """Create all files in ``wanted`` that are missing or outdated. A source that has
        disappeared since the scan is skipped.
        """
        make = {
            stat.S_IFDIR: self._directory,
            stat.S_IFLNK: self._symlink,
            stat.S_IFREG: self._file,
        }
        for path, found in wanted.items():
            target = f"{self._target}/{path}"
            with _skip_vanished(target):
                make[found.kind](path, target, found)
        # Set the modes of directories last and from the innermost outwards, because nothing can be
        # created in a read-only directory.
        for path, found in reversed(wanted.items()):
            if found.kind == stat.S_IFDIR:
                os.chmod(f"{self._target}/{path}", stat.S_IMODE(found.info.st_mode))  # noqa: PTH101
        os.chmod(self._target, 0o755)  # noqa: PTH101

    def _directory(self, _path: str, target: str, _found: SourceFile) -> None:
        with contextlib.suppress(FileExistsError):
            os.mkdir(target, 0o700)  # noqa: PTH102

    def _symlink(self, _path: str, target: str, found: SourceFile) -> None:
        link_target = Path(found.source).readlink()
        if not Path(target).is_symlink() or Path(target).readlink() != link_target:
            _remove(target)
            Path(target).symlink_to(link_target)

    def _file(self, path: str, target: str, found: SourceFile) -> None:
        existing = _lstat(target)
        is_linked = existing is not None and os.path.samestat(existing, found.info)
        if not is_linked and not self._keep_copy(path, found, existing):
            _remove(target)
            if self._link(found.source, target):
                self.linked += 1
            else:
                self._copy(path, target, found)
                self.copied += 1
        self.files += 1

    def _keep_copy(self, path: str, found: SourceFile, existing: os.stat_result | None) -> bool:
        """Return True, and keep the notes about the existing copy, if neither the copy nor its
        source has changed.
        """
        noted = self._before.get(path)
        if existing is None or noted != [_signature(found.info), _signature(existing)]:
            return False
        self.notes[path] = noted
        return True

    def _link(self, source: str, target: str) -> bool:
        try:
            os.link(source, target)
        except OSError as exc:
            if exc.errno not in _NO_LINK:
                raise
            return False
        return True

    def _copy(self, path: str, target: str, found: SourceFile) -> None:
        started = time.time()
        shutil.copy2(found.source, target)
        if max(found.info.st_mtime, found.info.st_ctime) < started - SETTLED_SECONDS:
            self.notes[path] = [_signature(found.info), _signature(os.lstat(target))]


def _signature(info: os.stat_result) -> list[int]:
    """Return attributes of a file, at least one of which changes if the file's contents change."""
    return [info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]


def _lstat(target: str) -> os.stat_result | None:
    try:
        return os.lstat(target)
    except FileNotFoundError:
        return None


def _remove(target: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(target)  # noqa: PTH108


@contextlib.contextmanager
def _skip_vanished(target: str) -> Iterator[None]:
    """If the source of ``target`` has disappeared since the scan, remove ``target`` and ignore the
    error.
    """
    try:
        yield
    except FileNotFoundError:
        if not os.path.isdir(os.path.dirname(target)):  # noqa: PTH112, PTH120
            raise  # The target's directory is missing, not the source, so report the error.
        _remove(target)
