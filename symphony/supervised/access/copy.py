"""Copying files and directories to and from the working directories of processes, like ``cp -r``.

A copy is first made in a temporary directory in or next to its destination, and is moved to its
final path when it is complete. Readers of a file see either its old or its new contents. If an
error occurs while the copy is being made, the old contents remain in place. If the source itself is
a symbolic link, the link is followed. Links inside a directory are copied as links. Permission bits
and modification times are preserved, and sockets are skipped.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.errors import NotFound, SpecError
from symphony.model.limits import MAX_DIRECTORY_LEVELS, TOO_MANY_DIRECTORIES

if TYPE_CHECKING:
    from symphony.cluster.backend import Place

# The permission bits of a mode. A copy has the same permission bits as its source. Set-user-id and
# similar bits are not copied.
_PERMISSION_BITS = 0o777

# If the last part of a path is one of these, the path stands for the contents of its directory.
_CONTENT_NAMES = ("", ".", "..")

_NAME_IN_STAGING = "copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyPath:
    """The source or the destination of a copy.

    ``text`` is the user's argument, and ``path`` is the resolved path.
    """

    text: str
    path: str

    @property
    def name(self) -> str:
        """The last part of the path, or ``""`` if that part is ``.``, ``..`` or empty."""
        name = posixpath.basename(self.path.rstrip("/"))
        return "" if name in _CONTENT_NAMES else name

    @property
    def must_be_directory(self) -> bool:
        """True if the path can only be a directory, because it ends with ``/`` or has no `name`."""
        return self.path.endswith("/") or not self.name

    @property
    def without_slash(self) -> str:
        """The path without trailing slashes.

        The operating system accepts a trailing slash only after a directory.
        """
        return self.path.rstrip("/") or "/"


def resolve_path(place: Place, manifest: Mapping[str, Any]) -> CopyPath:
    """Return the path of a place.

    A relative path in a process is relative to the process's working directory.
    """
    if place.process is None:
        return CopyPath(text=place.text, path=place.path)
    name = place.process.find().name
    spec = next(spec for spec in manifest["processes"] if spec["name"] == name)
    return CopyPath(text=place.text, path=posixpath.join(spec["cwd"], place.path))


def copy(source: CopyPath, target: CopyPath, *, dry_run: bool = False) -> None:
    """Copy a file or a directory.

    If the target is an existing directory, the copy is made inside it. A source that ends with
    ``/.`` stands for the contents of the directory. A directory is merged into an existing
    directory, and existing files are replaced. If ``dry_run`` is true, the paths are checked, but
    nothing is copied.

    Raises NotFound if the source or the target's directory does not exist, and SpecError if
    anything else prevents the copy.
    """
    with _wrap_os_errors(source, target):
        is_directory = _is_directory(source)
        final = _final_path(source, target)
        _check_target(source, target, final, is_directory=is_directory)
        if dry_run:
            return
        with _staging_path(final if final.is_dir() else final.parent) as staging:
            if is_directory:
                shutil.copytree(
                    source.path,
                    staging,
                    symlinks=True,
                    ignore=_SocketFilter(source.path),
                    copy_function=_copy_file,
                )
                _move_directory(staging, final, target)
            else:
                _copy_file(source.without_slash, str(staging))
                staging.replace(final)


# --- checks ---


def _is_directory(source: CopyPath) -> bool:
    """Return whether the source is a directory.

    Raises NotFound if the source does not exist, and SpecError if it is neither a directory nor a
    file.
    """
    problem = f"cannot copy {source.text!r}"
    try:
        # ``Path`` would remove a trailing "/.", which is valid only after a directory.
        mode = os.stat(source.without_slash).st_mode  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"{problem}: no such file or directory: {source.path}") from None
    except (OSError, ValueError) as exc:
        raise SpecError(f"{problem}: {getattr(exc, 'strerror', None) or exc}") from exc
    if stat.S_ISDIR(mode):
        return True
    if stat.S_ISREG(mode):
        return False
    raise SpecError(f"{problem}: it is neither a file nor a directory")


def _final_path(source: CopyPath, target: CopyPath) -> Path:
    """Return the path that the copy will have.

    Raises NotFound if the directory that would contain the copy does not exist.
    """
    path = Path(target.path)
    if path.is_dir():
        return path / source.name
    if target.must_be_directory or not path.parent.is_dir():
        directory = path if target.must_be_directory else path.parent
        raise NotFound(f"cannot copy to {target.text!r}: no such directory: {directory}")
    return path


def _check_target(source: CopyPath, target: CopyPath, final: Path, *, is_directory: bool) -> None:
    problem = f"cannot copy {source.text!r} to {target.text!r}"
    if final.exists() and final.samefile(source.without_slash):
        kind = "directory" if is_directory else "file"
        raise SpecError(f"{problem}: they are the same {kind}")
    if is_directory:
        real_source, real_final = os.path.realpath(source.path), os.path.realpath(final)
        if Path(real_final).is_relative_to(real_source):
            raise SpecError(f"{problem}: a directory cannot be copied into itself")
    if final.is_dir() != is_directory and os.path.lexists(final):
        raise SpecError(f"{problem}: {_cannot_replace_message(is_directory=is_directory)}")
    if final.exists() and not final.is_dir() and not final.is_file():
        raise SpecError(f"{problem}: the existing target is neither a file nor a directory")
    _check_writable(final if final.is_dir() else final.parent, target)


def _cannot_replace_message(*, is_directory: bool) -> str:
    if is_directory:
        return "a directory cannot replace a file"
    return "a file cannot replace a directory"


def _check_writable(directory: Path, target: CopyPath) -> None:
    if not os.access(directory, os.W_OK | os.X_OK):
        raise SpecError(f"cannot copy to {target.text!r}: this user may not write to {directory}")


@contextlib.contextmanager
def _wrap_os_errors(source: CopyPath, target: CopyPath) -> Iterator[None]:
    """Convert operating-system errors to SpecError with a one-line message."""
    try:
        yield
    except shutil.Error as exc:
        # copytree collects its errors. Each one contains the text of an OSError, such as "[Errno
        # 13] Permission denied: ...".
        path, _, text = exc.args[0][0]
        _, _, after_number = text.partition("] ")
        reason, _, _ = after_number.partition(": ")
        raise SpecError(f"cannot copy {str(path)!r}: {reason or text}") from exc
    except OSError as exc:
        raise SpecError(
            f"cannot copy {source.text!r} to {target.text!r}: {exc.strerror or exc}"
        ) from exc


# --- the copy in the temporary directory ---


@contextlib.contextmanager
def _staging_path(directory: Path) -> Iterator[Path]:
    """Yield a path in a temporary directory inside ``directory``.

    The temporary directory is removed at the end of the block.
    """
    staging = Path(tempfile.mkdtemp(prefix=".symphony-", dir=directory))
    try:
        yield staging / _NAME_IN_STAGING
    finally:
        _make_directories_writable(staging)
        shutil.rmtree(staging, ignore_errors=True)


def _copy_file(source: str, target: str) -> None:
    try:
        mode = Path(source).stat().st_mode
        if not stat.S_ISREG(mode):
            raise SpecError(f"cannot copy {source!r}: it is neither a file, a directory nor a link")
        shutil.copy2(source, target)
        Path(target).chmod(mode & _PERMISSION_BITS)
    except OSError as exc:
        raise SpecError(f"cannot copy {source!r}: {exc.strerror or exc}") from exc


class _SocketFilter:
    """The function that `shutil.copytree` calls for each directory below ``top``.

    It returns the names of the sockets, which are not copied. Raises SpecError if the directories
    are nested so deeply that `shutil.copytree`, which is recursive, would exhaust the stack.
    """

    def __init__(self, top: str) -> None:
        self._top = top
        self._max_parts = len(Path(top).parts) + MAX_DIRECTORY_LEVELS

    def __call__(self, directory: str, names: Iterable[str]) -> list[str]:
        if len(Path(directory).parts) > self._max_parts:
            raise SpecError(f"cannot copy {self._top!r}: {TOO_MANY_DIRECTORIES}")
        return [name for name in names if stat.S_ISSOCK(Path(directory, name).lstat().st_mode)]


def _make_directories_writable(top: Path) -> dict[Path, int]:
    """Make a directory tree writable, so that its contents can be moved or removed.

    Return a mapping from the directories to their previous modes. A directory that does not exist
    is not an error.
    """
    modes: dict[Path, int] = {}

    def make_writable(path: Path) -> None:
        modes[path] = path.stat().st_mode & _PERMISSION_BITS
        path.chmod(modes[path] | stat.S_IRWXU)

    with contextlib.suppress(FileNotFoundError):
        make_writable(top)
        for parent, names, _ in os.walk(top):
            for name in names:
                path = Path(parent, name)
                if not path.is_symlink():
                    make_writable(path)
    return modes


# --- the move to the final place ---


def _move_directory(staging: Path, final: Path, target: CopyPath) -> None:
    """Move a directory to its final path, or move its contents into an existing directory."""
    modes = _make_directories_writable(staging)
    moves = list(_plan_moves(staging, final, target)) if final.is_dir() else [(staging, final)]
    for path, destination in moves:
        path.replace(destination)
        if path in modes:
            _restore_modes(path, destination, modes)


def _plan_moves(staging: Path, final: Path, target: CopyPath) -> Iterator[tuple[Path, Path]]:
    """Yield the smallest set of moves that merges one directory into another.

    Raises SpecError if a directory would replace a file, or a file would replace a directory. The
    caller collects all moves before it makes the first move, so that such an error changes nothing.
    """
    for path in sorted(staging.iterdir()):
        destination = final / path.name
        is_directory = path.is_dir() and not path.is_symlink()
        replaces_directory = destination.is_dir() and not destination.is_symlink()
        if is_directory and replaces_directory:
            yield from _plan_moves(path, destination, target)
        elif replaces_directory or (is_directory and os.path.lexists(destination)):
            reason = _cannot_replace_message(is_directory=is_directory)
            raise SpecError(f"cannot copy to {str(destination)!r}: {reason}")
        else:
            _check_writable(final, target)
            yield path, destination


def _restore_modes(moved: Path, destination: Path, modes: Mapping[Path, int]) -> None:
    """Restore the modes of moved directories.

    ``modes`` maps the path of each directory before the move to its mode.

    The modes of the innermost directories are restored first, because a restored mode can forbid
    access to a directory's contents.
    """
    for directory, _, _ in os.walk(destination, topdown=False):
        mode = modes.get(moved / Path(directory).relative_to(destination))
        if mode is not None:
            Path(directory).chmod(mode)
