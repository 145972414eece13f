"""The tool's directories: a cache, which remains when the cluster is stopped, and a directory for
the cluster's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from machines.console import RequirementError
from machines.directories import cache_home, state_home


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The tool's two directories.

    `cache` contains packages, binaries and images, and can be deleted while the cluster is down.
    `state` contains the running cluster's files. `down` removes `run`, and `logs` remains until the
    next cluster is started.
    """

    cache: Path
    state: Path

    @property
    def run(self) -> Path:
        """The directory for everything that exists only while the cluster is up."""
        return self.state / "run"

    @property
    def logs(self) -> Path:
        """The directory for the logs, which `down` keeps."""
        return self.state / "logs"

    @property
    def record(self) -> Path:
        """The file that records the running processes."""
        return self.state / "cluster.json"

    @property
    def kubeconfigs(self) -> Path:
        """The directory for all kubeconfigs."""
        return self.run / "kubeconfigs"

    def kubeconfig(self, user: str) -> Path:
        """Return the path of one user's kubeconfig."""
        return self.kubeconfigs / f"{user}.yaml"


# The nodes mount their own directories over these directories, so the cluster's files must be
# elsewhere.
_COVERED = (Path("/run"), Path("/var/run"), Path("/var/lib"), Path("/var/log"), Path("/proc"))


def find(environ: Mapping[str, str], home: Path) -> Paths:
    """Return the directories according to the XDG base directory specification.

    Raises RequirementError if a directory cannot be used.
    """
    paths = Paths(
        cache=cache_home(environ, home) / "symphony" / "devcluster",
        state=state_home(environ, home) / "symphony" / "devcluster",
    )
    for path in (paths.cache, paths.state):
        if any(path.is_relative_to(covered) for covered in _COVERED):
            raise RequirementError(
                f"{path} cannot hold the cluster, because its nodes mount a directory there: "
                "set XDG_CACHE_HOME and XDG_STATE_HOME to other directories"
            )
        if any(character in str(path) for character in ",: \n\"'\\"):
            raise RequirementError(
                f"{path} cannot hold the cluster: mount options cannot contain spaces, quotes, "
                "commas or colons; set XDG_CACHE_HOME and XDG_STATE_HOME to plain names"
            )
    return paths
