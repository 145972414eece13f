"""The archive, which contains the records of runs whose experiments were deleted or replaced."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symphony.archive.run_record import RECORD_FILE, RESULT_FILE, read_json
from symphony.errors import BackendError, NotFound
from symphony.model.settings.durations import parse_duration
from symphony.model.settings.quantities import parse_quantity
from symphony.support.directories.state_home import (
    ACTIVE_NAME,
    ARCHIVE_NAME,
    backend_roots,
    check_state_directory,
    create_state_directory,
    state_root,
)
from symphony.support.names import did_you_mean

_TRASH_PREFIX = ".old-"


@dataclass(frozen=True, slots=True)
class Run:
    """A run and a summary of its record.

    ``path`` is the directory of the record. The keys of ``summary`` are those of `result_of` in
    `symphony.archive.run_record`; those about the end are missing while the run is active. Values
    are missing if files are damaged.
    """

    path: Path
    summary: dict[str, Any]

    @property
    def name(self) -> str:
        """The identifier of the run."""
        return str(self.summary.get("run", self.path.name))

    @property
    def experiment(self) -> str:
        """The name of the experiment."""
        return str(self.summary.get("experiment", self.path.name))

    @property
    def backend(self) -> str:
        """The name of the backend, or ``""`` if it is unknown."""
        return str(self.summary.get("backend", ""))

    @property
    def launched(self) -> float:
        """The time of the launch in seconds since the epoch, or 0.0 if it is unknown."""
        launched = self.summary.get("launched")
        return float(launched) if isinstance(launched, (int, float)) else 0.0

    @property
    def is_archived(self) -> bool:
        """True if the experiment was deleted or replaced."""
        return self.path.parent.name in (ARCHIVE_NAME, f".{ARCHIVE_NAME}")

    @property
    def size_bytes(self) -> int:
        """The size of an archived record in bytes, or 0 if it is unknown."""
        size = self.summary.get("bytes")
        return size if isinstance(size, int) else 0

    def load_record(self) -> dict[str, Any]:
        """Return the description of the launch; see `symphony.archive.run_record.launch_record`.

        Raises BackendError if the file is missing or damaged.
        """
        path = self.path / RECORD_FILE
        record = read_json(path)
        if record is None:
            raise BackendError(f"run {self.name!r} cannot be read ({path} is missing or damaged)")
        return record


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The archived runs to keep: the newest ``keep`` runs that are not older than
    ``max_age_seconds`` and that use at most ``max_bytes`` together. None means no limit.
    """

    keep: int | None = None
    max_age_seconds: float | None = None
    max_bytes: int | None = None


DEFAULT_RETENTION = Retention(keep=100, max_bytes=10 * 2**30)


def configured_retention(settings: Mapping[str, Any]) -> Retention:
    """Return the retention that the field ``runs`` of the configuration describes.

    Settings that are missing have the values of `DEFAULT_RETENTION`.
    """
    keep, max_age, max_size = (settings.get(key) for key in ("keep", "older_than", "max_size"))
    default = DEFAULT_RETENTION
    return Retention(
        keep=default.keep if keep is None else keep,
        max_age_seconds=default.max_age_seconds if max_age is None else parse_duration(max_age),
        max_bytes=default.max_bytes if max_size is None else int(parse_quantity(max_size)),
    )


def archive_directory() -> Path:
    """Return the directory that contains the archived records."""
    return state_root(ARCHIVE_NAME)


def active_directory(archive: Path | None = None) -> Path:
    """Return the directory with the records of active runs that do not run on this machine."""
    return (archive_directory() if archive is None else archive) / ACTIVE_NAME


def load(path: Path) -> Run:
    """Return the run whose record is the directory ``path``."""
    summary = read_json(path / RESULT_FILE) or read_json(path / RECORD_FILE) or {}
    return Run(path, summary)


def find_archived(directory: Path) -> list[Run]:
    """Return the runs in an archive, the newest first.

    Raises SpecError if another user can change the archive.
    """
    check_state_directory(directory)
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    runs = [load(directory / name) for name in names if not name.startswith(".")]
    return newest_first(runs)


def find_active(roots: Iterable[Path]) -> list[Run]:
    """Return the runs whose experiments have neither been deleted nor replaced.

    Each subdirectory of ``roots`` that contains the description of a launch is a run.

    Raises SpecError if another user can change one of ``roots``.
    """
    runs = []
    for root in roots:
        check_state_directory(root)
        try:
            names = os.listdir(root)
        except FileNotFoundError:
            continue
        found = [load(root / name) for name in names if not name.startswith(".")]
        runs += [run for run in found if run.summary]
    return runs


def find_all() -> list[Run]:
    """Return the runs of all backends with their default directories, the newest first."""
    directory = archive_directory()
    active = find_active([*backend_roots(), active_directory(directory)])
    return newest_first([*active, *find_archived(directory)])


def newest_first(runs: Iterable[Run]) -> list[Run]:
    """Return runs in the order of their launches, the newest first."""
    return sorted(runs, key=lambda run: (run.launched, run.name), reverse=True)


def find_run(runs: Sequence[Run], given: str, *, exact: bool = False) -> Run:
    """Return the run with the identifier ``given``.

    ``given`` can also be the name of an experiment, which means its newest run. Unless ``exact`` is
    set, it can be the beginning of exactly one identifier. ``runs`` is sorted; see `newest_first`.
    Raises NotFound if there is no such run, or if several identifiers begin with ``given``.
    """
    for run in runs:
        if run.name == given:
            return run
    for run in runs:
        if run.experiment == given:
            return run
    matches = [run for run in runs if run.name.startswith(given)]
    if len(matches) == 1:
        if exact:
            raise NotFound(f"there is no run {given!r}; did you mean {matches[0].name!r}?")
        return matches[0]
    if matches:
        names = ", ".join(run.name for run in matches[:5])
        raise NotFound(f"several runs begin with {given!r}: {names}; use more characters")
    hint = did_you_mean(given, [name for run in runs for name in (run.name, run.experiment)])
    raise NotFound(f"there is no run {given!r}{hint or '; symphony history lists all runs'}")


def add(source: Path, directory: Path, name: str) -> Path:
    """Move the directory ``source`` into an archive in one step, and return its new path.

    ``name`` is the identifier of the run. If the archive already contains this name, a number is
    added. Raises OSError if the directory cannot be moved.
    """
    create_state_directory(directory)
    target = directory / name
    number = 1
    while os.path.lexists(target):
        number += 1
        target = directory / f"{name}-{number}"
    source.rename(target)
    return target


def outdated(runs: Sequence[Run], retention: Retention, now: float) -> list[Run]:
    """Return the archived runs that a retention does not keep. ``runs`` is sorted by
    `newest_first`.
    """
    result = []
    total_bytes = 0
    for number, run in enumerate(runs):
        total_bytes += run.size_bytes
        is_excess = retention.keep is not None and number >= retention.keep
        is_old = (
            retention.max_age_seconds is not None and now - run.launched > retention.max_age_seconds
        )
        is_too_large = retention.max_bytes is not None and total_bytes > retention.max_bytes
        if is_excess or is_old or is_too_large:
            result.append(run)
    return result


def remove(run: Run) -> None:
    """Remove an archived record. If another program removes it at the same time, do nothing."""
    trash = run.path.parent / f"{_TRASH_PREFIX}{os.urandom(16).hex()}"
    with contextlib.suppress(FileNotFoundError):
        run.path.rename(trash)
    shutil.rmtree(trash, ignore_errors=True)


def remove_outdated(directory: Path, retention: Retention, now: float) -> None:
    """Remove the records in an archive that ``retention`` does not keep."""
    for run in outdated(find_archived(directory), retention, now):
        remove(run)


def remove_trash(directory: Path) -> None:
    """Remove the directories that removals which were killed have left in an archive."""
    for name in os.listdir(directory):
        if name.startswith(_TRASH_PREFIX):
            shutil.rmtree(directory / name, ignore_errors=True)
