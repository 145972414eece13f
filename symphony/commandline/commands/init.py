"""The project that ``symphony init`` writes: its files, and writing all of them or none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from symphony.errors import AlreadyExists, SpecError
from symphony.names import check_name, corrected, join_names

# The files as they are kept beside this module, in the order in which they are told.
FILES = ("experiment.yml", "collector.py", "worker.py", "Dockerfile", ".dockerignore", "README.md")
_FOLDER = "starter"
# What the experiment is called in those files.
_NAME = "my-experiment"


def name_for(folder: Path, asked: str | None) -> str:
    """The experiment's name: the one that was asked for, else after the folder. Raises `SpecError`."""
    if asked is not None:
        return check_name(asked, "experiment")
    name = corrected(folder.name)
    if not name:
        raise SpecError(f"no name can be made of the folder {str(folder)!r}: give --name")
    return name


def contents(name: str) -> dict[str, str]:
    """The text of each file, for an experiment of that name."""
    from importlib.resources import files

    kept = files("symphony.commandline").joinpath(_FOLDER)
    return {
        file: kept.joinpath(file).read_text(encoding="utf-8").replace(_NAME, name) for file in FILES
    }


def write(folder: Path, texts: Mapping[str, str]) -> list[Path]:
    """Write files into a folder, which is made where it is missing; all of them or none. Their paths.

    Raises `AlreadyExists`, naming them, where some are there, and `SpecError` where nothing can be written.
    """
    paths = dict(zip(places(folder, texts), texts.values(), strict=True))
    try:
        with _taken_back() as made:
            _make(folder, paths, made)
    except OSError as exc:
        raise SpecError(f"{exc.filename or folder}: cannot be written: {exc.strerror}") from exc
    return list(paths)


def places(folder: Path, texts: Iterable[str]) -> list[Path]:
    """Where files are written. Raises `AlreadyExists`, naming them, where some are there."""
    paths = [folder / name for name in texts]
    there = [path for path in paths if path.is_symlink() or path.exists()]
    if there:
        raise AlreadyExists(
            f"{join_names([str(path) for path in there])}: there already, and nothing was written; choose another folder, "
            "or move them away"
        )
    return paths


def _make(folder: Path, paths: Mapping[Path, str], made: list[Path]) -> None:
    for parent in reversed([folder, *folder.parents]):
        if not parent.is_dir():
            if parent.exists():
                raise SpecError(f"{parent} is no folder: nothing can be written into {folder}")
            parent.mkdir()
            made.append(parent)
    for path, text in paths.items():
        with path.open("x", encoding="utf-8") as file:
            made.append(path)
            file.write(text)


@contextlib.contextmanager
def _taken_back() -> Iterator[list[Path]]:
    """A list of what is made; when something goes wrong it is removed, the last first."""
    made: list[Path] = []
    try:
        yield made
    except BaseException:
        for path in reversed(made):
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        raise
