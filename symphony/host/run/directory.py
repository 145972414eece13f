"""Run directories: all that is known of an experiment on this machine, under the XDG state directory.

    <root>/<experiment>/        mode 0700
        lock                    held by the supervisor as long as it lives, however it ends
        supervisor.json         who the supervisor is
        manifest.json           what was launched
        events.jsonl            what happened since
        logs/<process>.log      what each process wrote, and when (<process>.when)
        secrets/                what SYMPHONY_SECRETS_DIR names

A directory is made aside, complete, and takes its name in one step, so that whoever sees it sees all of it,
and of two launches of one name one wins.
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
from symphony.host.processes.identity import ProcessId, boot_id, is_alive
from symphony.names import is_name

STATE_VARIABLE = "SYMPHONY_STATE_DIR"
_ASIDE, _TRASH = ".new-", ".old-"


def state_root(backend: str) -> Path:
    """Where a backend's run directories are: below SYMPHONY_STATE_DIR, else the XDG state directory."""
    given = os.environ.get(STATE_VARIABLE)
    if given:
        return Path(given).absolute() / backend
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base).absolute() / "symphony" / backend


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """One experiment's directory. Its parts need not be there."""

    path: Path

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.path.name

    @property
    def manifest(self) -> Path:
        """What was launched, as JSON."""
        return self.path / "manifest.json"

    @property
    def events(self) -> Path:
        """The event log."""
        return self.path / "events.jsonl"

    @property
    def secrets(self) -> Path:
        """The copied secrets."""
        return self.path / "secrets"

    @property
    def supervisor_log(self) -> Path:
        """What the supervisor itself had to say; empty unless something is wrong with it."""
        return self.path / "supervisor.log"

    @property
    def logs(self) -> Path:
        """The folder of the logs."""
        return self.path / "logs"

    def log(self, process: str) -> Path:
        """What a process wrote."""
        return self.logs / f"{process}.log"

    def when(self, process: str) -> Path:
        """How long the log of a process was at which time."""
        return self.logs / f"{process}.when"

    def load_manifest(self) -> dict[str, Any]:
        """What was launched. `BackendError` where it cannot be read."""
        try:
            data: dict[str, Any] = json.loads(self.manifest.read_bytes())
            if not isinstance(data, dict) or not {"run_id", "processes"} <= data.keys():
                raise ValueError("it tells of no processes")
        except ValueError as exc:
            raise BackendError(
                f"the record of experiment {self.name!r} is broken ({self.manifest}: {exc}); delete the experiment"
            ) from exc
        return data

    # --- the supervisor ---

    def sign(self, supervisor: ProcessId) -> None:
        """Record who supervises."""
        record = {
            "pid": supervisor.pid,
            "birth": supervisor.birth,
            "host": os.uname().nodename,
            "boot": boot_id(),
        }
        (self.path / "supervisor.json").write_text(json.dumps(record))

    def supervisor(self) -> ProcessId | None:
        """The supervisor, if it lives."""
        record = self._record()
        if not record or record["boot"] != boot_id() or not self.locked():
            return None
        found = ProcessId(record["pid"], record["birth"])
        return found if is_alive(found) else None

    def elsewhere(self) -> str | None:
        """The host that runs this, where that is another one (a home directory may be shared)."""
        record = self._record()
        host: str | None = record.get("host")
        return (
            host if host and record["boot"] != boot_id() and host != os.uname().nodename else None
        )

    def way_out(self, host: str) -> str:
        """What to say of an experiment that is `elsewhere`, on ``host``."""
        return (
            f"experiment {self.name!r} was launched on {host}; delete it there. If that host is gone, or is this one "
            f"under another name, nothing of it runs: remove the folder {self.path}"
        )

    def _record(self) -> dict[str, Any]:
        try:
            data: dict[str, Any] = json.loads((self.path / "supervisor.json").read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return data

    def locked(self) -> bool:
        """Whether the supervisor lives. Look before reading events: then what they lack never happened."""
        try:
            lock = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    # --- coming and going ---

    def claim(self, path: Path) -> RunDirectory:
        """Take the final name ``path`` in one step; FileExistsError where another has it."""
        try:
            self.path.rename(path)
        except OSError as exc:
            if exc.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise FileExistsError(str(path)) from exc
            raise
        return RunDirectory(path)

    def remove(self) -> None:
        """Take the name away in one step, then the files. What is gone already is no error."""
        trash = self.path.parent / f"{_TRASH}{os.urandom(16).hex()}"
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(trash)
            shutil.rmtree(trash, ignore_errors=True)


def find(root: Path, name: str) -> RunDirectory | None:
    """The run directory of an experiment, or None. What is no name, such as a path, has none."""
    run = RunDirectory(root / name)
    return run if is_name(name) and (run.path / "lock").exists() else None


def find_all(root: Path) -> list[RunDirectory]:
    """Every run directory, by name; what symphony did not make is none."""
    names: list[str] = []
    with contextlib.suppress(FileNotFoundError):
        names = sorted(os.listdir(root))
    return [run for name in names if (run := find(root, name)) is not None]


@contextlib.contextmanager
def aside(root: Path) -> Iterator[tuple[RunDirectory, int]]:
    """A new directory that has no name yet, with the descriptor of its lock, which is held.

    At the end the lock is let go here, and what kept it, such as a supervisor, owns the directory. A directory
    that nobody keeps is removed, now or by the next launch.
    """
    run = RunDirectory(root / f"{_ASIDE}{os.urandom(16).hex()}")
    with exclusive(root):
        _sweep(root)
        run.path.mkdir(mode=0o700)
        lock = os.open(run.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
    run.logs.mkdir(mode=0o700)
    try:
        yield run, lock
    finally:
        os.close(lock)
        if not run.locked():
            run.remove()


@contextlib.contextmanager
def exclusive(root: Path) -> Iterator[None]:
    """Keep every other launch of this user out for a moment: for what must be looked at and done in one step."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sweep(root: Path) -> None:
    """Remove what launches that were killed left: directories aside whose lock nobody holds, and trash."""
    for name in os.listdir(root):
        stale = RunDirectory(root / name)
        if name.startswith(_TRASH) or (name.startswith(_ASIDE) and not stale.locked()):
            shutil.rmtree(stale.path, ignore_errors=True)
