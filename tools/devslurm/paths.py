"""The tool's directories. The users of the cluster must be able to read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from machines.console import RequirementError
from machines.directories import cache_home, state_home

# A home directory is often private, so the default directories are those of the system.
CACHE, STATE = Path("/var/cache"), Path("/var/lib")


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The cache, which remains when the cluster is stopped, and the state of one cluster."""

    cache: Path
    state: Path

    @property
    def run(self) -> Path:
        """The directory for everything that exists only while the cluster is up."""
        return self.state / "run"

    @property
    def record(self) -> Path:
        """The file that records the running processes."""
        return self.state / "cluster.json"

    @property
    def env(self) -> Path:
        """The shell lines with which the programs of Slurm can be used."""
        return self.run / "env"

    @property
    def shared(self) -> Path:
        """The directory that all machines share."""
        return self.run / "shared"

    @property
    def small_disk(self) -> Path:
        """A directory on a small file system that all machines share."""
        return self.run / "small-disk"

    def of_other_versions(self) -> list[Paths]:
        """Return the directories of the clusters with other versions of Slurm."""
        states = self.state.parent.iterdir()
        return [Paths(cache=self.cache, state=state) for state in states if state != self.state]


def find(environ: Mapping[str, str], version: str) -> Paths:
    """Return the directories of the cluster with a version of Slurm.

    Raises RequirementError if other users could not read them.
    """
    name = Path("symphony") / "devslurm"
    cache, state = CACHE / name, STATE / name / version
    if environ.get("XDG_CACHE_HOME"):
        cache = cache_home(environ, Path("/")) / name
    if environ.get("XDG_STATE_HOME"):
        state = state_home(environ, Path("/")) / name / version
    for path in (cache, state):
        existing = next(parent for parent in (path, *path.parents) if parent.exists())
        for parent in (existing, *existing.parents):
            if not parent.stat().st_mode & 0o001:
                raise RequirementError(
                    f"the users of the cluster cannot read {path}, because {parent} is private: "
                    "set XDG_CACHE_HOME and XDG_STATE_HOME to other directories, or unset them"
                )
    return Paths(cache=cache, state=state)
