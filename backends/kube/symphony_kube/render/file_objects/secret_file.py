"""Write a file that only its owner can read. Only a regular file can be replaced."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from symphony.errors import NotFound, SpecError
from symphony.support.replace_file import replace_file

_FILE_TYPES = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check_target(path: str, sources: Iterable[Path]) -> Path:
    """Check the path to which `write_private_file` will write, and return it.

    Raises `SpecError` if the path does not name a file, if it exists and is not a regular file, or
    if it is one of the ``sources``, which must not be overwritten. Raises `NotFound` if the
    directory that should contain the file does not exist.
    """
    if path in ("", "-") or path.endswith("/"):
        raise SpecError(
            f"{path!r} is not the name of a file; values of secrets are only written to a file: "
            "give its name"
        )
    target = Path(path)
    try:
        found = target.lstat()
    except (FileNotFoundError, NotADirectoryError):
        if not target.parent.is_dir():
            raise NotFound(
                f"cannot write to {path}: there is no directory {str(target.parent)!r}; create it"
            ) from None
        return target
    file_type = _file_type(target, found)
    if file_type:
        raise SpecError(
            f"cannot write to {path}: it is {file_type}; values of secrets are only written to a "
            "regular file"
        )
    for source in sources:
        if source.exists() and source.samefile(target):
            raise SpecError(
                f"cannot write to {path}: the experiment is created from that file; choose another"
            )
    return target


def write_private_file(target: Path, text: str) -> None:
    """Create or replace a file atomically.

    Raises OSError, with ``target`` as the file name, if the file cannot be written.
    """
    replace_file(target, [text.encode()], mode=0o600)


def _file_type(path: Path, found: os.stat_result) -> str:
    """Return the type of a file, or ``""`` for a regular file.

    For a link, return the type of its target, or ``a link to ...`` if the target is a regular file
    or does not exist.
    """
    if not stat.S_ISLNK(found.st_mode):
        return _FILE_TYPES.get(stat.S_IFMT(found.st_mode), "")
    try:
        link_target = _FILE_TYPES.get(stat.S_IFMT(path.stat().st_mode), "")
    except OSError:  # The link's target does not exist.
        link_target = ""
    return link_target or f"a link to {path.resolve()}"
