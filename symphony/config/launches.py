"""Saving what is launched: the experiment and what was made of it, in a folder of its name."""

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

SPEC = "experiment.yml"
MANIFEST = "manifest.yml"


@contextmanager
def saving(
    experiment: Experiment, backend: str, folder: Path, *, force: bool
) -> Iterator[Callable[[Manifest], None]]:
    """Within, launch, and call what this gives with the manifest: then all is in ``folder/<experiment>``.

    A name that is saved there already is refused (`AlreadyExists`) before anything is launched, unless ``force``; then
    its files are replaced once the new ones are whole, and other files in its folder stay. Where anything is raised
    within, nothing is saved. Secrets are left out as in the dry run.
    """
    target = folder / experiment.name
    if not force:
        refuse_saved(experiment.name, folder)
    with _told(experiment, folder):
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / f".{experiment.name}.{os.getpid()}-{secrets.token_hex(4)}"
        aside.mkdir()
    try:
        with _told(experiment, folder):
            _write_spec(
                experiment, backend, aside / SPEC
            )  # that it can be written must show before the launch

        def save(manifest: Manifest) -> None:
            with _told(experiment, folder):
                (aside / MANIFEST).write_text(str(manifest), encoding="utf-8")
                _put(aside, target, force=force)

        yield save
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def refuse_saved(name: str, folder: Path) -> None:
    """Raise `AlreadyExists` for the name of an experiment that is saved in ``folder``."""
    target = folder / name
    if os.path.lexists(target):
        raise AlreadyExists(
            f"experiment {name!r} is saved in {target} already; launch with force to replace that, "
            "or give this one another name"
        )


@contextmanager
def _told(experiment: Experiment, folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        where = exc.filename or folder
        raise BackendError(
            f"experiment {experiment.name!r} cannot be saved in {folder}: {where}: {exc.strerror}; "
            "see experiment_folder in the configuration"
        ) from exc


def _write_spec(experiment: Experiment, backend: str, path: Path) -> None:
    from symphony import __version__

    experiment.dump_file(path)
    base = os.path.normpath(experiment.base_dir or Path.cwd())
    when = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    said = f"# Launched on {backend} at {when} by symphony {__version__}. Relative paths begin at {base}\n"
    path.write_text(said + path.read_text(encoding="utf-8"), encoding="utf-8")


def _put(aside: Path, target: Path, *, force: bool) -> None:
    """Let the files of ``aside`` be those of ``target``: the folder as a whole where it is new, else file by file."""
    if not force or not target.is_dir():
        aside.rename(target)  # fails where somebody has put a folder with files there meanwhile
        return
    before = {name: _content(target / name) for name in (SPEC, MANIFEST)}
    try:
        for name in before:
            (aside / name).replace(target / name)
    except OSError:
        for name, content in before.items():
            if content is not None:
                (target / name).write_bytes(content)
        raise


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
