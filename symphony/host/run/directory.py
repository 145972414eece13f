"""Run directories. Each contains the complete record of one experiment on this machine.

Run directories are stored in the directory that `state_root` returns:

    <root>/<experiment>/        mode 0700
        lock                    the file that the supervisor locks while it is running
        supervisor.json         the supervisor's identity
        manifest.json           the launched processes, services and secrets
        events.jsonl            the events since the launch
        note                    the supervisor's message about the whole experiment, if any
        logs/<process>.log      the output of a process; <process>.when records its growth
        secrets/                the secrets; SYMPHONY_SECRETS_DIR contains this path

A launch prepares the complete directory under a temporary name and then renames it in one step. A
reader therefore never sees an incomplete directory, and only one of two launches with the same name
succeeds.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symphony.errors import BackendError
from symphony.host.processes.identity import ProcessId, boot_id, is_alive, is_suspended
from symphony.names import is_name

STATE_VARIABLE = "SYMPHONY_STATE_DIR"
_STAGING_PREFIX, _TRASH_PREFIX = ".new-", ".old-"

# The error numbers that mean that no space is left on a disk, or in the user's quota.
NO_SPACE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})


def state_root(backend: str) -> Path:
    """Return the directory that contains a backend's run directories.

    This directory is below SYMPHONY_STATE_DIR if that variable is set, and below the XDG state
    directory otherwise.
    """
    configured = os.environ.get(STATE_VARIABLE)
    if configured:
        return Path(configured).absolute() / backend
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base).absolute() / "symphony" / backend


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The run directory of one experiment. Its files and subdirectories may be missing."""

    path: Path

    @property
    def name(self) -> str:
        """Return the name of the experiment."""
        return self.path.name

    @property
    def lock(self) -> Path:
        """Return the path of the lock file, which exists in every run directory."""
        return self.path / "lock"

    @property
    def manifest(self) -> Path:
        """Return the path of the manifest, which is a JSON file."""
        return self.path / "manifest.json"

    @property
    def events(self) -> Path:
        """Return the path of the event log."""
        return self.path / "events.jsonl"

    @property
    def note(self) -> Path:
        """Return the path of the supervisor's note; see `symphony.host.run.note`."""
        return self.path / "note"

    @property
    def secrets(self) -> Path:
        """Return the path of the directory that contains the secrets."""
        return self.path / "secrets"

    @property
    def supervisor_log(self) -> Path:
        """Return the path of the file that contains the supervisor's own output.

        The file is empty unless an error has occurred.
        """
        return self.path / "supervisor.log"

    @property
    def logs(self) -> Path:
        """Return the path of the directory that contains the logs."""
        return self.path / "logs"

    def log(self, process: str) -> Path:
        """Return the path of the file that contains the output of a process."""
        return self.logs / f"{process}.log"

    def log_times(self, process: str) -> Path:
        """Return the path of the file that records the length of a process's log over time."""
        return self.logs / f"{process}.when"

    def load_manifest(self) -> dict[str, Any]:
        """Return the contents of the manifest.

        Raises BackendError if the manifest is damaged, and FileNotFoundError if it does not exist.
        """
        try:
            data: dict[str, Any] = json.loads(self.manifest.read_bytes())
            if not isinstance(data, dict) or not {"run_id", "processes"} <= data.keys():
                raise ValueError("it has no processes")
        except ValueError as exc:
            raise BackendError(
                f"the record of experiment {self.name!r} is damaged ({self.manifest}: {exc}); "
                "delete the experiment"
            ) from exc
        return data

    # --- the supervisor ---

    def record_supervisor(self, supervisor: ProcessId) -> None:
        """Record the supervisor's identity, its host and the host's current boot identifier."""
        record = {
            "pid": supervisor.pid,
            "birth": supervisor.birth,
            "host": os.uname().nodename,
            "boot": boot_id(),
        }
        self._supervisor_file.write_text(json.dumps(record))

    def supervisor(self) -> ProcessId | None:
        """Return the supervisor's identity, or None if no supervisor is running on this host."""
        record = self._load_supervisor_record()
        if not record or record["boot"] != boot_id() or not self.is_locked():
            return None
        found = ProcessId(record["pid"], record["birth"])
        return found if is_alive(found) else None

    def suspension(self) -> str:
        """Return a message if the supervisor is suspended, and ``""`` otherwise."""
        record = self._load_supervisor_record()
        if not record or record["boot"] != boot_id():
            return ""
        if not is_suspended(ProcessId(record["pid"], record["birth"])):
            return ""
        pid = record["pid"]
        return (
            f"the supervisor (pid {pid}) is suspended by a signal; resume it with: kill -CONT {pid}"
        )

    def is_of_this_boot(self) -> bool:
        """Return whether the supervisor was started on this host since its last boot.

        If it was not, the recorded pids belong to other processes.
        """
        return self._load_supervisor_record().get("boot") == boot_id()

    def other_host(self) -> str | None:
        """Return the name of the other host that launched the experiment, or None if there is none.

        Hosts that share a home directory see each other's run directories.
        """
        record = self._load_supervisor_record()
        host: str | None = record.get("host")
        if not host or host == os.uname().nodename or record["boot"] == boot_id():
            return None
        return host

    def other_host_message(self, host: str) -> str:
        """Return the error message for an experiment that was launched on another host."""
        return (
            f"experiment {self.name!r} was launched on {host}; delete it there. If that host no "
            "longer exists, or is this host under an earlier name, none of its processes run: "
            f"remove the directory {self.path}"
        )

    @property
    def _supervisor_file(self) -> Path:
        return self.path / "supervisor.json"

    def _load_supervisor_record(self) -> dict[str, Any]:
        """Return the supervisor's record, or an empty mapping if it is missing or damaged."""
        try:
            data: dict[str, Any] = json.loads(self._supervisor_file.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return data

    def is_locked(self) -> bool:
        """Return whether the supervisor is running, either on this host or on another host.

        Call this method before reading the events. If it returns False, no more events will be
        written to the log.
        """
        try:
            lock = os.open(self.lock, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def is_disk_full(self) -> bool:
        """Return whether no space is left on the disk that contains the run directory."""
        try:
            disk = os.statvfs(self.path)
        except OSError:
            return False
        available = disk.f_bfree if os.geteuid() == 0 else disk.f_bavail
        # Some file systems report zeros because they do not count blocks.
        return disk.f_blocks > 0 and available == 0

    # --- creation and removal ---

    def claim(self, path: Path) -> RunDirectory:
        """Rename the directory to its final ``path`` in one step, and return the renamed directory.

        Raises FileExistsError if another launch has already claimed the name.
        """
        try:
            self.path.rename(path)
        except OSError as exc:
            if exc.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from exc
            raise
        return RunDirectory(path)

    def remove(self) -> None:
        """Release the experiment's name in one step, and then remove the files.

        Do nothing if the directory does not exist.
        """
        trash = self.path.parent / f"{_TRASH_PREFIX}{os.urandom(16).hex()}"
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(trash)
            shutil.rmtree(trash, ignore_errors=True)


def find(root: Path, name: str) -> RunDirectory | None:
    """Return the run directory of an experiment, or None if there is none.

    Also return None if ``name`` is not a valid experiment name, for example because it is a path.
    """
    run = RunDirectory(root / name)
    return run if is_name(name) and run.lock.exists() else None


def find_all(root: Path) -> list[RunDirectory]:
    """Return every run directory, sorted by name. Skip directories that symphony did not create."""
    try:
        names = sorted(os.listdir(root))
    except FileNotFoundError:
        return []
    candidates = (find(root, name) for name in names)
    return [run for run in candidates if run is not None]


def all_roots(root: Path) -> list[Path]:
    """Return ``root`` and the directories in which all backends store their run directories by
    default.
    """
    default = state_root("any").parent
    try:
        names = sorted(os.listdir(default))
    except OSError:
        names = []
    paths = (default / name for name in names)
    own = root.resolve()
    return [root, *(path for path in paths if path.is_dir() and path.resolve() != own)]


@contextlib.contextmanager
def staging_directory(root: Path) -> Iterator[tuple[RunDirectory, int]]:
    """Create a run directory under a temporary name, and hold its lock.

    Yield the directory and the lock's file descriptor, which is closed when the ``with`` block
    ends. If another process, such as a supervisor, has inherited the lock by then, that process
    owns the directory. Otherwise, the directory is removed. If the caller is killed, the next
    launch removes the directory.
    """
    run = RunDirectory(root / f"{_STAGING_PREFIX}{os.urandom(16).hex()}")
    with launch_lock(root):
        _remove_stale_directories(root)
        run.path.mkdir(mode=0o700)
        lock = os.open(run.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        run.logs.mkdir(mode=0o700)
        yield run, lock
    finally:
        os.close(lock)
        if not run.is_locked():
            run.remove()


@contextlib.contextmanager
def full_disk_errors(path: Path) -> Iterator[None]:
    """Raise BackendError if the block cannot write to a disk because it is full or read-only.

    ``path`` is used in the message if the original error contains no path.
    """
    try:
        yield
    except OSError as exc:
        if exc.errno not in NO_SPACE_ERRORS and exc.errno != errno.EROFS:
            raise
        raise BackendError(
            f"cannot write to {exc.filename or path}: {exc.strerror}; free some space, or set "
            f"{STATE_VARIABLE} to a directory on another disk"
        ) from exc


@contextlib.contextmanager
def launch_lock(root: Path) -> Iterator[None]:
    """Hold the lock that a launch needs to free a name or to create a run directory.

    Hold this lock between a check and the action that depends on the check, so that no other launch
    can free a name or create a run directory in the meantime.
    """
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_stale_directories(root: Path) -> None:
    """Remove the directories that were left behind by launches and removals that were killed.

    These are staging directories that no process has locked, and directories that were already
    being removed.
    """
    for name in os.listdir(root):
        stale = RunDirectory(root / name)
        is_abandoned = name.startswith(_STAGING_PREFIX) and not stale.is_locked()
        if is_abandoned or name.startswith(_TRASH_PREFIX):
            shutil.rmtree(stale.path, ignore_errors=True)
