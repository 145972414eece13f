"""Collect files and directories from any location in one directory as the context of a build.

Each build sees the content of the sources at that moment. Everything happens in a subdirectory that
contains a marker file. Nothing outside of it is ever removed, and a directory without the marker is
refused.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symphony.addons.docker.scan import Found, found_in
from symphony.addons.docker.sync_context import Filling, Notes, clear
from symphony.errors import BackendError, SpecError
from symphony.model.images import ContextEntry

FOLDER = "symphony-build-context"
MARKER = "made-by-symphony"
MARK = "symphony gathers the context of a build in this folder, and removes what else is in it.\n"
_CONTEXT, _NOTES, _ANSWER = "context", "copies.json", "answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """A context that is ready to build: its directory, a file for the response of the engine, and
    the numbers of files.

    Those of ``files`` that are neither ``linked`` nor ``copied`` were there from an earlier build
    and are up to date.
    """

    folder: Path
    answer: Path
    files: int
    linked: int
    copied: int


@contextlib.contextmanager
def gathered(entries: Sequence[ContextEntry], temp_directory: Path) -> Iterator[Gathered]:
    """Yield a context with ``entries`` below ``temp_directory``, locked for this build.

    Paths of entries are absolute. Raises `SpecError` if an entry does not exist, or if an unmarked
    directory is in the way. Raises `BackendError` if files cannot be read or written, or if another
    build uses the directory.
    """
    own = temp_directory / FOLDER
    with _told(f"the build context in {own} cannot be made"):
        _make_own(own)
    with _locked(own / MARKER):
        yield _gather(entries, own)


def _gather(entries: Sequence[ContextEntry], own: Path) -> Gathered:
    wanted: dict[str, Found] = {}
    for entry in entries:
        with _told(f"context entry {entry.name!r} cannot be read"):
            wanted.update(found_in(entry, own))
    anew = frozenset(entry.name for entry in entries if entry.force_update)
    target, notes, answer = own / _CONTEXT, own / _NOTES, own / _ANSWER
    with _told(f"the build context in {own} cannot be made"):
        filling = Filling(target, _read(notes))
        # Without the notes, all copies are made again. An interrupted run therefore leaves nothing
        # that is taken for complete.
        notes.unlink(missing_ok=True)
        answer.unlink(missing_ok=True)
        clear(target, wanted, anew)
        filling.fill(wanted)
        notes.write_text(json.dumps(filling.notes))
    return Gathered(
        folder=target,
        answer=answer,
        files=filling.files,
        linked=filling.linked,
        copied=filling.copied,
    )


def _read(notes: Path) -> Notes:
    try:
        found: Any = json.loads(notes.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _make_own(own: Path) -> None:
    """Create the marked directory, or check that the existing one is no link and has the marker."""
    own.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        own.mkdir(mode=0o700)
    info = own.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise SpecError(
            f"{own} is not a folder of this user's: move it away, or give another temp_directory"
        )
    marker = own / MARKER
    if not any(own.iterdir()):
        marker.write_text(MARK)
    if marker.is_symlink() or not marker.is_file() or marker.read_text(errors="replace") != MARK:
        raise SpecError(
            f"{own} was not made by symphony (it has no {MARKER}), so nothing in it is touched: move it away, or give "
            "another temp_directory"
        )
    context = own / _CONTEXT
    with contextlib.suppress(FileExistsError):
        context.mkdir()
    if not stat.S_ISDIR(context.lstat().st_mode):
        raise SpecError(f"{context} is no folder: remove {own}, and it is made again")


@contextlib.contextmanager
def _locked(marker: Path) -> Iterator[None]:
    with marker.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackendError(
                f"another build uses {marker.parent}: wait until it has ended, or give another temp_directory"
            ) from None
        yield


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        place = f"{exc.filename}: " if exc.filename else ""
        raise BackendError(f"{what}: {place}{exc.strerror or exc}") from exc
