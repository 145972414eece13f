"""Stopping an experiment: through its supervisor, or directly if the supervisor was killed."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from typing import Any

from symphony.errors import BackendError
from symphony.host.processes.control import wait_for_exit
from symphony.host.processes.identity import ProcessId
from symphony.host.processes.spec import DEFAULT_GRACE_SECONDS
from symphony.host.run.directory import RunDirectory
from symphony.host.run.events import EventReader, fold

# The supervisor kills every process that outlives its grace period. The margin is the additional
# time that the supervisor may need, on a busy machine or with an unresponsive tmux server, to reap
# the processes and to search for remaining ones.
MARGIN_SECONDS = 30.0


def stop(run: RunDirectory, *, at_once: bool = False) -> None:
    """Stop all of an experiment's processes, and return when none of them is running.

    The run directory is kept.

    If ``at_once`` is true, the grace period is skipped. Raises BackendError if the experiment runs
    on another host, or if its supervisor is suspended or does not exit in time.
    """
    from symphony.host.processes.tree import send_signal, stop_processes

    other_host = run.other_host()
    if other_host is not None:
        raise BackendError(run.other_host_message(other_host))
    manifest = _load_manifest(run)
    graces = [process["grace"] for process in manifest["processes"]]
    grace = max(graces, default=DEFAULT_GRACE_SECONDS)
    supervisor = run.supervisor()
    if supervisor is not None:
        check_not_suspended(run)
        send_signal(supervisor, signal.SIGQUIT if at_once else signal.SIGTERM)
        # The supervisor gives its child processes one grace period, and can then give a second one
        # to processes that have left their process groups.
        if not wait_for_exit(supervisor, 2 * grace + MARGIN_SECONDS):
            check_not_suspended(run)
            raise BackendError(
                f"the supervisor of {run.name!r} (pid {supervisor.pid}) does not exit; "
                f"see {run.supervisor_log}"
            )
    if manifest["run_id"] is not None:
        stop_processes(_find_remaining(run, manifest), 0.0 if at_once else grace)


def has_remaining_processes(run: RunDirectory) -> bool:
    """Return whether processes of a run are running although no supervisor is running."""
    manifest = _load_manifest(run)
    return manifest["run_id"] is not None and bool(_find_remaining(run, manifest)())


def _find_remaining(
    run: RunDirectory, manifest: dict[str, Any]
) -> Callable[[], Iterable[ProcessId]]:
    """Return a function that finds the processes that a killed supervisor has left running."""
    from symphony.host.run.running_processes import processes_of_run

    names = [process["name"] for process in manifest["processes"]]
    state = fold(names, EventReader(run.events).read_new())
    return tuple if state.finished else processes_of_run(run, manifest, state).find


def check_not_suspended(run: RunDirectory) -> None:
    """Raise BackendError if the supervisor is suspended, because it would not exit."""
    suspension = run.suspension()
    if suspension:
        raise BackendError(f"experiment {run.name!r} cannot be stopped: {suspension}")


def _load_manifest(run: RunDirectory) -> dict[str, Any]:
    """Return the manifest, or an empty one if the file is missing or damaged.

    A running supervisor can stop the experiment without the manifest.
    """
    try:
        return run.load_manifest()
    except (BackendError, FileNotFoundError):
        return {"run_id": None, "processes": []}


def has_finished(run: RunDirectory) -> bool:
    """Return whether the supervisor has recorded that the whole experiment has finished."""
    return fold([], EventReader(run.events).read_new()).finished
