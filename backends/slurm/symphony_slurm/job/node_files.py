"""The files that a killed agent leaves to the agent that replaces it.

The files are in the memory of the node, and exist as long as the agent or its guardian. A directory
that several machines share would not do: their locks and their free space are not reliable.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from symphony.supervised.record.directory import RunDirectory


class NodeFiles(NamedTuple):
    """The paths of the files. They are valid in this process and in those that it forks.

    ``exits`` contains the exits that the guardian has collected, and ``stops`` the programs that
    were asked to exit. The program that copies the output of processes locks ``pipes``. ``ports``
    shows which ports are leased.
    """

    exits: str
    stops: str
    pipes: str
    ports: str

    @classmethod
    def create(cls) -> NodeFiles:
        """Create empty files."""
        return cls(*(f"/proc/self/fd/{os.memfd_create(name)}" for name in cls._fields))


class NodeRunDirectory(RunDirectory):
    """The run directory, with the files of this node in place of those of the supervisor."""

    files: NodeFiles

    @classmethod
    def of(cls, path: Path, files: NodeFiles) -> NodeRunDirectory:
        """Return the run directory at a path."""
        run = cls(path)
        run.files = files
        return run

    @property
    def exits(self) -> Path:
        """Return the path of the file in which the guardian of the agent records exits."""
        return Path(self.files.exits)

    @property
    def stop_record(self) -> Path:
        """Return the path of the record of the programs that were asked to exit."""
        return Path(self.files.stops)

    @property
    def pipes_lock(self) -> Path:
        """Return the path of the file that the program which reads the pipes has locked."""
        return Path(self.files.pipes)

    def locks_pipes(self) -> bool:
        """Return True: only the programs of this node use the lock."""
        return True
