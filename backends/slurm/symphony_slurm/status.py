"""The status of an experiment that runs as a job.

While the supervisor works, it changes the time of a file every few seconds, so no request to
slurmctld is necessary. Only if the file is too old is Slurm asked for the state of the job.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from symphony.errors import BackendError
from symphony.status import ENDED, ExperimentStatus, ProcessStatus, ReasonCode, State
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import EventReader, is_finished
from symphony.supervised.record.note import read_note
from symphony.supervised.record.status import StatusReader, compute_status
from symphony_slurm import slurm
from symphony_slurm.run_files import ALIVE_FILE, FAILURE_FILE, JOB_FILE
from symphony_slurm.slurm import Job

# A supervisor that has not changed its file for this time may have been killed.
ALIVE_SECONDS = 20.0
# The shortest and the longest interval between two requests to slurmctld about one job.
FIRST_QUERY_SECONDS, LONGEST_QUERY_SECONDS = 1.0, 30.0
# A shared file system can show the last events some seconds after the end of the job.
PATIENCE_SECONDS = 5.0
_PATIENCE_STEP_SECONDS = 0.1
# How long the end of a log may take to arrive over the shared file system.
LOG_ARRIVAL_SECONDS = 10.0


def job_number(run: RunDirectory) -> str | None:
    """Return the number of the job, or None if it was not recorded."""
    try:
        return run.file(JOB_FILE).read_text().strip() or None
    except OSError:
        return None


def is_alive(run: RunDirectory) -> bool:
    """Return whether the supervisor has recently shown that it works."""
    try:
        age = time.time() - run.file(ALIVE_FILE).stat().st_mtime
    except OSError:
        return False
    return abs(age) < ALIVE_SECONDS


def wait_for_logs(run: RunDirectory, names: Collection[str]) -> None:
    """Wait until the logs of exited processes have arrived over the shared file system."""
    lengths = {
        event["process"]: event["log_bytes"]
        for event in EventReader(run.events).read_new()
        if event["event"] == "exited" and event.get("log_bytes")
    }
    deadline = time.monotonic() + LOG_ARRIVAL_SECONDS
    for name in names:
        while time.monotonic() < deadline and _length(run.log(name)) < lengths.get(name, 0):
            time.sleep(_PATIENCE_STEP_SECONDS)


def _length(path: Path) -> int:
    try:
        # Opening a file makes NFS ask its server for the current length.
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_size
    except OSError:
        return 0


class SlurmStatusReader(StatusReader):
    """A reader for the status of an experiment that runs as a job; see `StatusReader`."""

    def __init__(self, run: RunDirectory) -> None:
        super().__init__(run)
        self._job: Job | None = None
        self._next_query = 0.0
        self._interval = FIRST_QUERY_SECONDS
        self._query_error = ""
        self._ended_job: Job | None = None

    def is_supervised(self) -> bool:
        """Return whether the supervisor of the run is running, so that more events can follow."""
        if is_finished(self._run.events):
            return False
        if is_alive(self._run) and not self._run.file(FAILURE_FILE).exists():
            self._job, self._next_query, self._interval = None, 0.0, FIRST_QUERY_SECONDS
            return True
        self._query()
        if self._job is None and not self._query_error:
            # The last events may not have arrived yet.
            self._wait_for_end()
        return False

    def _query(self) -> None:
        """Ask Slurm for the job, unless this was done a short time ago."""
        if time.monotonic() < self._next_query:
            return
        number = job_number(self._run)
        try:
            found = None if number is None else slurm.find_job(number)
        except BackendError as exc:
            self._query_error = f"the state of job {number} is unknown, because {exc}"
        else:
            self._query_error = ""
            self._job = found if found is not None and found.is_active else None
            self._ended_job = found
        # If slurmctld does not answer, a query takes several seconds.
        self._next_query = time.monotonic() + self._interval
        self._interval = min(2 * self._interval, LONGEST_QUERY_SECONDS)

    def _wait_for_end(self) -> None:
        if self._run.file(FAILURE_FILE).exists():
            return
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and not is_finished(self._run.events):
            time.sleep(_PATIENCE_STEP_SECONDS)

    def end_check(self, names: Collection[str]) -> Callable[[], bool]:
        """Return a predicate that is true when no more output of processes will arrive."""
        have_ended = super().end_check(names)

        def has_all_arrived() -> bool:
            if not have_ended():
                return False
            with contextlib.suppress(OSError):
                wait_for_logs(self._run, names)
            return True

        return has_all_arrived

    def _compute_status(self, is_supervised: bool) -> ExperimentStatus:
        notes = [read_note(self._run), self._query_error]
        if is_supervised:
            notes.append(self._disk_note())
        status = compute_status(self._manifest, self._state, notes=notes)
        status = _with_nodes(status, self._run, self._manifest.get("slots", {}))
        if self._state.finished or is_supervised or self._query_error:
            return status
        if self._job is not None:
            return _with_job(status, self._job)
        return _without_job(status, self._failure())

    def _failure(self) -> str:
        """Return why the experiment has ended although its supervisor has not recorded this."""
        with contextlib.suppress(OSError):
            failure = self._run.file(FAILURE_FILE).read_text()
            # On a full disk, the file is empty, and the note contains the reason.
            if failure or read_note(self._run):
                return failure or read_note(self._run)
        number = job_number(self._run)
        if number is None:
            return "the launch was interrupted before the job was submitted"
        if self._ended_job is None:
            return f"job {number} has ended, and Slurm has no record of it any more"
        return _explain_end(self._run, self._ended_job)


def _with_nodes(
    status: ExperimentStatus, run: RunDirectory, slots: Mapping[str, int]
) -> ExperimentStatus:
    """Return a status with the nodes of the processes that have started."""
    from symphony_slurm.job.placement import Placement

    try:
        nodes = [node.name for node in Placement.load(run).nodes]
    except (OSError, ValueError):
        # The job has not started, or waits to be started again.
        return status
    return replace(status, processes=tuple(_with_node(process, nodes, slots) for process in status))


def _with_node(
    process: ProcessStatus, nodes: Sequence[str], slots: Mapping[str, int]
) -> ProcessStatus:
    slot = slots.get(process.name)
    if process.started is None or slot is None:
        return process
    return replace(process, node=nodes[slot])


def _explain_end(run: RunDirectory, job: Job) -> str:
    """Return why a job has ended before its experiment had finished."""
    state = job.state.lower().replace("_", " ")
    has_log = run.file(ALIVE_FILE).exists() or run.supervisor_log.exists()
    # A job that was canceled in the queue has no log either.
    if job.state == "FAILED" and not has_log:
        node = job.nodes.partition(",")[0] or "its node"
        return (
            f"job {job.number} has ended ({state}), because {node} cannot use "
            f"{run.path.parent}; set state_dir to a directory that all nodes share"
        )
    text = f"job {job.number} has ended ({state}) before the experiment had finished"
    message = _last_line(run.supervisor_log)
    return f"{text}: {message}" if message else text


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1] if lines else ""


def _with_job(status: ExperimentStatus, job: Job) -> ExperimentStatus:
    """Return the status of an experiment whose supervisor is not running yet or does not answer."""
    if job.state not in slurm.WAITING_STATES:
        return status
    reason = f"job {job.number} is waiting in the queue"
    if job.reason not in ("", "None"):
        reason += f" ({job.reason})"
    if job.start:
        reason += f", expected to start at {job.start.replace('T', ' ')}"
    return replace(
        status, processes=tuple(_waiting(process, reason) for process in status), note=reason
    )


def _waiting(process: ProcessStatus, reason: str) -> ProcessStatus:
    return replace(process, reason=reason, reason_code=ReasonCode.WAITING)


def _without_job(status: ExperimentStatus, cause: str) -> ExperimentStatus:
    note = "; ".join(text for text in dict.fromkeys((cause, status.note)) if text)
    return replace(status, processes=tuple(_lost(process, cause) for process in status), note=note)


def _lost(process: ProcessStatus, cause: str) -> ProcessStatus:
    if process.state in ENDED:
        return process
    if process.started is None:
        return replace(
            process,
            state=State.FAILED,
            ready=False,
            reason=cause,
            reason_code=ReasonCode.NEVER_STARTED,
            ended=time.time(),
        )
    return replace(
        process,
        state=State.UNKNOWN,
        ready=False,
        reason=f"exit status unknown: {cause}",
        reason_code=ReasonCode.LOST,
        pid=None,
    )
