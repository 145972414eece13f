"""Saving a launched experiment and its manifest in a directory named after the experiment."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.errors import AlreadyExists, BackendError

if TYPE_CHECKING:
    from symphony.cluster import Manifest
    from symphony.model import Experiment

EXPERIMENT_FILE = "experiment.yml"
MANIFEST_FILE = "manifest.yml"


@contextmanager
def saving(
    experiment: Experiment, backend: str, directory: Path, *, force: bool
) -> Iterator[Callable[[Manifest], None]]:
    """Yield a function that saves the experiment and its manifest in ``directory/<experiment>``.

    Launch the experiment inside the context, and then call the function with the manifest. If the
    function is not called, nothing is saved. Secret values are omitted, as in a dry run.

    Unless ``force`` is set, `AlreadyExists` is raised on entry if an experiment with the same name
    is already saved. With ``force``, the two saved files are replaced once the new files are
    complete, and other files in the directory are kept. Raises `BackendError` if a file cannot be
    written.
    """
    target = directory / experiment.name
    if not force:
        check_not_saved(experiment.name, directory)
    with _wrap_os_errors(experiment, directory):
        directory.mkdir(parents=True, exist_ok=True)
        temporary = directory / f".{experiment.name}.{os.getpid()}-{secrets.token_hex(4)}"
        temporary.mkdir()
    try:
        with _wrap_os_errors(experiment, directory):
            # Write this file before the launch, so that any error is raised before a process
            # starts.
            _write_experiment(experiment, backend, temporary / EXPERIMENT_FILE)

        def save(manifest: Manifest) -> None:
            with _wrap_os_errors(experiment, directory):
                (temporary / MANIFEST_FILE).write_text(str(manifest), encoding="utf-8")
                _move_files(temporary, target, force=force)

        yield save
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_not_saved(name: str, directory: Path) -> None:
    """Raise `AlreadyExists` if an experiment with this name is saved in ``directory``."""
    target = directory / name
    if os.path.lexists(target):
        raise AlreadyExists(
            f"experiment {name!r} is saved in {target} already; launch with force to replace it, "
            "or choose another name"
        )


@contextmanager
def _wrap_os_errors(experiment: Experiment, directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        path = exc.filename or directory
        raise BackendError(
            f"experiment {experiment.name!r} cannot be saved in {directory}: "
            f"{path}: {exc.strerror}; see experiment_folder in the configuration"
        ) from exc


def _write_experiment(experiment: Experiment, backend: str, path: Path) -> None:
    from symphony import __version__

    experiment.dump_file(path)
    base = os.path.normpath(experiment.base_dir or Path.cwd())
    now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    header = (
        f"# Launched on {backend} at {now} by symphony {__version__}. "
        f"Relative paths are relative to {base}\n"
    )
    path.write_text(header + path.read_text(encoding="utf-8"), encoding="utf-8")


def _move_files(source: Path, target: Path, *, force: bool) -> None:
    """Move the saved files to ``target``.

    If ``target`` does not exist, the directory ``source`` is moved as a whole. Otherwise, the files
    in ``target`` are replaced one by one, and the previous files are restored if one of them cannot
    be replaced.
    """
    if not force or not target.is_dir():
        # Renaming fails if another program has created a nonempty directory at this path since the
        # check.
        source.rename(target)
        return
    previous = {name: _read_if_exists(target / name) for name in (EXPERIMENT_FILE, MANIFEST_FILE)}
    try:
        for name in previous:
            (source / name).replace(target / name)
    except OSError:
        for name, content in previous.items():
            if content is not None:
                (target / name).write_bytes(content)
        raise


def _read_if_exists(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
