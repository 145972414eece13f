"""Stopping an experiment: through its supervisor, or directly if the supervisor was killed."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

from symphony.errors import BackendError, SymphonyError
from symphony.plan.state import Event, fold
from symphony.plan.stop_order import longest_stop
from symphony.supervised.processes.identity import ProcessId, identify
from symphony.supervised.processes.process_groups import send_signal, wait_for_exit
from symphony.supervised.processes.spec import DEFAULT_GRACE_SECONDS
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import (
    EventReader,
    is_finished,
    names_in,
    previous_processes,
)

# The supervisor kills every process that outlives its grace period. The margin is the additional
# time that the supervisor may need, on a busy machine or with an unresponsive tmux server, to reap
# the processes and to search for remaining ones.
MARGIN_SECONDS = 30.0

# Most stops take less time than this. Until then, the stopped processes get the CPU time in which
# the manifest would be read.
SHORT_STOP_SECONDS = 1.0

# How long the guardian, which exits after its supervisor, may take.
GUARDIAN_SECONDS = 1.0

LOCK_TIMEOUT_SECONDS = 5.0
_LOCK_POLL_SECONDS = 0.05

# The end of the path of the supervisor's program, which is an argument of its interpreter. The
# running supervisor can be one of an earlier version, in which the package had another name.
_PACKAGES = ("supervised", "host")
_SUPERVISOR_PROGRAMS = tuple(f"symphony/{name}/supervisor/__main__.py" for name in _PACKAGES)


def stop(run: RunDirectory, *, in_order: bool = True, at_once: bool = False) -> None:
    """Stop all of an experiment's processes, and return when none of them is running.

    The run directory is kept. The caller pins it, so that the processes of another run with the
    same name are not stopped.

    If ``in_order`` is false, all processes are asked to exit at the same time. If ``at_once`` is
    true, the grace period is skipped. Raises BackendError if the experiment belongs to another user
    or runs on another host, or if its supervisor cannot be found, is suspended or does not exit in
    time.
    """
    run.check_user()
    other_host = run.other_host()
    if other_host is not None:
        if has_finished(run) and not _is_locked(run):
            return
        raise BackendError(run.other_host_message(other_host))
    from symphony.supervised.record.unsupervised_run import lock_unsupervised

    while True:
        supervisor = find_supervisor(run)
        if supervisor is not None:
            check_not_suspended(run)
            run.note_stop_request()
            if not in_order:
                run.stop_together()
            guardian = _find_guardian(run)
            send_signal(supervisor, signal.SIGQUIT if at_once else signal.SIGTERM)
            if not wait_for_exit(supervisor, SHORT_STOP_SECONDS):
                _wait_for_long_stop(run, supervisor)
            if guardian is not None:
                wait_for_exit(guardian, GUARDIAN_SECONDS)
        if is_finished(run.events):
            run.wait_for_output()
            return
        # The supervisor was killed. Another program may be starting a new one.
        with lock_unsupervised(run) as lock:
            if lock is not None or run.recorded_supervisor() is None:
                stop_remaining(run, in_order=in_order, at_once=at_once)
                return


def _wait_for_long_stop(run: RunDirectory, supervisor: ProcessId) -> None:
    """Wait until a supervisor has exited that stops processes with long grace periods."""
    # The supervisor gives its child processes their grace periods, and can then give the same time
    # to processes that have left their process groups.
    if not wait_for_exit(supervisor, 2 * longest_stop_of(run) + MARGIN_SECONDS):
        check_not_suspended(run)
        raise BackendError(
            f"the supervisor of {run.name!r} (pid {supervisor.pid}) does not exit; "
            f"see {run.path / 'supervisor.log'}"
        )


def _find_guardian(run: RunDirectory) -> ProcessId | None:
    """Return the identity of the guardian of a run's supervisor, or None if there is none."""
    pid = run.guardian()
    return None if pid is None else identify(pid)


def stop_remaining(run: RunDirectory, *, in_order: bool = True, at_once: bool = False) -> None:
    """Stop all processes of a run without a supervisor, and return when none of them is running.

    For the options, see `stop`.
    """
    if not is_finished(run.events):
        from symphony.supervised.user_requests.unsupervised_stop import stop_unsupervised

        stop_unsupervised(run, _manifest(run), in_order=in_order, at_once=at_once)
    run.wait_for_output()


def has_remaining_processes(run: RunDirectory) -> bool:
    """Return whether processes of a run are running although no supervisor is running."""
    run_id = run.run_id()
    if run_id is None:
        return False
    from symphony.supervised.record.running_processes import processes_of_run

    events = _read_events(run)
    state = fold(names_in(events), events)
    return not state.finished and bool(processes_of_run(run, run_id, state).find())


def check_not_suspended(run: RunDirectory) -> None:
    """Raise BackendError if the supervisor is suspended, because it would not exit."""
    suspension = run.suspension()
    if suspension:
        raise BackendError(f"experiment {run.name!r} cannot be stopped: {suspension}")


def longest_stop_of(run: RunDirectory) -> float:
    """Return the longest time that a stop of all processes can take, in seconds."""
    return _longest_stop(_processes(_manifest(run)))


def _longest_stop(processes: Sequence[Mapping[str, Any]]) -> float:
    graces = {process["name"]: process["grace"] for process in processes}
    starts_after = {process["name"]: process["starts_after"] for process in processes}
    return longest_stop(graces, starts_after) if processes else DEFAULT_GRACE_SECONDS


def _processes(manifest: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the descriptions of the processes, or none if the manifest cannot be read."""
    return [] if manifest is None else [*manifest["processes"], *previous_processes(manifest)]


def _manifest(run: RunDirectory) -> dict[str, Any] | None:
    """Return the manifest, or None if it is missing or damaged."""
    try:
        return run.load_manifest()
    except SymphonyError:
        return None


def find_supervisor(run: RunDirectory) -> ProcessId | None:
    """Return the identity of the run's supervisor, or None if no supervisor is running.

    If the lock is held but there is no supervisor, wait until the lock is released. For example, a
    launcher holds the lock for a moment after its supervisor has died. Raises BackendError if a
    process that cannot be observed holds the lock for longer than `LOCK_TIMEOUT_SECONDS`.
    """
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while True:
        supervisor = run.recorded_supervisor()
        if supervisor is not None or not _is_locked(run):
            return supervisor
        supervisor = _find_lock_holder(run)
        if supervisor is not None:
            return supervisor
        if time.monotonic() >= deadline and not _has_user(run):
            raise BackendError(
                f"experiment {run.name!r} is in use by a process that cannot be observed from "
                "here, for example in another container; delete the experiment there"
            )
        time.sleep(_LOCK_POLL_SECONDS)


def _has_user(run: RunDirectory) -> bool:
    """Return whether a process of this host, such as another `delete`, has the lock file open."""
    from symphony.supervised.processes.tree import find_users_of_file

    # FileNotFoundError means that the experiment was deleted.
    with contextlib.suppress(FileNotFoundError):
        return any(True for _ in find_users_of_file(run.lock))
    return False


def _find_lock_holder(run: RunDirectory) -> ProcessId | None:
    """Return the supervisor that has the lock file open, or None if there is none.

    This search is needed only if the supervisor's record is damaged.
    """
    from symphony.supervised.processes.tree import find_users_of_file

    for process, arguments in find_users_of_file(run.lock):
        if any(argument.endswith(_SUPERVISOR_PROGRAMS) for argument in arguments):
            return process
    return None


def _is_locked(run: RunDirectory) -> bool:
    """Return whether the lock is held. A lock file that cannot be opened is not locked."""
    try:
        return run.is_locked()
    except BackendError:
        return False


def has_finished(run: RunDirectory) -> bool:
    """Return whether the supervisor has recorded that the whole experiment has finished.

    Return False if the event log is missing or damaged.
    """
    return fold([], _read_events(run)).finished


def _read_events(run: RunDirectory) -> list[Event]:
    """Return the valid events, or an empty list if the event log cannot be read."""
    try:
        return EventReader(run.events).read_new()
    except OSError:
        return []
