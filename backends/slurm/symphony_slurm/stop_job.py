"""Stop the job of an experiment: its processes first, and then what remains of it."""

from __future__ import annotations

import contextlib
import json
import time

from symphony.errors import BackendError, SymphonyError, Unreachable
from symphony.plan.state import Event
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import EventReader, encode, is_finished
from symphony_slurm import slurm
from symphony_slurm.run_files import STOP_FILE
from symphony_slurm.status import is_alive, job_number

# How long a job may take to end after it was canceled. Sites often set KillWait to 30 s.
CANCEL_TIMEOUT_SECONDS = 180.0
# The supervisor needs this time in addition to the grace periods.
STOP_MARGIN_SECONDS = 30.0
_POLL_SECONDS = 0.1
_QUERY_SECONDS = 3.0


def stop_job(run: RunDirectory, *, in_order: bool = True, at_once: bool = False) -> None:
    """Stop the processes, and then cancel what remains of the job; see `Cluster.delete`."""
    if is_finished(run.events):
        return
    number = _job_number(run)
    if number is not None:
        run.file(STOP_FILE).touch()
        try:
            if is_alive(run):
                if not in_order:
                    run.stop_together()
                slurm.signal_batch_step(number, "QUIT" if at_once else "TERM")
                if _wait_for_end(run, number, 0.0 if at_once else _longest_stop(run)):
                    return
            slurm.cancel(number)
        except BackendError:
            # The next SIGTERM comes from Slurm.
            run.file(STOP_FILE).unlink(missing_ok=True)
            raise
        _wait_for_cancellation(run, number)
    if not EventReader(run.events).read_new():
        _record_never_started(run)


def _wait_for_end(run: RunDirectory, number: str, grace: float) -> bool:
    """Wait until the experiment has finished. Return False if its supervisor does not react."""
    deadline = time.monotonic() + 2 * grace + STOP_MARGIN_SECONDS
    next_query = time.monotonic() + _QUERY_SECONDS
    while not is_finished(run.events):
        now = time.monotonic()
        if now > deadline:
            return False
        if now > next_query:
            # The processes are stopped even if slurmctld does not answer in the meantime.
            with contextlib.suppress(Unreachable):
                job = slurm.find_job(number)
                if job is None or not job.is_active:
                    return is_finished(run.events)
            next_query = time.monotonic() + _QUERY_SECONDS
        time.sleep(_POLL_SECONDS)
    return True


def _wait_for_cancellation(run: RunDirectory, number: str) -> None:
    deadline = time.monotonic() + CANCEL_TIMEOUT_SECONDS
    pause = _POLL_SECONDS
    while True:
        job = slurm.find_job(number)
        if job is None or not job.is_active:
            return
        if time.monotonic() > deadline:
            raise BackendError(
                f"job {number} of {run.name!r} does not end ({job.state.lower()}); see "
                f"'scontrol show job {number}'"
            )
        time.sleep(pause)
        pause = min(2 * pause, 2.0)


def _job_number(run: RunDirectory) -> str | None:
    """Return the number of the job, even if the launcher was killed before it recorded it."""
    number = job_number(run)
    if number is not None:
        return number
    run_id = run.run_id() or ""
    for job in slurm.find_jobs_called(f"{slurm.JOB_NAME_PREFIX}{run.name}"):
        with contextlib.suppress(ValueError, AttributeError):
            if json.loads(job.comment).get("run") == run_id[:12]:
                return job.number
    return None


def _longest_stop(run: RunDirectory) -> float:
    from symphony.supervised.user_requests.stop import longest_stop_of

    return longest_stop_of(run)


def _record_never_started(run: RunDirectory) -> None:
    """Record that an experiment was stopped before its job has started."""
    now = time.time()
    events: list[Event] = [{"event": "launched", "at": now}, {"event": "stopping", "at": now}]
    names: list[str] = []
    with contextlib.suppress(SymphonyError):
        names = [process["name"] for process in run.load_manifest()["processes"]]
    for name in names:
        reason = "stopped before it started"
        events.append(
            {
                "event": "never",
                "at": now,
                "process": name,
                "reason": reason,
                "reason_code": "stopped",
                "stopped": True,
            }
        )
    events.append({"event": "finished", "at": now})
    run.events.write_bytes(b"".join(encode(event) for event in events))
