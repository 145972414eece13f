"""Stopping an experiment from outside: through its supervisor, or without one that has died."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

from symphony.errors import BackendError
from symphony.host.processes.identity import ProcessId, is_alive
from symphony.host.processes.spec import DEFAULT_GRACE
from symphony.host.run.directory import RunDirectory
from symphony.host.run.events import Reader, fold

# A supervisor kills what outlives its grace period; this is for the reaping and the last look after that, on a machine
# that is busy, and with a tmux that is waited for in vain.
MARGIN = 30.0


def stop(run: RunDirectory, *, at_once: bool = False) -> None:
    """Return when nothing of the experiment runs; its directory is left as it is.

    Raises `BackendError` where it runs on another host, or where something cannot be stopped.
    """
    from symphony.host.processes.tree import marked, send, stop_all

    host = run.elsewhere()
    if host is not None:
        raise BackendError(run.way_out(host))
    manifest = _manifest(run)
    grace = max((process["grace"] for process in manifest["processes"]), default=DEFAULT_GRACE)
    supervisor = run.supervisor()
    if supervisor is not None:
        send(supervisor, signal.SIGQUIT if at_once else signal.SIGTERM)
        if not wait_for_end(supervisor, 2 * grace + MARGIN):
            raise BackendError(
                f"the supervisor of {run.name!r} (pid {supervisor.pid}) does not end; see {run.supervisor_log}"
            )
    if manifest["run_id"] is not None and not finished(run):
        stop_all(lambda: marked(manifest["run_id"]), 0.0 if at_once else grace)


def _manifest(run: RunDirectory) -> dict[str, Any]:
    """What was launched, or as much as stopping needs where its record is broken: a supervisor knows the rest."""
    try:
        return run.load_manifest()
    except (BackendError, FileNotFoundError):
        return {"run_id": None, "processes": []}


def finished(run: RunDirectory) -> bool:
    """Whether its supervisor saw the end of all of it."""
    return fold([], Reader(run.events).new()).finished


def wait_for_end(process: ProcessId, timeout: float) -> bool:
    """Wait until a process that is no child of ours has ended; False where ``timeout`` seconds passed first."""
    deadline = time.monotonic() + timeout
    with _ending(process.pid) as wait:
        while is_alive(process):
            if time.monotonic() >= deadline:
                return False
            wait()
    return True


@contextlib.contextmanager
def _ending(pid: int) -> Iterator[Callable[[], object]]:
    """A function that returns when a process has ended, or after a while."""
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):
        yield lambda: time.sleep(0.02)
        return
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    try:
        yield lambda: poll.poll(500)
    finally:
        os.close(handle)
