"""Importing compose files, process-compose files and Procfiles as experiments."""

from __future__ import annotations

from pathlib import Path

from symphony.errors import SpecError
from symphony.importing.result import Imported, Omission
from symphony.support.names import check_name, suggested_name


def import_file(
    path: Path, *others: Path, name: str | None = None, directory: Path | None = None
) -> Imported:
    """Return the experiment that a file of another program describes.

    The file is a compose file, a process-compose file or a Procfile. The settings of ``others``,
    which are further files of the same kind, are merged into those of the first one. ``name`` is
    the name of the experiment. By default, it is the name in the file or the name of the file's
    directory. Relative paths in the result are relative to ``directory``, by default the directory
    of the file. Raises `NotFound` or `SpecError` if a file cannot be read.
    """
    from symphony.importing import compose, process_compose, procfile

    base = path.absolute().parent
    target = base if directory is None else directory.absolute()
    given = None if name is None else check_name(name, "experiment")
    default = suggested_name(base.name) or "experiment"
    if path.suffix in (".yml", ".yaml"):
        _refuse_experiment_file(path)
        is_process_compose = process_compose.is_process_compose(path)
        read = process_compose.read if is_process_compose else compose.read
        return read((path, *others), name=given, default_name=default, directory=target)
    if others:
        raise SpecError(f"{path}: a Procfile cannot be merged; give one file")
    if path.name.startswith("Procfile") or path.suffix == ".procfile":
        return procfile.read(path, name=given or default, directory=target)
    raise SpecError(
        f"{path}: cannot be imported; give a compose file or a process-compose file, whose name "
        "ends with .yml or .yaml, or a Procfile"
    )


def _refuse_experiment_file(path: Path) -> None:
    """Raise `SpecError` if a file is an experiment file."""
    from symphony.errors import SymphonyError
    from symphony.model import Experiment
    from symphony.model.document.documents import read_text

    if "process-compose" in path.name or "name:" not in read_text(path):
        return
    try:
        Experiment.load_file(path)
    except SymphonyError:
        return
    raise SpecError(f"{path}: the file is already an experiment file; use 'symphony launch {path}'")


__all__ = ["Imported", "Omission", "import_file"]
