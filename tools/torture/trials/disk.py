"""Trials with a limit on the size of files and with a full disk."""

from __future__ import annotations

import contextlib
import errno
import resource
import subprocess
from functools import partial
from pathlib import Path

from torture.trial import trial
from torture.workspace import Workspace

MAX_FILE_BYTES = 16_384
DISK_BYTES = 1 << 20
MAX_FREE_BYTES = 65_536
_FILL_BYTES = 4096
_CAP_SYS_ADMIN = 1 << 21


@trial("file-size-limit")
def limit_file_size(workspace: Workspace) -> None:
    """The launcher and all that it starts can write only small files."""
    limit = workspace.random.randint(0, MAX_FILE_BYTES)
    experiment = workspace.experiment(processes=workspace.count(3, 10))
    path = workspace.directory / "experiment.json"
    experiment.dump_file(path)
    command = ("launch", str(path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        launcher = workspace.start_command(*command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    workspace.expect(launcher, *command)
    workspace.check_commands()
    if workspace.random.random() < 0.5:
        for found in workspace.processes():
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(found.pid, resource.RLIMIT_FSIZE, before)


def _mount_obstacle() -> str:
    """Return why this program cannot mount a tmpfs. See capabilities(7)."""
    status = Path("/proc/self/status").read_text()
    capabilities = int(status.partition("CapEff:")[2].split()[0], 16)
    return "" if capabilities & _CAP_SYS_ADMIN else "mounting a tmpfs requires root"


@trial("full-disk", obstacle=_mount_obstacle)
def fill_disk(workspace: Workspace) -> None:
    """The disk of the run directory is full, before the launch or after it."""
    disk = workspace.root.parent
    disk.mkdir()
    options = f"size={DISK_BYTES},mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)], check=True)
    workspace.on_exit(partial(subprocess.run, ["umount", "--lazy", str(disk)], check=True))
    filler = disk / "filler"
    is_full_before = workspace.random.random() < 0.5
    if is_full_before:
        _fill(filler, workspace.random.randint(0, MAX_FREE_BYTES))
    launcher = workspace.start_launch(workspace.experiment(processes=workspace.count(3, 10)))
    workspace.expect(launcher, "launch")
    if not is_full_before:
        _fill(filler, 0)
    workspace.check_commands()
    if workspace.random.random() < 0.5:
        workspace.delete_all()
    filler.unlink()


def _fill(filler: Path, free_bytes: int) -> None:
    """Fill the disk, apart from ``free_bytes``."""
    size = 0
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                size += file.write(b"x" * _FILL_BYTES)
        except OSError as exc:
            if exc.errno != errno.ENOSPC:
                raise
        file.truncate(max(0, size - free_bytes))
