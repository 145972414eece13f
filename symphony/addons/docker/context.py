"""Collecting files and directories from arbitrary locations into one directory: the build context.

Each build uses the contents of the source files at the time of the build. All changes are made in
one subdirectory of the temporary directory. The subdirectory contains a marker file. Nothing
outside the subdirectory is ever removed, and an existing nonempty subdirectory without the marker
is rejected.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symphony.addons.docker.scan import SourceFile, scan_entry
from symphony.addons.docker.sync_context import ContextSync, Notes, clear
from symphony.errors import BackendError, SpecError
from symphony.model.experiment.images import ContextEntry

DIRECTORY_NAME = "symphony-build-context"
MARKER = "made-by-symphony"
MARKER_TEXT = (
    "symphony collects a build context in this directory and removes all other files in it.\n"
)
_CONTEXT, _NOTES, _ID_FILE = "context", "copies.json", "answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """A build context that is ready for use.

    The engine writes the image ID to ``id_file``. ``files`` is the number of files in the context,
    ``linked`` is the number of new hard links, and ``copied`` is the number of new copies. The
    other files are kept from an earlier build.
    """

    directory: Path
    id_file: Path
    files: int
    linked: int
    copied: int


@contextlib.contextmanager
def build_context(
    entries: Sequence[ContextEntry], temp_directory: Path | None
) -> Iterator[BuildContext]:
    """Create a build context for ``entries`` in a subdirectory of ``temp_directory``, and yield it.
    The subdirectory remains locked until the context manager exits. If ``temp_directory`` is None,
    use a new directory, which is removed when the context manager exits.

    The entries' paths must be absolute. Raises `SpecError` if an entry does not exist, or if the
    subdirectory is nonempty but does not contain the marker. Raises `BackendError` if files cannot
    be read or written, or if another build is using the subdirectory.
    """
    if temp_directory is None:
        with _scratch_directory() as scratch, build_context(entries, scratch) as context:
            yield context
        return
    own = temp_directory / DIRECTORY_NAME
    with _report_errors(f"the build context in {own} cannot be created"):
        _create_marked_directory(own)
    with _locked(own / MARKER):
        yield _collect(entries, own)


@contextlib.contextmanager
def _scratch_directory() -> Iterator[Path]:
    """Create a directory for one build, and remove it when the context manager exits."""
    with _report_errors("a temporary directory for the build context cannot be created"):
        scratch = tempfile.TemporaryDirectory(prefix="symphony-build-")
    with scratch as name:
        try:
            yield Path(name)
        finally:
            # TemporaryDirectory changes the modes of files that it cannot remove. The files in the
            # context can be hard links to the user's files, whose modes must not change.
            target = Path(name, DIRECTORY_NAME, _CONTEXT)
            if target.is_dir():
                clear(target, {}, frozenset())


def _collect(entries: Sequence[ContextEntry], own: Path) -> BuildContext:
    wanted: dict[str, SourceFile] = {}
    for entry in entries:
        with _report_errors(f"context entry {entry.name!r} cannot be read"):
            wanted.update(scan_entry(entry, own))
    forced = frozenset(entry.name for entry in entries if entry.force_update)
    target, notes, id_file = own / _CONTEXT, own / _NOTES, own / _ID_FILE
    with _report_errors(f"the build context in {own} cannot be created"):
        sync = ContextSync(target, _read(notes))
        # Delete the notes now; they are written again when all files are complete. Without the
        # notes, the next build makes every copy again, so copies from an interrupted build are
        # never treated as complete.
        notes.unlink(missing_ok=True)
        id_file.unlink(missing_ok=True)
        clear(target, wanted, forced)
        sync.fill(wanted)
        notes.write_text(json.dumps(sync.notes))
    return BuildContext(
        directory=target,
        id_file=id_file,
        files=sync.files,
        linked=sync.linked,
        copied=sync.copied,
    )


def _read(notes: Path) -> Notes:
    try:
        found: Any = json.loads(notes.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _create_marked_directory(own: Path) -> None:
    """Create the directory with its marker. If the directory already exists, check that it is not a
    link, belongs to this user and contains the marker.
    """
    own.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        own.mkdir(mode=0o700)
    info = own.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise SpecError(
            f"{own} is not a directory of this user: move it away, or give another temp_directory"
        )
    marker = own / MARKER
    if not any(own.iterdir()):
        marker.write_text(MARKER_TEXT)
    if (
        marker.is_symlink()
        or not marker.is_file()
        or marker.read_text(errors="replace") != MARKER_TEXT
    ):
        raise SpecError(
            f"{own} was not created by symphony (it has no {MARKER}), so it is not changed: "
            "move it away, or give another temp_directory"
        )
    context = own / _CONTEXT
    with contextlib.suppress(FileExistsError):
        context.mkdir()
    if not stat.S_ISDIR(context.lstat().st_mode):
        raise SpecError(f"{context} is not a directory: remove {own}, which is then created again")


@contextlib.contextmanager
def _locked(marker: Path) -> Iterator[None]:
    with marker.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BackendError(
                f"another build uses {marker.parent}: "
                "wait until it has finished, or give another temp_directory"
            ) from None
        yield


@contextlib.contextmanager
def _report_errors(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        place = f"{exc.filename}: " if exc.filename else ""
        raise BackendError(f"{what}: {place}{exc.strerror or exc}") from exc
