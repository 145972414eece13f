"""Starting a new supervisor for a run whose supervisor was killed.

The processes of a run outlive its supervisor, whose guardian starts a new one; see
`symphony.supervised.supervisor.guardian`. If the guardian was killed too, the first program that
finds the run in this state starts a new supervisor, which continues the run from its record.
"""

from __future__ import annotations

import os
import time

from symphony.errors import BackendError
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.unsupervised_run import (
    LOCK_TIMEOUT_SECONDS,
    lock_unsupervised,
    read_settings,
)
from symphony.support.directories.private import user_name

# How long a command waits for the guardian, which needs less time unless supervisors die at once.
GUARDIAN_SECONDS = 2.0
_POLL_SECONDS = 0.01


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


def _wait_for_guardian(run: RunDirectory) -> None:
    """If the guardian of the run is about to start a new supervisor, wait until it has done so."""
    deadline = time.monotonic() + GUARDIAN_SECONDS
    while run.guardian() is not None and not run.is_locked() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _wait_until_resumed(run: RunDirectory) -> bool:
    """Return whether the run has a supervisor. Wait until it has taken over the processes."""
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while run.is_resuming() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return run.recorded_supervisor() is not None
