"""Isolated environments ("machines") with their own namespaces, in which Debian packages are
mounted over /usr.

A machine has its own mounts, processes and host name, and usually its own network. Its first
process reaps orphaned processes. When this first process is killed,
the kernel kills all other processes in the machine. The machine's mounts and interfaces disappear
when its last process exits.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from machines import processes
from machines.console import ToolError
from machines.processes import Process


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A running machine. `address` is its address on the bridge."""

    name: str
    init: Process
    address: str

    def inside(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs `argv` in this machine."""
        namespaces = ["--mount", "--pid", "--net", "--uts"]
        return ["nsenter", f"--target={self.init.pid}", *namespaces, "--", *argv]

    def path(self, path: str) -> Path:
        """Return the path on the host of a file or socket in this machine."""
        return Path(f"/proc/{self.init.pid}/root{path}")


def overlay(packages: Sequence[Path]) -> str:
    """Return the shell command that mounts unpacked packages over /usr.

    The command must run in a separate mount namespace.
    """
    layers = ":".join([*(str(package / "usr") for package in packages), "/usr"])
    return f"mount -t overlay -o lowerdir={layers} overlay /usr\n"


def private_directories(paths: Iterable[Path]) -> list[Path]:
    """Return the directories above ``paths`` that other users cannot enter, the outermost first."""
    parents = {parent for path in paths for parent in path.resolve().parents}
    return sorted(path for path in parents if not path.stat().st_mode & 0o001)


def make_public(directory: Path) -> str:
    """Return the shell commands that let all users of a machine enter a private directory.

    What they can read in it depends on the permissions of its files, as before. Changes of the
    directory stay in the machine.
    """
    quoted = shlex.quote(str(directory))
    layers = shlex.quote(f"/run/public{directory}")
    options = shlex.quote(
        f"lowerdir={directory},upperdir=/run/public{directory}/upper,"
        f"workdir=/run/public{directory}/work"
    )
    # The mode of the mounted directory is that of the upper one.
    return (
        f"mkdir -p -m 755 {layers}/upper {layers}/work\n"
        f"mount -t overlay -o {options} overlay {quoted}\n"
    )


def setup(
    *,
    packages: Sequence[Path],
    mounts: Mapping[str, Path],
    hostname: str,
    init: Sequence[str],
    extra: str = "",
) -> str:
    """Return the script that a new machine runs first.

    `packages` are mounted over /usr, if there are any. `mounts` maps files and directories in the
    machine to those of the host that are mounted over them. `init` is the command line of the first
    process, which must reap orphaned processes. `extra` contains further shell lines, each of which
    ends with a newline.
    """
    binds = "".join(
        f"mount --bind {shlex.quote(str(source))} {target}\n" for target, source in mounts.items()
    )
    return (
        "set -e\n"
        # At this point, /proc still belongs to the host, so the script reads its pid on the host.
        "read -r pid rest </proc/self/stat\n"
        + (overlay(packages) if packages else "")
        + "mount -t tmpfs -o mode=755 tmpfs /run\n"
        + binds
        + "mount -t proc proc /proc\n"
        # The container runtimes need mounts that propagate to their containers. These mounts do not
        # propagate to the host.
        + "mount --make-rshared /\n"
        + f"hostname {hostname}\n"
        + extra
        + 'echo "$pid"\n'
        + f"exec {shlex.join(init)} >/dev/null\n"
    )


def boot(name: str, *, script: str, address: str, own_network: bool, log: Path) -> Machine:
    """Start a machine, and return it after its mounts have been created.

    Raises ToolError with the end of the log if the start fails.
    """
    namespaces = ["--mount", "--pid", "--fork", "--uts", *(["--net"] if own_network else [])]
    read_end, write_end = os.pipe()
    with log.open("ab") as errors:
        child = subprocess.Popen(
            ["unshare", *namespaces, "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=write_end,
            stderr=errors,
            start_new_session=True,
        )
    os.close(write_end)
    with os.fdopen(read_end) as answers:
        answer = answers.readline().strip()
    if not answer:
        child.wait()
        raise ToolError(f"machine {name} could not be created: {processes.tail(log, 5)}")
    return Machine(name=name, init=processes.identify(name, int(answer)), address=address)


def once(script: str) -> list[str]:
    """Return the command line that runs a script in temporary mount and PID namespaces."""
    start = "set -e\nmount -t proc proc /proc\n"
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", start + script]
