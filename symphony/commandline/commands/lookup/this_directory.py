"""Find the experiment file of the working directory, and the experiment that was launched from it.

With these, commands need neither the name of the file nor that of the experiment. If several files
or experiments are possible, an error lists them, because no command acts on a guess.

A directory without an experiment file belongs to the nearest parent directory that has one, as with
Git and docker compose.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.commandline.exit_codes import UsageError
from symphony.errors import NotFound
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.archive.archive import Run
    from symphony.cluster import Cluster
    from symphony.status import ExperimentStatus

# A file with one of these names is the experiment file of its directory, whatever other files the
# directory contains. A name precedes those after it.
FILE_NAMES = ("symphony.yml", "symphony.yaml", "experiment.yml", "experiment.yaml")
FILE_SUFFIXES = (".yml", ".yaml", ".json", ".py")


def require_file(prog: str) -> Path:
    """Return the experiment file of the working directory or of its nearest parent.

    Raises `NotFound` if there is none, and `UsageError` if several files are possible. ``prog`` is
    the program and the command for the message.
    """
    # An error states that the working directory has been removed.
    Path.cwd()
    found = experiment_files()
    if len(found) == 1:
        return found[0]
    if not found:
        parent = parent_file()
        if parent is not None:
            return parent
        raise NotFound(
            f"no experiment file in this directory, and no {FILE_NAMES[0]} in its parents; name a "
            f"file, as in '{prog} FILE', or create {FILE_NAMES[0]}"
        )
    raise UsageError(
        f"several experiment files in this directory: {join_names(map(str, found))}; name one, as "
        f"in '{prog} {found[0]}'"
    )


def experiment_files() -> list[Path]:
    """Return the possible experiment files of the working directory.

    This is the first of the `FILE_NAMES` that exists or, if there is none, all YAML files that
    contain an experiment.
    """
    from symphony.model.document.files import is_experiment

    named = _named_files(Path())
    if named:
        return named[:1]
    names = sorted(name for name in os.listdir() if name.endswith((".yml", ".yaml")))
    return [Path(name) for name in names if Path(name).is_file() and is_experiment(Path(name))]


def parent_file() -> Path | None:
    """Return the experiment file of the nearest parent directory that has one, as a relative path.

    The file has one of the `FILE_NAMES`. Files that contain no experiment are ignored. So are those
    of other users, who can create files in directories such as ``/tmp``.
    """
    from symphony.config.trust import other_owner
    from symphony.model.document.files import is_experiment

    for number, _ in enumerate(Path.cwd().parents, 1):
        for file in _named_files(Path(*[os.pardir] * number)):
            if other_owner(file) is None and is_experiment(file):
                return file
    return None


def unused_files(file: Path) -> list[str]:
    """Return the names of the experiment files in the same directory that ``file`` precedes."""
    if file.name not in FILE_NAMES:
        return []
    return [other.name for other in _named_files(file.parent) if other.name != file.name]


def _named_files(directory: Path) -> list[Path]:
    return [directory / name for name in FILE_NAMES if (directory / name).is_file()]


def is_file(word: str) -> bool:
    """Return whether a word that can be the name of an experiment is an experiment file."""
    return word.endswith(FILE_SUFFIXES) and Path(word).is_file()


class LaunchedHere:
    """The experiment that was launched from a file or from the working directory.

    ``cluster`` is the selected cluster. With ``only_selected``, the experiments of other backends
    are ignored. ``given`` is a file that the user has named.
    """

    def __init__(self, cluster: Cluster, *, only_selected: bool, given: Path | None = None) -> None:
        self._cluster = cluster
        self._file = given
        self._is_named = given is not None
        runs = [run for run in cluster.list_runs() if not run.is_archived]
        if only_selected:
            runs = [run for run in runs if run.backend == cluster.backend]
        files = [] if self._is_named else experiment_files()
        if len(files) == 1:
            self._file = files[0]
        self._runs = list(filter(self._is_from_here, runs))
        # An experiment that a program has launched in this directory precedes that of a parent.
        if not self._is_named and not files and not self._runs:
            self._file = parent_file()
            self._runs = list(filter(self._is_from_here, runs))

    @property
    def place(self) -> str:
        """The file or the directory from which the experiment was launched, for messages."""
        return "this directory" if self._file is None else str(self._file)

    def require(self) -> tuple[Cluster, ExperimentStatus]:
        """Return the experiment's status and its cluster.

        Of several experiments, it is the one that has not finished. Raises `NotFound` if there is
        none, and `UsageError` if several are possible.
        """
        found = list(self._existing())
        unfinished = [item for item in found if not item[1].ended]
        if len(unfinished) == 1:
            return unfinished[0]
        if not found:
            fix = "name an experiment"
            if self._is_named:
                fix = f"to launch it, use: symphony launch {self._file}"
            raise NotFound(f"no experiment was launched from {self.place}; {fix}")
        if len(found) > 1:
            names = join_names(sorted(status.name for _, status in found))
            raise UsageError(
                f"several experiments were launched from {self.place}: {names}; name one"
            )
        return found[0]

    def find(self) -> tuple[Cluster, ExperimentStatus] | None:
        """Return the same as `require`, or None if there is no experiment or there are several."""
        try:
            return self.require()
        except (NotFound, UsageError):
            return None

    def _existing(self) -> Iterator[tuple[Cluster, ExperimentStatus]]:
        """Yield the experiments that have not been deleted by another program, with their clusters.

        A record on this machine remains if another machine deletes the experiment.
        """
        from symphony.cluster.run_results import cluster_of_run

        for run in self._runs:
            cluster = cluster_of_run(self._cluster, run)
            with contextlib.suppress(NotFound):
                yield cluster, cluster.describe_experiment(run.experiment)

    def _is_from_here(self, run: Run) -> bool:
        file = run.summary.get("file")
        if self._file is not None and "file" in run.summary:
            return file is not None and _is_same(file, self._file)
        # A program described the experiment, or an earlier version of symphony launched it.
        directory = run.summary.get("base_directory")
        parent = Path() if self._file is None else self._file.parent
        return isinstance(directory, str) and _is_same(directory, parent)


def _is_same(path: str | Path, other: Path) -> bool:
    return os.path.realpath(path) == os.path.realpath(other)
