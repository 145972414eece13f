"""Check whether this machine can run the cluster. Every error explains how to fix the problem."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from devcluster import cgroups, engine, network
from devcluster.network import Addresses
from devcluster.paths import Paths
from machines import processes
from machines.console import RequirementError

OTHERWISE = "use kind, or set SYMPHONY_TEST_KUBECONFIG to a cluster of yours (docs/testing.md)"
RUNTIMES = ("containerd", "crio", "dockerd", "k3s", "kube-apiserver", "kubelet", "podman")
_GIB = 1 << 30
_TOOLS = ("apt-get", "dpkg-deb", "ip", "mount", "nsenter", "tar", "unshare")


def check_making(paths: Paths, *, building: bool) -> None:
    """Raise RequirementError if this machine cannot provide the packages, binaries or images.

    If `building` is true, more disk space is needed, because the binaries have to be built.
    """
    check_user(os.geteuid())
    check_system(_os_release(), platform.machine())
    check_tools()
    check_filesystems(Path("/proc/filesystems").read_text())
    check_free_space(paths.cache, needed=8 if building else 2)


def check_running(paths: Paths, addresses: Addresses) -> None:
    """Raise RequirementError if a cluster could not run on this machine or could harm other
    programs.
    """
    check_other_runtimes(running_names())
    cgroups.check()
    check_free_space(paths.state, needed=4)
    network.check(addresses)
    engine.check_port()


def check_user(uid: int) -> None:
    """Raise RequirementError if the user is not root."""
    if uid != 0:
        raise RequirementError(
            f"only root can create namespaces and mounts: run as root, or {OTHERWISE}"
        )


def check_system(release: Mapping[str, str], machine: str) -> None:
    """Raise RequirementError unless the machine runs Debian 12 on x86_64.

    The cluster's packages are built for that system.
    """
    if (release.get("ID"), release.get("VERSION_ID")) != ("debian", "12"):
        name = release.get("PRETTY_NAME", "this system")
        raise RequirementError(
            f"{name} is not Debian 12, whose packages the cluster needs: {OTHERWISE}"
        )
    if machine != "x86_64":
        raise RequirementError(
            f"{machine} is not x86_64, the only supported architecture: {OTHERWISE}"
        )


def check_tools() -> None:
    """Raise RequirementError if a program that this tool runs on the host is not installed."""
    for tool in _TOOLS:
        if shutil.which(tool) is None:
            package = {"ip": "iproute2", "mount": "mount"}.get(tool, "util-linux, tar and apt")
            raise RequirementError(f"program '{tool}' is not installed: apt-get install {package}")


def check_other_runtimes(running: Iterable[tuple[int, str]]) -> None:
    """Raise RequirementError if a container runtime or a Kubernetes component is running.

    `running` contains pairs of a pid and a program name.
    """
    for pid, name in running:
        if name in RUNTIMES:
            raise RequirementError(
                f"{name} (pid {pid}) already runs containers on this machine, and a second runtime "
                f"would disturb them: stop it if it is not needed, or {OTHERWISE}"
            )


def check_filesystems(known: str) -> None:
    """Raise RequirementError if the kernel does not support overlay mounts."""
    if "overlay" not in known.split():
        raise RequirementError(
            f"this kernel has no overlay file system: modprobe overlay, or {OTHERWISE}"
        )


def check_free_space(directory: Path, *, needed: int) -> None:
    """Raise RequirementError if the file system that contains `directory` has less than `needed`
    GiB of free space.

    The directory does not need to exist yet.
    """
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    free = shutil.disk_usage(existing).free / _GIB
    if free < needed:
        raise RequirementError(
            f"{free:.1f} GiB are free for {directory} and {needed} are needed: free some space, or "
            "set XDG_CACHE_HOME and XDG_STATE_HOME to directories on a larger disk"
        )


def running_names() -> list[tuple[int, str]]:
    """Return a (pid, program name) pair for every process."""
    found = []
    for pid in processes.all_pids():
        try:
            found.append((pid, Path(f"/proc/{pid}/comm").read_text().strip()))
        except OSError:
            continue  # The process has exited since the processes were listed.
    return found


def _os_release() -> dict[str, str]:
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}
