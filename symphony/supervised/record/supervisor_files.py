"""The supervisor of a run according to the files of the run, and the errors about these files."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from symphony.errors import BackendError, NotFound
from symphony.supervised.processes.identity import (
    ProcessId,
    boot_id,
    is_alive,
    is_suspended,
    pid_namespace,
)
from symphony.supervised.record.record_checks import is_supervisor_record
from symphony.supervised.record.run_paths import RunPaths
from symphony.support.directories import private as private_directories
from symphony.support.replace_file import replace_file

_ROOT_UID = 0
# The guardian, which imports almost nothing, has the same constant.
_GUARDIAN_FILE = "guardian"


class SupervisorFiles(RunPaths):
    """The files of a run with what they tell of its supervisor: the lock and its identity."""

    __slots__ = ()

    def is_locked(self) -> bool:
        """Return whether the supervisor is running, either on this host or on another host.

        Call this method before reading the events. If it returns False, no more events will be
        written to the log. Raises BackendError if the lock file cannot be opened.
        """
        try:
            lock = os.open(self.lock, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as exc:
            raise self.unreadable(self.lock, exc) from exc
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def supervisor(self) -> ProcessId | None:
        """Return the supervisor's identity, or None if no supervisor is running on this host."""
        return self.recorded_supervisor() if self.is_locked() else None

    def recorded_supervisor(self) -> ProcessId | None:
        """Return the identity in the supervisor's record if that process is running on this host.

        Unlike `supervisor`, this method does not need the lock file, which can be damaged.
        """
        record = self._load_supervisor_record()
        if not record or record["boot"] != boot_id() or not _is_own_namespace(record):
            return None
        found = ProcessId(record["pid"], record["birth"])
        return found if is_alive(found) else None

    def record_supervisor(
        self, supervisor: ProcessId, *, replaces: bool = False, is_resuming: bool = False
    ) -> None:
        """Record the supervisor's identity, its host, the host's current boot identifier, and the
        PID namespace.

        With ``replaces``, other programs can read the previous record at the same time, so it is
        replaced in one step. ``is_resuming`` states that the supervisor has not taken over the
        processes of a killed one yet.
        """
        record = {
            "pid": supervisor.pid,
            "birth": supervisor.birth,
            "host": os.uname().nodename,
            "boot": boot_id(),
            "pid_namespace": pid_namespace(),
            "resuming": is_resuming,
        }
        if replaces:
            replace_file(self._supervisor_file, [json.dumps(record).encode()])
        else:
            self._supervisor_file.write_text(json.dumps(record))

    def is_resuming(self) -> bool:
        """Return whether a new supervisor is taking over the processes of a killed one."""
        record = self._load_supervisor_record()
        return record.get("resuming", False) is True and self.recorded_supervisor() is not None

    def guardian(self) -> int | None:
        """Return the pid of the guardian that starts a new supervisor if the present one is killed,
        or None if there is none.
        """
        try:
            descriptor = os.open(self._files / _GUARDIAN_FILE, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            with contextlib.suppress(ValueError):
                return int(os.pread(descriptor, 32, 0))
        finally:
            os.close(descriptor)
        return None

    def suspension(self) -> str:
        """Return a message if the supervisor is suspended, and ``""`` otherwise."""
        record = self._load_supervisor_record()
        if not record or record["boot"] != boot_id() or not _is_own_namespace(record):
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
        record = self._load_supervisor_record()
        return record.get("boot") == boot_id() and _is_own_namespace(record)

    def other_host(self) -> str | None:
        """Return the other host that launched the experiment, or None if there is none.

        Hosts that share a home directory see each other's run directories. A container counts as a
        host, because the processes in a PID namespace cannot be observed from other namespaces.
        """
        record = self._load_supervisor_record()
        if not record:
            return None
        host: str = record["host"]
        if record["boot"] == boot_id():
            return None if _is_own_namespace(record) else f"{host} in another PID namespace"
        if host != os.uname().nodename:
            return host
        # After a reboot of this host, no process of the run exists, and no process holds the lock.
        return f"another host that is also called {host}" if self.is_locked() else None

    def other_host_message(self, host: str, fix: str = "delete it there") -> str:
        """Return the error message for an experiment that was launched on another host."""
        return (
            f"experiment {self.name!r} was launched on {host}; {fix}. If that host or container no "
            "longer exists, or is this host under an earlier name, none of its processes run: "
            f"remove the directory {self.path}"
        )

    def check_user(self) -> None:
        """Raise BackendError if the run belongs to another user and this user is not root."""
        owner = self._files.stat().st_uid
        if os.geteuid() not in (_ROOT_UID, owner):
            raise BackendError(
                f"experiment {self.name!r} belongs to {private_directories.user_name(owner)}; run "
                "the command as this user"
            )

    def _load_supervisor_record(self) -> dict[str, Any]:
        """Return the supervisor's record, or an empty mapping if it is missing or damaged."""
        try:
            data: dict[str, Any] = json.loads(self._supervisor_file.read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        return data if is_supervisor_record(data) else {}

    @contextlib.contextmanager
    def report_damage(self, path: Path) -> Iterator[None]:
        """Convert the errors that occur while a block reads the run's files.

        Raises BackendError if a file cannot be read, if a file is missing, or if the block raises
        ValueError because the contents of the file ``path`` are invalid. Raises NotFound if the
        experiment does not exist any more.
        """
        try:
            yield
        except (OSError, ValueError, RecursionError) as exc:
            if not self.is_current():
                raise self._not_found() from None
            if not isinstance(exc, OSError):
                raise self.damaged(path, str(exc)) from exc
            path = Path(os.fsdecode(exc.filename or path))
            if isinstance(exc, FileNotFoundError):
                raise self.damaged(path, "the file is missing") from exc
            raise self.unreadable(path, exc) from exc

    def unreadable(self, path: Path, error: OSError) -> BackendError:
        """Return the error for a file that cannot be read."""
        return BackendError(
            f"the record of experiment {self.name!r} cannot be read "
            f"({self._shown(path)}: {error.strerror}); correct this, or delete the experiment"
        )

    def damaged(self, path: Path, error: str) -> BackendError:
        """Return the error for a file whose contents are damaged."""
        return BackendError(
            f"the record of experiment {self.name!r} is damaged ({self._shown(path)}: {error}); "
            "delete the experiment"
        )

    def _not_found(self) -> NotFound:
        from symphony.cluster.matching import experiment_not_found

        return experiment_not_found(self.name, [])

    def _shown(self, path: Path) -> Path:
        """Return the path of one of the run's files as it is shown to the user."""
        if self.descriptor is not None and path.is_relative_to(self._files):
            return self.path / path.relative_to(self._files)
        return path


def _is_own_namespace(record: Mapping[str, Any]) -> bool:
    """Return whether a supervisor's record is from this PID namespace, or names no namespace."""
    return record.get("pid_namespace") in (None, pid_namespace())
