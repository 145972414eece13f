"""Run directories. Each contains the complete record of one experiment on this machine.

Run directories are stored in the directory that `state_root` returns:

    <root>/<experiment>/        mode 0700
        lock                    the file that the supervisor locks while it is running; it
                                contains the run identifier
        supervisor.json         the supervisor's identity
        manifest.json           the launched processes, services and secrets
        events.jsonl            the events since the launch
        note                    the supervisor's message about the whole experiment, if any
        logs/<process>.log      the output of a process; <process>.when records its growth, and
                                <process>.start where it starts if old output was removed
        pipes/<process>         the named pipe for the output of a process
        pipes.lock              the lock and the pid of the program that copies this output
        secrets/                the secrets; SYMPHONY_SECRETS_DIR contains this path
        configs/<process>/      the configuration files of a process, in a directory for each
                                version; SYMPHONY_CONFIG_DIR contains the path of one version
        scratch/<process>/      the files that a process writes for itself;
                                SYMPHONY_SCRATCH_DIR contains this path
        launcher.json           the settings of the launcher, for a new supervisor
        guardian                the file that the supervisor's guardian locks; it contains its pid
        exits                   the exits of processes that the guardian has collected
    control                 the socket of the supervisor; see `control_socket`
        stopping                the programs that were asked to exit, while they are being stopped
        stop-together           this file exists if a stop does not follow the stop order
        stop-requested          this file exists if a user has stopped the experiment

On a file system that several machines share, a machine can remember the previous contents of a path
for some time. A backend whose processes run on other machines therefore gives each run a path of
its own, and ``<root>/<experiment>`` is a link to it. The file ``remote`` marks such a run.

A launch prepares the complete directory under a temporary name, ``.new-<experiment>``, and then
renames it in one step. A reader therefore never sees an incomplete directory. While the temporary
name exists, other launches of the same experiment wait, so that they do not compete for its ports
and GPUs.

A run can be deleted and replaced at any time. A program that changes a run therefore pins the run
directory first, and a name is released only while the launch lock is held.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from symphony.errors import BackendError, SymphonyError
from symphony.supervised.processes.identity import (
    is_suspended,
)
from symphony.supervised.record.record_checks import manifest_error
from symphony.supervised.record.run_paths import SCRATCH_DIRECTORY
from symphony.supervised.record.supervisor_files import SupervisorFiles
from symphony.support.directories.state_home import (
    ARCHIVE_NAME,
    STATE_VARIABLE,
    backend_roots,
    check_state_directory,
    create_state_directory,
    state_root,
)
from symphony.support.names import is_name
from symphony.support.replace_file import replace_file

_STAGING_PREFIX, _TRASH_PREFIX = ".new-", ".old-"
_DIRECTORY_MODE, _FILE_MODE = 0o700, 0o600
_ROOT_UID = 0

# The error numbers that mean that no space is left on a disk, or in the user's quota.
NO_SPACE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT})

# The approximate size of a new run directory, in which each file uses at least one block. Most of
# it is the reserve of the event log, and the manifest.
_RECORD_BYTES, _RECORD_BYTES_PER_PROCESS = 80 << 10, 4 << 10

_STOP_TOGETHER_FILE = "stop-together"
_STOP_REQUEST_FILE = "stop-requested"
# How long `RunDirectory.wait_for_output` waits, and how often it checks.
_OUTPUT_SECONDS, _OUTPUT_POLL_SECONDS = 1.0, 0.005

# A directory with at least this number of entries is removed by this number of threads. With more
# threads, the removal takes longer if the disk is idle.
_PARALLEL_REMOVAL_COUNT, _REMOVAL_THREADS = 200, 4
_REMOVED_PREFIX = ".removed-"

# While a launch waits for another launch of the same name, it checks at these intervals whether the
# other launch is over, and whether it is suspended.
_STAGING_POLL_SECONDS, _SUSPENSION_CHECK_SECONDS = 0.02, 1.0

# How long a file that another machine has written can appear damaged or incomplete, and how often
# it is read.
REMOTE_PATIENCE_SECONDS, _REMOTE_POLL_SECONDS = 5.0, 0.1


class RunDirectory(SupervisorFiles):
    """The run directory of one experiment; see `RunPaths`."""

    __slots__ = ()

    def remove_scratch_files(self) -> None:
        """Remove the files that the processes have written for themselves. Errors are ignored."""
        remove_many(self._files / SCRATCH_DIRECTORY)

    def wait_for_output(self) -> None:
        """Wait until the output of the processes, which have exited, is in the logs.

        Return after `_OUTPUT_SECONDS` at the latest, because a process that does not belong to the
        run can keep a pipe open.
        """
        try:
            lock = os.open(self.pipes_lock, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        deadline = time.monotonic() + _OUTPUT_SECONDS
        try:
            while time.monotonic() < deadline:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                    return
                time.sleep(_OUTPUT_POLL_SECONDS)
        finally:
            os.close(lock)

    def stop_together(self) -> None:
        """Make the supervisor stop all processes at the same time when it is asked to stop them.

        If this cannot be recorded, for example because the disk is full, they are stopped in order.
        """
        with contextlib.suppress(OSError):
            self.file(_STOP_TOGETHER_FILE).touch()

    def stops_together(self) -> bool:
        """Return whether `stop_together` was called."""
        return self.file(_STOP_TOGETHER_FILE).exists()

    def note_stop_request(self) -> None:
        """Note that a user stops the experiment, and not the system that shuts down.

        If this cannot be recorded, an experiment with the option ``resume`` starts again later.
        """
        with contextlib.suppress(OSError):
            self.file(_STOP_REQUEST_FILE).touch()

    def is_stop_requested(self) -> bool:
        """Return whether `note_stop_request` was called."""
        return self.file(_STOP_REQUEST_FILE).exists()

    @contextlib.contextmanager
    def pin(self) -> Iterator[RunDirectory]:
        """Yield this run directory, pinned: it refers to the same run until the block ends, even if
        another program replaces the run in the meantime.

        Raises NotFound if the directory does not exist.
        """
        try:
            descriptor = os.open(self.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise self._not_found() from None
        try:
            yield RunDirectory(self.path, descriptor)
        finally:
            os.close(descriptor)

    def is_run_directory(self) -> bool:
        """Return whether the directory contains at least one of a run directory's files.

        A directory that this user cannot search counts as a run directory, because only symphony
        creates directories next to it.
        """
        for path in (self.lock, self._supervisor_file, self.manifest, self.events):
            try:
                path.lstat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as exc:
                return exc.errno != errno.ELOOP
            return True
        return False

    def run_id(self) -> str | None:
        """Return the run's identifier, or None if it is unknown because files are damaged.

        The identifier is in the manifest and in the lock file, so that a run whose manifest is
        damaged can still be stopped.
        """
        with contextlib.suppress(SymphonyError):
            run_id: str = self.load_manifest()["run_id"]
            return run_id
        try:
            text = self.lock.read_bytes().decode("ascii")
        except (OSError, ValueError):
            return None
        return text if text.isalnum() else None

    def record_run_id(self, run_id: str) -> None:
        """Write the run's identifier to the lock file."""
        self.lock.write_text(run_id)

    def stamp(self) -> tuple[int, int] | None:
        """Return a value that differs between runs, or None if the manifest does not exist.

        A reader compares stamps to notice that another run now has the experiment's name.
        """
        try:
            found = self.manifest.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns

    def write_manifest(self, contents: Mapping[str, Any]) -> None:
        """Write the manifest of a new run, and the run's identifier."""
        self.record_run_id(contents["run_id"])
        self.replace_manifest(contents)

    def replace_manifest(self, contents: Mapping[str, Any]) -> None:
        """Replace the manifest in one step. Only this user can read it."""
        # json.dumps is faster than json.dump, because json.dump does not use the encoder in C.
        replace_file(self.manifest, [json.dumps(contents).encode()], mode=_FILE_MODE)

    def load_manifest(self, *, is_new: bool = False) -> dict[str, Any]:
        """Return the contents of the manifest.

        ``is_new`` states that the launcher has just written the manifest for this supervisor. Such
        a manifest is not checked, because a launch waits for each check of each process.

        Raises BackendError if the manifest is damaged, and NotFound if the experiment does not
        exist any more.
        """
        deadline = time.monotonic() + REMOTE_PATIENCE_SECONDS
        while True:
            try:
                return self._load_manifest(is_new=is_new)
            except BackendError:
                # Another machine may have replaced the file. On some file systems, this machine
                # then reads the new contents with the old length for about a second.
                if time.monotonic() > deadline or not self.is_remote():
                    raise
            time.sleep(_REMOTE_POLL_SECONDS)

    def _load_manifest(self, *, is_new: bool) -> dict[str, Any]:
        with self.report_damage(self.manifest):
            data: dict[str, Any] = json.loads(self.manifest.read_bytes())
            error = "" if is_new else manifest_error(data)
            if error:
                raise ValueError(error)
        return data

    def is_disk_full(self) -> bool:
        """Return whether no space is left on the disk that contains the run directory."""
        return free_bytes(self.path) == 0

    def claim(self, path: Path) -> RunDirectory:
        """Rename the directory to its final ``path`` in one step, and return the renamed directory.

        Raises FileExistsError if the name is in use.
        """
        try:
            self.path.rename(path)
        except OSError as exc:
            if exc.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from exc
            raise
        return RunDirectory(path)

    def grant_access(self) -> None:
        """Give the user access to the directory and its entries, if the user owns them.

        Files that cannot be read because of their mode would otherwise prevent the deletion of the
        experiment.
        """
        # Without access to the directory, its entries cannot be listed.
        with contextlib.suppress(OSError):
            _grant_access(self._files, _DIRECTORY_MODE)
            with os.scandir(self._files) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        _grant_access(entry.path, _DIRECTORY_MODE)
                    elif entry.is_file(follow_symlinks=False):
                        _grant_access(entry.path, _FILE_MODE)

    def archive(self, archive_directory: Path, name: str) -> Path | None:
        """Release the experiment's name by moving the directory into an archive, in one step.

        ``name`` is the identifier of the run. Return the new path. Do nothing and return None if
        the directory does not exist or, if it is pinned, if another run now has the name. Raises
        OSError if the directory cannot be moved.
        """
        from symphony.archive import archive

        with launch_lock(self.path.parent):
            if not self.is_current():
                return None
            return archive.add(_release_name(self.path), archive_directory, name)

    def remove(self) -> None:
        """Release the experiment's name in one step, and then remove the files.

        Do nothing if the directory does not exist or, if it is pinned, if another run now has the
        name.
        """
        with launch_lock(self.path.parent):
            if not self.is_current():
                return
            trash = _move_to_trash(_release_name(self.path), self.path.parent)
        removed = RunDirectory(trash)
        removed.remove_scratch_files()
        remove_many(removed.logs)
        remove_tree(trash)


def _release_name(path: Path) -> Path:
    """Remove the link to a run directory, if ``path`` is a link. Return the directory itself."""
    if not path.is_symlink():
        return path
    found = path.resolve()
    path.unlink()
    return found


def _move_to_trash(path: Path, root: Path) -> Path:
    """Give a directory a temporary name in ``root``, so that its name is free at once. Return the
    new path.

    A directory cannot always be removed immediately. For example, NFS keeps the files that a
    program has open.
    """
    trash = root / f"{_TRASH_PREFIX}{os.urandom(16).hex()}"
    path.rename(trash)
    return trash


def _grant_access(path: str | os.PathLike[str], mode: int) -> None:
    with contextlib.suppress(PermissionError):
        if stat.S_IMODE(os.stat(path).st_mode) & mode != mode:  # noqa: PTH116
            os.chmod(path, mode)  # noqa: PTH101


def find(root: Path, name: str) -> RunDirectory | None:
    """Return the run directory of an experiment, or None if there is none.

    Also return None if ``name`` is not a valid experiment name, for example because it is a path.
    Raises SpecError if another user can change ``root``.
    """
    check_state_directory(root)
    return _find(root, name)


def _find(root: Path, name: str) -> RunDirectory | None:
    run = RunDirectory(root / name)
    return run if is_name(name) and run.is_run_directory() else None


def experiment_names(backend: str, options: Mapping[str, Any]) -> list[str]:
    """Return the sorted names of a backend's experiments on this machine.

    ``options`` are the configured options of the backend. A backend's plug-in names this function;
    see `symphony.hookspecs.BackendInfo`.
    """
    configured = options.get("state_dir")
    root = state_root(backend) if configured is None else Path(configured).absolute()
    return [run.name for run in find_all(root)]


def find_all(root: Path) -> list[RunDirectory]:
    """Return every run directory, sorted by name. Skip directories that symphony did not create.

    Raises SpecError if another user can change ``root``.
    """
    candidates = (_find(root, name) for name in sorted(list_names(root)))
    return [run for run in candidates if run is not None]


def list_names(root: Path) -> list[str]:
    """Return the names of everything in ``root``, which are not sorted and can be those of other
    files.

    Raises SpecError if another user can change ``root``.
    """
    check_state_directory(root)
    try:
        return os.listdir(root)
    except FileNotFoundError:
        return []


def archive_directory(root: Path) -> Path:
    """Return the archive for the run directories in ``root``.

    All backends with their default directories share one archive. Another directory contains its
    own archive, so that a run can always be moved within one file system.
    """
    shared = state_root(ARCHIVE_NAME)
    return shared if root.parent == shared.parent else root / f".{ARCHIVE_NAME}"


def all_roots(root: Path) -> list[Path]:
    """Return ``root`` and the directories in which all backends store their run directories by
    default.
    """
    own = root.resolve()
    return [root, *(path for path in backend_roots() if path.resolve() != own)]


@contextlib.contextmanager
def staging_directory(root: Path, name: str) -> Iterator[tuple[RunDirectory, int]]:
    """Create the run directory of the experiment ``name`` under a temporary name, and hold its
    lock.

    If another launch of this experiment is in progress, wait until it has claimed the experiment's
    name or has failed. Raises BackendError if that launch is suspended.

    Yield the directory and the lock's file descriptor, which is closed when the ``with`` block
    ends. If another process, such as a supervisor, has inherited the lock by then, that process
    owns the directory. Otherwise, the directory is removed. If the caller is killed, the next
    launch removes the directory.
    """
    run, lock = _create_staging_directory(root, name)
    with run.pin() as own:
        try:
            run.logs.mkdir(mode=_DIRECTORY_MODE)
            yield run, lock
        finally:
            os.close(lock)
            if not own.is_locked():
                own.remove()


def _create_staging_directory(root: Path, name: str) -> tuple[RunDirectory, int]:
    run = RunDirectory(root / f"{_STAGING_PREFIX}{name}")
    while True:
        with launch_lock(root):
            _remove_stale_directories(root)
            if not os.path.lexists(run.path):
                run.path.mkdir(mode=_DIRECTORY_MODE)
                lock = os.open(run.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
                fcntl.flock(lock, fcntl.LOCK_EX)
                return run, lock
        _wait_for_launch(run, name)


def wait_for_launch(root: Path, name: str) -> None:
    """If a launch of the experiment ``name`` is in progress, wait until it has claimed the name or
    has failed.

    Raises BackendError if that launch is suspended, and SpecError if another user can change
    ``root``.
    """
    check_state_directory(root)
    _wait_for_launch(RunDirectory(root / f"{_STAGING_PREFIX}{name}"), name)


def is_launching(root: Path, name: str) -> bool:
    """Return whether a launch of the experiment ``name`` is in progress."""
    return RunDirectory(root / f"{_STAGING_PREFIX}{name}").is_locked()


def _wait_for_launch(run: RunDirectory, name: str) -> None:
    """Wait until the launch that owns a staging directory has claimed its name or has failed."""
    next_check = time.monotonic() + _SUSPENSION_CHECK_SECONDS
    while run.is_locked():
        time.sleep(_STAGING_POLL_SECONDS)
        if time.monotonic() >= next_check:
            _check_launch_not_suspended(run, name)
            next_check = time.monotonic() + _SUSPENSION_CHECK_SECONDS


def _check_launch_not_suspended(run: RunDirectory, name: str) -> None:
    from symphony.supervised.processes.tree import find_users_of_file

    # FileNotFoundError means that the launch is over.
    with contextlib.suppress(FileNotFoundError):
        for process, _ in find_users_of_file(run.lock):
            if is_suspended(process):
                raise BackendError(
                    f"another launch of {name!r} (pid {process.pid}) is suspended by a signal; "
                    f"resume it with: kill -CONT {process.pid}"
                )


@contextlib.contextmanager
def full_disk_errors(path: Path, processes: int) -> Iterator[None]:
    """Raise BackendError if the block cannot write to a disk because it is full or read-only.

    ``path`` is used in the message if the original error contains no path. The message states how
    much space an experiment with this number of ``processes`` needs.
    """
    try:
        yield
    except OSError as exc:
        if exc.errno not in NO_SPACE_ERRORS and exc.errno != errno.EROFS:
            raise
        space = _space_message(path, processes) if exc.errno == errno.ENOSPC else ""
        raise BackendError(
            f"cannot write to {exc.filename or path}: {exc.strerror}{space}; free some space, or "
            f"set {STATE_VARIABLE} to a directory on another disk"
        ) from exc


def check_free_space(path: Path, processes: int) -> None:
    """Raise OSError if the disk of ``path`` has too little space for an experiment with this number
    of ``processes``.
    """
    free = free_bytes(path)
    if free is not None and free < _needed_bytes(processes):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def _needed_bytes(processes: int) -> int:
    return _RECORD_BYTES + processes * _RECORD_BYTES_PER_PROCESS


def _space_message(path: Path, processes: int) -> str:
    """Return how much space is free on the disk of ``path``, and how much an experiment needs."""
    while not path.exists() and path != path.parent:
        path = path.parent
    needed = _needed_bytes(processes) >> 10
    count = "one process" if processes == 1 else f"{processes} processes"
    needs = f"an experiment of {count} needs about {needed} KiB without its logs"
    free = free_bytes(path)
    return f"; {needs}" if free is None else f"; {free >> 10} KiB are free, and {needs}"


def free_bytes(path: Path) -> int | None:
    """Return how much this user can still write to the disk of ``path``, or None if it is unknown.

    Some file systems report zeros because they do not count blocks.
    """
    try:
        disk = os.statvfs(path)
    except OSError:
        return None
    blocks = disk.f_bfree if os.geteuid() == _ROOT_UID else disk.f_bavail
    return blocks * disk.f_frsize if disk.f_blocks > 0 else None


@contextlib.contextmanager
def launch_lock(root: Path) -> Iterator[None]:
    """Hold the lock that a launch needs to free a name or to create a run directory.

    Hold this lock between a check and the action that depends on the check, so that no other launch
    can free a name or create a run directory in the meantime. Raises SpecError if another user can
    change ``root``.
    """
    create_state_directory(root)
    descriptor = os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def existing_launch_lock(root: Path) -> Iterator[None]:
    """Hold the launch lock if ``root`` exists. Otherwise, do nothing, and do not create it."""
    with launch_lock(root) if root.exists() else contextlib.nullcontext():
        yield


def remove_tree(path: Path) -> None:
    """Remove a directory with all its files. Errors are ignored."""
    # The import of `shutil` also imports modules for compression, which neither a supervisor nor
    # `symphony ls` needs.
    import shutil

    shutil.rmtree(path, ignore_errors=True)
    if not path.is_dir():
        return
    # The files in a directory without write permission, such as those of a package cache, cannot be
    # removed.
    for directory, names, _ in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                child = f"{directory}/{name}"
                if not os.path.islink(child):  # noqa: PTH114
                    os.chmod(child, _DIRECTORY_MODE)  # noqa: PTH101
    shutil.rmtree(path, ignore_errors=True)


def remove_many(path: Path) -> None:
    """Remove a directory that can contain many files and directories. Errors are ignored.

    Each removal can wait for the disk or for a file server, and the kernel removes the entries of
    one directory one after the other. The entries are therefore distributed over new directories,
    which threads remove at the same time. An empty directory is removed at once, because moving it
    takes as long.
    """
    try:
        names = os.listdir(path)
    except OSError:
        return
    if len(names) < _PARALLEL_REMOVAL_COUNT:
        remove_tree(path)
        return
    names = [name for name in names if not _is_removed(f"{path}/{name}")]
    if not names:
        remove_tree(path)
        return
    from concurrent.futures import ThreadPoolExecutor

    # The names of processes do not start with a period.
    parts = [path / f"{_REMOVED_PREFIX}{number}" for number in range(_REMOVAL_THREADS)]
    with contextlib.suppress(OSError):
        for part in parts:
            part.mkdir(mode=_DIRECTORY_MODE, exist_ok=True)
        for index, name in enumerate(names):
            os.rename(f"{path}/{name}", f"{parts[index % len(parts)]}/{name}")  # noqa: PTH104
    with ThreadPoolExecutor(len(parts)) as pool:
        for part in parts:
            pool.submit(remove_tree, part)
    remove_tree(path)


def _is_removed(path: str) -> bool:
    """Remove a directory if it is empty. Return whether that was possible."""
    try:
        os.rmdir(path)  # noqa: PTH106
    except OSError:
        return False
    return True


def _remove_stale_directories(root: Path) -> None:
    """Remove the directories that were left behind by launches and removals that were killed.

    These are staging directories that no process has locked, and directories that were already
    being removed.
    """
    for name in os.listdir(root):
        stale = RunDirectory(root / name)
        if name.startswith(_TRASH_PREFIX):
            remove_tree(stale.path)
        elif name.startswith(_STAGING_PREFIX):
            # FileNotFoundError means that a launch has claimed its name at this moment.
            with contextlib.suppress(BackendError, FileNotFoundError):
                if not stale.is_locked():
                    remove_tree(_move_to_trash(stale.path, root))
