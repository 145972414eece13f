"""The supervisor as a detached process of the launching machine.

The state directory contains a directory for each supervised run:

* ``run``: the description of the run, which contains the values of variables
* ``record``: the supervisor's record
* ``lock``: locked while the supervisor is running; contains its pid
* ``supervisor.log``: its error messages
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.errors import BackendError, LaunchFailed, SpecError
from symphony.support.directories.state_home import (
    STATE_VARIABLE,
    check_state_directory,
    create_state_directory,
    state_root,
)
from symphony.support.import_path import own_import_path
from symphony.support.names import RUN_ID_VARIABLE
from symphony.support.replace_file import replace_file
from symphony_kube.lifecycle.supervisor.run import SupervisedRun, decode_run, encode_run
from symphony_kube.lifecycle.supervisor.supervisor_record import (
    Record,
    decode_record,
    encode_record,
)

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment

MODULE = "symphony_kube.lifecycle.supervisor"
# How long to wait for the supervisor to start or to stop.
START_SECONDS = 60.0
STOP_SECONDS = 10.0
LOCK_PAUSE_SECONDS = 0.02
PID_BYTES = 32
# The text that a supervisor writes instead of its pid if another one is running, or has finished
# its work.
NOT_NEEDED = b"-"
_REMOVED_PREFIX = ".old-"


class SupervisorDirectory:
    """The directory of one supervised run on this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def log(self) -> Path:
        """The path of the file with the supervisor's error messages."""
        return self.path / "supervisor.log"

    @property
    def exists(self) -> bool:
        """True if a run is described in the directory, and no other user can change it."""
        if not (self.path / "run").exists():
            return False
        try:
            check_state_directory(self.path)
        except SpecError:
            return False
        return True

    def is_of(self, run_id: str) -> bool:
        """Return whether the described run has the label ``run_id``.

        A description that cannot be read belongs to any run, because no supervisor can use it.
        """
        try:
            return self.run().scope.run == run_id
        except (OSError, ValueError):
            return True

    def prepare(self, run: SupervisedRun) -> None:
        """Create or replace the description of the run, and start a new record.

        Raises `SpecError` if another user can change the state directory.
        """
        create_state_directory(self.path)
        (self.path / "record").unlink(missing_ok=True)
        self.write_run(run)

    def write_run(self, run: SupervisedRun) -> None:
        """Replace the description of the run."""
        self._write("run", encode_run(run))

    def run(self) -> SupervisedRun:
        """Return the description of the run. Raises ValueError or OSError."""
        return decode_run((self.path / "run").read_bytes())

    def read(self) -> Record:
        """Return the record. A damaged record counts as empty."""
        try:
            return decode_record((self.path / "record").read_text("utf-8"))
        except (OSError, ValueError):
            return Record()

    def write(self, record: Record) -> None:
        """Replace the record. The lock excludes other supervisors."""
        self._write("record", encode_record(record).encode())

    def remove(self) -> None:
        """Remove the directory, and those whose removal was interrupted.

        The directory is renamed first, so that a supervisor that another program has just started
        finds no directory, instead of adding files to it.
        """
        with contextlib.suppress(OSError):
            self.path.rename(self.path.with_name(f"{_REMOVED_PREFIX}{os.urandom(8).hex()}"))
        for removed in self.path.parent.glob(f"{_REMOVED_PREFIX}*"):
            shutil.rmtree(removed, ignore_errors=True)

    def _write(self, name: str, content: bytes) -> None:
        replace_file(self.path / name, [content], mode=0o600)

    @contextlib.contextmanager
    def locked(self, pid: int | None = None) -> Iterator[bool]:
        """Lock the directory inside the block, unless another process has locked it.

        A supervisor writes its ``pid`` into the lock. The value is False if another process has
        locked the directory or the directory does not exist.
        """
        try:
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            yield False
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            yield False
            return
        try:
            os.ftruncate(descriptor, 0)
            if pid is not None:
                os.pwrite(descriptor, f"{pid}\n".encode(), 0)
            yield True
        finally:
            os.close(descriptor)

    def holder(self) -> int | None:
        """Return the pid of the supervisor that has locked the directory, or None if it is not
        locked.

        Return 0 if another program has locked it.
        """
        try:
            descriptor = os.open(self.path / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            text = os.pread(descriptor, PID_BYTES, 0)
            return int(text) if text.strip().isdigit() else 0
        finally:
            os.close(descriptor)


def directory_of(experiment: KubeExperiment) -> SupervisorDirectory:
    """Return the directory for the supervisor of an experiment on this machine.

    Several machines can share a home directory, so the name depends on the machine.
    """
    root = state_root("kube")
    identity = "\n".join([socket.gethostname(), experiment.api.host, experiment.namespace])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return SupervisorDirectory(root / f"{experiment.name}-{digest}")


def start(directory: SupervisorDirectory, run: SupervisedRun) -> int:
    """Start the supervisor of a launched run, and return its pid when it is running.

    Raises `BackendError` if it cannot be started, and `LaunchFailed` if the run does not exist.
    """
    pid = None
    while pid is None:
        with stopped(directory):
            pass
        with _state_errors(directory, run):
            directory.prepare(run)
        pid = _start_prepared(directory, run)
    return pid


def replace(directory: SupervisorDirectory, run: SupervisedRun, record: Record) -> int:
    """Start a supervisor with another description of a run that takes over from the present one.

    The description is replaced in one step, so that one of the two can always be started again.
    ``record`` is the record of the new supervisor.
    """
    pid = None
    while pid is None:
        with _held(directory), _state_errors(directory, run):
            if not directory.exists:
                directory.prepare(run)
            directory.write(record)
            directory.write_run(run)
        pid = _start_prepared(directory, run)
    return pid


@contextlib.contextmanager
def _state_errors(directory: SupervisorDirectory, run: SupervisedRun) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise BackendError(
            f"the supervisor of {run.scope.experiment!r} cannot use the state directory "
            f"{directory.path}: {exc.strerror}; set {STATE_VARIABLE} to a directory that it can "
            "write to"
        ) from exc


def _start_prepared(directory: SupervisorDirectory, run: SupervisedRun) -> int | None:
    """Start the supervisor of a prepared directory, and return its pid when it is running.

    Return None if another supervisor has used the directory, which another command has started
    shortly before.
    """
    read_end, write_end = os.pipe()
    try:
        _spawn(directory, write_end)
    finally:
        os.close(write_end)
    with os.fdopen(read_end, "rb", buffering=0) as pipe:
        readable, _, _ = select.select([pipe], [], [], START_SECONDS)
        answer = pipe.read(PID_BYTES) if readable else b""
    if answer:
        return None if answer == NOT_NEEDED else int(answer)
    with stopped(directory, run.scope.run):
        message = _last_line(directory.log)
    name = run.scope.experiment
    if not readable:
        late = f"the supervisor of {name!r} did not start within {START_SECONDS:g} s"
        raise BackendError(f"{late}: {message}" if message else late)
    if message:
        raise BackendError(f"the supervisor of {name!r} did not start: {message}")
    # The supervisor has found no Pods.
    raise deleted_during_launch(run)


def deleted_during_launch(run: SupervisedRun) -> LaunchFailed:
    """Return the error for a launch whose objects another program has deleted."""
    return LaunchFailed(
        f"experiment {run.scope.experiment!r} was deleted while it was being launched"
    )


def ensure_running(directory: SupervisorDirectory) -> None:
    """Start the supervisor again if it was killed before its work was done."""
    # A supervisor that finishes removes the directory.
    with contextlib.suppress(FileNotFoundError):
        if directory.exists and directory.holder() is None:
            _spawn(directory, None)


def _spawn(directory: SupervisorDirectory, descriptor: int | None) -> None:
    """Start the program of a supervisor in a new session.

    When the supervisor is running, it writes its pid to ``descriptor``.
    """
    # A process of a local experiment has this variable. Without it, a supervisor that such a
    # process starts is not a part of the local experiment.
    env = {key: value for key, value in os.environ.items() if key != RUN_ID_VARIABLE}
    env["PYTHONPATH"] = os.pathsep.join(own_import_path())
    arguments = [sys.executable, "-m", MODULE, str(directory.path)]
    descriptors = [] if descriptor is None else [descriptor]
    arguments += [str(item) for item in descriptors]
    with directory.log.open("ab") as log:
        directory.log.chmod(0o600)
        try:
            # The program forks once, and its original process exits.
            subprocess.run(
                arguments,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=descriptors,
                cwd="/",
                env=env,
            )
        except OSError as exc:
            raise BackendError(
                f"cannot start a supervisor with {sys.executable!r}: {exc.strerror}"
            ) from exc


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text("utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


@contextlib.contextmanager
def stopped(directory: SupervisorDirectory, run_id: str = "") -> Iterator[None]:
    """Stop the supervisor, and do not let it start again inside the block.

    If ``run_id`` is given, the supervisor of a run with another label is not stopped. If no
    exception is raised inside the block, remove the directory at the end.
    """
    with _held(directory, run_id) as is_held:
        yield
        if is_held:
            directory.remove()


@contextlib.contextmanager
def _held(directory: SupervisorDirectory, run_id: str = "") -> Iterator[bool]:
    """Stop the supervisor, and do not let it start again inside the block.

    The value is False if there is no directory, or if it describes another run than ``run_id``.
    """
    deadline = time.monotonic() + STOP_SECONDS
    # A supervisor that finishes removes the directory.
    while directory.exists:
        with directory.locked() as is_locked:
            if is_locked:
                yield not run_id or directory.is_of(run_id)
                return
        # The pid is read before the description, which a later launch can replace.
        pid = directory.holder()
        if run_id and not directory.is_of(run_id):
            break
        if pid:
            # The lock shows that the pid belongs to the supervisor.
            number = signal.SIGKILL if time.monotonic() > deadline else signal.SIGTERM
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(LOCK_PAUSE_SECONDS)
    yield False
