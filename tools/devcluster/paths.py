"""Where things are kept: a cache that outlives the cluster, and a state folder that does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from devcluster.console import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The tool's two folders.

    `cache` holds packages, binaries and images (safe to delete while the cluster is down);
    `state` holds the running cluster: `run` is removed by `down`, `logs` stays until the next `up`.
    """

    cache: Path
    state: Path

    @property
    def run(self) -> Path:
        """The folder of all that lives only while the cluster is up."""
        return self.state / "run"

    @property
    def logs(self) -> Path:
        """The folder of the logs, which `down` leaves."""
        return self.state / "logs"

    @property
    def record(self) -> Path:
        """The file that says what runs."""
        return self.state / "cluster.json"

    @property
    def kubeconfigs(self) -> Path:
        """The folder of all kubeconfigs."""
        return self.run / "kubeconfigs"

    def kubeconfig(self, user: str) -> Path:
        """Return the file of one user."""
        return self.kubeconfigs / f"{user}.yaml"


# In the nodes these folders are covered by the node's own, so nothing of ours may live below them.
_COVERED = (Path("/run"), Path("/var/run"), Path("/var/lib"), Path("/var/log"), Path("/proc"))


def find(environ: Mapping[str, str], home: Path) -> Paths:
    """Return the folders by the XDG base directory specification, or refuse unusable ones."""
    paths = Paths(
        cache=_base(environ, "XDG_CACHE_HOME", home / ".cache") / "symphony" / "devcluster",
        state=_base(environ, "XDG_STATE_HOME", home / ".local/state") / "symphony" / "devcluster",
    )
    for path in (paths.cache, paths.state):
        if any(path.is_relative_to(covered) for covered in _COVERED):
            raise Refusal(
                f"{path} cannot hold the cluster, its nodes have a folder of their own there: "
                "set XDG_CACHE_HOME and XDG_STATE_HOME to folders elsewhere"
            )
        if any(character in str(path) for character in ",: \n\"'\\"):
            raise Refusal(
                f"{path} cannot hold the cluster: mount options have no room for spaces, quotes, "
                "commas or colons; set XDG_CACHE_HOME and XDG_STATE_HOME to plain names"
            )
    return paths


def _base(environ: Mapping[str, str], variable: str, default: Path) -> Path:
    """Return the variable's folder; the specification says to ignore a relative one."""
    value = Path(environ.get(variable, ""))
    return value if value.is_absolute() else default
