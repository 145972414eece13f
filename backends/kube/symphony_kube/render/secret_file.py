"""Writing to a file that only its owner can read, and that takes the place of nothing but a file."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from symphony.errors import NotFound, SpecError

_WORDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def check(path: str, sources: Iterable[Path]) -> Path:
    """Where `write` may write to; ``sources`` are files that must stay.

    Raises `SpecError` for what is there and is no file, for a link, and for one of the ``sources``; `NotFound`
    without its folder.
    """
    if path in ("", "-") or path.endswith("/"):
        raise SpecError(
            f"{path!r} names no file; values of secrets are written to a file: give its name"
        )
    target = Path(path)
    try:
        found = target.lstat()
    except (FileNotFoundError, NotADirectoryError):
        if not target.parent.is_dir():
            raise NotFound(
                f"cannot write to {path}: there is no folder {str(target.parent)!r}; make it"
            ) from None
        return target
    kind = _kind(target, found)
    if kind:
        raise SpecError(
            f"cannot write to {path}: it is {kind}; values of secrets are written to a file of its own"
        )
    for source in sources:
        if source.exists() and source.samefile(target):
            raise SpecError(
                f"cannot write to {path}: the experiment is made from that file; choose another"
            )
    return target


def write(target: Path, text: str) -> None:
    """Write a file, new or not; it gets its name in one step, complete. Raises OSError, which speaks of ``target``."""
    aside = target.with_name(f".symphony-{secrets.token_hex(6)}")
    with _about(target, aside):
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            aside.replace(target)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise


def _kind(path: Path, found: os.stat_result) -> str:
    """What stands at a path, or what a link there leads to, in words; nothing for a file."""
    if not stat.S_ISLNK(found.st_mode):
        return _WORDS.get(stat.S_IFMT(found.st_mode), "")
    try:
        behind = _WORDS.get(stat.S_IFMT(path.stat().st_mode), "")
    except OSError:  # it leads nowhere
        behind = ""
    return behind or f"a link to {path.resolve()}"


@contextlib.contextmanager
def _about(target: Path, aside: Path) -> Iterator[None]:
    """Have errors speak of the file that was asked for, and not of the one that becomes it."""
    try:
        yield
    except OSError as exc:
        if exc.filename in (None, os.fspath(aside)):
            exc.filename, exc.filename2 = os.fspath(target), None
        raise
