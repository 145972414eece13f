"""The record of a run on this machine: writing it at the launch, and archiving it at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.archive import archive, run_record
from symphony.errors import SymphonyError
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.note import read_note
from symphony.supervised.record.status import StatusReader

if TYPE_CHECKING:
    from symphony.model import Experiment
    from symphony.status import ExperimentStatus


def write_launch_record(
    run: RunDirectory,
    experiment: Experiment,
    backend: str,
    run_name: str,
    launched: float,
    launch_options: Mapping[str, Any],
) -> None:
    """Describe the launch in the run directory. Raises OSError if the disk is full."""
    description = run_record.launch_record(
        experiment, backend, run_name, launched, launch_options=launch_options
    )
    run_record.write_json(run.file(run_record.RECORD_FILE), description)


def archive_run(
    run: RunDirectory,
    archive_directory: Path,
    retention: archive.Retention,
    make_reader: Callable[[RunDirectory], StatusReader] = StatusReader,
) -> None:
    """Move the record of a run without running processes to the archive, and free its name.

    The secrets, the scratch files, the pipes and the environment of the launcher are removed.
    Afterwards, remove the archived runs that ``retention`` does not keep. ``run`` is pinned. If
    another run has the name by now, only the files of ``run`` change. If the result cannot be
    written because the disk is full, the record is archived without it. ``make_reader`` creates the
    reader of its final status.
    """
    status: ExperimentStatus | None = None
    manifest: Mapping[str, Any] | None = None
    with contextlib.suppress(SymphonyError):
        reader = make_reader(run)
        manifest = reader.manifest
        status = reader.read()
    identity = _identity(run, manifest)
    shutil.rmtree(run.secrets, ignore_errors=True)
    run.remove_scratch_files()
    run.launch_settings.unlink(missing_ok=True)
    # A program that reads all files of a record would wait for output.
    shutil.rmtree(run.pipes, ignore_errors=True)
    run.pipes_lock.unlink(missing_ok=True)
    cut = [text for text in (_missing_description(run), read_note(run)) if text]
    with contextlib.suppress(OSError):
        run_record.write_result(run.file("."), status, identity, cut)
    if run.archive(archive_directory, identity["run"]) is None:
        return
    archive.remove_outdated(archive_directory, retention, time.time())


def _missing_description(run: RunDirectory) -> str:
    if run.file(run_record.RECORD_FILE).exists():
        return ""
    return "the launch is not described, because the record could not be written"


def _identity(run: RunDirectory, manifest: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the names of a run and the time of its launch.

    If the manifest is damaged, ``manifest`` is None, and a new identifier is created.
    """
    now = time.time()
    identity = {
        "run": run_record.run_name(run.name, now, os.urandom(2).hex()),
        "experiment": run.name,
        "backend": "",
        "launched": now,
    }
    if manifest is not None:
        identity["backend"] = manifest["backend"]
        name, launched = manifest.get("run_name"), manifest.get("launched")
        # The name becomes the name of a directory.
        if run_record.is_run_name(name) and isinstance(launched, (int, float)):
            identity["run"], identity["launched"] = name, launched
    return identity
