"""Manage the cluster's control groups: one directory tree in every hierarchy.

With cgroup v1, each controller has its own hierarchy. With cgroup v2, there is one hierarchy.
"""

from __future__ import annotations

import time
from pathlib import Path

from devcluster.node import CGROUP
from machines.console import RequirementError, ToolError

MOUNTS = Path("/sys/fs/cgroup")
NEEDED = ("blkio", "cpu", "cpuset", "devices", "freezer", "memory", "pids")
# In version 2, the devices and the freezer are not controllers, and io replaces blkio.
NEEDED_V2 = ("cpu", "cpuset", "io", "memory", "pids")
# If the kernel has this controller, the kubelet requires it in the directory of its node, too.
OPTIONAL_V2 = ("hugetlb",)


def check() -> None:
    """Raise RequirementError if a control group controller that Kubernetes needs is missing."""
    if _unified():
        available = _available()
        missing = [name for name in NEEDED_V2 if name not in available]
    else:
        missing = [name for name in NEEDED if not (MOUNTS / name / "cgroup.procs").exists()]
    if missing:
        raise RequirementError(
            f"no cgroup controller {', '.join(missing)} in {MOUNTS}, which Kubernetes needs: "
            "mount the control groups of the host there, or run the tests with kind"
        )


def make(name: str) -> None:
    """Create the directory `name` (for example, /symphony-devcluster/node1) in every hierarchy."""
    for hierarchy in _hierarchies():
        directory = hierarchy
        for part in Path(name).parts[1:]:
            if _unified():
                _delegate(directory)
            directory /= part
            directory.mkdir(exist_ok=True)
            # A new cpuset has no processors and no memory nodes. No process can join it until both
            # are assigned.
            if hierarchy.name.startswith("cpuset"):
                for setting in ("cpuset.cpus", "cpuset.mems"):
                    (directory / setting).write_text((directory.parent / setting).read_text())


def _unified() -> bool:
    return (MOUNTS / "cgroup.controllers").exists()


def _available() -> list[str]:
    """Return the names of the kernel's controllers. There is one list only with cgroup v2."""
    return (MOUNTS / "cgroup.controllers").read_text().split()


def _delegate(directory: Path) -> None:
    """Let the directories in a directory of cgroup v2 use the controllers."""
    available = _available()
    optional = [name for name in OPTIONAL_V2 if name in available]
    controllers = [*NEEDED_V2, *optional]
    try:
        (directory / "cgroup.subtree_control").write_text(
            " ".join(f"+{name}" for name in controllers)
        )
    except OSError as exc:
        raise RequirementError(
            f"cannot enable the controllers {', '.join(controllers)} in {directory} "
            f"({exc.strerror}): move the processes of its cgroup.procs into a directory of their "
            "own, or run the tests with kind"
        ) from exc


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
    if _unified():
        return [MOUNTS]
    return [
        path
        for path in sorted(MOUNTS.iterdir())
        if not path.is_symlink() and (path / "cgroup.procs").exists()
    ]
