"""Run Slurm's programs. No other module of the backend runs them.

Slurm's own error messages are translated here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from symphony.errors import BackendError, LaunchFailed, Unreachable

# slurmctld answers within milliseconds. Slurm's programs give up by themselves after some time.
ANSWER_TIMEOUT_SECONDS = 60.0
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
_NOT_FOUND = "Invalid job id specified"
_UNREACHABLE = ("Unable to contact slurm controller", "Connection refused", "Socket timed out")
_PROGRAMS = ("sbatch", "squeue", "scancel", "srun", "sinfo")


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
        raise LaunchFailed(f"Slurm refused the job: {_message(done)}")
    return done.stdout.strip().split(";")[0]


def check_submission(arguments: Sequence[str], script: str, env: Mapping[str, str]) -> str:
    """Ask Slurm whether it would accept a batch script, and return its estimate of the start.

    Raises LaunchFailed with Slurm's message if the job would be refused.
    """
    done = _run(["sbatch", "--test-only", *arguments], input=script, env=env)
    if done.returncode:
        raise LaunchFailed(f"Slurm would refuse the job: {_message(done)}")
    return _last_line(done.stderr)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSize:
    """What one node has: CPUs, memory in MiB, and GPUs. ``count`` nodes have this size."""

    count: int
    cpus: int
    memory_mib: int
    gpus: int


def node_sizes(partition: str | None) -> list[NodeSize]:
    """Return the sizes of the nodes of a partition, or of the default one. This is one request.

    Raises LaunchFailed if there is no such partition.
    """
    arguments = ["sinfo", "-h", "-e", "-o", "%P|%D|%c|%m|%G"]
    if partition is not None:
        arguments.append(f"--partition={partition}")
    done = _run(arguments)
    if done.returncode:
        raise BackendError(f"sinfo failed: {_message(done)}")
    sizes = []
    for line in done.stdout.splitlines():
        name, count, cpus, memory, gres = line.split("|")
        if partition is None and not name.endswith("*"):
            continue
        sizes.append(
            NodeSize(
                count=int(count),
                cpus=int(cpus.rstrip("+")),
                memory_mib=int(memory.rstrip("+")),
                gpus=count_gpus(gres),
            )
        )
    if partition is not None and not sizes:
        raise LaunchFailed(
            f"Slurm has no partition {partition!r}; 'sinfo -s' lists the partitions: set partition"
        )
    return sizes


def count_gpus(gres: str) -> int:
    """Return the number of GPUs in a list of generic resources, such as ``gpu:a100:4(S:0-1)``."""
    total = 0
    for item in gres.split(","):
        parts = item.partition("(")[0].split(":")
        if parts[0] == "gpu" and parts[-1].isdecimal():
            total += int(parts[-1])
    return total


def _run(
    argv: Sequence[str], *, input: str | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program of Slurm. Raises Unreachable if it is missing or slurmctld does not answer."""
    try:
        done = subprocess.run(
            argv,
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            env=None if env is None else dict(env),
            timeout=ANSWER_TIMEOUT_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        check_installed()
        raise
    except subprocess.TimeoutExpired:
        raise Unreachable(
            f"{argv[0]} did not answer within {ANSWER_TIMEOUT_SECONDS:g} s; try again when "
            "slurmctld is running ('scontrol ping')"
        ) from None
    if done.returncode and any(text in done.stderr for text in _UNREACHABLE):
        raise Unreachable(
            f"slurmctld does not answer ({_message(done)}); try again when it is running "
            "('scontrol ping')"
        )
    return done


def _message(done: subprocess.CompletedProcess[str]) -> str:
    return _last_line(done.stderr) or f"exit code {done.returncode}"


def _last_line(text: str) -> str:
    """Return the last line of a program's messages, without the name of the program."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    line = lines[-1]
    for prefix in ("sbatch: ", "squeue: ", "scancel: ", "sinfo: ", "error: "):
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
