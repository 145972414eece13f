"""Experiments for the tests of the Slurm backend, and what Slurm reports about their jobs."""

import subprocess
import sys
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
