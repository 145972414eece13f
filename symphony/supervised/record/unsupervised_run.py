"""A run whose supervisor was killed: its lock, and the settings that a new supervisor needs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator

from symphony.errors import BackendError
from symphony.plan.state import fold
from symphony.supervised.record import launch_settings
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import EventReader

# How long another program may take to start the new supervisor.
LOCK_TIMEOUT_SECONDS = 10.0
_LOCK_POLL_SECONDS = 0.01


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
