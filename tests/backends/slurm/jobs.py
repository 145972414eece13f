"""Experiments for the tests of the Slurm backend, and what Slurm reports about their jobs."""

import subprocess
import sys
import time
from pathlib import Path

from symphony.testing import programs

PYTHON = sys.executable
# A program that prints "saved" when it is stopped. Slurm and the supervisor can both send SIGTERM,
# and the second signal would kill Python while it exits.
SAVING = programs.FOREVER.replace(
    "exit(0)",
    "(signal.signal(signal.SIGTERM, signal.SIG_IGN), print('saved', flush=True), exit(0))",
)


def forever(cluster, *names, gpu=None):
    """Return the experiment ``faults``, whose processes run until they are stopped."""
    experiment = cluster.new_experiment("faults")
    for name in names:
        process = experiment.new_process(name, command=[PYTHON, "-u", "-c", programs.FOREVER])
        if gpu is not None:
            process.resource_limit(gpu=gpu)
    return experiment


def slurm(*command):
    """Run a program of Slurm, and return its output."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def squeue(*arguments):
    """Return the output of squeue without its header."""
    return slurm("squeue", "-h", *arguments)


def job_of(cluster):
    """Return the number of the job of the experiment ``faults``."""
    return (Path(cluster._root) / "faults" / "job").read_text()


def wait_for_state(job, state):
    """Wait until a job has a state with a reason, as in ``"PENDING Priority"``.

    If ``state`` is empty, wait until the job has ended.
    """
    wait_until(lambda: squeue("-j", job, "-o", "%T %r") == state)


def wait_until(condition):
    """Wait at most a minute until a function returns a true value."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def start_now(job, *settings):
    """Start a job that was requeued. By default, Slurm waits for two minutes.

    ``settings`` are changes of the job.
    """
    wait_for_state(job, "PENDING BeginTime")
    slurm("scontrol", "update", f"job={job}", "StartTime=now+2", *settings)
