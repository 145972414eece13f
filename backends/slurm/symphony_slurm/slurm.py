"""Run Slurm's programs. No other module of the backend runs them.

Slurm's own error messages are translated here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from symphony.errors import BackendError, LaunchFailed, Unreachable

if TYPE_CHECKING:
    from symphony_slurm.submit.partitions import Partition

# slurmctld answers within milliseconds. Slurm's programs give up by themselves after some time.
ANSWER_TIMEOUT_SECONDS = 60.0
# How long the job may take that checks nodes.
CHECK_TIMEOUT_SECONDS = 60.0
# A refusal because of a limit, and the part of its name if the limit is that of a single job.
_LIMIT_EXCEEDED, _JOB_LIMIT = "violates accounting/QOS policy", "PerJob"
JOB_NAME_PREFIX = "symphony:"
# The states of a job that Slurm may still run.
ACTIVE_STATES = frozenset(
    {
        "PENDING",
        "CONFIGURING",
        "RUNNING",
        "SUSPENDED",
        "COMPLETING",
        "STOPPED",
        "REQUEUED",
        "REQUEUE_HOLD",
        "REQUEUE_FED",
        "RESIZING",
        "SIGNALING",
        "SPECIAL_EXIT",
        "STAGE_OUT",
        "RESV_DEL_HOLD",
    }
)
# These states mean that the job has not started.
WAITING_STATES = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED"})
_QUEUE_FORMAT = "%i|%T|%r|%S|%N|%j|%k"
# `symphony_slurm.submit.partitions` parses this format.
_PARTITION_FORMAT = "%P|%D|%c|%m|%l|%s|%G|%f"
_NOT_FOUND = "Invalid job id specified"
_UNREACHABLE = ("Unable to contact slurm controller", "Connection refused", "Socket timed out")
_PROGRAMS = ("sbatch", "squeue", "scancel", "srun", "sinfo")
_RUN_AGAIN = "try again when slurmctld is running ('scontrol ping')"
# After slurmctld has not answered, for which Slurm's programs wait 9 s, this program does not ask
# it again for this time. Otherwise, a command that asks for several jobs would take minutes.
UNREACHABLE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job in the queue.

    ``reason`` is Slurm's word for what a pending job waits for, and ``start`` the expected or
    actual time of its start. ``nodes`` is Slurm's expression for the nodes.
    """

    number: str
    state: str
    reason: str
    start: str
    nodes: str
    name: str
    comment: str

    @property
    def is_active(self) -> bool:
        """True unless the job has ended."""
        return self.state in ACTIVE_STATES


def check_installed() -> None:
    """Raise Unreachable if this machine has no programs of Slurm."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        raise Unreachable(
            f"the program {missing[0]!r} of Slurm is not on the PATH: run symphony on a login node "
            "of the cluster"
        )


def submit(arguments: Sequence[str], script: str, env: Mapping[str, str]) -> str:
    """Submit a batch script, and return the number of the job.

    Raises LaunchFailed with Slurm's message if the job is refused.
    """
    done = _run(["sbatch", "--parsable", *arguments], input=script, env=env)
    if done.returncode:
        raise LaunchFailed(f"Slurm refused the job: {refusal(done)}")
    return done.stdout.strip().split(";")[0]


def check_submission(arguments: Sequence[str], script: str, env: Mapping[str, str]) -> str:
    """Ask Slurm whether it would accept a batch script, and return its answer in one line.

    Raises LaunchFailed with Slurm's message if the job would be refused.
    """
    done = _run(["sbatch", "--test-only", *arguments], input=script, env=env)
    if done.returncode:
        raise LaunchFailed(f"Slurm would refuse the job: {refusal(done)}")
    # The message begins with the number of a job that does not exist.
    _, _, estimate = _last_line(done.stderr).partition(" to start at ")
    start, _, resources = estimate.partition(" ")
    if not start:
        return "Slurm would accept the job"
    return f"Slurm would accept the job, and start it at {start.replace('T', ' ')} {resources}"


def find_job(number: str) -> Job | None:
    """Return a job, or None if Slurm does not know it any more. This is one request."""
    jobs = _queue(["-j", number])
    return jobs[0] if jobs else None


def find_jobs_called(name: str) -> list[Job]:
    """Return this user's jobs with a name. This is one request."""
    return _queue(["--me", "--name", name])


def _queue(selection: Sequence[str]) -> list[Job]:
    done = _run(["squeue", "-h", "-a", "-t", "all", *selection, "-o", _QUEUE_FORMAT])
    if done.returncode:
        if _NOT_FOUND in done.stderr:
            return []
        raise BackendError(f"squeue failed: {_message(done)}")
    jobs = []
    for line in done.stdout.splitlines():
        number, state, reason, start, nodes, name, comment = line.split("|", 6)
        jobs.append(
            Job(
                number=number,
                state=state,
                reason=reason,
                start="" if start == "N/A" else start,
                nodes=nodes,
                name=name,
                comment=comment,
            )
        )
    return jobs


def signal_batch_step(number: str, signal_name: str) -> None:
    """Send a signal to the batch step of a job, and to nothing else of the job."""
    _cancel(["--batch", f"--signal={signal_name}", number])


def cancel(number: str) -> None:
    """Cancel a job. Slurm sends TERM to all its processes, and later KILL."""
    _cancel([number])


def _cancel(arguments: Sequence[str]) -> None:
    done = _run(["scancel", *arguments])
    # A job that has ended needs no signal.
    if done.returncode and _NOT_FOUND not in done.stderr and "already" not in done.stderr:
        raise BackendError(f"scancel failed: {_message(done)}")


def run_on_idle_nodes(selection: Sequence[str], argv: Sequence[str], idle_wait: int) -> list[str]:
    """Run a program once on each of some idle nodes, as a job, and return its messages.

    ``selection`` contains options of srun. If no nodes are idle for ``idle_wait`` seconds, or the
    job does not end in time, for example because of a prolog of the site, a message states this.
    """
    arguments = ["srun", "--quiet", f"--immediate={idle_wait}", "--time=1"]
    arguments += ["--job-name=symphony-check", "--ntasks-per-node=1", "--kill-on-bad-exit=0"]
    try:
        done = _run(
            [*arguments, *selection, *argv],
            env=submission_environment(),
            timeout=CHECK_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return [f"the job did not end within {CHECK_TIMEOUT_SECONDS:g} s"]
    if not done.returncode:
        return []
    lines = [_without_program(line.strip()) for line in done.stderr.splitlines()]
    return [line for line in lines if line]


def step_command(
    number: str, node: str, argv: Sequence[str], *, terminal: bool = False
) -> list[str]:
    """Return the command line that runs ``argv`` on a node of a running job."""
    # Slurm's variables of the submitting shell must not select resources of another job.
    return [
        "srun",
        "--quiet",
        f"--jobid={number}",
        "--overlap",
        "--nodes=1",
        "--ntasks=1",
        "--mem=0",
        "--cpu-bind=none",
        f"--nodelist={node}",
        *(["--pty"] if terminal else []),
        *argv,
    ]


def partitions(names: str | None) -> list[Partition]:
    """Return the partitions with these names, or the default one. This is one request.

    ``names`` is one name, or several names that are separated by commas, as in the option of
    sbatch. Raises LaunchFailed if none of them exists.
    """
    arguments = ["sinfo", "-h", "-e", "-o", _PARTITION_FORMAT]
    if names is not None:
        arguments.append(f"--partition={names}")
    done = _run(arguments)
    if done.returncode:
        raise BackendError(f"sinfo failed: {_message(done)}")
    from symphony_slurm.submit.partitions import parse_partitions

    found = parse_partitions(done.stdout)
    if names is None:
        found = [partition for partition in found if partition.is_default]
    elif not found:
        raise LaunchFailed(
            f"Slurm has no partition {names!r}; 'sinfo -s' lists the partitions: set partition"
        )
    return found


def _run(
    argv: Sequence[str],
    *,
    input: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program of Slurm. Raises Unreachable if it is missing or slurmctld does not answer.

    Raises subprocess.TimeoutExpired after ``timeout`` seconds, for programs that do not only wait
    for an answer of slurmctld.
    """
    _latest_failure.check()
    try:
        done = subprocess.run(
            argv,
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            env=None if env is None else dict(env),
            timeout=ANSWER_TIMEOUT_SECONDS if timeout is None else timeout,
            check=False,
        )
    except FileNotFoundError:
        check_installed()
        raise
    except subprocess.TimeoutExpired:
        if timeout is not None:
            raise
        text = f"{argv[0]} did not answer within {ANSWER_TIMEOUT_SECONDS:g} s; {_RUN_AGAIN}"
        raise _latest_failure.record(text) from None
    if done.returncode and is_unreachable(done.stderr):
        raise _latest_failure.record(f"slurmctld does not answer: {explanation(done.stderr)}")
    return done


class _LatestFailure:
    """The latest failure to reach slurmctld."""

    def __init__(self) -> None:
        self._message = ""
        self._at = 0.0

    def record(self, message: str) -> Unreachable:
        """Record a failure, and return its error."""
        self._message, self._at = message, time.monotonic()
        return Unreachable(message)

    def check(self) -> None:
        """Raise Unreachable if there was a failure a short time ago."""
        if self._message and time.monotonic() - self._at < UNREACHABLE_SECONDS:
            raise Unreachable(self._message)


_latest_failure = _LatestFailure()


def is_unreachable(messages: str) -> bool:
    """Return whether messages of Slurm's programs state that slurmctld does not answer."""
    return any(text in messages for text in _UNREACHABLE)


def explanation(messages: str) -> str:
    """Return the reason of a failure of Slurm's programs in one line, and what can be done."""
    reason = _last_line(messages)
    return f"{reason}; {_RUN_AGAIN}" if is_unreachable(messages) else reason


# Parts of Slurm's messages about a job that it refuses, and the settings to which they belong. The
# first part that the message contains counts.
_SETTINGS_OF_REFUSALS = {
    # The names of limits, such as QOSMaxWallDurationPerJobLimit.
    "MaxWall": "time, the deadline of the experiment, qos or account",
    "MaxCpu": "the CPU requests of the processes, qos or account",
    "MaxMem": "the memory requests of the processes, qos or account",
    "MaxGRES": "the gpu limits of the processes, qos or account",
    "MaxNode": "nodes, qos or account",
    "account/partition combination": "account, or account and partition",
    "Invalid account": "account",
    "qos": "qos",
    "QOS": "qos or account",
    "time limit": "time, or the deadline of the experiment",
    "--time": "time",
    "gres": "the gpu limits of the processes, gpu_type, or the further options of sbatch",
    "feature": "node_selector",
    "memory": "the memory requests of the processes, or nodes",
    "Memory": "the memory requests of the processes, or nodes",
    "CPU count": "the CPU requests of the processes, or nodes",
    "processors": "the CPU requests of the processes, or nodes",
    "artition": "partition",
    "Node count": "nodes",
    "node configuration": "nodes, or the requests of the processes",
    "eservation": "the further options of sbatch",
    "option": "the further options of sbatch",
}


def check_replacement(script: str, env: Mapping[str, str]) -> None:
    """Ask Slurm whether it would accept a batch script that replaces a job of the user.

    Refusals because of limits for all jobs of a user or account are ignored, because the replaced
    job counts towards these limits. Raises LaunchFailed if the job would be refused for another
    reason.
    """
    try:
        check_submission(["--output=/dev/null"], script, env)
    except LaunchFailed as exc:
        text = str(exc)
        if _LIMIT_EXCEEDED not in text or _JOB_LIMIT in text:
            raise


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """Return Slurm's message, and the settings to change.

    The errors before the last one name what is wrong, for example the limit of an account.
    """
    lines = [line for line in done.stderr.splitlines() if line.startswith("sbatch: error: ")]
    details = [_without_program(line.strip()) for line in lines]
    message = ": ".join(dict.fromkeys([*details, _message(done)]))
    for part, settings in _SETTINGS_OF_REFUSALS.items():
        if part in done.stderr:
            return f"{message}; change {settings}"
    return message


def _message(done: subprocess.CompletedProcess[str]) -> str:
    return _last_line(done.stderr) or f"exit code {done.returncode}"


def _last_line(text: str) -> str:
    """Return the last line of a program's messages, without the name of the program."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("Try ")]
    if not lines:
        return ""
    return _without_program(lines[-1])


def _without_program(line: str) -> str:
    """Return a line of a message without the name of the program of Slurm."""
    programs = ("sbatch: ", "squeue: ", "scancel: ", "sinfo: ", "srun: ", "error: ")
    functions = ("slurm_load_jobs error: ", "slurm_load_partitions: ")
    # The messages of this program already state that the job was refused.
    refusals = ("Batch job submission failed: ", "allocation failure: ")
    for prefix in (*programs, *functions, *refusals):
        line = line.removeprefix(prefix)
    return line


def submission_environment() -> dict[str, str]:
    """Return this process's environment without the variables of a job in which it runs.

    Otherwise, sbatch and srun would use the settings of that job.
    """
    return {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("SLURM_", "SRUN_")) or key in ("SLURM_CONF", "SLURM_CLUSTERS")
    }
