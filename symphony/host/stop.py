"""Stopping an experiment: through its supervisor, or directly if the supervisor was killed."""

from __future__ import annotations

import signal
from typing import Any

from symphony.errors import BackendError
from symphony.host.processes.control import wait_for_exit
from symphony.host.processes.spec import DEFAULT_GRACE_SECONDS
from symphony.host.run.directory import RunDirectory
from symphony.host.run.events import EventReader, fold

# A supervisor kills every process that outlives its grace period. This is the additional time for
# reaping and for the final search on a busy machine or with a tmux server that does not respond.
MARGIN_SECONDS = 30.0


def stop(run: RunDirectory, *, at_once: bool = False) -> None:
    """Stop all processes of an experiment, and return when none of them is running. Keep the
    directory.

    ``at_once`` skips the grace period. Raises BackendError if the experiment runs on another host,
    or if its supervisor does not exit.
    """
    from symphony.host.processes.tree import find_run_processes, send_signal, stop_processes

    other_host = run.other_host()
    if other_host is not None:
        raise BackendError(run.other_host_message(other_host))
    manifest = _load_manifest(run)
    graces = [process["grace"] for process in manifest["processes"]]
    grace = max(graces, default=DEFAULT_GRACE_SECONDS)
    supervisor = run.supervisor()
    if supervisor is not None:
        send_signal(supervisor, signal.SIGQUIT if at_once else signal.SIGTERM)
        # The processes of the experiment have one grace period, and processes that have left their
        # groups have a second one.
        if not wait_for_exit(supervisor, 2 * grace + MARGIN_SECONDS):
            raise BackendError(
                f"the supervisor of {run.name!r} (pid {supervisor.pid}) does not exit; "
                f"see {run.supervisor_log}"
            )
    if manifest["run_id"] is not None and not has_finished(run):
        stop_processes(lambda: find_run_processes(manifest["run_id"]), 0.0 if at_once else grace)


def _load_manifest(run: RunDirectory) -> dict[str, Any]:
    """Return the manifest, or an empty mapping if the manifest is damaged.

    A running supervisor can stop the experiment without the manifest.
    """
    try:
        return run.load_manifest()
    except (BackendError, FileNotFoundError):
        return {"run_id": None, "processes": []}


def has_finished(run: RunDirectory) -> bool:
    """Return whether the supervisor has recorded the end of the whole experiment."""
    return fold([], EventReader(run.events).read_new()).finished
