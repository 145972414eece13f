"""Manage the cluster's control groups: one directory tree in every hierarchy."""

from __future__ import annotations

import time
from pathlib import Path

from devcluster.node import CGROUP
from machines.console import RequirementError, ToolError

MOUNTS = Path("/sys/fs/cgroup")
NEEDED = ("blkio", "cpu", "cpuset", "devices", "freezer", "memory", "pids")


def check() -> None:
    """Raise RequirementError if a cgroup v1 hierarchy that Kubernetes 1.20 needs is missing."""
    missing = [name for name in NEEDED if not (MOUNTS / name / "cgroup.procs").exists()]
    if missing:
        raise RequirementError(
            f"no cgroup v1 hierarchy for {', '.join(missing)} in {MOUNTS}, which this Kubernetes "
            "needs: boot with systemd.unified_cgroup_hierarchy=0, or run the tests with kind"
        )


def make(name: str) -> None:
    """Create the directory `name` (for example, /symphony-devcluster/node1) in every hierarchy."""
    for hierarchy in _hierarchies():
        directory = hierarchy
        for part in Path(name).parts[1:]:
            directory /= part
            directory.mkdir(exist_ok=True)
            # A new cpuset has no processors and no memory nodes. No process can join it until both
            # are assigned.
            if hierarchy.name.startswith("cpuset"):
                for setting in ("cpuset.cpus", "cpuset.mems"):
                    (directory / setting).write_text((directory.parent / setting).read_text())


def remove() -> None:
    """Remove the cluster's directories from all hierarchies.

    Retry for up to 5 seconds, because a control group stays in use for a moment after its last
    process has exited.
    """
    deadline = time.monotonic() + 5
    while remaining := existing():
        for directory in remaining:
            _remove_tree(directory)
        if time.monotonic() > deadline:
            raise ToolError(f"{remaining[0]} is still in use: see its cgroup.procs")
        time.sleep(0.02)


def existing() -> list[Path]:
    """Return the existing directories of the cluster: at most one in each hierarchy."""
    directories = [hierarchy / CGROUP[1:] for hierarchy in _hierarchies()]
    return [directory for directory in directories if directory.exists()]


def _remove_tree(directory: Path) -> None:
    for child in directory.iterdir():
        if child.is_dir():
            _remove_tree(child)
    try:
        directory.rmdir()
    except OSError:
        return  # The directory is still in use; the caller tries again.


def _hierarchies() -> list[Path]:
    """Return the directory of each mounted hierarchy. Links, such as 'cpu', are omitted."""
    return [
        path
        for path in sorted(MOUNTS.iterdir())
        if not path.is_symlink() and (path / "cgroup.procs").exists()
    ]
