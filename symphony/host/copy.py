"""Copying files and folders from and to the folders of processes of this machine, as ``cp -r`` does.

What is copied is made whole beside the place where it belongs, and only then moved there: who looks sees the old or
the new, and where anything goes wrong the old is left. Links that are named are followed, others kept as they are;
modes and times are kept, sockets left out.
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
from typing import Any

from symphony.cluster.matching import find_status
from symphony.cluster.remote_path import RemotePath
from symphony.errors import NotFound, SpecError
from symphony.status import ExperimentStatus

_OF_ALL = 0o777  # the part of a mode that is copied: who may read, write and run
_ALL_OF_IT = ("", ".", "..")  # the last part of a path that means what is in a folder


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """One end of a copy: what was ``said``, the ``path`` that it means, and ``where`` that is, for messages."""

    said: str
    path: str
    where: str

    @property
    def name(self) -> str:
        """What it is called; empty where what is in a folder is meant, as by ``folder/.``."""
        name = posixpath.basename(self.path.rstrip("/"))
        return "" if name in _ALL_OF_IT else name

    @property
    def is_folder_to_be(self) -> bool:
        """Whether a folder is meant: ``folder/`` and what is in one."""
        return self.path.endswith("/") or not self.name


def end(
    text: str, beside: RemotePath | None, status: ExperimentStatus, manifest: Mapping[str, Any]
) -> End:
    """What ``text`` means, which is ``beside`` a process of an experiment or a path here. Raises `NotFound`."""
    if beside is None:
        return End(said=text, path=text, where="here")
    found = find_status(status, beside.process, beside.group)
    folder = next(spec["cwd"] for spec in manifest["processes"] if spec["name"] == found.name)
    path = posixpath.join(folder, beside.path)
    return End(said=text, path=path, where=f"beside {found.name!r}")


def copy(source: End, target: End, *, dry_run: bool = False) -> None:
    """Copy a file or a folder.

    Into a target that is a folder, else under its name; ``folder/.`` is what is in the folder. A folder that is there
    already is added to, files are replaced. Raises `NotFound`, and `SpecError` for what cannot be copied so.
    """
    with _told(source, target):
        is_folder = _is_folder(source)
        final = _final(source, target)
        _refuse(source, target, final, is_folder=is_folder)
        if not dry_run:
            _copy(source, target, final, is_folder=is_folder)


def _copy(source: End, target: End, final: Path, *, is_folder: bool) -> None:
    with _aside(final if final.is_dir() else final.parent) as made:
        if is_folder:
            shutil.copytree(
                source.path, made, symlinks=True, ignore=_sockets, copy_function=_copy_file
            )
            _keep_folder(made, final, target)
        else:
            _copy_file(source.path.rstrip("/"), str(made))
            made.replace(final)


# --- what is wrong ---


def _is_folder(source: End) -> bool:
    try:
        mode = os.stat(source.path.rstrip("/") or "/").st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"cannot copy {source.said!r}: there is no such file or folder {source.where}"
        ) from None
    except (OSError, ValueError) as exc:
        raise SpecError(
            f"cannot copy {source.said!r}: {getattr(exc, 'strerror', None) or exc}"
        ) from exc
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise SpecError(f"cannot copy {source.said!r}: it is neither a file nor a folder")
    return stat.S_ISDIR(mode)


def _final(source: End, target: End) -> Path:
    """Where what is copied comes to stand."""
    path = Path(target.path)
    if path.is_dir():
        return path / source.name
    if target.is_folder_to_be or not path.parent.is_dir():
        raise NotFound(f"cannot copy to {target.said!r}: there is no such folder {target.where}")
    return path


def _refuse(source: End, target: End, final: Path, *, is_folder: bool) -> None:
    both = f"cannot copy {source.said!r} to {target.said!r}"
    if final.exists() and final.samefile(source.path.rstrip("/") or "/"):
        raise SpecError(f"{both}: they are the same {'folder' if is_folder else 'file'}")
    if is_folder and Path(os.path.realpath(final)).is_relative_to(os.path.realpath(source.path)):
        raise SpecError(f"{both}: a folder cannot be copied into itself")
    if final.is_dir() != is_folder and os.path.lexists(final):
        raise SpecError(f"{both}: {_IN_THE_WAY[is_folder]}")
    if final.exists() and not (final.is_dir() or final.is_file()):
        raise SpecError(f"{both}: what is there is neither a file nor a folder")
    _refuse_closed(final if final.is_dir() else final.parent, target)


_IN_THE_WAY = {
    False: "a file cannot take the place of a folder",
    True: "a folder cannot take the place of a file",
}


def _refuse_closed(folder: Path, target: End) -> None:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise SpecError(f"cannot copy to {target.said!r}: this user may not write to {folder}")


@contextlib.contextmanager
def _told(source: End, target: End) -> Iterator[None]:
    """Say in one line what the system refused."""
    try:
        yield
    except shutil.Error as exc:
        path, _, why = exc.args[0][
            0
        ]  # the first of them, with an OSError as text: [Errno 13] Permission denied: ...
        raise SpecError(
            f"cannot copy {str(path)!r}: {why.partition('] ')[2].partition(': ')[0] or why}"
        ) from exc
    except OSError as exc:
        raise SpecError(
            f"cannot copy {source.said!r} to {target.said!r}: {exc.strerror or exc}"
        ) from exc


# --- made aside ---


@contextlib.contextmanager
def _aside(folder: Path) -> Iterator[Path]:
    """A path in a folder of its own in ``folder``; what is left there at the end is removed."""
    made = Path(tempfile.mkdtemp(prefix=".symphony-", dir=folder))
    try:
        yield made / "it"
    finally:
        _opened(made)
        shutil.rmtree(made, ignore_errors=True)


def _copy_file(source: str, target: str) -> None:
    try:
        mode = Path(source).stat().st_mode
        if not stat.S_ISREG(mode):
            raise SpecError(f"cannot copy {source!r}: it is neither a file, a folder nor a link")
        shutil.copy2(source, target)
        Path(target).chmod(mode & _OF_ALL)
    except OSError as exc:
        raise SpecError(f"cannot copy {source!r}: {exc.strerror or exc}") from exc


def _sockets(folder: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if stat.S_ISSOCK(Path(folder, name).lstat().st_mode)]


def _opened(top: Path) -> dict[Path, int]:
    """The modes of a folder and all below, into which all may be moved from now on."""
    modes: dict[Path, int] = {}

    def open_one(path: Path) -> None:
        modes[path] = path.stat().st_mode & _OF_ALL
        path.chmod(modes[path] | stat.S_IRWXU)

    with contextlib.suppress(FileNotFoundError):
        open_one(top)
        for folder, names, _ in os.walk(top):
            for path in (Path(folder, name) for name in names):
                if not path.is_symlink():
                    open_one(path)
    return modes


# --- put in its place ---


def _keep_folder(made: Path, final: Path, target: End) -> None:
    """Move a folder to its place, or, where one is there, what is in it."""
    modes = _opened(made)
    moves = list(_moves(made, final, target)) if final.is_dir() else [(made, final)]
    for path, place in moves:
        path.replace(place)
        if path in modes:
            _close(path, place, modes)


def _moves(made: Path, final: Path, target: End) -> Iterator[tuple[Path, Path]]:
    """From where to where, as few as can be. Raises `SpecError` for what is in the way, before anything is moved."""
    for path in sorted(made.iterdir()):
        place = final / path.name
        new, old = (each.is_dir() and not each.is_symlink() for each in (path, place))
        if new and old:
            yield from _moves(path, place, target)
        elif old or (new and os.path.lexists(place)):
            raise SpecError(f"cannot copy to {str(place)!r}: {_IN_THE_WAY[new]}")
        else:
            _refuse_closed(final, target)
            yield path, place


def _close(made: Path, place: Path, modes: Mapping[Path, int]) -> None:
    """Give the folders that were moved their modes, the innermost first."""
    for folder, _, _ in os.walk(place, topdown=False):
        mode = modes.get(made / Path(folder).relative_to(place))
        if mode is not None:
            Path(folder).chmod(mode)
