"""Starting a new supervisor for a run whose supervisor was killed.

The processes of a run outlive its supervisor, whose guardian starts a new one; see
`symphony.supervised.supervisor.guardian`. If the guardian was killed too, the first program that
finds the run in this state starts a new supervisor, which continues the run from its record.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from symphony.errors import BackendError
from symphony.plan.state import fold
from symphony.supervised.run import launch_settings
from symphony.supervised.run.directory import RunDirectory
from symphony.supervised.run.events import EventReader
from symphony.support.directories.private import user_name

# How long another program may take to start the new supervisor.
LOCK_TIMEOUT_SECONDS = 10.0
# How long a command waits for the guardian, which needs less time unless supervisors die at once.
GUARDIAN_SECONDS = 2.0
_LOCK_POLL_SECONDS = 0.01


def replace_supervisor(run: RunDirectory, children: str) -> bool:
    """Start a new supervisor for a run of this boot whose supervisor was killed.

    ``children`` is the name of the class that starts processes; see `HostCluster`. Return when the
    new supervisor has taken over the processes. If another program starts it at the same time, wait
    for it and return True too. Return False if there is nothing to supervise any more, because the
    experiment has finished or was deleted.

    Raises BackendError if no supervisor can be started. The message is a part of a sentence.
    """
    from symphony.supervised.supervisor import handover

    owner = run.path.stat().st_uid
    if owner != os.geteuid():
        raise BackendError(f"the experiment belongs to {user_name(owner)}")
    _wait_for_guardian(run)
    with lock_unsupervised(run) as lock:
        if lock is None:
            return _wait_until_resumed(run)
        settings = read_settings(run)
        if settings is None:
            return False
        # The path of a pinned directory is not valid in another process.
        current = RunDirectory(run.path)
        with handover.prepared_supervisor(
            current, run.name, children=children, settings=settings, replaces=True
        ) as channel:
            report = handover.hand_over(channel, current, run.path, lock=lock)
    if report.outcome != handover.STARTED:
        raise BackendError(report.reason)
    return True


def read_settings(run: RunDirectory) -> launch_settings.LaunchSettings | None:
    """Return the settings of a run that a new supervisor can continue, or None if it has finished.

    The caller holds the lock of the run. Raises BackendError if no supervisor can continue the run.
    The message is a part of a sentence.
    """
    state = fold([], EventReader(run.events).read_new())
    if state.finished:
        return None
    if state.unknown_events:
        raise BackendError("the experiment was launched by another version of symphony")
    settings = launch_settings.load(run)
    if settings is None:
        raise BackendError(f"{run.path / run.launch_settings.name} cannot be read")
    return settings


def _wait_for_guardian(run: RunDirectory) -> None:
    """If the guardian of the run is about to start a new supervisor, wait until it has done so."""
    deadline = time.monotonic() + GUARDIAN_SECONDS
    while run.guardian() is not None and not run.is_locked() and time.monotonic() < deadline:
        time.sleep(_LOCK_POLL_SECONDS)


def _wait_until_resumed(run: RunDirectory) -> bool:
    """Return whether the run has a supervisor. Wait until it has taken over the processes."""
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while run.is_resuming() and time.monotonic() < deadline:
        time.sleep(_LOCK_POLL_SECONDS)
    return run.recorded_supervisor() is not None


@contextlib.contextmanager
def lock_unsupervised(
    run: RunDirectory, *, timeout: float = LOCK_TIMEOUT_SECONDS
) -> Iterator[int | None]:
    """Hold the lock of a run that has no supervisor, and yield the descriptor of the lock.

    While the lock is held, no program starts a new supervisor. Yield None if the run has a
    supervisor, if another program does not release the lock within ``timeout`` seconds, if the run
    has lost its name or its lock file, or if it belongs to another host.
    """
    descriptor = None if run.other_host() is not None else _take_lock(run, timeout)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _take_lock(run: RunDirectory, timeout: float) -> int | None:
    deadline = time.monotonic() + timeout
    while True:
        try:
            descriptor = os.open(run.lock, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        with contextlib.suppress(BlockingIOError):
            # Other programs hold a shared lock for a moment, to find out whether there is a lock.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_current(run, descriptor):
                os.close(descriptor)
                return None
            # While a supervisor exits, its lock can already be free.
            if run.recorded_supervisor() is None:
                return descriptor
        os.close(descriptor)
        is_supervised = run.is_locked() and run.recorded_supervisor() is not None
        if is_supervised or time.monotonic() >= deadline:
            return None
        time.sleep(_LOCK_POLL_SECONDS)


def _is_current(run: RunDirectory, lock: int) -> bool:
    """Return whether ``lock`` is a descriptor of the lock in the directory that has the name."""
    try:
        found = RunDirectory(run.path).lock.stat()
    except OSError:
        return False
    return os.path.samestat(found, os.fstat(lock))
